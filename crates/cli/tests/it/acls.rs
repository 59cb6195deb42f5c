//! Access control lists and labels of SELinux in archives of and for other programs.

use std::fs;
use std::path::Path;

use testkit::{TempDir, Tool, run, tool};

use super::ok;

/// A directory `src` with access lists, default lists, labels and other attributes.
fn source(setfacl: &Tool, setfattr: &Tool) -> TempDir {
    let dir = TempDir::new();
    fs::create_dir_all(dir.join("src/dir/sub")).unwrap();
    for file in ["plain", "list", "wide", "dir/in"] {
        fs::write(dir.join("src").join(file), file).unwrap();
    }
    let set = |tool: &Tool, args: &[&str], file: &str| {
        run(tool.command().args(args).arg(dir.join("src").join(file)));
    };
    // The mask is narrower than the owning group, wider, and between entries; a name and numbers.
    set(
        setfacl,
        &["-m", "u:daemon:rwx,u:4242:r--,g:9:rw-,m:r--"],
        "list",
    );
    set(setfacl, &["-m", "g::---,u:7:rwx,m:rwx"], "wide");
    set(
        setfacl,
        &["-m", "u:daemon:rwx,d:u:7:r-x,d:g:4242:rwx"],
        "dir",
    );
    set(setfacl, &["-m", "d:u::rwx,d:g::r--,d:o::---"], "dir/sub");
    let label = "system_u:object_r:etc_t:s0\\000";
    let value = format!("\"{label}\"");
    set(setfattr, &["-n", "security.selinux", "-v", &value], "plain");
    set(setfattr, &["-n", "user.other", "-v", "1"], "list");
    dir
}

/// What getfacl and getfattr show.
fn shown(dir: &Path, getfacl: &Tool, getfattr: &Tool) -> [String; 2] {
    let text = |command: &mut std::process::Command| {
        let text = String::from_utf8(run(command.current_dir(dir)).stdout).unwrap();
        // The order of a directory is that of its file system.
        let mut files: Vec<&str> = text.split("\n\n").collect();
        files.sort_unstable();
        files.join("\n\n")
    };
    let lists = text(getfacl.command().args(["-Rn", "."]));
    let labels = text(getfattr.command().args(["-Rdm", "security.selinux", "."]));
    [lists, labels]
}

#[test]
#[ignore = "needs root"]
fn access_lists_and_labels_go_between_all_programs() {
    let tools = [
        "tar", "bsdtar", "setfacl", "getfacl", "setfattr", "getfattr",
    ]
    .map(tool);
    let [
        Some(gnu),
        Some(bsd),
        Some(setfacl),
        Some(getfacl),
        Some(setfattr),
        Some(getfattr),
    ] = tools
    else {
        return;
    };
    let dir = source(&setfacl, &setfattr);
    let expected = shown(&dir.join("src"), &getfacl, &getfattr);
    assert!(
        expected[0].contains("default:group:4242:rwx"),
        "{expected:?}"
    );
    assert!(expected[1].contains("etc_t"), "{expected:?}");
    ok(&dir, "copy -q src ours.tar");
    let make = |program: &Tool, args: &str| {
        let mut command = program.command();
        run(command.args(args.split(' ')).current_dir(dir.path()));
    };
    make(&gnu, "--acls --selinux -cf gnu.tar -C src .");
    make(
        &gnu,
        "--acls --xattrs --xattrs-include=* --selinux -cf gnu-both.tar -C src .",
    );
    make(&bsd, "--acls --xattrs -cf bsd.tar -C src .");
    let read = |archive: &str, program: Option<&Tool>, args: &str| {
        fs::create_dir(dir.join("out")).unwrap();
        match program {
            None => _ = ok(&dir, &format!("copy -q --merge {archive} out")),
            Some(program) => make(program, &format!("{args} -xpf {archive} -C out")),
        }
        let found = shown(&dir.join("out"), &getfacl, &getfattr);
        fs::remove_dir_all(dir.join("out")).unwrap();
        found
    };
    let with_gnu = "--acls --xattrs --xattrs-include=* --selinux";
    let with_bsd = "--acls --xattrs";
    for archive in ["ours.tar", "gnu.tar", "gnu-both.tar", "bsd.tar"] {
        assert_eq!(read(archive, None, ""), expected, "{archive}");
    }
    assert_eq!(read("ours.tar", Some(&gnu), with_gnu), expected);
    assert_eq!(read("ours.tar", Some(&gnu), "--acls")[0], expected[0]);
    assert_eq!(read("ours.tar", Some(&bsd), with_bsd), expected);
    // What was read from another form is an attribute as any other.
    ok(&dir, "copy -q bsd.tar x.btrfs");
    ok(&dir, "diff --ignore mtime src x.btrfs");
}
