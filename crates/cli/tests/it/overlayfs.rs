//! Layers of overlayfs as sources, beside mounts of the same layers by Linux.

use std::fs;
use std::os::unix::fs::symlink;

use testkit::{TempDir, tool};

use super::mount_points::in_own_mounts;
use super::{ok, run_in};

/// A directory, and changes of it in a mount: whiteouts, opaque directories, copied files.
const CHANGES: &str = r#"
mkdir t; mount -t tmpfs none t; cd t; umask 022; mkdir -p low/{gone,again/sub,dir,other,deep/a/b,old} up work m
for f in deleted kept renamed changed file-to-dir gone/x again/old again/sub/old dir/a dir/b \
    deep/a/b/c deep/a/b/d old/x owned; do echo $f > low/$f; done
mkdir low/dir-to-file; echo x > low/dir-to-file/x; ln low/kept low/dir/kept; ln low/changed low/other/changed
ln -s kept low/link; mkfifo low/fifo; mknod low/null c 1 3; chmod 4755 low/owned; setfattr -n user.low -v 1 low/kept
find low -exec touch -h -d @1600000000 {} +
change() {
    rm deleted link fifo; rm -r gone again; mkdir again; echo new > again/new; chmod 700 again
    rm file-to-dir; mkdir file-to-dir; echo x > file-to-dir/x; rm -r dir-to-file; echo x > dir-to-file
    mv renamed moved; mv dir/a other/a; rm deep/a/b/c; echo more >> changed; chown 7:8 owned; mv old new
    ln kept new/kept; ln -s moved link; mknod zero c 1 5; touch empty; chmod 1777 other
    setfattr -n user.up -v 2 dir; setfattr -n user.up -v 3 dir/b; touch -d @1000000000.25 dir deep/a
}
same() { $restow manifest "$1" > ours; $restow manifest m > linux; diff linux ours; [ $(wc -l < ours) -gt $2 ]; }
"#;

#[test]
#[ignore = "needs root"]
fn a_merged_tree_is_that_of_linux() {
    if tool("setfattr").is_none() {
        return;
    }
    for (word, option) in [
        ("overlay:", "redirect_dir=off"),
        ("overlay,userxattr:", "userxattr"),
    ] {
        let words = r#"
mount -t overlay -o lowerdir=low,upperdir=up,workdir=work,@option none m
(cd m; change); same @word"low:up" 25
[ -c up/deleted ]; getfattr -R --absolute-names -dm overlay.opaque up | grep -q up/again
# The upper layer alone has marks; other formats keep them, and copies have none.
$restow copy -q up up.tar; $restow copy -q low low.squashfs; same @word"low.squashfs:up.tar" 25
$restow copy -q @word"low:up" x.squashfs; $restow diff x.squashfs m
umount m; rm -r work/*; mkdir up2
mount -t overlay -o lowerdir=up:low,upperdir=up2,workdir=work,@option none m
cd m; rm -r new dir/b; mkdir dir/c; rm link; echo 2 > deep/a/b/c; rm -r again; echo file > again; rm dir-to-file
mkdir dir-to-file gone; cd ..; same @word"low:up:up2" 20
"#;
        let dir = TempDir::new();
        let words = words.replace("@word", word).replace("@option", option);
        in_own_mounts(dir.path(), &(CHANGES.to_owned() + &words));
    }
}

#[test]
#[ignore = "needs root"]
fn marks_mean_what_they_mean_to_linux() {
    if tool("setfattr").is_none() {
        return;
    }
    let words = r#"
mkdir -p mid/{x,dir,opaque} low/{x,opaque}; echo 1 | tee low/x/a low/x/b low/opaque/a > mid/opaque/b
mark() { setfattr -n trusted.overlay.$1 -v $2 $3; }
# Empty files with an attribute are whiteouts, other files are not.
: > mid/x/a; mark whiteout y mid/x/a; mark opaque x mid/x; echo 1 > mid/dir/full; mark whiteout y mid/dir/full
# Whiteouts and marks where they hide nothing.
mknod low/x/none c 0 0; mknod mid/dir/none c 0 0; : > mid/dir/none2; mark whiteout y mid/dir/none2; mark opaque y mid; mark opaque x mid/dir
mark opaque y low/x; mark opaque y mid/opaque; mknod mid/block b 0 0
# Attributes of an overlay in the overlay, and those of another namespace.
mark overlay.opaque y mid/dir; setfattr -n user.overlay.opaque -v y mid/dir; mark origin y mid/dir/full
mount -t overlay -o ro,lowerdir=mid:low none m; same overlay:low:mid 15
$restow manifest overlay:low:mid | grep -q 'trusted.overlay.opaque=79 xattr.user.overlay.opaque=79'
for name in x/a x/none dir/none dir/none2 opaque/a; do
    if $restow cat overlay:low:mid $name 2> words; then exit 1; fi; grep -q 'no such file' words
done
mkdir point; $restow mount overlay:low:mid point; $restow manifest point > ours; $restow unmount point
grep -v overlay linux > linux2; grep -v overlay ours | diff linux2 -
"#;
    let dir = TempDir::new();
    in_own_mounts(dir.path(), &(CHANGES.to_owned() + words));
}

#[test]
#[ignore = "needs root"]
fn renamed_directories_and_content_of_lower_layers_are_those_of_linux() {
    if tool("setfattr").is_none() {
        return;
    }
    let words = r#"
options=redirect_dir=on,metacopy=on
mount -t overlay -o lowerdir=low,upperdir=up,workdir=work,$options none m
(cd m; mv dir moved; mkdir new; mv deep new/deep; mv new/deep/a new/a; rm new/a/b/c; echo new > new/a/b/new
mv again new/again; mkdir dir; echo other > dir/other; rm -r gone
chmod 600 kept; chown 9 owned; chmod 640 changed; mv changed new/changed; mv old/x old/y; setfattr -n user.m -v 1 old/y
setfattr -n user.moved -v 1 moved)
getfattr -R --absolute-names -dm trusted.overlay up > marks; grep -q redirect=./new/ marks || grep -q 'redirect="/deep' marks
grep -q metacopy marks
same overlay:low:up 25; $restow copy -q overlay:low:up x.squashfs; $restow diff x.squashfs m
umount m; rm -r work; mkdir up2 work
mount -t overlay -o lowerdir=up:low,upperdir=up2,workdir=work,$options none m
(cd m; mv moved moved2; mkdir moved; mv new/a a; mv a/b new/b; chmod 604 kept; touch -d @7 new/changed; mv new newer; mv newer/again dir/sub; rm moved2/b)
same overlay:low:up:up2 25
mkdir point; $restow mount overlay:low:up:up2 point; diff -r -x fifo -x null point m; $restow unmount point
umount m
# A place that no layer has, and one that several directories have.
rm -r up/*; mkdir up/{a,b,c}; point() { setfattr -n trusted.overlay.redirect -v "$1" up/$2; }
mknod up/deep c 0 0; point /deep/a a; point /none/x c
mount -t overlay -o ro,lowerdir=up:low,$options none m; same overlay:low:up 25; umount m
refused() { if $restow manifest $1 > ours 2> words; then exit 1; fi; grep -q "$2" words; }
point /deep/a b; refused overlay:low:up 'b/b in overlay:low:up: a directory is in two places'
for place in '' / .. /.. /deep/../x //deep /deep/ a/b $(printf '/x%.0s' {1..2100}); do
    point "$place" a; refused overlay:low:up 'redirect of overlayfs is no path in the lower layers'
    $restow copy -q --skip-unreadable overlay:low:up x && exit 1; [ ! -e x/a ]; rm -r x
done
rm -r up/a; echo x > up/file; setfattr -n trusted.overlay.metacopy -v '' up/file
refused overlay:low:up 'content overlayfs left in a lower layer has none there'; rm up/file
setfattr -n user.overlay.redirect -v x up/b; refused overlay,userxattr:low:up 'does not follow with userxattr'
# Without privilege, the marks of directories cannot be seen.
setpriv --bounding-set -sys_admin --inh-caps -sys_admin $restow ls overlay:low:up 2> words && exit 1
grep -q 'up: only root can read the attributes' words
setpriv --bounding-set -sys_admin --inh-caps -sys_admin $restow ls overlay,userxattr:low:low > words
"#;
    let dir = TempDir::new();
    in_own_mounts(dir.path(), &(CHANGES.to_owned() + words));
}

#[test]
fn layers_are_addresses() {
    let dir = TempDir::new();
    for (path, content) in [("a:b/d/x", "1"), ("c/d/y", "22"), ("c\\/d/z", "3")] {
        fs::create_dir_all(dir.join(path).parent().unwrap()).unwrap();
        fs::write(dir.join(path), content).unwrap();
    }
    ok(&dir, "copy -q c c.tar");
    let layers = "overlay,userxattr:a\\:b:c.tar\\:d:c\\\\";
    assert_eq!(ok(&dir, &format!("ls -R {layers}")).0, "d\nd/x\nd/z\ny\n");
    assert_eq!(ok(&dir, &format!("cat {layers} d/x y d/z")).0, "1223");
    let refused = |line: &str, part: &str| {
        let (code, _, words) = run_in(dir.path(), line.split(' '));
        assert_eq!(code, 2, "{line}");
        assert!(words.contains(part), "{line}: {words}");
    };
    refused("ls overlay:c", "an overlay is overlay:LOWER:UPPER");
    refused("ls overlay:c:", "an overlay is overlay:LOWER:UPPER");
    refused("ls overlay:c:none", "none: no such file or directory");
    refused(
        "info overlay:c:c",
        "an overlay, which is read as a tree of files only",
    );
    refused(
        "check overlay:c:c",
        "an overlay, which is read as a tree of files only",
    );
    refused(
        "copy c overlay:c:c",
        "is an overlay, which restow does not write",
    );
    let line = "copy --replace overlay,userxattr:c:a\\:b a:b";
    refused(line, "source a:b is inside a:b, which would be replaced");
    symlink("c", dir.join("overlay:c:c")).unwrap();
    assert_eq!(ok(&dir, "ls -R overlay:c:c").0, "d\nd/y\n");
}
