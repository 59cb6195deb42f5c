//! Objects as destinations.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Barrier, Mutex, mpsc};

use testkit::{ObjectServer, Rng, StoreManner, TempDir, cases};

use super::json::{Json, object_of};
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
        .env("AWS_SECRET_ACCESS_KEY", "secret")
        .env("STORAGE_EMULATOR_HOST", server.endpoint())
        .env("AZURE_STORAGE_ENDPOINT", server.endpoint())
        .env("AZURE_STORAGE_ACCOUNT", "me")
        .env("AZURE_STORAGE_KEY", "c2VjcmV0");
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

/// Whether a request makes the name of an object appear.
fn is_last(line: &str) -> bool {
    let is_part = line.contains("partNumber") || line.contains("blockid");
    let is_of_upload = line.contains("uploadId");
    line.starts_with("POST") && is_of_upload || line.starts_with("PUT") && !is_part
}

/// Asserts that a name was no object at any request up to the one that makes it appear, and one at
/// each after that.
#[track_caller]
fn assert_appears_at_the_end(server: &ObjectServer, name: &str) {
    let asked = server.asked();
    let of_name = asked.iter().filter(|(line, _)| {
        let path = line.split([' ', '?']).nth(1).unwrap();
        path == format!("/b/{name}")
    });
    let of_name: Vec<_> = of_name.collect();
    let last = of_name.iter().position(|(line, _)| is_last(line));
    let last = last.expect("an object was made");
    for (number, (line, is_there)) in of_name.iter().enumerate() {
        assert_eq!(*is_there, number > last, "{name}: {line}");
    }
}

#[test]
fn an_object_is_the_file_that_would_be_written() {
    let (dir, server) = (TempDir::new(), obedient());
    source(&dir);
    for name in [
        "x.squashfs",
        "x.erofs",
        "x.btrfs",
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
        assert_appears_at_the_end(&server, name);
        ok(&dir, &server, &format!("diff src s3://b/{name}"));
    }
    for store in ["gs", "az"] {
        let name = format!("{store}.squashfs");
        ok(&dir, &server, &format!("copy -q src {store}://b/{name}"));
        let file = fs::read(dir.join("x.squashfs")).unwrap();
        assert!(*server.object(&format!("/b/{name}")).unwrap() == file);
        assert!(server.sent_parts().len() >= 3, "{name}");
        assert_appears_at_the_end(&server, &name);
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
    assert_appears_at_the_end(&server, "c.stream");
    ok(&dir, &server, "copy -q --as-subvolume sub:ro src sub.btrfs");
    ok(&dir, &server, "send -q -f s3://b/s.stream sub.btrfs:sub");
    ok(&dir, &server, "send -q -f s.stream sub.btrfs:sub");
    assert!(*server.object("/b/s.stream").unwrap() == fs::read(dir.join("s.stream")).unwrap());
    assert_appears_at_the_end(&server, "s.stream");
    assert_eq!(server.open_uploads(), 0);
}

/// A btrfs image with a second superblock, and trees that fill parts of both of their copies.
#[test]
fn both_copies_of_trees_go_to_an_object() {
    let (dir, server) = (TempDir::new(), obedient());
    source(&dir);
    let mut rng = Rng::new(41);
    for number in 0..6000 {
        fs::write(dir.join(format!("src/sub/s{number}")), rng.bytes(2000)).unwrap();
    }
    for (options, bytes_min) in [
        ("", 50),
        ("--metadata single --size 100M", 100),
        ("--compress zstd:1 --size 70M", 70),
    ] {
        ok(
            &dir,
            &server,
            &format!("copy -q --overwrite {options} src x.btrfs"),
        );
        ok(
            &dir,
            &server,
            &format!("copy -q --overwrite {options} src az://b/x.btrfs"),
        );
        let file = fs::read(dir.join("x.btrfs")).unwrap();
        assert!(file.len() >= bytes_min << 20, "{options}: {}", file.len());
        assert!(*server.object("/b/x.btrfs").unwrap() == file, "{options}");
    }
}

#[test]
fn what_an_object_cannot_be_is_refused_before_anything_is_sent() {
    let (dir, server) = (TempDir::new(), obedient());
    fs::create_dir(dir.join("src")).unwrap();
    for (line, reason) in [
        ("copy --data dup src s3://b/x.btrfs", "--data dup"),
        ("copy --add-device y src s3://b/x.btrfs", "--add-device"),
        (
            "copy src s3://b/x.oci --to oci-archive",
            "not written in order",
        ),
        ("copy src s3://b/x", "would be a directory"),
        ("copy --dual src gs://b/x.btrfs", "--dual"),
        (
            "copy --skip-unreadable src s3://b/x.btrfs",
            "--skip-unreadable",
        ),
        ("copy src https://b/x.tar", "does not write"),
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

/// A request, by its first line, and the process that made it: the answer.
type Manners = dyn Fn(u32, &str) -> StoreManner + Send + Sync;

/// Runs a command against a store that knows its process.
fn watched(dir: &TempDir, line: &str, manners: Box<Manners>) -> (ObjectServer, Output) {
    watched_until(dir, line, manners, |_, _| ())
}

/// The same, with something to do while the process runs.
fn watched_until(
    dir: &TempDir,
    line: &str,
    manners: Box<Manners>,
    meanwhile: impl FnOnce(&ObjectServer, u32),
) -> (ObjectServer, Output) {
    let process = Arc::new(Mutex::new(0));
    let seen = Arc::clone(&process);
    let server = ObjectServer::with(move |_, line| {
        let number = *seen.lock().unwrap();
        manners(number, line)
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
    let child = child.stderr(Stdio::piped()).spawn().unwrap();
    *locked = child.id();
    drop(locked);
    meanwhile(&server, child.id());
    let output = child.wait_with_output().unwrap();
    (server, output)
}

fn kill(process: u32, name: &str) {
    let mut kill = Command::new("sh");
    kill.arg("-c").arg(format!("kill -s {name} {process}"));
    // The program of a second run is another one, and this one has ended.
    let _ = kill.output();
}

/// Runs a copy that gets a signal when the store has its second part and not its third.
fn stopped(dir: &TempDir, name: &'static str, line: &str) -> (ObjectServer, Output) {
    let (signalled, waits) = mpsc::channel::<()>();
    let waits = Mutex::new(waits);
    let manners = move |_, line: &str| {
        if line.contains("partNumber=3") {
            // Until the other end is dropped.
            let _ = waits.lock().unwrap().recv();
        }
        StoreManner::Obeys
    };
    watched_until(dir, line, Box::new(manners), |server, process| {
        server.wait_for_a_part();
        kill(process, name);
        drop(signalled);
    })
}

/// A copy that is killed at any request, which the store does or loses, is continued by the next.
#[test]
fn a_copy_that_is_killed_is_continued() {
    let dir = TempDir::new();
    source(&dir);
    fs::write(dir.join("src/big"), Rng::new(7).bytes(24 << 20)).unwrap();
    let formats = ["squashfs", "btrfs"].map(|format| {
        let name = format!("x.{format}");
        ok(&dir, &obedient(), &format!("copy -q src {name}"));
        let line = format!("copy -q --resume --if-changed src s3://b/{name}");
        (
            fs::read(dir.join(&name)).unwrap(),
            line,
            format!("/b/{name}"),
        )
    });
    let mut rng = Rng::new(39);
    for trial in 0..cases(2) {
        let (file, line, path) = &formats[trial % 2];
        let part_count = file.len().div_ceil(8 << 20) as u32;
        // Two first looks, the list of uploads, the beginning, the note, the parts, a last look,
        // the end.
        let last = u64::from(part_count) + 6;
        let (at, is_lost) = (rng.below(last + 1), rng.below(2) == 0);
        let count = Mutex::new(0);
        let parts = Arc::new(Mutex::new(Vec::new()));
        let sent = Arc::clone(&parts);
        let manners = move |process, line: &str| {
            if let Some((_, number)) = line.split_once("partNumber=") {
                let number = number.split(['&', ' ']).next().unwrap();
                sent.lock().unwrap().push(number.parse::<u32>().unwrap());
            }
            let mut count = count.lock().unwrap();
            *count += 1;
            if *count != at + 1 {
                return StoreManner::Obeys;
            }
            kill(process, "KILL");
            if is_lost {
                StoreManner::Refuses(503)
            } else {
                StoreManner::Obeys
            }
        };
        let (server, output) = watched(&dir, line, Box::new(manners));
        let case = format!("{path}, request {at}, lost: {is_lost}");
        assert_eq!(output.status.signal(), Some(9), "{case}");
        let is_done = server.object(path).is_some();
        assert_eq!(is_done, at == last && !is_lost, "{case}");
        ok(&dir, &server, line);
        let made = server.object(path).unwrap();
        assert!(*made == *file, "{case}");
        // All parts that came to the store as a whole, in both runs.
        let mut numbers = std::mem::take(&mut *parts.lock().unwrap());
        let all = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert!(
            (1..=part_count).chain([10_000]).eq(numbers.iter().copied()),
            "{case}"
        );
        assert!(all - numbers.len() <= 2, "{case}: {}", all - numbers.len());
        // An upload without its note can be that of any writer, and stays.
        let is_unknown = (at == 3 && !is_lost) || (at == 4 && is_lost);
        assert_eq!(server.open_uploads(), usize::from(is_unknown), "{case}");
    }
}

/// Whether they meet in the last moment or not, and with objects of one part and of several.
#[test]
fn of_two_copies_to_a_name_one_succeeds() {
    let dir = TempDir::new();
    let files = ["one", "two"].map(|name| {
        ["small", "large"].map(|size| {
            let source = format!("{name}-{size}");
            fs::create_dir(dir.join(&source)).unwrap();
            let bytes = if size == "small" { 10_000 } else { 9 << 20 };
            let content = Rng::new(name.len() as u64 + u64::from(name.as_bytes()[0]));
            fs::write(dir.join(&source).join("file"), { content }.bytes(bytes)).unwrap();
            ok(&dir, &obedient(), &format!("copy -q {source} {source}.tar"));
            fs::read(dir.join(format!("{source}.tar"))).unwrap()
        })
    });
    for trial in 0..cases(8) {
        let (size, meets, is_same) = (trial & 1, trial & 2 != 0, trial & 4 != 0);
        // Then both of them can have one upload.
        let option = match (is_same, trial & 8) {
            (false, _) => "",
            (true, 0) => "--if-changed --resume",
            (true, _) => "--if-changed",
        };
        let last = Barrier::new(2);
        let server = ObjectServer::with(move |_, line| {
            if meets && is_last(line) {
                last.wait();
            }
            StoreManner::Obeys
        });
        let size_name = ["small", "large"][size];
        let copies = ["one", if is_same { "one" } else { "two" }].map(|name| {
            let line = format!("copy -q {option} {name}-{size_name} s3://b/x.tar");
            let mut copy = command(&dir, &server, &line);
            copy.stderr(Stdio::piped()).spawn().unwrap()
        });
        let ended = copies.map(|copy| said(&copy.wait_with_output().unwrap()));
        let made = server.object("/b/x.tar").unwrap();
        let case = format!("{trial}: {ended:?}");
        if is_same {
            assert_eq!([ended[0].0, ended[1].0], [0, 0], "{case}");
            assert!(*made == files[0][size], "{case}");
        } else {
            let winner = usize::from(ended[0].0 != 0);
            let (code, words) = &ended[1 - winner];
            assert_eq!((ended[winner].0, *code), (0, 2), "{case}");
            assert!(words.contains("already exists"), "{case}");
            assert!(*made == files[winner][size], "{case}");
        }
        assert_eq!(server.open_uploads(), 0, "{case}");
    }
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
        let output = command(&dir, &server, &format!("{line} --json")).output();
        let output = output.unwrap();
        let object = object_of(str::from_utf8(&output.stdout).unwrap());
        assert_eq!(object["destination"].text(), "s3://b/x.squashfs");
        assert_eq!(object["current"], Json::Flag(true));
        assert!(output.stderr.is_empty());
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
