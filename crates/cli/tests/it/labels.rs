//! Labels for SELinux, beside those of setfiles.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use testkit::{TempDir, run, tool};

use super::ok;

/// The lines end as policies have them: a few of each kind.
const CONTEXTS: &str = "\
/.*\t\tsystem_u:object_r:default_t:s0
/[^/]+ -- system_u:object_r:etc_runtime_t:s0
/etc(/.*)?\tsystem_u:object_r:etc_t:s0
/etc/[^/]*\\.conf -- system_u:object_r:conf_t:s0
/usr/(.*/)?lib(/.*)? system_u:object_r:lib_t:s0
/usr/(.*/)?lib(64|32)?/.+\\.so(\\.[^/]*)* -- system_u:object_r:textrel_shlib_t:s0
/usr/(s)?bin(/.*)? system_u:object_r:bin_t:s0
/usr/s?bin/[[:alpha:]]{2,4}[0-9.-]? -- system_u:object_r:short_exec_t:s0
/usr/bin/a\\+\\+ system_u:object_r:plus_exec_t:s0
/usr/bin/x.* -l system_u:object_r:link_t:s0
/dev/tty[^/]* -c system_u:object_r:tty_device_t:s0
/etc/passwd[-+]? -- system_u:object_r:passwd_t:s0
/etc/shadow.*|/etc/gshadow.* system_u:object_r:shadow_t:s0
/tmp/.* <<none>>
/tmp -d system_u:object_r:tmp_t:s0
/home/[^/]+/.* <<none>>
/etc/exact\\.conf system_u:object_r:exact_t:s0
/etc/ex.* system_u:object_r:inexact_t:s0
";

fn build(src: &Path) {
    let files = "etc/a.conf etc/passwd etc/passwd- etc/shadow etc/gshadow etc/exact.conf \
        etc/exact etc/d/a.conf usr/bin/ls usr/bin/a++ usr/bin/abcde usr/bin/awk2 usr/sbin/ab \
        usr/lib/x usr/local/lib/libz.so.1.2 usr/lib64/libz.so usr/lib64/y lib/libc.so top tmp/a \
        tmp/d/b home/me/x home/me/.ssh/id opt/app/bin/run var/run/pid run/pid srv/lib/z.so odd/\u{e9}";
    for file in files.split_whitespace() {
        let path = src.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, file).unwrap();
    }
    fs::write(src.join("etc/new\nline"), "").unwrap();
    fs::create_dir_all(src.join("usr/empty/lib")).unwrap();
    symlink("ls", src.join("usr/bin/xz")).unwrap();
    symlink("../etc", src.join("usr/lib/link.so")).unwrap();
}

/// The label of each file that has one, by its path.
fn labels(dir: &Path) -> BTreeMap<String, String> {
    let getfattr = tool("getfattr").unwrap();
    let all = [
        "-R",
        "-h",
        "-d",
        "-m",
        "^security.selinux$",
        "-e",
        "text",
        ".",
    ];
    let output = run(getfattr.command().args(all).current_dir(dir));
    let output = String::from_utf8(output.stdout).unwrap();
    let files = output.split("\n\n").filter_map(|file| {
        let (name, label) = file.split_once('\n')?;
        Some((name.to_owned(), label.to_owned()))
    });
    files.collect()
}

#[test]
#[ignore = "needs root"]
fn labels_are_those_of_setfiles() {
    let (Some(setfiles), Some(_)) = (tool("setfiles"), tool("getfattr")) else {
        return;
    };
    let dir = TempDir::new();
    build(&dir.join("src"));
    let write = |name: &str, text: &str| fs::write(dir.join(name), text).unwrap();
    write("fc", CONTEXTS);
    write(
        "fc.homedirs",
        "/home/[^/]+/\\.ssh(/.*)? user_u:object_r:ssh_t:s0\n",
    );
    write(
        "fc.local",
        "# local\n/opt/app(/.*)?  system_u:object_r:app_t:s0:c1,c2\n/top <<none>>\n",
    );
    write(
        "fc.subs",
        "/srv /usr\n/opt/app/bin /usr/bin\n/opt/app /nowhere\n",
    );
    write(
        "fc.subs_dist",
        "/lib /usr/lib\n/var/run /run\n/nowhere /etc\n",
    );
    ok(&dir, "copy -q --file-contexts fc src ours");
    ok(&dir, "copy -q src theirs");
    let path = |name: &str| dir.join(name).into_os_string();
    let words = [
        "-F".into(),
        "-r".into(),
        path("theirs"),
        path("fc"),
        path("theirs"),
    ];
    run(setfiles.command().args(words));
    let (ours, theirs) = (labels(&dir.join("ours")), labels(&dir.join("theirs")));
    assert!(theirs.len() > 50, "{theirs:?}");
    assert_eq!(ours, theirs);
    for name in ["x.tar", "x.squashfs", "x.erofs", "x.btrfs", "x.stream"] {
        ok(&dir, &format!("copy -q --file-contexts fc src {name}"));
        ok(&dir, &format!("diff ours {name}"));
    }
    ok(&dir, "mkfs.erofs --quiet --file-contexts=fc m.erofs src");
    ok(&dir, "diff ours m.erofs");
    // Labels of the source are replaced, but where the policy has none.
    ok(&dir, "copy -q theirs old.tar");
    write("new", "/.* u:r:new\n/etc(/.*)? <<none>>\n");
    ok(&dir, "copy -q --file-contexts new old.tar relabelled");
    for (file, label) in labels(&dir.join("relabelled")) {
        let is_kept = file == "# file: etc" || file.starts_with("# file: etc/");
        let kept = theirs.get(&file).filter(|_| is_kept);
        let label = label.trim_end();
        assert_eq!(
            label,
            kept.map_or("security.selinux=\"u:r:new\"", |it| it.trim_end()),
            "{file}"
        );
    }
}
