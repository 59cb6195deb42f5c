//! What people type: names, sizes, dates and patterns as other programs take them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use testkit::TempDir;

use super::{names, ok, run_in, shown};

/// A directory `src` with a few files.
fn source() -> TempDir {
    let dir = TempDir::new();
    fs::create_dir_all(dir.join("src/sub")).unwrap();
    fs::write(dir.join("src/a.o"), "object").unwrap();
    fs::write(dir.join("src/sub/b.o"), "object").unwrap();
    fs::write(dir.join("src/sub/text"), "text").unwrap();
    fs::set_permissions(dir.join("src/sub/text"), fs::Permissions::from_mode(0o640)).unwrap();
    dir
}

/// Runs a command line that must fail; gives standard error.
#[track_caller]
fn fails(dir: &TempDir, line: &str) -> String {
    let (code, out, words) = run_in(dir.path(), line.split_whitespace());
    assert_eq!((code, &*out), (2, ""), "{line}: {words}");
    words
}

#[test]
fn an_unknown_ending_makes_nothing() {
    let dir = source();
    for name in ["x.sqsh", "x.raw", "x.disk", "x.vhd", "x.sq"] {
        let ending = name.trim_start_matches('x');
        let words = fails(&dir, &format!("copy src {name}"));
        let expected = format!(
            "restow: copy src to {name}: {name}: unknown ending `{ending}`; choose a format with --to, such as `--to "
        );
        assert!(words.starts_with(&expected), "{words}");
    }
    assert_eq!(names(dir.path()), ["src"]);
    ok(&dir, "copy -q src x.sqsh --to squashfs");
    ok(&dir, "copy -q src x.disk --to dir");
    ok(&dir, "copy -q src linux-6.18");
    ok(&dir, "diff x.sqsh src");
    ok(&dir, "diff x.disk linux-6.18");
    // What is a directory already may have any name.
    fs::create_dir(dir.join("there.raw")).unwrap();
    ok(&dir, "copy -q src there.raw");
    ok(&dir, "diff src there.raw");
}

#[test]
fn sizes_are_typed_in_many_ways() {
    let dir = source();
    ok(
        &dir,
        "copy -q src a.squashfs --block-size 64KiB --offset 1.5K",
    );
    ok(&dir, "ls --image-at 1536 a.squashfs");
    ok(&dir, "ls --image-at 1.5K a.squashfs");
    ok(&dir, "copy -q src a.btrfs --size 0.25GiB --nodesize 16KiB");
    let size = |name| fs::metadata(dir.join(name)).unwrap().len();
    assert_eq!(size("a.btrfs"), 256 << 20);
    ok(&dir, "copy -q src b.btrfs --size 300MB");
    assert_eq!(size("b.btrfs"), 300_000_000 / 4096 * 4096);
    let words = fails(&dir, "copy src c.btrfs --size 1X");
    assert!(
        words.contains("as in 4096, 16K, 1.5G, 1GiB or 2GB"),
        "{words}"
    );
}

#[test]
fn an_excluded_pattern_that_misses_says_which_one_matches() {
    let dir = source();
    let (_, words) = ok(&dir, "copy src a.tar --exclude *.o");
    let hint = "`**/*.o` matches in all directories\n";
    let expected = format!("restow: --exclude *.o applies to the root only; {hint}");
    assert!(words.starts_with(&expected), "{words}");
    assert_eq!(ok(&dir, "ls -R a.tar").0, "sub\nsub/b.o\nsub/text\n");
    fs::remove_file(dir.join("src/a.o")).unwrap();
    let (_, words) = ok(&dir, "copy src b.tar --exclude *.o");
    let expected = format!("restow: nothing matches --exclude *.o; {hint}");
    assert!(words.starts_with(&expected), "{words}");
    let (_, words) = ok(&dir, "copy src c.tar --exclude **/*.o");
    assert!(!words.contains("--exclude"), "{words}");
    assert_eq!(ok(&dir, "ls -R c.tar").0, "sub\nsub/text\n");
    let (_, words) = ok(&dir, "copy src d.tar --exclude *.c");
    assert!(
        words.starts_with("restow: nothing matches --exclude *.c\n"),
        "{words}"
    );
    // A name that was found is meant to be in the root.
    fs::create_dir(dir.join("src/sub/sub")).unwrap();
    assert_eq!(ok(&dir, "copy -q src e.tar --exclude sub").1, "");
    assert_eq!(
        ok(&dir, "copy src f.tar --exclude sub").1.lines().count(),
        1
    );
}

#[test]
fn owners_have_names_and_times_are_dates() {
    let dir = source();
    ok(
        &dir,
        "copy -q src a.tar --uid root --gid root --all-time 2020-01-01",
    );
    let (lines, _) = ok(&dir, "ls -l a.tar");
    for line in lines.lines() {
        assert!(line.contains("     0     0 "), "{line}");
        assert!(line.contains(" 2020-01-01 00:00:00 "), "{line}");
    }
    for (time, shown) in [
        ("@0", " 1970-01-01 00:00:00 "),
        ("-1", " 1969-12-31 23:59:59 "),
        ("2021-06-05T04:03:02Z", " 2021-06-05 04:03:02 "),
    ] {
        ok(
            &dir,
            &format!("copy -q --overwrite src a.tar --all-time {time}"),
        );
        let (lines, _) = ok(&dir, "ls -l a.tar");
        assert!(lines.contains(shown), "{lines}");
    }
    ok(&dir, "copy -q src a.squashfs --mkfs-time 2020-01-01");
    let (info, _) = ok(&dir, "info a.squashfs");
    assert!(
        info.contains("made            2020-01-01 00:00:00\n"),
        "{info}"
    );
    let words = fails(&dir, "copy src b.tar --uid nobody-of-this-name");
    assert!(
        words.contains("no user `nobody-of-this-name` on this machine"),
        "{words}"
    );
    let words = fails(&dir, "copy src b.tar --all-time yesterday");
    assert!(
        words.contains("must be a date such as 2020-01-01"),
        "{words}"
    );
}

#[test]
fn archives_of_other_kinds_name_the_program_that_reads_them() {
    let dir = TempDir::new();
    let mut ext4 = vec![0; 4096];
    ext4[0x438..0x43a].copy_from_slice(b"\x53\xef");
    let mut iso = vec![0; 0x9000];
    iso[0x8001..0x8006].copy_from_slice(b"CD001");
    for (name, bytes, words) in [
        (
            "x.deb",
            &b"!<arch>\ndebian-binary   "[..],
            "a Debian package; pipe its content into restow: `dpkg-deb --fsys-tarfile x.deb | restow copy - DST`",
        ),
        (
            "x.zip",
            b"PK\x03\x04",
            "a zip archive; pipe its content into restow: `bsdtar -cf - @x.zip | restow copy - DST`",
        ),
        (
            "x.cpio",
            b"\xc7\x71\0\0",
            "a binary cpio archive; pipe its content into restow: `bsdtar -cf - @x.cpio | restow copy - DST`",
        ),
        (
            "y.cpio",
            b"\x71\xc7\0\0",
            "a binary cpio archive; pipe its content into restow: `bsdtar -cf - @y.cpio | restow copy - DST`",
        ),
        (
            "x.iso",
            &iso,
            "an ISO image; pipe its content into restow: `bsdtar -cf - @x.iso | restow copy - DST`",
        ),
        (
            "x.tar.lz4",
            b"\x02\x21\x4c\x18",
            "compressed with LZ4 in its legacy format; pipe its content into restow: `lz4 -dc x.tar.lz4 | restow copy - DST`",
        ),
        (
            "x.tar.Z",
            b"\x1f\x9d\x90",
            "compressed with compress; pipe its content into restow: `zcat x.tar.Z | restow copy - DST`",
        ),
        (
            "x.ext4",
            &ext4,
            "an ext2, ext3 or ext4 image, which restow does not read: mount it, and copy the directory",
        ),
    ] {
        fs::write(dir.join(name), bytes).unwrap();
        let found = fails(&dir, &format!("ls {name}"));
        assert_eq!(found, format!("restow: open {name}: {words}\n"));
    }
    // A command that can be copied.
    fs::write(dir.join("a 'b'.deb"), "!<arch>\ndebian-binary   ").unwrap();
    let (code, _, words) = run_in(dir.path(), ["ls", "a 'b'.deb"]);
    let command = r"`dpkg-deb --fsys-tarfile 'a '\''b'\''.deb' | restow copy - DST`";
    assert!(code == 2 && words.contains(command), "{words}");
}

#[test]
fn lists_are_those_of_ls() {
    let dir = source();
    fs::write(dir.join("src/big"), vec![0; 1536]).unwrap();
    fs::write(dir.join("src/.hidden"), "").unwrap();
    ok(
        &dir,
        "copy -q src a.tar --all-root --file-mode 644 --dir-mode 755 --all-time @0",
    );
    let all = ".hidden\na.o\nbig\nsub\n";
    for line in [
        "ls a.tar",
        "ls -a a.tar",
        "ls -A1 a.tar",
        "ls -h a.tar",
        "ls -q a.tar",
    ] {
        assert_eq!(ok(&dir, line).0, all, "{line}");
    }
    let long = |size| format!("-rw-r--r--   1     0     0 {size:>11} 1970-01-01 00:00:00 big\n");
    assert_eq!(ok(&dir, "ls -la a.tar big").0, long("1536"));
    assert_eq!(ok(&dir, "ls -lh a.tar big").0, long("1.5K"));
    assert_eq!(ok(&dir, "ls -lha a.tar big").0, long("1.5K"));
    // Several operands: files first, then directories with their names.
    let (two, _) = ok(&dir, "ls a.tar sub big .");
    assert_eq!(two, format!("big\n\nsub:\nb.o\ntext\n\n.:\n{all}"));
    assert_eq!(
        ok(&dir, "ls a.tar sub sub").0,
        "sub:\nb.o\ntext\n\nsub:\nb.o\ntext\n"
    );
    assert_eq!(
        ok(&dir, "ls -R a.tar sub big").0,
        "big\nsub/b.o\nsub/text\n"
    );
    assert_eq!(ok(&dir, "ls -d a.tar sub big").0, "sub\nbig\n");
    assert!(ok(&dir, "ls --help").0.contains("Usage: restow ls"));
}

#[test]
fn verbose_lists_quiet_is_quiet_and_every_command_takes_both_ways_to_hide_progress() {
    let dir = source();
    let files = "a.o\nsub\nsub/b.o\nsub/text\n";
    for dst in [
        "x.tar",
        "x.squashfs",
        "x.btrfs",
        "x.stream",
        "x",
        "x.tar.gz",
    ] {
        let (out, words) = ok(&dir, &format!("copy -v src {dst}"));
        let mut listed: Vec<&str> = out.lines().filter(|line| *line != ".").collect();
        listed.sort_unstable();
        assert_eq!(listed, files.lines().collect::<Vec<_>>(), "{dst}");
        assert!(words.contains(" read, "), "{words}");
    }
    let (code, _, words) = run_in(dir.path(), ["copy", "-v", "src", "-"]);
    assert_eq!(code, 0);
    assert!(words.contains("sub/b.o\n"), "{words}");
    ok(&dir, "copy -q --as-subvolume sub:ro src y.btrfs");
    for line in [
        "copy src {}",
        "ls x.tar",
        "cat x.tar sub/text",
        "diff src x",
        "manifest x.tar",
        "info x.squashfs",
        "usage x.btrfs",
        "check x.squashfs",
        "check x.btrfs",
        "stream verify x.stream",
        "stream info x.stream",
        "stream dump x.stream",
        "stream convert --decompress x.stream {}.stream",
        "send y.btrfs:sub -f {}.stream",
        "receive --to directory -f x.stream .",
    ] {
        for option in ["-q", "--no-progress"] {
            let name = option.trim_start_matches('-');
            let line = line.replace("{}", &format!("new-{name}"));
            let line = if line.starts_with("receive") {
                fs::create_dir(dir.join(name)).unwrap();
                line.replace(" .", &format!(" {name} --no-owners"))
            } else {
                line
            };
            let line = line.replace(" --no-owners", "");
            let (out, words) = ok(&dir, &format!("{line} {option}"));
            if option == "-q" {
                assert_eq!(words, "", "{line}");
                let has_result = [
                    "ls",
                    "cat",
                    "manifest",
                    "info",
                    "usage",
                    "stream info",
                    "stream dump",
                ];
                let has_result = has_result.iter().any(|name| line.starts_with(name));
                assert_eq!(!out.is_empty(), has_result, "{line}: {out}");
            }
        }
    }
    let words = fails(&dir, "copy -q -v src z.tar");
    assert!(words.contains("cannot be used with"), "{words}");
}

#[test]
fn words_of_other_programs_lead_to_ours() {
    let dir = source();
    for (line, tip) in [
        (
            "create x.tar src",
            "`restow copy DIR DST` makes an archive or image",
        ),
        (
            "extract x.tar",
            "`restow copy SRC DIR` extracts an archive or image",
        ),
        ("x x.tar", "`restow copy SRC DIR` extracts"),
        ("list x.tar", "`restow ls SRC` lists"),
        ("convert a b", "`restow copy SRC DST` converts"),
        (
            "verify x.squashfs",
            "`restow check IMAGE` verifies an image",
        ),
        ("fsck x.squashfs", "`restow check IMAGE` verifies an image"),
        ("umount dir", "unmounts"),
        ("copy --level 19 src a.squashfs", "`--compress zstd:19`"),
        (
            "copy src a.squashfs -Xcompression-level 19",
            "`--compress zstd:19`",
        ),
        ("copy src a.squashfs -comp xz", "`--compress CODEC`"),
        ("copy src a.squashfs -b 1M", "`--block-size BYTES`"),
        (
            "copy src a.squashfs -noappend",
            "`--overwrite` replaces a file",
        ),
        ("copy src a.squashfs -all-root", "the same with two hyphens"),
        (
            "copy src a.squashfs -e proc",
            "`--exclude PATTERN`, once for each",
        ),
        ("copy a.tar dst --strip 1", "`--strip-components N`"),
        ("copy -xf a.tar", "`restow copy ARCHIVE DIR` extracts"),
        ("copy -z src a.tar", "`.tar.gz`, `.tar.xz` or `.tar.zst`"),
        ("copy --force src a.tar", "`--overwrite` replaces a file"),
        ("copy --rootdir src a.btrfs", "`restow copy DIR out.btrfs`"),
        ("receive a.stream dst", "`restow receive -f FILE DIR`"),
    ] {
        let words = fails(&dir, line);
        let found = words.lines().find(|line| line.contains("tip: "));
        assert!(
            found.is_some_and(|line| line.contains(tip)),
            "{line}: {words}"
        );
    }
    // A word that nobody types gets clap's own words.
    let words = fails(&dir, "copz src a.tar");
    assert!(words.contains("'copy'"), "{words}");
    assert_eq!(names(dir.path()), ["src"]);
}

/// On the host, `/proc` is another file system than `/`.
#[test]
fn one_file_system_leaves_mount_points_empty() {
    let dir = TempDir::new();
    let all = ok(&dir, "ls / proc").0;
    assert!(all.contains("self\n"), "{all}");
    assert_eq!(ok(&dir, "ls --one-file-system / proc").0, "");
    ok(&dir, "copy -q --one-file-system / x.tar proc");
    assert_eq!(ok(&dir, "ls -R x.tar").0, "proc\n");
    let words = fails(&dir, "ls --one-file-system x.tar");
    assert_eq!(
        words,
        "restow: open x.tar: not a directory: --one-file-system does not apply\n"
    );
}

#[test]
fn words_say_what_was_expected_and_found() {
    let dir = source();
    for option in ["--image-at 5", "--ignore-zeros", "--base src"] {
        let words = fails(&dir, &format!("ls {option} src"));
        let name = option.split(' ').next().unwrap_or_default();
        let expected = format!("a directory: {name} does not apply");
        assert!(words.contains(&expected), "{words}");
    }
    for (magic, noun) in [
        (&b"LUKS\xba\xbe\x00\x02"[..], "an encrypted LUKS volume"),
        (b"KDMV\x01\0\0\0", "a VMDK image"),
        (b"# Disk DescriptorFile\n", "a VMDK descriptor"),
        (b"QFI\xfb\0\0\0\x03", "a qcow2 image"),
    ] {
        let mut content = magic.to_vec();
        content.resize(1 << 20, 0);
        fs::write(dir.join("other.img"), content).unwrap();
        assert!(fails(&dir, "ls other.img").contains(noun), "{noun}");
        let words = fails(&dir, "ls --image-at 0 other.img");
        assert!(words.contains(noun), "{words}");
    }
    fs::write(dir.join("zeros.img"), vec![0; 1 << 20]).unwrap();
    let words = fails(&dir, "ls --image-at 4096 zeros.img");
    assert!(
        words.contains("only zeros, as in an empty partition"),
        "{words}"
    );
    for count in ["many", "0", "1025"] {
        let words = fails(&dir, &format!("copy -j {count} src x.tar"));
        assert!(words.contains("must be a number from 1 to 1024"), "{words}");
    }
    let words = fails(&dir, "copy --inplace src x.tar");
    assert!(!words.contains("--replace"), "{words}");
}

#[test]
fn quiet_leaves_the_progress_that_a_program_asked_for() {
    let dir = source();
    let words = ok(&dir, "copy -q --progress json src x.tar").1;
    assert!(words.contains(r#""is_done":true"#), "{words}");
}

#[test]
fn images_of_other_kinds_are_named() {
    let dir = TempDir::new();
    let mount = "which restow does not read: mount it, and copy the directory";
    let qemu = "which restow does not read: `qemu-img convert -O raw` makes a raw image of it";
    for (at, magic, noun, way) in [
        (64, &b"\x7f\x10\xda\xbe"[..], "a VDI image", qemu),
        (0, b"# Disk DescriptorFile", "a VMDK descriptor", qemu),
        (0, b"LUKS\xba\xbe", "an encrypted LUKS volume", "cryptsetup"),
        (512, b"LABELONE", "a physical volume of LVM", "vgchange"),
        (0, b"XFSB", "an XFS image", mount),
        (1024, b"\x10\x20\xf5\xf2", "an F2FS image", mount),
        (0, b"\x45\x3d\xcd\x28", "a cramfs image", mount),
        (0, b"-rom1fs-", "a romfs image", mount),
        (3, b"NTFS    ", "an NTFS image", mount),
        (82, b"FAT32   ", "a FAT image", mount),
        (0x8001, b"BEA01\x01", "a UDF image", mount),
        (0, b"UBI#", "a UBI image", "nandsim"),
        (
            0,
            b"sqsh",
            "a SquashFS image of big-endian machines",
            "unsquashfs",
        ),
        (0, b"!<arch>\n", "an ar archive", "bsdtar -cf - @x"),
        (0, b"\xed\xab\xee\xdb", "an RPM package", "bsdtar -cf - @x"),
        (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", "bsdtar -cf - @x"),
        (0, b"\x89RPART\r\n", "a part of an image", "--parts"),
        (0, b"\x89RPATCH\n", "a patch", "restow patch OLD"),
    ] {
        is_named(&dir, &[(at, magic)], noun, way);
    }
    let bcache = b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81";
    let bcachefs = b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef";
    for (parts, noun, way) in [
        (
            [(3, &b"-FVE-FS-"[..]), (82, b"FAT32   ")],
            "a BitLocker volume",
            "cryptsetup open --type bitlk",
        ),
        (
            [(0x1010, b"\x01\0\0\0"), (0x1018, bcache)],
            "a bcache device",
            "/sys/fs/bcache/register",
        ),
        (
            [(0x1010, b"\x18\0\x18\0"), (0x1018, bcache)],
            "a bcachefs image",
            mount,
        ),
        (
            [(0x1010, b"\x21\x04\x21\x04"), (0x1018, bcachefs)],
            "a bcachefs image",
            mount,
        ),
    ] {
        is_named(&dir, &parts, noun, way);
    }
}

/// A file of zeros with these parts is called by this noun, with this way out.
fn is_named(dir: &TempDir, parts: &[(usize, &[u8])], noun: &str, way: &str) {
    let mut image = vec![0; 1 << 17];
    for (at, part) in parts {
        image[*at..at + part.len()].copy_from_slice(part);
    }
    fs::write(dir.join("x"), &image).unwrap();
    for (line, place) in [("ls x", ""), ("ls --image-at 0 x", "at byte 0: ")] {
        let words = fails(dir, line);
        let start = format!("restow: open x: {place}{noun}");
        assert!(words.starts_with(&start) && words.contains(way), "{words}");
    }
}

#[test]
fn each_side_of_a_comparison_has_its_place() {
    let dir = source();
    ok(&dir, "copy -q src plain.squashfs");
    ok(&dir, "copy -q --offset 4096 src moved.squashfs");
    ok(
        &dir,
        "diff --image-at 4K --second-image-at 0 moved.squashfs plain.squashfs",
    );
    ok(&dir, "diff --second-image-at 4K src moved.squashfs");
    ok(&dir, "diff --image-at 4K src moved.squashfs");
    let words = fails(&dir, "diff --second-image-at 4K plain.squashfs src");
    assert!(
        words.contains("--second-image-at does not apply"),
        "{words}"
    );
    // Two images of one file are not one store.
    fs::write(dir.join("src/a.o"), "changed").unwrap();
    ok(&dir, "copy -q src other.squashfs");
    let both =
        ["plain", "other"].map(|name| fs::read(dir.join(format!("{name}.squashfs"))).unwrap());
    fs::write(dir.join("both"), both.concat()).unwrap();
    let line = format!(
        "diff --ignore mtime --image-at 0 --second-image-at {} both both",
        both[0].len()
    );
    let (code, found, words) = run_in(dir.path(), line.split_whitespace());
    assert_eq!((code, &*words), (1, ""));
    assert!(found.starts_with("a.o: size 6 | 7\n"), "{found}");
}

/// Linux takes it for none.
#[test]
fn the_owner_that_means_none_is_refused() {
    let dir = source();
    ok(&dir, "copy -q --uid 4294967294 --gid 4294967294 src x.tar");
    let archive = fs::read(dir.join("x.tar")).unwrap();
    let mut none = archive.clone();
    let mut found = 0;
    for at in 0..archive.len() - 10 {
        if archive[at..].starts_with(b"4294967294") {
            none[at + 9] = b'5';
            found += 1;
        }
    }
    assert!(found > 3);
    fs::write(dir.join("none.tar"), none).unwrap();
    for to in ["x.squashfs", "x.btrfs", "x.stream"] {
        let words = fails(
            &dir,
            &format!("copy --skip-unreadable none.tar {to}")
                .replace("--skip-unreadable none.tar x.stream", "none.tar x.stream"),
        );
        assert!(words.contains("is the reserved number 2^32 - 1"), "{words}");
        ok(&dir, &format!("copy -q --all-root none.tar {to}"));
    }
    let (code, _, words) = run_in(dir.path(), ["copy", "-q", "none.tar", "none"]);
    assert_eq!(code, 1, "{words}");
    assert!(words.contains("owner not preserved: "), "{words}");
}

#[test]
fn control_characters_in_arguments_are_escaped() {
    let dir = source();
    let bad = "\u{1b}]0;x\u{7}";
    for args in [
        &[bad][..],
        &["copy", &format!("--{bad}")],
        &["copy", &format!("-{bad}")],
        &["copy", "--to", bad, "src", "x.tar"],
        &["copy", bad, "x.tar"],
        &["copy", "src", &format!("x.{bad}")],
        &["copy", "src", "x.tar", bad],
        &["copy", "--compress", bad, "src", "x.squashfs"],
        &["copy", "--uid", bad, "src", "x.tar"],
        &["copy", "--exclude", bad, "src", "x.tar"],
        &["diff", "src", "src", bad],
        &["usage", "--top", bad, "src"],
        &["mount", "-o", bad, "src", "src"],
        &["plan", "--max-size", bad, "src"],
    ] {
        let (_, out, words) = run_in(dir.path(), args);
        let is_harmful = |text: &str| text.chars().any(|c| c.is_control() && c != '\n');
        assert!(
            !is_harmful(&words) && !is_harmful(&out),
            "{args:?}: {words:?}"
        );
        assert!(
            words.contains("x1b") || words.contains("u{1b}"),
            "{words:?}"
        );
    }
}

#[test]
fn options_apply_to_their_sources_and_commands_can_be_quiet() {
    let dir = source();
    ok(&dir, "copy -q src i.squashfs");
    for (line, option) in [
        ("info --base x i.squashfs", "--base"),
        ("info --one-file-system i.squashfs", "--one-file-system"),
        ("copy --base x src x.tar", "--base"),
        ("copy --image-at 0 src x.tar", "--image-at"),
        ("ls --ignore-zeros src", "--ignore-zeros"),
    ] {
        let words = fails(&dir, line);
        assert!(
            words.contains(&format!("{option} does not apply")),
            "{words}"
        );
    }
    assert_eq!(ok(&dir, "plan -q --try lz4 src").1, "");
    for line in ["mount -q i.squashfs none", "unmount -q none"] {
        let words = fails(&dir, line);
        assert_eq!(words.lines().count(), 1, "{words}");
    }
    let words = fails(&dir, "copy --inplace src x.tar");
    assert!(!words.contains("--replace"), "{words}");
}

/// Users of LDAP and the like are those that `getent` knows.
#[test]
fn users_and_groups_are_those_of_getent() {
    let dir = TempDir::new();
    fs::create_dir(dir.join("src")).unwrap();
    fs::write(dir.join("src/a"), "").unwrap();
    let script = "#!/bin/sh\necho \"$@\" >> calls\ncase \"$1 $2\" in\n\
        'passwd ann'|'passwd 70001') echo 'ann:*:70001:70001:Ann:/home/ann:/bin/sh' ;;\n\
        'group staff of it'|'group 70002') echo 'staff of it:*:70002:ann' ;;\n\
        'passwd liar') echo 'root:x:0:0::/:' ;;\n'passwd endless') yes 'endless:x:1:' ;;\n\
        'passwd wrong') printf 'wrong\\nwrong:x\\nwrong:x:-1:\\n:x:5:\\n' ;;\n\
        *) exit 2 ;;\nesac\n";
    fs::write(dir.join("getent"), script).unwrap();
    fs::set_permissions(dir.join("getent"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", dir.path().display());
    let with = |program: &str, words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_restow"));
        command.arg0(program).args(words);
        shown(
            &command
                .env("PATH", &path)
                .current_dir(dir.path())
                .output()
                .unwrap(),
        )
    };
    let owners = [
        "copy",
        "-q",
        "--uid",
        "ann",
        "--gid",
        "staff of it",
        "src",
        "a.squashfs",
    ];
    assert_eq!(with("restow", &owners).0, 0);
    let (listed, _) = ok(&dir, "ls -l a.squashfs");
    assert!(
        listed.contains("70001") && listed.contains("70002"),
        "{listed}"
    );
    fs::remove_file(dir.join("calls")).unwrap();
    let (_, listed, _) = with("unsquashfs", &["-ll", "a.squashfs"]);
    assert_eq!(listed.matches("ann/staff of it").count(), 2, "{listed}");
    // Once for each.
    let calls = fs::read_to_string(dir.join("calls")).unwrap();
    assert_eq!(calls, "passwd 70001\ngroup 70002\n");
    for name in ["liar", "endless", "wrong", "nobody of this name"] {
        let (code, _, words) = with("restow", &["copy", "--uid", name, "src", "b.tar"]);
        assert_eq!(
            (code, words.contains("on this machine")),
            (2, true),
            "{words}"
        );
    }
    // Without the program, numbers.
    fs::remove_file(dir.join("getent")).unwrap();
    let (_, listed, _) = with("unsquashfs", &["-ll", "a.squashfs"]);
    assert_eq!(listed.matches("70001/70002").count(), 2, "{listed}");
}
