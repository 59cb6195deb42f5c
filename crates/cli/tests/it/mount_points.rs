//! Directories with mount points, beside `find` and GNU tar.

use std::path::Path;
use std::process::Command;

use testkit::{TempDir, newer_tool, run, tool};

/// Runs a script whose mounts go when it ends, and gives its standard output.
pub(super) fn in_own_mounts(dir: &Path, script: &str) -> String {
    let mut bash = Command::new("unshare");
    bash.args(["--mount", "bash", "-e", "-o", "pipefail", "-c", script]);
    let bash = bash.current_dir(dir).env("LC_ALL", "C");
    let output = run(bash.env("restow", env!("CARGO_BIN_EXE_restow")));
    String::from_utf8(output.stdout).unwrap()
}

/// A directory in which `a` is mounted in `b` and a tmpfs in `t`; one file is a mount point, too.
const MOUNTS: &str = r#"
mkdir -p src/a/sub src/b src/t src/t2
echo x > src/a/f; ln src/a/f src/a/g; echo y > src/a/sub/h; touch src/m src/b/hidden
mount -t tmpfs none src/t; echo z > src/t/z
"#;

#[test]
#[ignore = "needs root"]
fn a_directory_that_is_mounted_twice_is_copied_twice() {
    let (Some(_), Some(_)) = (tool("find"), tool("tar")) else {
        return;
    };
    let dir = TempDir::new();
    let script = r#"
mount --bind src/a src/b; mount --bind src/t src/t2; mount --bind src/a/f src/m
(cd src && find . -mindepth 1 -printf '%P\n' | sort) > found
$restow ls -R src | sort | diff found -
$restow manifest src | grep -c sub/h | grep -qx 2
for to in x.tar x.squashfs x.btrfs dir; do $restow copy -q src $to; $restow diff src $to; done
mkdir out; tar -C out -xf x.tar; diff -r src out; diff -r src dir
# In itself: the mounts below it are not part of a bind mount.
mount --bind src src/b
tar -C src -cf - . | tar -tf - | sed 's,^\./,,; s,/$,,; /^$/d' | sort > theirs
$restow ls -R src | sort | diff theirs -
$restow copy -q src inner.tar; $restow diff src inner.tar
"#;
    in_own_mounts(dir.path(), &(MOUNTS.to_owned() + script));
}

#[test]
#[ignore = "needs root"]
fn one_file_system_leaves_out_what_is_mounted() {
    let (Some(_), Some(_)) = (tool("find"), tool("tar")) else {
        return;
    };
    let dir = TempDir::new();
    let script = r#"
(cd src && find . -xdev -mindepth 1 -printf '%P\n' | sort) > found
tar -C src --one-file-system -cf - . | tar -tf - | sed 's,^\./,,; s,/$,,; /^$/d' | sort > theirs
$restow ls --one-file-system -R src | sort > ours
diff found ours; diff theirs ours
$restow copy -q --one-file-system src x.tar
tar -tf x.tar | sed 's,^\./,,; s,/$,,; /^$/d' | sort | diff ours -
# Neither program knows mounts of the same file system, whose files would be copied twice.
mount --bind src/a src/b
$restow ls --one-file-system -R src | sort | diff <(grep -vx b/hidden found) -
"#;
    in_own_mounts(dir.path(), &(MOUNTS.to_owned() + script));
}

#[test]
#[ignore = "needs root"]
fn mount_points_are_left_out_as_by_mksquashfs() {
    let (Some(_), Some(theirs)) = (tool("unsquashfs"), newer_tool("mksquashfs")) else {
        return;
    };
    let dir = TempDir::new();
    let script = r#"
for option in -one-file-system -one-file-system-x; do
    THEIRS src theirs.sqfs -noappend -quiet -no-progress $option
    $restow mksquashfs src ours.sqfs -noappend $option
    diff <(unsquashfs -ll theirs.sqfs) <(unsquashfs -ll ours.sqfs)
    unsquashfs -l ours.sqfs | grep -c /t >> count
done
diff count <(printf '2\n1\n')
"#;
    let script = script.replace("THEIRS", &theirs.path().display().to_string());
    in_own_mounts(dir.path(), &(MOUNTS.to_owned() + &script));
}

/// As in a file of ext4 with large inodes, of XFS or of btrfs.
#[test]
#[ignore = "needs root"]
fn a_file_with_more_names_of_attributes_than_linux_lists_does_not_stop_a_comparison() {
    let (Some(_), Some(_)) = (tool("setfattr"), tool("getfattr")) else {
        return;
    };
    let dir = TempDir::new();
    let script = r#"
mkdir t; mount -t tmpfs none t; cd t; mkdir a b; touch a/f b/f; echo 1 > a/z; echo 2 > b/z
long=$(printf 'x%.0s' {1..240})
for dir in a b; do
    echo '# file: '$dir/f > names
    for n in {100..399}; do echo trusted.$long$n='"1"'; done >> names
    setfattr --restore=names
done
(getfattr -d -m - a/f 2>&1 || true) | grep 'Argument list too long' > words
code=0; $restow diff --ignore mtime a b > found || code=$?; [ $code = 1 ]
cat > expected <<END
f: extended attributes not compared: Linux lists at most 64 KiB of names
z: contents differ starting at byte 0
END
diff expected found
$restow diff --json --ignore mtime a b > found || code=$?; [ $code = 1 ]
grep -q '"path":"f","change":"xattrs not compared"' found
"#;
    in_own_mounts(dir.path(), script);
}

#[test]
#[ignore = "needs root"]
fn the_place_of_a_nested_subvolume_is_no_difference() {
    let Some(_) = tool("btrfs") else { return };
    let dir = TempDir::new();
    let script = r#"
mkdir -p src/a/nested m; echo f > src/a/f; echo g > src/a/nested/g
$restow copy -q --slack 64M --as-subvolume a --as-subvolume a/nested src x.btrfs
mount -o loop x.btrfs m
btrfs subvolume snapshot -r m/a m/s > words; [ $(stat -c %i m/s/nested) = 2 ]
btrfs send -q -f s.stream m/s
$restow stream verify s.stream --against m/s > words; grep -qx '0 differences' words
mkdir m/a/other; btrfs subvolume snapshot -r m/a m/other > words
if $restow stream verify s.stream --against m/other > words; then exit 1; fi
grep -q 'only in m/other: other (directory)' words
umount m
$restow stream verify s.stream --against x.btrfs:s > words; grep -qx '0 differences' words
"#;
    in_own_mounts(dir.path(), script);
}
