//! The options of `mksquashfs` and `sqfstar`: images of the same tree, and the same exit codes, as
//! of squashfs-tools.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::assert_no_option_is_without_a_case;
use testkit::{FsType, Mount, TempDir, Tool, newer_tool, run, tool};

/// Command lines, in which `IMG` is the image, `'` encloses a word with spaces, `VAR=` sets a
/// variable, and `<` names standard input; with letters in front:
///
/// - `t`: the time of the root is the time of day in the image of squashfs-tools;
/// - `m`: so is its mode 0777, and here 0755;
/// - `l`: it changes the mode of symbolic links, too;
/// - `s`: its lines on standard output are compared, too;
/// - `x`: its extended attributes are compared, too;
/// - `d`: so are the times of directories that the archive does not have;
/// - `i`: IMG exists, and is an image;
/// - `n`: only a newer program than Debian 12's has the options;
/// - `e`: an error here, where the program makes an image without a content;
/// - `r`: refused here, and not by the program.
type Case = (&'static str, &'static str);

const COMPRESSION: &[Case] = &[
    ("", "mksquashfs d IMG"),
    ("", "mksquashfs d IMG -b 64K -comp zstd"),
    (
        "",
        "mksquashfs d IMG -b 1Mbytes -comp zstd -Xcompression-level 19",
    ),
    ("", "mksquashfs d IMG -b 65536 -Xcompression-level 3"),
    ("", "mksquashfs d IMG -Xcompression-level 5 -comp lzo"),
    ("", "mksquashfs d IMG -comp lzo -Xalgorithm lzo1x_1"),
    ("", "mksquashfs d IMG -comp lzo -Xalgorithm lzo1x_1_11"),
    ("", "mksquashfs d IMG -comp lzo -Xalgorithm lzo1x_2"),
    ("", "mksquashfs d IMG -comp lz4 -Xhc"),
    (
        "",
        "mksquashfs d IMG -comp xz -Xbcj x86,arm -Xdict-size 50%",
    ),
    ("", "mksquashfs d IMG -comp xz -b 1M -Xdict-size 32K"),
    ("", "mksquashfs d IMG -comp xz -Xcompression-level 5"),
    ("", "mksquashfs d IMG -Xhc"),
    ("", "mksquashfs d IMG -comp nonsense"),
    ("", "mksquashfs d IMG -b 3000"),
    ("", "mksquashfs d IMG -Xwindow-size 12"),
    ("", "mksquashfs d IMG -Xstrategy fixed,default"),
    ("", "mksquashfs d IMG -noI -noId -noD -noF -noX"),
    (
        "",
        "mksquashfs d IMG -noInodeCompression -noIdTableCompression",
    ),
    (
        "",
        "mksquashfs d IMG -noDataCompression -noFragmentCompression -noXattrCompression",
    ),
    ("n", "mksquashfs d IMG -no-compression"),
];

const BUILDING: &[Case] = &[
    ("t", "mksquashfs d e IMG"),
    ("t", "mksquashfs d/f e/f e/f d/a IMG"),
    ("t", "mksquashfs d/f d/l d/p IMG"),
    ("t", "mksquashfs link IMG"),
    ("t", "mksquashfs d IMG -keep-as-directory"),
    ("", "mksquashfs nothing IMG"),
    ("", "mksquashfs d nothing IMG"),
    ("", "mksquashfs d"),
    ("", "mksquashfs d IMG more -noappend"),
    ("", "mksquashfs -noappend d IMG"),
    ("", "mksquashfs d IMG -noappend more"),
    ("", "mksquashfs d IMG -nonsense"),
    ("i", "mksquashfs d IMG -noappend"),
    ("", "mksquashfs d text"),
    ("", "mksquashfs d nowhere/IMG"),
    ("", "mksquashfs d/a e IMG -no-strip"),
    ("", "mksquashfs d/a e/a/z IMG -tarstyle"),
    ("", "mksquashfs d/a nothing IMG -tarstyle"),
    ("n", "mksquashfs - IMG -cpiostyle < missing"),
    ("n", "mksquashfs - IMG -cpiostyle < list"),
    ("n", "mksquashfs - IMG -cpiostyle0 < list0"),
    ("", "mksquashfs d IMG -cpiostyle < list"),
    (
        "",
        "mksquashfs d IMG -no-exports -no-sparse -no-tailends -no-duplicates",
    ),
    ("n", "mksquashfs d IMG -exports -tailends"),
    ("", "mksquashfs d IMG -always-use-fragments"),
    ("", "mksquashfs d IMG -no-fragments -nopad"),
    ("", "mksquashfs d IMG -offset 4096"),
    ("", "mksquashfs d IMG -o 8K"),
    ("", "mksquashfs d IMG -no-hardlinks"),
    ("nr", "mksquashfs d - -stream"),
    ("nr", "mksquashfs -fix IMG"),
];

const APPENDING: &[Case] = &[
    ("i", "mksquashfs d IMG -no-recovery"),
    ("i", "mksquashfs d/a/b IMG -no-recovery -all-root"),
    (
        "it",
        "mksquashfs d/a/b/y.gz e d/f IMG -no-recovery -comp xz -b 4K",
    ),
    (
        "it",
        "mksquashfs d IMG -no-recovery -keep-as-directory -e f a/b",
    ),
    ("i", "mksquashfs d/a IMG -no-recovery -root-becomes b"),
    (
        "it",
        "mksquashfs d/f d/p IMG -no-recovery -root-becomes f -nopad",
    ),
    (
        "i",
        "mksquashfs d IMG -no-recovery -p 'new D 9 755 1 2' -root-mode 711",
    ),
    ("ir", "mksquashfs d IMG -offset 4096"),
    ("ir", "mksquashfs d IMG -action nonsense@true"),
    ("ir", "mksquashfs d IMG -action uncompressed@true"),
];

const ACTIONS: &[Case] = &[
    (
        "",
        "mksquashfs d IMG -action exclude@name(*.gz) -action 'empty(excluded) @ true'",
    ),
    ("", "mksquashfs d IMG -log-action prune@type(p)||type(l)"),
    (
        "",
        "mksquashfs d IMG -true-action 'chmod(u+x,o=)@filesize(>3)&&!pathname(a/*)'",
    ),
    (
        "",
        "mksquashfs d IMG -false-action guid(daemon,7)@subpathname(a/b) -force-gid 8",
    ),
    ("", "mksquashfs d IMG -action-file actions -e a/b"),
    ("", "mksquashfs d IMG -log-action-file actions"),
    ("", "mksquashfs d IMG -true-action-file actions"),
    ("", "mksquashfs d IMG -false-action-file actions"),
    (
        "",
        "mksquashfs d IMG -action 'prune @ type(l) && ! exists' -e f",
    ),
    ("", "mksquashfs d IMG -action 'prune @ type(l) && exists'"),
    (
        "",
        "mksquashfs d IMG -action 'prune@type(l)&&readlink(\"name(f) && depth(1)\")'",
    ),
    (
        "",
        "mksquashfs d IMG -action 'prune@readlink(filesize(<4))' -action noop@true",
    ),
    ("", "mksquashfs d IMG -action prune@type(l)&&!absolute"),
    (
        "",
        "mksquashfs d IMG -action 'prune@eval(.., \"name(b)\")||eval(b,true)||eval(../x,true)'",
    ),
    (
        "",
        "mksquashfs d IMG -action 'prune@type(f)&&eval(/a/b,type(d))'",
    ),
    (
        "",
        "mksquashfs d IMG -action 'prune@nlink(2)&&type(f)||dircount(<1)||dircount_range(2,2)'",
    ),
    ("", "mksquashfs d IMG -action 'exclude@exists'"),
    (
        "",
        "mksquashfs d IMG -action 'exclude@nlink_range(2,3)&&type(f)'",
    ),
    (
        "nx",
        "mksquashfs d IMG -action xattrs-exclude(^user)@name(f)",
    ),
    (
        "nx",
        "mksquashfs d IMG -action 'xattrs-include(two)@type(d)' -action 'xattrs-add(user.two=0x32)@true'",
    ),
    ("r", "mksquashfs d IMG -action move(a)@true"),
    ("r", "mksquashfs d IMG -action prune@file(text)"),
    ("", "mksquashfs d IMG -action 'fragment()@true'"),
    ("n", "mksquashfs d IMG -action align(100)@true"),
    ("", "mksquashfs d IMG -action prune@nonsense"),
];

const TIMES: &[Case] = &[
    ("", "mksquashfs d IMG -mkfs-time 1000 -all-time 2000"),
    (
        "n",
        "mksquashfs d IMG -fstime 1000 -all-time '2001-02-03 04:05'",
    ),
    (
        "n",
        "mksquashfs d e IMG -all-time 'Wed Feb 15 21:02:39 GMT 2023'",
    ),
    ("", "mksquashfs d IMG -all-time nonsense"),
    ("", "mksquashfs d IMG -all-time -5"),
    ("n", "mksquashfs d IMG -inode-time 2000 -root-time 1000"),
    ("n", "mksquashfs d IMG -root-time 1000 -mkfs-time inode"),
    ("n", "mksquashfs d e IMG -root-time @1000"),
    ("n", "mksquashfs d IMG -repro"),
    ("n", "mksquashfs d IMG -repro-time 2000"),
    ("nr", "mksquashfs d IMG -inode-time inode"),
    ("", "SOURCE_DATE_EPOCH=2000000 mksquashfs d IMG"),
    ("", "SOURCE_DATE_EPOCH=2000000 mksquashfs d e IMG"),
    ("", "SOURCE_DATE_EPOCH=2000000 mksquashfs d IMG -all-time 5"),
    ("", "SOURCE_DATE_EPOCH=x mksquashfs d IMG"),
    ("", "mksquashfs d IMG -reproducible"),
    ("", "mksquashfs d IMG -not-reproducible"),
];

const PERMISSIONS: &[Case] = &[
    ("", "mksquashfs d IMG -all-root"),
    ("", "mksquashfs d IMG -root-owned -root-mode 711"),
    (
        "n",
        "mksquashfs d IMG -root-mode go-rwx -root-uid 7 -root-gid 8",
    ),
    (
        "nt",
        "mksquashfs d e IMG -root-mode go-w -root-uid 7 -root-gid daemon",
    ),
    (
        "t",
        "mksquashfs d e IMG -root-mode 700 -root-uid 7 -force-gid 8",
    ),
    ("", "mksquashfs d IMG -force-uid daemon -force-gid daemon"),
    ("", "mksquashfs d IMG -force-uid nonsense"),
    ("n", "mksquashfs d IMG -force-uid 5 -root-uid 6 -all-root"),
    (
        "nl",
        "mksquashfs d IMG -force-file-mode 600 -force-dir-mode u=rwx,go= -root-mode 777",
    ),
    (
        "nlt",
        "mksquashfs d e IMG -force-file-mode ugo+r,go-w -force-dir-mode 711",
    ),
    ("nt", "mksquashfs d e IMG -uid-gid-offset 100"),
    ("n", "mksquashfs d IMG -uid-gid-offset 100 -force-uid 5"),
];

const SELECTING: &[Case] = &[
    ("", "mksquashfs d IMG -e f nothing"),
    ("", "mksquashfs d IMG -e a/b -noappend"),
    ("t", "mksquashfs d e IMG -e a/b ./e/a ./d/p"),
    ("", "mksquashfs d/a d/p d/.hid IMG -no-strip -e b ./d/a/big"),
    ("", "mksquashfs d IMG -ef excluded"),
    ("", "mksquashfs d IMG -ef nothing"),
    ("", "mksquashfs d IMG -wildcards -e a/*.gz a/b/?.gz 'e*'"),
    ("", "mksquashfs d IMG -wildcards -e '... *.gz' '... big'"),
    ("t", "mksquashfs d e IMG -wildcards -e d/f 'e/*' a"),
    ("", "mksquashfs d IMG -wildcards -e /f"),
    ("", "mksquashfs d IMG -wildcards -e ./f"),
    ("", "mksquashfs d IMG -sort sorted"),
    ("", "mksquashfs d IMG -sort nothing"),
    ("n", "mksquashfs d IMG -max-depth 1"),
    ("nt", "mksquashfs d e IMG -max-depth 2"),
    ("n", "mksquashfs d IMG -max-depth 0"),
    ("", "mksquashfs d IMG -one-file-system"),
    ("n", "mksquashfs d IMG -one-file-system-x"),
    ("", "mksquashfs d IMG -regex -e '^f$' 'a/.*gz' '... ^b'"),
    ("", "mksquashfs d IMG -wildcards -e '*'"),
    ("", "mksquashfs d IMG -wildcards -e '@(f|a|p)' 'two words'"),
    ("x", "mksquashfs d IMG -no-xattrs"),
    ("x", "mksquashfs d IMG -xattrs"),
    ("nx", "mksquashfs d IMG -xattrs-exclude ^user."),
    (
        "nx",
        "mksquashfs d IMG -xattrs-include two -xattrs-add user.two=2",
    ),
    (
        "nx",
        "mksquashfs d IMG -xattrs-add user.b=c -xattrs-add user.c=0x32",
    ),
];

const PSEUDO: &[Case] = &[
    (
        "",
        "mksquashfs d IMG -p 'new D 1000 755 1 2' -p 'f m 600 5 6' -p 'new/s S 7 777 0 0 ../f'",
    ),
    ("", "mksquashfs d IMG -pf pseudo"),
    ("n", "mksquashfs d IMG -pf - < pseudo"),
    ("", "mksquashfs d IMG -p 'new q 755 1 2'"),
    (
        "",
        "mksquashfs - IMG -p '/ D 1000 755 0 0' -p 'n C 5 600 0 0 1 3'",
    ),
    ("", "mksquashfs - IMG"),
    (
        "",
        "mksquashfs d IMG -p 'date F 5 644 0 0 echo hello' -p 'l L date'",
    ),
    ("e", "mksquashfs d IMG -p 'date F 5 644 0 0 false'"),
    (
        "n",
        "mksquashfs d IMG -pd 'D 9 700 1 2' -p 'x/y/z D 5 755 0 0'",
    ),
    (
        "n",
        "mksquashfs d IMG -pseudo-dir 'D 9 700 1 2' -p 'x/y/z D 5 755 0 0'",
    ),
    ("n", "mksquashfs d IMG -p 'x D 5 755 3 4' -force-uid 7"),
    (
        "n",
        "mksquashfs d IMG -p 'x D 5 755 3 4' -pseudo-override -all-root",
    ),
];

const RUNNING: &[Case] = &[
    (
        "",
        "mksquashfs d IMG -quiet -no-progress -processors 1 -exit-on-error",
    ),
    ("s", "mksquashfs d IMG -info -no-progress -mem 100M"),
    ("s", "mksquashfs d IMG -quiet -no-progress"),
    (
        "s",
        "mksquashfs d IMG -no-progress -noI -noF -no-xattrs -no-duplicates -no-exports -no-hardlinks",
    ),
    (
        "s",
        "mksquashfs d IMG -no-progress -no-fragments -force-uid 7 -b 64K -comp xz",
    ),
    ("s", "mksquashfs d IMG -no-progress -comp zstd -tailends"),
    ("stm", "sqfstar -no-progress IMG < whole.tar"),
    ("", "mksquashfs d IMG -progress"),
    ("n", "mksquashfs d IMG -percentage -mem-percent 10"),
    ("nr", "mksquashfs d IMG -info-file names"),
    (
        "",
        "mksquashfs d IMG -throttle 1 -read-queue 8 -write-queue 8 -fragment-queue 8",
    ),
    ("", "mksquashfs d IMG -limit 99"),
    ("n", "mksquashfs d IMG -single-reader -overcommit 50"),
    ("n", "mksquashfs d IMG -small-readers 2 -block-readers 2"),
    ("", "mksquashfs d IMG -no-recovery -recovery-path ."),
    ("", "mksquashfs d IMG -recover nothing"),
    ("nr", "mksquashfs -mem-default"),
    ("nr", "mksquashfs -help-option b"),
    ("nr", "mksquashfs -ho b"),
    ("nr", "mksquashfs -help-section time"),
    ("nr", "mksquashfs -hs time"),
    ("nr", "mksquashfs -help-comp xz"),
    ("r", "mksquashfs d IMG -Xhelp"),
    ("n", "mksquashfs d IMG -no-pager -cols 80"),
    ("", "mksquashfs -version"),
    ("", "sqfstar -version"),
];

const ARCHIVES: &[Case] = &[
    ("tmd", "sqfstar IMG < tar"),
    ("tmd", "sqfstar IMG < whole.tar"),
    (
        "td",
        "sqfstar -root-mode 755 -comp zstd -b 64K IMG '... *.gz' < tar",
    ),
    ("tmd", "sqfstar IMG d/a/b < tar"),
    ("tmd", "mksquashfs - IMG -tar < tar"),
    ("", "mksquashfs d IMG -tar < tar"),
    (
        "ntmd",
        "sqfstar -ignore-zeros -numeric-owner -exports IMG < twice",
    ),
    ("", "sqfstar IMG < text"),
    ("", "sqfstar"),
    ("i", "sqfstar IMG < tar"),
    ("itmd", "sqfstar -force IMG < tar"),
    (
        "ntd",
        "sqfstar -default-mode 700 -default-uid 5 -default-gid 6 IMG < tar",
    ),
    ("ntmd", "sqfstar -default-uid 5 IMG < tar"),
    ("ntmd", "sqfstar -default-gid 5 IMG < tar"),
];

/// The examples of the manuals, other than those of `-action` and of the time of day.
const EXAMPLES: &[Case] = &[
    ("", "mksquashfs d IMG"),
    ("t", "mksquashfs d e/f text IMG"),
    ("", "mksquashfs d IMG -b 1M -comp zstd"),
    ("", "mksquashfs d IMG -force-uid daemon -force-gid daemon"),
    ("nl", "mksquashfs d IMG -force-file-mode ugo+r,go-w"),
    ("", "mksquashfs d IMG -e f empty"),
    ("", "mksquashfs d IMG -wildcards -e '*.gz'"),
    ("", "mksquashfs d IMG -wildcards -e '... *.gz'"),
    ("", "mksquashfs d IMG -p 'build_dir d 0644 0 0' -all-time 5"),
    ("", "mksquashfs d IMG -p 'version.txt l text'"),
    (
        "",
        "mksquashfs d IMG -p 'date.txt f 0644 0 0 echo day' -all-time 5",
    ),
    (
        "",
        "mksquashfs d IMG -p '\"hello world\" f 0644 0 0 echo day' -all-time 5",
    ),
    (
        "n",
        "mksquashfs - IMG -p 'input f 0644 root root dd if=text bs=1024' -p '/ d 0644 0 0' -all-time 5",
    ),
    ("n", "mksquashfs - IMG -pf - < dump"),
    ("x", "mksquashfs d IMG -no-xattrs"),
    ("nx", "mksquashfs d IMG -xattrs-include ^user."),
    ("nx", "mksquashfs d IMG -xattrs-exclude ^user."),
    (
        "nx",
        "mksquashfs d IMG -xattrs-add 'user.comment=hello world'",
    ),
    (
        "nx",
        "mksquashfs d IMG -xattrs-add 'user.comment=0thello world\\012'",
    ),
    (
        "nx",
        "mksquashfs d IMG -xattrs-add user.comment=0saGVsbG8gd29ybGQ=",
    ),
    (
        "nx",
        "mksquashfs d IMG -p 'f x user.comment=0tsalve mundi\\012'",
    ),
    (
        "td",
        "sqfstar -root-uid 0 -root-gid 0 -root-mode 0755 IMG < tar",
    ),
    ("tmd", "sqfstar -b 1M -comp zstd IMG < tar"),
    (
        "tmd",
        "sqfstar -force-uid daemon -force-gid daemon IMG < tar",
    ),
    ("tmd", "sqfstar IMG d/f d/a/big < tar"),
    ("tmd", "sqfstar IMG '... *.gz' < tar"),
    (
        "nd",
        "sqfstar -p 'build_dir d 0644 0 0' -root-mode 755 -all-time 5 IMG < tar",
    ),
    (
        "nd",
        "sqfstar -p 'version.txt l text' -root-mode 755 -all-time 5 IMG < tar",
    ),
];

/// The command lines of programs that build images, with their trees and lists renamed.
const BUILDERS: &[Case] = &[
    // live-build, scripts/build/binary_rootfs
    ("", "mksquashfs d IMG -comp xz -no-progress"),
    (
        "",
        "mksquashfs d IMG -wildcards -ef globs -Xcompression-level 19 -comp zstd -sort sorted -info -no-progress",
    ),
    // kiwi, kiwi/filesystem/squashfs.py, create_on_file
    (
        "",
        "mksquashfs d IMG -noappend -b 1M -comp xz -Xbcj x86 -wildcards -e a/b .hid two*",
    ),
    ("", "mksquashfs d IMG -noappend -b 1M -noI -noD -noF -noX"),
    // osbuild, stages/org.osbuild.squashfs
    ("", "mksquashfs d IMG -comp xz -Xbcj x86"),
    // systemd-repart (and mkosi, which runs it), src/shared/mkfs-util.c, make_filesystem
    ("i", "mksquashfs d IMG -quiet -noappend"),
    (
        "i",
        "mksquashfs d IMG -noappend -comp zstd -Xcompression-level 3",
    ),
    // appimagetool, src/appimagetool.c, sfs_mksquashfs
    (
        "",
        "mksquashfs d IMG -offset 8192 -comp zstd -root-owned -noappend -b 128K -wildcards -ef globs -mkfs-time 0",
    ),
    (
        "",
        "mksquashfs d IMG -offset 8192 -comp xz -root-owned -noappend -Xdict-size 100% -b 16384 -mkfs-time 0",
    ),
    // snapd, which packs for snapcraft, snap/squashfs/squashfs.go, Build
    (
        "x",
        "mksquashfs d IMG -noappend -comp xz -no-fragments -no-progress -all-root -no-xattrs",
    ),
    (
        "",
        "mksquashfs d IMG -noappend -comp xz -no-fragments -no-progress -wildcards -ef globs -ef excluded",
    ),
    // Buildroot, fs/squashfs/squashfs.mk
    (
        "",
        "mksquashfs d IMG -noappend -processors 2 -b 128K -nopad -comp gzip",
    ),
    (
        "n",
        "mksquashfs d IMG -noappend -processors 2 -b 64K -Xhc -comp lz4",
    ),
    (
        "n",
        "mksquashfs d IMG -noappend -processors 2 -b 4K -no-compression",
    ),
    // Yocto, meta/classes-recipe/image_types.bbclass, oe_mksquashfs
    (
        "",
        "SOURCE_DATE_EPOCH=1200000 mksquashfs d IMG -noappend -comp lzo",
    ),
    // Talos, hack/labeled-squashfs.sh
    (
        "",
        "mksquashfs d IMG -all-root -noappend -comp zstd -Xcompression-level 18 -no-progress",
    ),
];

/// The trees and lists that the command lines name.
fn fixture() -> TempDir {
    let dir = TempDir::new();
    let write = |path: &str, content: &[u8]| fs::write(dir.join(path), content).unwrap();
    for path in ["d/.hid", "d/a/b", "d/empty", "e/a"] {
        fs::create_dir_all(dir.join(path)).unwrap();
    }
    let big = b"0123456789abcdef".repeat(20_000);
    write("d/f", b"one");
    write("d/.hid/in", b"two");
    write("d/a/big", &big);
    write("d/a/same", &big);
    write("d/a/x.gz", b"three");
    write("d/a/b/y.gz", b"four");
    write("d/a/b/.dot", b"");
    write("d/two words", b"five");
    write("e/f", b"six");
    write("e/a/z", b"seven");
    File::create(dir.join("d/sparse"))
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    fs::hard_link(dir.join("d/a/big"), dir.join("d/hard")).unwrap();
    let shell = "ln -s f d/l; ln -s d link; mkfifo d/p; setfattr -n user.one -v 1 d/f d/a
        printf 'd/a\nd/p\ne/a/z\n' >list; tr '\n' '\\0' <list >list0; echo hello >text
        printf 'd/a\\nnope\\n' >missing; printf 'a/*.gz\n... .dot\ne*\n' >globs; printf '# some\n  f\n\na/b\nnothing\n' >excluded; printf 'a/b 5\n./d/f -7\n' >sorted
        printf '# some\nnew D 9 755 1 2\n\"two words\" m 600 3 4\ndev B 9 660 0 6 8 1\n' >pseudo
        printf 'exclude@name(f) && \\\n depth(1)\nuid(5)@type(d)\n' >actions
        find d e -exec touch -h -d @1500000 {} +; touch -d @1000000 d d/f e d/a
        tar cf tar d/f d/a; cat tar tar >twice; tar cf whole.tar -C d .";
    run(Command::new("sh")
        .args(["-c", shell])
        .current_dir(dir.path()));
    dir
}

/// A command line, taken apart.
struct Line {
    program: String,
    variables: Vec<(String, String)>,
    words: Vec<String>,
    stdin: Option<String>,
}

impl Line {
    fn of(line: &str) -> Line {
        let parts = line.split('\'').enumerate();
        let words = parts.flat_map(|(at, part)| match at % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect(),
            _ => vec![part.to_owned()],
        });
        let mut words: Vec<String> = words.collect();
        let (mut variables, mut stdin) = (Vec::new(), None);
        while let Some((name, value)) = words[0].split_once('=') {
            variables.push((name.to_owned(), value.to_owned()));
            words.remove(0);
        }
        if let Some(at) = words.iter().position(|word| word == "<") {
            stdin = words.pop();
            words.truncate(at);
        }
        let program = words.remove(0);
        Line {
            program,
            variables,
            words,
            stdin,
        }
    }

    fn run(&self, mut command: Command, dir: &Path, image: &str) -> Output {
        let words = self.words.iter().map(|word| word.replace("IMG", image));
        command
            .args(words)
            .current_dir(dir)
            .env_remove("SOURCE_DATE_EPOCH");
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(match &self.stdin {
            Some(file) => Stdio::from(File::open(dir.join(file)).unwrap()),
            None => Stdio::null(),
        });
        command.output().unwrap()
    }

    /// The tree of an image, with contents, as `unsquashfs` describes it.
    fn tree(&self, unsquashfs: &Tool, image: &Path, flags: &str) -> String {
        let list = image.with_extension("list");
        let mut command = unsquashfs.command();
        if let Some(at) = self
            .words
            .iter()
            .position(|word| word == "-offset" || word == "-o")
        {
            command.args(["-offset", &self.words[at + 1]]);
        }
        run(command
            .arg("-pf")
            .arg(&list)
            .arg(image)
            .stdout(Stdio::null()));
        let tree = String::from_utf8_lossy(&fs::read(list).unwrap()).into_owned();
        let (root, rest) = tree.split_once('\n').unwrap();
        let mut root: Vec<&str> = root.split(' ').collect();
        for (flag, at) in [('t', 2), ('m', 3)] {
            if flags.contains(flag) {
                root[at] = "";
            }
        }
        let rest: Vec<String> = (rest.lines())
            .map(|line| match line.split_once(" S ") {
                Some((name, _)) if flags.contains('l') => format!("{name} S"),
                None if flags.contains('d') && line.contains(" D ") => without_time(line),
                _ => line.to_owned(),
            })
            .collect();
        root.join(" ") + "\n" + &rest.join("\n")
    }
}

/// The line of a directory without its time.
fn without_time(line: &str) -> String {
    let words = line.split(' ').enumerate();
    let words = words.map(|(at, word)| if at == 2 { "" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// The extended attributes of all files.
fn xattrs(unsquashfs: &Tool, image: &Path) -> String {
    let dir = TempDir::new();
    let to = dir.join("x");
    run(unsquashfs
        .command()
        .args(["-no-progress", "-d"])
        .args([&*to, image])
        .stdout(Stdio::null()));
    let mut list = tool("getfattr").map_or_else(|| Command::new("true"), |it| it.command());
    let list = run(list.args(["-dhR", "-m", "-", "."]).current_dir(to)).stdout;
    // In the order of the directory.
    let list = String::from_utf8_lossy(&list).into_owned();
    let mut files: Vec<&str> = list.split("\n\n").collect();
    files.sort_unstable();
    files.join("\n")
}

/// The lines about an image without the sizes that compression decides, and without the places of
/// inodes and equal files, which those of restow do not have. Lines of files and owners are sorted.
fn comparable(lines: &[u8]) -> String {
    let lines = String::from_utf8_lossy(lines).replace("theirs", "ours");
    let lines = lines.lines().filter(|line| {
        let sizes = [
            "% of uncompressed",
            "ilesystem size",
            "table size",
            "of fragments",
        ];
        !sizes.iter().any(|it| line.contains(it))
    });
    let mut lines: Vec<String> = lines
        .map(|line| match line.split_once(" inode 0x") {
            Some((name, _)) => name.to_owned(),
            None => line.replace(" DUPLICATE", " "),
        })
        .collect();
    lines.sort();
    lines.join("\n")
}

/// Runs each case with the program and with ours.
fn try_all(cases: &[Case]) {
    let Some(unsquashfs) = tool("unsquashfs") else {
        return;
    };
    let (Some(mksquashfs), Some(_)) = (tool("mksquashfs"), tool("sqfstar")) else {
        return;
    };
    let needs_newer = cases.iter().any(|(flags, _)| flags.contains('n'));
    let has_newer = needs_newer && newer_tool("mksquashfs").is_some();
    let dir = fixture();
    run(mksquashfs
        .command()
        .args(["d/a/b", "old.sqfs"])
        .current_dir(dir.path()));
    let dump = dir.join("dump");
    run(unsquashfs
        .command()
        .arg("-pf")
        .arg(dump)
        .arg(dir.join("old.sqfs"))
        .stdout(Stdio::null()));
    let mut wrong = Vec::new();
    for (flags, words) in cases {
        if flags.contains('n') && !has_newer {
            continue;
        }
        if let Err(error) = try_one(&dir, &unsquashfs, flags, &Line::of(words)) {
            wrong.push(format!("{words}: {error}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Runs a line with the program and with ours: the images, and the output of both.
fn make(dir: &TempDir, flags: &str, line: &Line) -> ([PathBuf; 2], [Output; 2]) {
    let find = if flags.contains('n') {
        newer_tool
    } else {
        tool
    };
    let program = find(&line.program).unwrap();
    let images = ["theirs.sqfs", "ours.sqfs"].map(|name| dir.join(name));
    for image in &images {
        let _ = fs::remove_file(image);
        if flags.contains('i') {
            fs::copy(dir.join("old.sqfs"), image).unwrap();
        }
    }
    let theirs = line.run(program.command(), dir.path(), "theirs.sqfs");
    let ours = line.run(crate::restow([&line.program]), dir.path(), "ours.sqfs");
    (images, [theirs, ours])
}

fn try_one(dir: &TempDir, unsquashfs: &Tool, flags: &str, line: &Line) -> Result<(), String> {
    let (images, [theirs, ours]) = make(dir, flags, line);
    let [said, they_said] = [&ours, &theirs].map(|it| String::from_utf8_lossy(&it.stderr));
    if flags.contains(['r', 'e']) {
        let why = if flags.contains('r') {
            "not supported"
        } else {
            "its command ended with"
        };
        let is_refused = ours.status.code() == Some(1) && said.contains(why);
        let is_written = images[1].exists() && !flags.contains('i');
        return if is_refused && !is_written {
            Ok(())
        } else {
            Err(said.into_owned())
        };
    }
    let they_said: String = they_said.chars().take(300).collect();
    let same = |what: &str, ours: String, theirs: String| {
        if ours == theirs {
            return Ok(());
        }
        let lines = ours.lines().zip(theirs.lines());
        let different: Vec<_> = lines
            .filter(|(ours, theirs)| ours != theirs)
            .take(5)
            .collect();
        Err(format!("{what}: {different:?}\n{said}\n{they_said}"))
    };
    let codes = [&ours, &theirs].map(|it| format!("{:?}", it.status.code()));
    let [code, their_code] = codes;
    same("exit code", code, their_code)?;
    if flags.contains('s') {
        let [theirs, ours] = [&theirs, &ours].map(|it| comparable(&it.stdout));
        same("lines", ours, theirs)?;
    }
    let [their_image, image] = images.each_ref().map(|image| image.exists().to_string());
    same("image", image, their_image)?;
    if theirs.status.success() && images[0].exists() {
        let [theirs, ours] = images.each_ref().map(|it| line.tree(unsquashfs, it, flags));
        same("tree", ours, theirs)?;
        if flags.contains('x') {
            let [theirs, ours] = images.each_ref().map(|it| xattrs(unsquashfs, it));
            same("attributes", ours, theirs)?;
        }
    }
    Ok(())
}

#[test]
fn compression() {
    try_all(COMPRESSION);
}

#[test]
fn building() {
    try_all(BUILDING);
}

#[test]
fn appending() {
    try_all(APPENDING);
}

#[test]
fn actions() {
    try_all(ACTIONS);
}

/// The blocks of each file as `rdsquashfs` shows them: how many there are, which are compressed,
/// whether they are aligned, and which small files share a fragment: squashfs-tools keep the tails
/// of larger ones apart.
fn layout(rdsquashfs: &Tool, image: &Path, is_aligned: bool) -> Vec<String> {
    let mut fragments: [Vec<String>; 2] = Default::default();
    let files = ["b1", "b2", "s1", "s2", "s3", "s4", "s5"].map(|name| {
        let out = run(rdsquashfs.command().args(["-s", name]).arg(image)).stdout;
        let out = String::from_utf8_lossy(&out).into_owned();
        let field = |name: &str| {
            let line = out.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().trim().to_owned()
        };
        let known = &mut fragments[usize::from(name.starts_with('b'))];
        let index = Some(field("Fragment index:")).filter(|index| index != "0xFFFFFFFF");
        let fragment = index.map(|index| {
            let found = known.iter().position(|it| *it == index);
            found.unwrap_or_else(|| {
                known.push(index);
                known.len() - 1
            })
        });
        let start: u64 = field("Blocks start:").parse().unwrap_or_default();
        let marks = [out.matches("(compressed)"), out.matches("(uncompressed)")];
        let marks = marks.map(Iterator::count);
        let is_placed = !is_aligned || marks == [0, 0] || start.is_multiple_of(4096);
        format!("{name}: fragment {fragment:?}, blocks {marks:?}, placed {is_placed}")
    });
    files.into()
}

#[test]
fn actions_choose_how_files_are_stored() {
    let (Some(rdsquashfs), Some(program)) = (tool("rdsquashfs"), newer_tool("mksquashfs")) else {
        return;
    };
    let dir = fixture();
    fs::create_dir(dir.join("s")).unwrap();
    for (name, len) in [("b1", 6 * 0x20000 + 1000), ("b2", 5 * 0x20000 + 2000)] {
        let text: String = (0..100_000)
            .map(|line| format!("{name} {line}\n"))
            .collect();
        fs::write(dir.join("s").join(name), &text[..len]).unwrap();
    }
    for name in ["s1", "s2", "s3", "s4", "s5"] {
        fs::write(dir.join("s").join(name), format!("{name} ").repeat(5000)).unwrap();
    }
    for words in [
        "-action fragment(x)@name(s[13])",
        "-action fragment(x)@name(s1) -action fragment(y)@name(s*) -action fragment(z)@name(b*) -tailends",
        "-action no-fragments@name(s2)",
        "-no-fragments -action fragments@name(s[24])",
        "-no-fragments -action fragment(x)@name(s1)",
        "-action tailend@name(b1)",
        "-action always-use-fragments@name(b1) -action no-fragments@name(b1)",
        "-tailends -action no-tailend@name(b1)",
        "-action uncompressed@name(s1)||name(b1)",
        "-action uncompressed@name(b1) -action tailend@true -action compressed@name(b1)",
        "-noD -noF -action compressed@name(s1)||name(b1)",
        "-tailends -action align(4K)@name(?1)",
    ] {
        let line = Line::of(&format!("mksquashfs s IMG -noappend {words}"));
        let theirs = line.run(program.command(), dir.path(), "theirs.sqfs");
        let ours = line.run(crate::restow(["mksquashfs"]), dir.path(), "ours.sqfs");
        assert!(theirs.status.success() && ours.status.success(), "{words}");
        let [theirs, ours] = ["theirs.sqfs", "ours.sqfs"]
            .map(|image| layout(&rdsquashfs, &dir.join(image), words.contains("align")));
        assert_eq!(ours, theirs, "{words}");
    }
}

#[test]
fn times() {
    try_all(TIMES);
}

#[test]
fn permissions() {
    try_all(PERMISSIONS);
}

#[test]
fn selecting() {
    try_all(SELECTING);
}

#[test]
fn pseudo_files() {
    try_all(PSEUDO);
}

#[test]
fn running() {
    try_all(RUNNING);
}

#[test]
fn examples() {
    try_all(EXAMPLES);
}

#[test]
fn builders() {
    try_all(BUILDERS);
}

/// The files in a mounted image, with contents.
fn mounted(image: &Path) -> String {
    let mount = Mount::read_only(image, FsType::Squashfs);
    let list = "find . -printf '%P %y %m %U %G %s %T@ %n %l\\n' | sort
        find . -type f -exec sha256sum {} + | sort; getfattr -dhR -m - . | sort";
    let list = run(Command::new("sh")
        .args(["-c", list])
        .current_dir(mount.path()))
    .stdout;
    String::from_utf8_lossy(&list).into_owned()
}

#[test]
#[ignore = "needs root"]
fn builders_mounted() {
    let (Some(mksquashfs), Some(_)) = (tool("mksquashfs"), tool("getfattr")) else {
        return;
    };
    let dir = fixture();
    run(mksquashfs
        .command()
        .args(["d/a/b", "old.sqfs"])
        .current_dir(dir.path()));
    for (flags, words) in BUILDERS {
        // Linux mounts no image without padding, and none at an offset from its file.
        if flags.contains('n') || words.contains("-nopad") || words.contains("-offset") {
            continue;
        }
        let (images, _) = make(&dir, flags, &Line::of(words));
        let [theirs, ours] = images.each_ref().map(|it| mounted(it));
        assert!(theirs.lines().count() > 10, "{words}: {theirs}");
        assert_eq!(ours, theirs, "{words}");
    }
}

#[test]
fn archives() {
    try_all(ARCHIVES);
}

#[test]
fn every_option_has_a_case() {
    let tables = [
        COMPRESSION,
        BUILDING,
        TIMES,
        PERMISSIONS,
        SELECTING,
        PSEUDO,
        RUNNING,
        APPENDING,
        ACTIONS,
        ARCHIVES,
    ];
    let lines: Vec<&str> = tables
        .iter()
        .flat_map(|cases| cases.iter().map(|it| it.1))
        .collect();
    assert_no_option_is_without_a_case("mksquashfs", &lines);
    assert_no_option_is_without_a_case("sqfstar", &lines);
}
