//! What goes wrong in the midst of a copy: said clearly, exit code 2, and nothing under the final name.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use testkit::TempDir;

use crate::{names, run_in, shown};

/// Every kind of result, and what it is called.
const RESULTS: [&str; 4] = ["out.sqfs", "out.btrfs", "out.tar", "out"];

fn source(dir: &TempDir) {
    fs::create_dir_all(dir.join("src/sub")).unwrap();
    for n in 0..40 {
        let noise = testkit::Rng::new(n).bytes(100_000);
        fs::write(dir.join(format!("src/sub/{n}")), noise).unwrap();
    }
}

/// Four MiB on a disk of two.
#[test]
#[ignore = "needs root"]
fn a_full_disk_leaves_nothing() {
    let dir = TempDir::new();
    source(&dir);
    fs::create_dir(dir.join("disk")).unwrap();
    let mount = ["-t", "tmpfs", "-o", "size=2m", "tmpfs"];
    testkit::run(Command::new("mount").args(mount).arg(dir.join("disk")));
    let mut said = Vec::new();
    for to in RESULTS {
        let path = format!("disk/{to}");
        for (args, old) in [
            (&["copy", "-q"][..], false),
            (&["copy", "-q", "--overwrite"], true),
        ] {
            if old {
                fs::write(dir.join("disk/out.sqfs"), "old").unwrap();
            }
            let args: Vec<&str> = args.iter().copied().chain(["src", &path]).collect();
            said.push((
                args.join(" "),
                run_in(dir.path(), &args),
                names(&dir.join("disk")),
                old,
            ));
            let _ = fs::remove_file(dir.join("disk/out.sqfs"));
        }
    }
    testkit::run(Command::new("umount").arg(dir.join("disk")));
    for (args, (code, _, words), left, old) in said {
        assert_eq!(code, 2, "{args}: {words}");
        assert!(
            words.to_lowercase().contains("no space left on device"),
            "{args}: {words}"
        );
        assert!(words.contains("disk/out"), "{args}: {words}");
        let expected: &[&str] = if old { &["out.sqfs"] } else { &[] };
        assert_eq!(left, expected, "{args}");
    }
}

/// As an ordinary user: root reads everything.
#[test]
fn a_file_that_may_not_be_read_is_named() {
    let dir = TempDir::new();
    source(&dir);
    let secret = dir.join("src/sub/7");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).unwrap();
    fs::create_dir(dir.join("to")).unwrap();
    fs::set_permissions(dir.join("to"), fs::Permissions::from_mode(0o777)).unwrap();
    let program = env!("CARGO_BIN_EXE_restow");
    for to in RESULTS {
        let mut command = if fs::read(&secret).is_ok() {
            // Whoever runs this may read all: the program must not.
            let Some(setpriv) = testkit::tool("setpriv") else {
                return;
            };
            // The program may lie where others cannot reach it.
            fs::copy(program, dir.join("restow")).unwrap();
            let mut command = setpriv.command();
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
            command.arg(dir.join("restow"));
            command
        } else {
            Command::new(program)
        };
        command.args(["copy", "-q", "src", &format!("to/{to}")]);
        let output = command
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .output();
        let (code, _, words) = shown(&output.unwrap());
        assert_eq!(code, 2, "{to}: {words}");
        let named = words.contains("src/sub/7: permission denied");
        assert!(named, "{to}: {words}");
        assert!(names(&dir.join("to")).is_empty(), "{to}");
    }
}
