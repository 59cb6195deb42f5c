//! What is written over, beside GNU tar and mksquashfs: files and their rights, links, devices,
//! streams, and directories.

use std::path::Path;
use std::process::Command;

use testkit::{TempDir, run, tool};

use super::mount_points::in_own_mounts;

/// Runs a script in a directory.
fn script(dir: &Path, script: &str) {
    let mut bash = Command::new("bash");
    bash.args(["-e", "-o", "pipefail", "-c"]);
    bash.arg("umask 022; mkdir -p src; echo x > src/f\n".to_owned() + script);
    bash.current_dir(dir).env("LC_ALL", "C");
    run(bash.env("restow", env!("CARGO_BIN_EXE_restow")));
}

#[test]
fn a_link_stays_and_the_file_behind_it_is_replaced() {
    let (Some(_), Some(_)) = (tool("tar"), tool("mksquashfs")) else {
        return;
    };
    let dir = TempDir::new();
    let words = r#"
mkdir real links
for name in tar.tar ours.tar mk.squashfs ours.squashfs; do
    touch real/$name; chmod 640 real/$name; ln -s ../links/second-$name links/first-$name
    ln -s $PWD/real/$name links/second-$name
done
tar -cf links/first-tar.tar src
mksquashfs src links/first-mk.squashfs -noappend -quiet -no-progress
for name in ours.tar ours.squashfs; do
    if $restow copy src links/first-$name 2> words; then exit 1; fi
    grep -q 'already exists; --overwrite replaces it' words
    $restow copy -q --overwrite src links/first-$name; $restow diff src real/$name
done
[ $(find links -type l | wc -l) = 8 ]; [ "$(stat -c %a real/* | sort -u)" = 640 ]
# A link that leads nowhere makes the file; set-ID bits do not stay.
ln -s ../real/new.tar links/new.tar
tar -cf links/new.tar src; rm real/new.tar
$restow copy -q --overwrite src links/new.tar; [ $(stat -c %a real/new.tar) = 644 ]
chmod 6711 real/new.tar
$restow copy -q --overwrite src links/new.tar; [ $(stat -c %a real/new.tar) = 711 ]
$restow copy -q --to file --overwrite src/f links/new.tar; cmp src/f real/new.tar
ln -s loop links/loop
if $restow copy --overwrite src links/loop 2> words --to tar; then exit 1; fi
grep -q 'too many symbolic links' words
"#;
    script(dir.path(), words);
}

#[test]
fn other_names_of_a_replaced_file_are_reported() {
    let dir = TempDir::new();
    let words = r#"
echo old > a.tar; ln a.tar b.tar
$restow copy --overwrite src a.tar 2> words
grep -qx 'restow: the old file stays under 1 other name (hard links)' words
grep -qx old b.tar
$restow copy --overwrite src a.tar 2> words; if grep 'other name' words; then exit 1; fi
"#;
    script(dir.path(), words);
}

#[test]
fn open_files_are_written_through() {
    let dir = TempDir::new();
    let words = r#"
$restow copy -q src - > plain
$restow copy -q src /dev/stdout > out; cmp plain out
$restow copy -q src /proc/self/fd/1 | cmp plain -
{ echo head; $restow copy -q src /dev/stdout; echo end; } > out
{ echo head; cat plain; echo end; } | cmp - out
{ echo head >&3; $restow copy -q src /dev/fd/3; echo end >&3; } 3> out
{ echo head; cat plain; echo end; } | cmp - out
$restow copy -q src /dev/stderr 2> out; cmp plain out
$restow copy -q src >(cat > out); wait $!; cmp plain out
$restow copy -q --to tar.zst src >(cat > out); wait $!; $restow diff src out
$restow stream convert <($restow copy -q --to stream --name s src -) /dev/stdout > out
$restow diff src out
mkfifo fifo; cat fifo > out & reader=$!; exec 4> fifo
$restow copy -q --to tar src /proc/$$/fd/4 4>&-; exec 4>&-; wait $reader; cmp plain out
# What is no stream, or takes standard output, is refused before anything is written.
for to in squashfs btrfs dir file; do
    if $restow copy --overwrite --to $to src /dev/stdout > out; then exit 1; fi; [ ! -s out ]
    if $restow copy --overwrite --to $to src /dev/fd/3 3> out; then exit 1; fi; [ ! -s out ]
done 2> words
[ $(grep -c 'squashfs.*cannot go to\|not written sequentially' words) = 4 ]
if $restow copy --json src /dev/stdout > out 2> words; then exit 1; fi
grep -q 'standard output is DST' words; [ ! -s out ]
"#;
    script(dir.path(), words);
}

#[test]
fn nothing_is_replaced_that_another_source_is_in() {
    let dir = TempDir::new();
    let words = r#"
mkdir dst; echo y > dst/y
$restow copy -q src dst/a.stream; $restow copy -q src dst/a.btrfs
for words in "--with dst/a.stream" "--with dst/a.stream=sub" "--base dst/a.stream" "--device dst/a.btrfs"; do
    if $restow copy --replace $words src dst 2> words; then exit 1; fi
    grep -q "source dst/a.*is inside dst, which would be replaced" words
done
[ "$(ls dst | xargs)" = "a.btrfs a.stream y" ]
"#;
    script(dir.path(), words);
}

#[test]
#[ignore = "needs root"]
fn the_owner_and_the_access_list_of_a_replaced_file_stay() {
    let (Some(_), Some(_), Some(_)) = (tool("tar"), tool("getfacl"), tool("setfacl")) else {
        return;
    };
    let dir = TempDir::new();
    let words = r#"
mkdir t; mount -t tmpfs none t; cd t; mkdir src sub; echo x > src/f; setfacl -d -m u:7:rwx sub
for name in theirs ours; do
    for kind in plain listed; do
        touch sub/$name-$kind; chown 1234:2345 sub/$name-$kind
        setfacl -b sub/$name-$kind; chmod 604 sub/$name-$kind
    done
    setfacl -m u:99:rw,g:98:r,g::- sub/$name-listed
done
for kind in plain listed; do
    tar -cf sub/theirs-$kind src; $restow copy -q --overwrite --to tar src sub/ours-$kind
    $restow diff src sub/ours-$kind
    diff <(getfacl -n sub/theirs-$kind | sed 1d) <(getfacl -n sub/ours-$kind | sed 1d)
done
"#;
    in_own_mounts(dir.path(), words);
}

/// As with `fs.protected_symlinks` and `fs.protected_regular`, whether Linux has them set or not.
#[test]
#[ignore = "needs root"]
fn links_of_strangers_in_a_directory_for_all_are_not_followed() {
    let (Some(_), Some(_)) = (tool("setpriv"), tool("tar")) else {
        return;
    };
    let dir = TempDir::new();
    let words = r#"
chmod 755 .; mkdir -m 1777 all; chown 5 all; echo precious > victim
as() { setpriv --reuid $1 --clear-groups "${@:2}"; }
as 65534 ln -s $PWD/victim all/theirs.tar; as 5 ln -s $PWD/of-owner all/owner.tar
ln -s $PWD/of-root all/own.tar; ln -s all/theirs.tar chain.tar
for link in all/theirs.tar chain.tar; do
    if $restow copy --overwrite src $link 2> words; then exit 1; fi
    grep -q 'a symbolic link of another user, in a directory that all users can write to' words
    if [ $(cat /proc/sys/fs/protected_symlinks) = 1 ]; then
        if tar -cf $link src 2> words; then exit 1; fi
    fi
done
grep -qx precious victim
# Nor is a device behind one written to.
mknod null c 1 3; as 65534 ln -s $PWD/null all/null.tar
if $restow copy --overwrite src all/null.tar 2> words; then exit 1; fi
grep -q 'a symbolic link of another user' words
for link in owner own; do $restow copy -q --overwrite src all/$link.tar; test -L all/$link.tar; done
$restow diff src of-owner; $restow diff src of-root
# The owner of a file that was put there does not get the new one.
as 65534 touch all/trap.tar; chmod 666 all/trap.tar
$restow copy -q --overwrite src all/trap.tar; [ "$(stat -c '%u %a' all/trap.tar)" = "0 644" ]
"#;
    script(dir.path(), words);
}

#[test]
#[ignore = "needs root"]
fn devices_are_written_to_and_never_replaced() {
    let dir = TempDir::new();
    let words = r#"
mknod null c 1 3; mkfifo fifo; ln -s null link
for to in null link; do
    $restow copy -q --to tar src $to; $restow copy -q --overwrite --to tar src $to
    for format in squashfs btrfs dir file; do
        if $restow copy -q --overwrite --to $format src/f $to 2> words; then exit 1; fi
    done
done
for format in squashfs btrfs dir file; do
    if $restow copy -q --overwrite --to $format src fifo 2> words; then exit 1; fi
done
test -c null; test -p fifo; test -L link; [ "$(ls | xargs)" = "fifo link null src words" ]
"#;
    script(dir.path(), words);
}

/// Overlayfs does not rename directories of its lower layers.
#[test]
#[ignore = "needs root"]
fn a_directory_of_a_lower_layer_is_replaced() {
    let (Some(_), Some(_)) = (tool("mkfs.ext4"), tool("chattr")) else {
        return;
    };
    let dir = TempDir::new();
    let words = r#"
truncate -s 16M image; mkfs.ext4 -q image; mkdir t; mount -o loop image t; cd t
mkdir -p src/sub lower/d/sub/deep upper work m; echo x > src/f; echo y > src/sub/g; chmod 750 src
echo old > lower/d/f; echo old > lower/d/sub/deep/old; chmod 700 lower/d/sub
mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work,redirect_dir=off none m
echo new > m/d/new; mkdir m/d/upper
$restow copy --replace src m/d 2> words; grep -q '6 entries of the old directory deleted' words
$restow diff src m/d; diff -r src m/d; [ "$(ls -A m)" = d ]
umount m; mkdir -p lower/e/sub; echo 1 > lower/e/a; echo 2 > lower/e/sub/b; echo 3 > lower/e/sub/c
chmod 710 lower/e/sub; chattr +i lower/e/sub/c
mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work none m
$restow diff src m/d; [ "$(ls -A m/d | xargs)" = "f sub" ]
# An error leaves the old one as it was.
if $restow copy --replace src m/e 2> words; then exit 1; fi; grep -q 'not permitted' words
$restow diff --ignore mtime lower/e m/e; [ "$(ls -A m | xargs)" = "d e" ]
chattr -i lower/e/sub/c
"#;
    in_own_mounts(dir.path(), words);
}

/// Of a directory that is moved file by file, a part can be in each of two places.
#[test]
#[ignore = "needs root"]
fn a_killed_replacement_on_overlayfs_is_taken_back() {
    let Some(_) = tool("mkfs.ext4") else {
        return;
    };
    let dir = TempDir::new();
    let words = r#"
truncate -s 64M image; mkfs.ext4 -q image; mkdir t; mount -o loop image t; cd t
mkdir -p src nothing lower/d/sub/deep lower/d/empty; echo new > src/new; chmod 750 lower/d/sub
for i in $(seq 120); do echo $i > lower/d/sub/deep/$i; done; echo old > lower/d/f
halfway=0
for count in 1 60; do
    mkdir upper work m
    mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work,redirect_dir=off none m
    $restow copy -q --replace src m/d & restow_id=$!
    until [ "$(ls m/.d.*.old/sub/deep 2> words | wc -l)" -ge $count ] || ! kill -0 $restow_id; do :; done
    kill -9 $restow_id && wait $restow_id || true
    if ls m/.d.*.old > words; then
        ls m/d/sub/deep > words && halfway=$((halfway + 1))
        # Of another process, nothing is taken away.
        $restow copy -q --to tar src m/d.tar; ls -d m/.d.*.old > words
        $restow copy -q --merge nothing m/d
        $restow diff --ignore mtime lower/d m/d; [ "$(ls -A m | xargs)" = "d d.tar" ]
    fi
    $restow copy -q --replace src m/d; $restow diff src m/d; rm -f m/d.tar; [ "$(ls -A m)" = d ]
    umount m; rm -r upper work m
done
[ $halfway -gt 0 ]
# Where the new one has taken its place, only the user can tell.
cp -r src new; mkdir .new.restow-999999999-0.old; echo x > .new.restow-999999999-0.old/x
if $restow copy -q --replace src new 2> words; then exit 1; fi
grep -q 'left the old directory as .new.restow-999999999-0.old: delete or rename it first' words
rm -r .new*; $restow copy -q --replace src new
# On a file system without exchange, the old one has another name as a whole.
mkdir .new.restow-999999999-0.tmp; mv new .new.restow-999999999-0.old
$restow copy -q --merge nothing new; $restow diff --ignore mtime src new; if ls -d .new*; then exit 1; fi
# A new file is never replaced.
mkdir .new.restow-999999999-0.tmp .new.restow-999999999-0.old; echo x > .new.restow-999999999-0.old/new
if $restow copy -q --replace src new 2> words; then exit 1; fi
[ "$(cat new/new .new*.old/new | xargs)" = "new x" ]
"#;
    in_own_mounts(dir.path(), words);
}
