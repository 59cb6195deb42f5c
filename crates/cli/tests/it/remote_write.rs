//! Objects as destinations.

use std::fs;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use testkit::{ObjectServer, Rng, StoreManner, TempDir};

use super::{names, restow};

fn obedient() -> ObjectServer {
    ObjectServer::with(|_, _| StoreManner::Obeys)
}

/// A command line of words without quotes in a directory, with the store as that of S3.
fn command(dir: &TempDir, server: &ObjectServer, line: &str) -> Command {
    let mut command = restow(line.split_whitespace());
    command
        .current_dir(dir.path())
        .env("AWS_ENDPOINT_URL", server.endpoint())
        .env("AWS_ACCESS_KEY_ID", "me")
        .env("AWS_SECRET_ACCESS_KEY", "secret");
    command
}

fn run(dir: &TempDir, server: &ObjectServer, line: &str) -> (i32, String) {
    said(&command(dir, server, line).output().unwrap())
}

fn said(output: &Output) -> (i32, String) {
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().unwrap_or(-1), words)
}

#[track_caller]
fn ok(dir: &TempDir, server: &ObjectServer, line: &str) {
    let (code, words) = run(dir, server, line);
    assert_eq!(code, 0, "{line}: {words}");
}

/// A tree of 20 MB that no codec makes smaller, and small files.
fn source(dir: &TempDir) {
    let mut rng = Rng::new(39);
    fs::create_dir_all(dir.join("src/sub")).unwrap();
    for number in 0..5 {
        fs::write(dir.join(format!("src/{number}")), rng.bytes(4_000_000)).unwrap();
    }
    for number in 0..300 {
        fs::write(dir.join(format!("src/sub/{number}")), rng.bytes(3000)).unwrap();
    }
    fs::write(dir.join("src/again"), fs::read(dir.join("src/1")).unwrap()).unwrap();
}

#[test]
fn an_object_is_the_file_that_would_be_written() {
    let (dir, server) = (TempDir::new(), obedient());
    source(&dir);
    for name in [
        "x.squashfs",
        "x.erofs",
        "x.tar",
        "x.tar.zst",
        "x.cpio",
        "x.stream",
    ] {
        ok(&dir, &server, &format!("copy -q src {name}"));
        ok(
            &dir,
            &server,
            &format!("copy -q --read-back src s3://b/{name}"),
        );
        let file = fs::read(dir.join(name)).unwrap();
        assert!(file.len() > 16 << 20, "{name}: fewer than three parts");
        assert!(
            *server.object(&format!("/b/{name}")).unwrap() == file,
            "{name}"
        );
        assert!(server.sent_parts().len() >= 3, "{name}");
        ok(&dir, &server, &format!("diff src s3://b/{name}"));
    }
    // The object is a source, too.
    ok(
        &dir,
        &server,
        "stream convert -q s3://b/x.stream s3://b/c.stream --compress zstd",
    );
    ok(
        &dir,
        &server,
        "stream convert -q x.stream c.stream --compress zstd",
    );
    assert!(*server.object("/b/c.stream").unwrap() == fs::read(dir.join("c.stream")).unwrap());
    ok(&dir, &server, "copy -q --as-subvolume sub:ro src x.btrfs");
    ok(&dir, &server, "send -q -f s3://b/s.stream x.btrfs:sub");
    ok(&dir, &server, "send -q -f s.stream x.btrfs:sub");
    assert!(*server.object("/b/s.stream").unwrap() == fs::read(dir.join("s.stream")).unwrap());
    assert_eq!(server.open_uploads(), 0);
}

#[test]
fn what_an_object_cannot_be_is_refused_before_anything_is_sent() {
    let (dir, server) = (TempDir::new(), obedient());
    fs::create_dir(dir.join("src")).unwrap();
    for (line, reason) in [
        ("copy src s3://b/x.btrfs", "not written in order"),
        ("copy src s3://b/x", "would be a directory"),
        ("copy src gs://b/x.tar", "does not write"),
        ("copy --verity src s3://b/x.squashfs", "--verity"),
        (
            "copy --skip-unreadable src s3://b/x.squashfs",
            "--skip-unreadable",
        ),
        (
            "copy --content-digest src s3://b/x.erofs",
            "--content-digest",
        ),
        ("copy --resume src x.tar", "not an object"),
        ("copy --if-changed src x.tar", "not an object"),
        ("receive -f x.stream s3://b/x.btrfs", "does not write"),
    ] {
        let (code, words) = run(&dir, &server, line);
        assert!(code == 2 && words.contains(reason), "{line}: {words}");
    }
    assert_eq!(server.requests(), 0);
    ok(&dir, &server, "copy -q src s3://b/x.tar");
    let (code, words) = run(&dir, &server, "copy src s3://b/x.tar");
    assert!(
        code == 2 && words.contains("already exists; --overwrite"),
        "{words}"
    );
    ok(&dir, &server, "copy -q --overwrite src s3://b/x.tar");
    // Nothing serves objects there any more.
    let gone = server.endpoint();
    drop(server);
    let mut line = restow(["copy", "src", "s3://b/x.tar"]);
    let line = line.current_dir(dir.path()).env("AWS_ENDPOINT_URL", gone);
    let line = line
        .env("AWS_ACCESS_KEY_ID", "me")
        .env("AWS_SECRET_ACCESS_KEY", "s");
    assert_eq!(line.output().unwrap().status.code(), Some(75));
}

/// Runs a copy that gets a signal when it sends a part.
fn stopped(dir: &TempDir, name: &'static str, line: &str) -> (ObjectServer, Output) {
    let process = Arc::new(Mutex::new(0));
    let seen = Arc::clone(&process);
    let server = ObjectServer::with(move |_, line| {
        if line.contains("partNumber=3") {
            let number = *seen.lock().unwrap();
            let mut kill = Command::new("sh");
            kill.arg("-c").arg(format!("kill -s {name} {number}"));
            // The program of the second run is another one, and this one has ended.
            let _ = kill.output();
        }
        StoreManner::Obeys
    });
    let mut locked = process.lock().unwrap();
    // A signal that is ignored here would be ignored there, too.
    let mut child = Command::new("env");
    let own = command(dir, &server, line);
    child
        .args(["--default-signal=INT,TERM,HUP"])
        .arg(own.get_program());
    child.args(own.get_args()).current_dir(dir.path());
    for (name, value) in own.get_envs() {
        child.env(name, value.unwrap());
    }
    let child = child.spawn().unwrap();
    *locked = child.id();
    drop(locked);
    let output = child.wait_with_output().unwrap();
    (server, output)
}

#[test]
fn a_signal_ends_the_upload_unless_it_can_be_continued() {
    let dir = TempDir::new();
    source(&dir);
    let line = "copy -q src s3://b/x.squashfs";
    let (server, output) = stopped(&dir, "TERM", line);
    assert_eq!(output.status.code(), Some(143));
    assert_eq!(
        (server.object("/b/x.squashfs"), server.open_uploads()),
        (None, 0)
    );
    for name in ["TERM", "KILL"] {
        let line = format!("{line} --resume");
        let (server, output) = stopped(&dir, name, &line);
        assert_ne!(output.status.code(), Some(0));
        assert_eq!(
            (server.object("/b/x.squashfs"), server.open_uploads()),
            (None, 1)
        );
        assert!(server.sent_parts().contains(&2));
        ok(&dir, &server, &line);
        assert!(!server.sent_parts().contains(&2));
        ok(&dir, &server, "copy -q --overwrite src x.squashfs");
        let file = fs::read(dir.join("x.squashfs")).unwrap();
        assert!(*server.object("/b/x.squashfs").unwrap() == file);
    }
    // No file of this machine has any of it.
    assert_eq!(names(dir.path()), ["src", "x.squashfs"]);
}

#[test]
fn a_copy_of_an_unchanged_source_sends_nothing() {
    let (dir, server) = (TempDir::new(), obedient());
    fs::create_dir_all(dir.join("src")).unwrap();
    fs::write(dir.join("src/file"), "content").unwrap();
    ok(&dir, &server, "copy -q src y.tar");
    for source in ["src", "y.tar"] {
        let line = format!("copy --if-changed {source} s3://b/x.squashfs --overwrite");
        ok(&dir, &server, &line);
        let line = format!("copy --if-changed {source} s3://b/x.squashfs");
        let first = server.object("/b/x.squashfs");
        let (code, words) = run(&dir, &server, &line);
        assert_eq!(
            (code, &*words),
            (0, "restow: s3://b/x.squashfs is up to date\n")
        );
        let other = format!("{line} --compress gzip");
        ok(&dir, &server, &other);
        assert_ne!(server.object("/b/x.squashfs"), first);
        ok(&dir, &server, &line);
        assert_eq!(server.object("/b/x.squashfs"), first);
    }
    let line = "copy --if-changed src s3://b/x.squashfs";
    ok(&dir, &server, line);
    let changes: [&dyn Fn(); 3] = [
        &|| fs::write(dir.join("src/file"), "changed").unwrap(),
        &|| fs::write(dir.join("src/other"), "").unwrap(),
        &|| fs::remove_file(dir.join("src/other")).unwrap(),
    ];
    for change in changes {
        change();
        let (code, words) = run(&dir, &server, line);
        assert!(code == 0 && !words.contains("up to date"), "{words}");
        let (_, words) = run(&dir, &server, line);
        assert!(words.contains("up to date"), "{words}");
    }
    // An object that was not made so is not replaced.
    ok(&dir, &server, "copy -q src s3://b/z.tar");
    let (code, words) = run(&dir, &server, "copy --if-changed src s3://b/z.tar");
    assert!(code == 2 && words.contains("already exists"), "{words}");
    let (code, words) = run(&dir, &server, "copy --if-changed - s3://b/z.tar");
    assert!(code == 2 && words.contains("standard input"), "{words}");
}
