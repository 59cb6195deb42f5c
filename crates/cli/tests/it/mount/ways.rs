use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use testkit::{TempDir, run, tool};

use super::{Foreground, Mounted, open_device_for_all, script};
use crate::json::{object_of, objects_of};
use crate::{ok, restow, run_in, shown};

/// An archive that everybody may read, with a file of root and one of nobody.
fn archive() -> TempDir {
    let dir = TempDir::new();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    script(
        dir.path(),
        "umask 022; mkdir -p src/sub; echo all > src/sub/file; echo own > src/own
         chmod 600 src/own; chmod 644 src/sub/file; tar cf x.tar -C src .; chmod 644 x.tar
         mkdir point; chown nobody point",
    );
    dir
}

/// The program, in a place that another user can reach.
fn program(dir: &Path) -> String {
    let program = dir.join("restow");
    fs::copy(env!("CARGO_BIN_EXE_restow"), &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program.display().to_string()
}

const NOBODY: &str = "setpriv --reuid=65534 --regid=65534 --clear-groups";

#[test]
#[ignore = "needs root"]
fn users_mount_through_fusermount3() {
    let (Some(_), Some(_)) = (tool("fusermount3"), tool("setpriv")) else {
        return;
    };
    let dir = archive();
    let restow = program(dir.path());
    // The device of this machine may be for root only.
    let closed = dir.join("closed");
    run(Command::new("mknod").arg(&closed).args(["c", "10", "229"]));
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o600)).unwrap();
    run(Command::new("mount")
        .arg("--bind")
        .arg(&closed)
        .arg("/dev/fuse"));
    let refused = Command::new("bash")
        .args(["-c", &format!("{NOBODY} {restow} mount x.tar point")])
        .current_dir(dir.path())
        .output();
    let (code, _, words) = shown(&refused.unwrap());
    assert_eq!(code, 2);
    assert!(
        words.contains("open /dev/fuse: ") && words.contains("only root may mount"),
        "{words}"
    );
    open_device_for_all(dir.path());
    let seen = script(
        dir.path(),
        &format!(
            "{NOBODY} {restow} mount x.tar point
             grep -o 'point fuse.restow ro,nosuid,nodev,[a-z]*,user_id=65534' /proc/mounts
             {NOBODY} cat point/sub/file; ! {NOBODY} cat point/own 2>&1 | grep -o 'Permission denied'
             ! cat point/sub/file 2>&1 | grep -o 'Permission denied'
             {NOBODY} {restow} unmount point; ! grep point /proc/mounts
             {NOBODY} {restow} mount x.tar point -o auto_unmount,uid=65534
             {NOBODY} cat point/own; {NOBODY} stat -c %u point/own
             {NOBODY} fusermount3 -u point; ! grep point /proc/mounts"
        ),
    );
    assert!(
        seen.starts_with("point fuse.restow ro,nosuid,nodev,"),
        "{seen}"
    );
    let (_, rest) = seen.split_once('\n').unwrap();
    assert_eq!(
        rest,
        "all\nPermission denied\nPermission denied\nown\n65534\n"
    );
    // What root has to permit first.
    let rules = fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
    if !rules.lines().any(|line| line.trim() == "user_allow_other") {
        let refused = Command::new("bash")
            .args([
                "-c",
                &format!("{NOBODY} {restow} mount x.tar point -o allow_other"),
            ])
            .current_dir(dir.path())
            .output();
        let (code, _, words) = shown(&refused.unwrap());
        assert_eq!(code, 2);
        assert!(
            words.contains("unless /etc/fuse.conf has the line `user_allow_other`"),
            "{words}"
        );
    }
}

#[test]
#[ignore = "needs root"]
fn users_mount_in_a_namespace_of_their_own() {
    let Some(_) = tool("setpriv") else { return };
    let dir = archive();
    let restow = program(dir.path());
    open_device_for_all(dir.path());
    let seen = script(
        dir.path(),
        &format!(
            "{NOBODY} unshare -Urm bash -e -c '
               PATH=/nowhere:/usr/bin:/bin; {restow} mount x.tar point
               grep -o \"point fuse.restow ro\" /proc/mounts; cat point/sub/file
               mkdir -p up work merged
               mount -t overlay o -o lowerdir=point,upperdir=up,workdir=work,userxattr merged
               echo more >> merged/sub/file; cat merged/sub/file; umount merged
               {restow} unmount point; ! grep point /proc/mounts'"
        ),
    );
    assert_eq!(seen, "point fuse.restow ro\nall\nall\nmore\n");
}

#[test]
#[ignore = "needs root"]
fn mount_and_fstab_find_the_program_by_its_second_name() {
    let Some(mount) = tool("mount") else { return };
    let dir = archive();
    // Where mount(8) looks for it, in this namespace only.
    run(Command::new("mount").args(["-t", "tmpfs", "tmpfs", "/usr/local/sbin"]));
    let restow = program(dir.path());
    let helper = Path::new("/sbin/mount.fuse.restow");
    let overlay = dir.join("sbin");
    fs::create_dir_all(overlay.join("up")).unwrap();
    fs::create_dir_all(overlay.join("work")).unwrap();
    run(Command::new("mount")
        .args(["-t", "tmpfs", "tmpfs"])
        .arg(&overlay));
    fs::create_dir_all(overlay.join("up")).unwrap();
    fs::create_dir_all(overlay.join("work")).unwrap();
    let sbin = fs::canonicalize("/sbin").unwrap();
    let how = format!(
        "lowerdir={0},upperdir={1}/up,workdir={1}/work",
        sbin.display(),
        overlay.display()
    );
    run(Command::new("mount")
        .args(["-t", "overlay", "overlay", "-o", &how])
        .arg(&sbin));
    // One that is installed is hidden by the overlay.
    let _ = fs::remove_file(helper);
    symlink(&restow, helper).unwrap();
    let point = dir.join("point");
    // Asked to mount nothing, it returns at once.
    let fake = mount
        .command()
        .args(["-f", "-t", "fuse.restow"])
        .args([&dir.join("x.tar"), &point])
        .status()
        .unwrap();
    assert!(fake.success());
    let seen = script(dir.path(), "grep -c ' .*/point fuse' /proc/mounts || true");
    assert_eq!(seen, "0\n");
    mount
        .command()
        .args([
            "-t",
            "fuse.restow",
            "-o",
            "rw,dev,suid,noauto,_netdev,x-test,uid=7,fsname=n",
        ])
        .arg(dir.join("x.tar"))
        .arg(&point)
        .status()
        .unwrap();
    let seen = script(
        dir.path(),
        "grep -o 'n .*point fuse.restow ro,[a-z]*' /proc/mounts | grep -o 'fuse.*'; stat -c %u point/own; umount point",
    );
    assert_eq!(seen, "fuse.restow ro,nosuid\n7\n");
    // A line of fstab.
    let line = format!(
        "{} {} fuse.restow noauto,nodev,subdir=sub 0 0\n",
        dir.join("x.tar").display(),
        point.display()
    );
    fs::write(dir.join("fstab"), line).unwrap();
    run(mount.command().arg("-T").arg(dir.join("fstab")).arg(&point));
    let seen = script(dir.path(), "cat point/file; umount point");
    assert_eq!(seen, "all\n");
}

#[test]
#[ignore = "needs root"]
fn owners_names_and_directories_are_chosen() {
    let dir = archive();
    let archive = dir.join("x.tar");
    let mounted = Mounted::new(&archive, ["-o", r"uid=7,gid=8,umask=037,fsname=a\,b"]);
    let seen = script(
        mounted.path(),
        "stat -c '%u %g %a' sub/file sub; grep -o '^a,b ' /proc/mounts",
    );
    assert_eq!(seen, "7 8 640\n7 8 740\na,b \n");
    mounted.unmount();
    let mounted = Mounted::new(&archive, ["-o", "subdir=sub", "-s"]);
    assert_eq!(script(mounted.path(), "ls -a"), ".\n..\nfile\n");
    mounted.unmount();
    // A user that is not the owner, with and without permission.
    let read = format!("{NOBODY} cat point/sub/file");
    let in_dir = |mounted: &Mounted| {
        let parent = mounted.path().join("..");
        fs::set_permissions(&parent, fs::Permissions::from_mode(0o755)).unwrap();
        let mut bash = Command::new("bash");
        bash.args(["-c", &read]).current_dir(parent);
        shown(&bash.output().unwrap()).0
    };
    for (options, code) in [("ro", 1), ("allow_other", 0), ("allow_root", 1)] {
        let mounted = Mounted::new(&archive, ["-o", options]);
        assert_eq!(in_dir(&mounted), code, "{options}");
        mounted.unmount();
    }
}

#[test]
#[ignore = "needs root"]
fn an_idle_mount_ends_and_a_busy_one_does_not() {
    let dir = archive();
    let mounted = Foreground::new(&dir.join("x.tar"), ["-o", "timeout=1"]);
    let file = fs::File::open(mounted.path().join("sub/file")).unwrap();
    script(mounted.path(), "timeout 3 tail -f /dev/null || true");
    assert_eq!(fs::read(mounted.path().join("sub/file")).unwrap(), b"all\n");
    drop(file);
    mounted.ended();
}

#[test]
#[ignore = "needs root"]
fn what_cannot_be_mounted_is_refused_in_words() {
    let dir = archive();
    fs::write(dir.join("noise"), [7; 100]).unwrap();
    fs::write(dir.join("file"), "").unwrap();
    for (args, expected) in [
        (&["noise", "point"][..], "unknown format"),
        (&["none", "point"], "open none: "),
        (&["x.tar", "nowhere"], "open nowhere: "),
        (&["x.tar", "file"], "file is not a directory"),
        (&["-", "point"], "standard input cannot be mounted"),
        (&["src", "src/sub"], "is inside of the directory to mount"),
        (&["x.tar", "point", "-o", "frob"], "option `frob`: unknown"),
        (&["x.tar", "point", "-o", "subdir=none"], "find none"),
        (&["x.tar", "point", "-o", "subdir=own"], "not a directory"),
        (&["x.tar", "point", "-o", "subvol=a"], "not a btrfs image"),
        (
            &["x.tar", "point", "-o", "ignore_checksums"],
            "not a btrfs image",
        ),
        (&["x.tar", "point", "-o", "offset=5"], "squashfs"),
    ] {
        for foreground in [&[][..], &["-f"]] {
            let args = [&["mount"], args, foreground].concat();
            let (code, out, words) = run_in(dir.path(), &args);
            assert_eq!((code, &*out), (2, ""), "{args:?} {words}");
            assert!(words.contains(expected), "{args:?} {words}");
            assert_eq!(words.lines().count(), 1, "{words}");
        }
    }
    let (code, _, words) = run_in(dir.path(), ["unmount", "point"]);
    assert_eq!(code, 2);
    assert!(
        words.contains("unmount point: nothing is mounted there"),
        "{words}"
    );
    // The pipe tells the same.
    script(
        dir.path(),
        "mkfifo pipe; cat pipe > answer 2> /dev/null & true",
    );
    let _ = restow(["mount", "noise", "point", "-o", "notify_pipe=pipe"])
        .current_dir(dir.path())
        .output();
    let answer = script(dir.path(), "while ! [ -s answer ]; do :; done; cat answer");
    assert_eq!(answer, "f");
}

#[test]
#[ignore = "needs root"]
fn a_mount_says_which_process_serves_it() {
    let dir = archive();
    let (out, words) = ok(&dir, "mount --json x.tar point");
    assert_eq!(words, "");
    let object = object_of(&out);
    assert_eq!(object["schema"].text(), "restow.mount/1");
    assert_eq!(
        [object["source"].text(), object["mountpoint"].text()],
        ["x.tar", "point"]
    );
    let pid = object["pid"].number();
    let served = fs::read(format!("/proc/{pid}/cmdline")).unwrap();
    assert!(served.windows(5).any(|word| word == b"mount"));
    ok(&dir, "unmount point");
    // In the foreground, with an object for each end.
    let seen = script(
        dir.path(),
        &format!(
            "mkfifo pipe
             {} mount -f --json x.tar point -o notify_pipe=pipe > out & head -c 1 pipe
             cat point/sub/file; umount point; wait; cat out",
            env!("CARGO_BIN_EXE_restow")
        ),
    );
    let (content, objects) = seen.split_once('\n').unwrap();
    assert_eq!(content, "sall");
    let objects = objects_of(objects);
    assert_eq!(objects.len(), 2);
    assert_eq!(objects[0]["mountpoint"].text(), "point");
    assert!(objects[1]["requests"]["lookup"].number() > 0);
    assert_eq!(objects[1]["problems"].number(), 0);
}
