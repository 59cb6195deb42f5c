//! `unsquashfs` and `sqfscat`.

use std::fs;
use std::process::Stdio;

use testkit::{TempDir, Tool, newer_tool, run, tool};

use super::{Outcome, assert_no_option_is_without_a_case, outcome};

/// Lines that squashfs-tools 4.5.1 takes, too. The image is `../i`; `../list` names files.
const LINES: &[&str] = &[
    "unsquashfs ../i",
    "unsquashfs -d out ../i",
    "unsquashfs -dest out ../i d/x",
    "unsquashfs -d . ../i d/e",
    "unsquashfs -d '' -ls ../i",
    "unsquashfs -d a//b/ -ls ../i",
    "unsquashfs -i ../i d",
    "unsquashfs -info -q ../i d",
    "unsquashfs -li -n ../i",
    "unsquashfs -linfo -quiet -no-progress ../i links",
    "unsquashfs -l ../i",
    "unsquashfs -ls ../i -d out",
    "unsquashfs -ll ../i",
    "unsquashfs -lls ../i d links/hard",
    "unsquashfs -lln ../i",
    "unsquashfs -llnumeric ../i",
    "unsquashfs -lc ../i",
    "unsquashfs -lc ../i none",
    "unsquashfs -llc ../i",
    "unsquashfs -UTC -ll ../i",
    "unsquashfs -ll -l ../i d",
    "unsquashfs -mkfs-time ../i",
    "unsquashfs -fstime ../i",
    "unsquashfs -no ../i a; getfattr -d squashfs-root/a",
    "unsquashfs -no-xattrs -x -xattrs -u ../i a; getfattr -d squashfs-root/a",
    "unsquashfs -user-xattrs ../i a; getfattr -d squashfs-root/a",
    "unsquashfs -p 1 -processors 2 -da 16 -data-queue 16 -fr 16 -frag-queue 16 -l ../i",
    "unsquashfs -o 4096 -l ../offset",
    "unsquashfs -offset 4K -l ../offset",
    "unsquashfs -o 1K -l ../offset",
    "unsquashfs -l ../offset",
    "unsquashfs -l ../nothing",
    "unsquashfs -l ../list",
    "unsquashfs >/dev/null",
    "unsquashfs -wrong ../i >/dev/null",
    // Which files.
    "unsquashfs ../i none",
    "unsquashfs -l ../i none d",
    "unsquashfs -l ../i '*'",
    "unsquashfs -l ../i '*d*'",
    "unsquashfs -l ../i 'd/*'",
    "unsquashfs -l ../i '.*'",
    "unsquashfs -l ../i '[.]dot' '?dot' '[!a]dot'",
    "unsquashfs -l ../i 'br{a,b}'",
    "unsquashfs -l ../i '@(a|bra)' 'd/+([a-z])'",
    "unsquashfs -l ../i '[[]x]' 'b[!x]a' 'a\\+b' '*+*'",
    "unsquashfs -l ../i /d/x d//e/ 'links/h*'",
    "unsquashfs -l ../i ''",
    "unsquashfs -l ../i /",
    "unsquashfs -excludes ../i '*a*' d",
    "unsquashfs -exclude-list d/x ';' -l ../i d",
    "unsquashfs -e ../list -l ../i",
    "unsquashfs -ef ../list -ll ../i a",
    "unsquashfs -extract-file ../list ../i",
    "unsquashfs -e ../nothing ../i",
    "unsquashfs -exc ../list -l ../i",
    "unsquashfs -excf ../list -l ../i",
    "unsquashfs -exclude-file ../list ../i",
    "unsquashfs -max 1 ../i",
    "unsquashfs -max-depth 0 -l ../i",
    "unsquashfs -max 1 -lc ../i",
    "unsquashfs -max 1 -l ../i d/x",
    "unsquashfs -max 2 -l ../i d links",
    "unsquashfs -no-wild -l ../i '[x]' 'd*' bra",
    "unsquashfs -r -l ../i '^d/.$' 'b.a'",
    "unsquashfs -regex -l ../i 'links/(soft|hard)'",
    "unsquashfs -no-wildcards -excludes -l ../i '[x]' 'd*' bra",
    "unsquashfs -match ../i d none",
    "unsquashfs -L -l ../i links/dangling loop",
    // 4.7.5 does not know it, against its manual.
    "unsquashfs -missing-symlinks ../i links/dangling >/dev/null",
    // As snapd, diffoscope, Midnight Commander and image builders call it, with the lines read.
    "unsquashfs -no-progress -dest . -ll ../i",
    "unsquashfs -no-progress -dest . -ll ../i d",
    "unsquashfs -no-progress -dest _ -l ../i links",
    "mkdir out; unsquashfs -n -f -d out ../i /d/x",
    "unsquashfs -d '' -lls ../i",
    "unsquashfs ../i d/x >/dev/null && mv squashfs-root/d/x y && rm -rf squashfs-root",
    "unsquashfs -lln ../i 2>/dev/null | sed -n 1p | cut -c1-10",
    "unsquashfs -s ../i | awk '/^Compression/{print $2} /Block size/{print $3}'",
    "unsquashfs -s ../i 2>&1 | grep 'Filesystem size' | awk '{print $3}'",
    "unsquashfs -lc ../i 2>/dev/null | wc -l",
    // Existing files.
    "mkdir squashfs-root; unsquashfs ../i",
    "mkdir out; touch out/own; unsquashfs -d out ../i",
    "unsquashfs -q ../i d && echo changed > squashfs-root/d/x && unsquashfs -f ../i d",
    "unsquashfs -q ../i d && unsquashfs ../i a",
    "mkdir -m 700 out out/d; unsquashfs -force -d out ../i a d",
    "unsquashfs -d none/out ../i",
    // Contents.
    "unsquashfs -cat ../i a d/x",
    "unsquashfs -cat ../i d a none",
    "unsquashfs -no-exit -cat ../i none",
    "unsquashfs -no-exit-code -cat ../i none",
    "unsquashfs -ig -ignore-errors -cat ../i none a",
    "unsquashfs -st -cat ../i none a",
    "unsquashfs -strict-errors -cat ../i a",
];

/// Lines for squashfs-tools 4.7.5. With `-percentage`, others print percentages between.
const NEWER_LINES: &[&str] = &[
    "unsquashfs -excludes -l ../i '... *'",
    "unsquashfs -excludes -l ../i '... .d*' links/hard",
    "unsquashfs -ex d '... s*' ';' ../i",
    "unsquashfs -match -l ../i d a",
    "unsquashfs -follow ../i dirlink",
    "unsquashfs -follow-symlinks -l ../i links/soft dirlink/x",
    "unsquashfs -missing -l ../i links/soft",
    "unsquashfs -s ../i",
    "unsquashfs -stat ../i",
    "unsquashfs -s -UTC ../i",
    "unsquashfs -s -l ../i",
    "unsquashfs -full -ll ../i",
    "unsquashfs -full-precision -UTC -llc ../i",
    "unsquashfs -all 5 ../i d",
    "unsquashfs -xattrs-include '^user.b' ../i a; getfattr -d squashfs-root/a",
    "unsquashfs -xattrs-exclude 'b$' -no-xattrs -xattrs ../i a; getfattr -d squashfs-root/a",
    "unsquashfs -all-time 1700000000 -ll ../i d",
    "unsquashfs -all-time 'Wed Feb 15 21:02:39 GMT 2023' ../i d",
    "unsquashfs -all-time '2020-01-01 12:30' ../i d",
    "unsquashfs -all-time now ../i d",
    "unsquashfs -all-time someday ../i d >/dev/null",
    "unsquashfs -pf - ../i links a empty",
    "unsquashfs -pf out ../i links 'b*' 'n*' 'o*'",
    "unsquashfs -pseudo-file out ../i null disk 'b*' 'q*'",
    "unsquashfs -mem 64M -mem-percent 10 -l ../i",
    "unsquashfs -no-pager -cols 80 -l ../i",
    "unsquashfs -percentage -q ../i d >/dev/null",
];

const SQFSCAT_LINES: &[&str] = &[
    "sqfscat ../i a",
    "sqfscat -r ../i '^a$'",
    "sqfscat -regex ../i '^b' none",
    "sqfscat -no-wild ../i '[x]' 'b*'",
    "sqfscat -no-wildcards -st ../i 'b*' a",
    "sqfscat -strict-errors ../i none a",
    "sqfscat -ig -ignore-errors -no-exit ../i none a",
    "sqfscat -no-exit-code ../i d",
    "sqfscat -o 4096 -p 1 ../offset a",
    "sqfscat -offset 4096 -processors 1 ../offset a",
    "sqfscat >/dev/null",
];

const NEWER_SQFSCAT_LINES: &[&str] = &[
    "sqfscat ../i d/x links/soft 'b*' none d",
    "sqfscat -mem 64M -mem-percent 10 -no-pager -cols 80 ../i a",
];

/// Options that are refused, or whose words are those of restow.
const OUR_LINES: &[&str] = &[
    "-h",
    "-help",
    "-ha",
    "-help-all",
    "-ho d",
    "-help-option d",
    "-hs d",
    "-help-section d",
];

/// Files of each kind, in an image that needs no privilege.
fn sample(dir: &TempDir) -> Option<()> {
    let (mksquashfs, setfattr, _) = (tool("mksquashfs")?, tool("setfattr")?, tool("getfattr")?);
    let source = dir.join("source");
    for path in ["d/e/f", "d/.h", "links", ".hid", "empty"] {
        fs::create_dir_all(source.join(path)).unwrap();
    }
    for (path, content) in [
        ("a", "hello\n"),
        ("d/x", "in d\n"),
        ("d/.dot2", ""),
        ("d/e/f/deep", "deep\n"),
        (".dot", "dot\n"),
        (".hid/z", ""),
        ("bra", "bra\n"),
        ("br{a,b}", "braces\n"),
        ("[x]", "brackets\n"),
        ("a+b", "plus\n"),
        ("q?", ""),
        ("*star", ""),
        ("back\\slash", ""),
        ("name with space", ""),
        ("odd\nname", ""),
    ] {
        fs::write(source.join(path), content).unwrap();
    }
    fs::write(source.join("big"), vec![b'x'; 300_000]).unwrap();
    let sparse = fs::File::create(source.join("sparse")).unwrap();
    sparse.set_len(100_000_000).unwrap();
    fs::hard_link(source.join("a"), source.join("links/hard")).unwrap();
    for (target, link) in [
        ("../a", "links/soft"),
        ("nowhere", "links/dangling"),
        ("d", "dirlink"),
        ("loop", "loop"),
        (".", "self"),
    ] {
        std::os::unix::fs::symlink(target, source.join(link)).unwrap();
    }
    for name in ["user.a", "user.b"] {
        setfattr.run(["-n", name, "-v", "x", source.join("a").to_str().unwrap()]);
    }
    let definitions = "\
        null c 666 0 0 1 3\n\
        disk b 640 1 6 259 300\n\
        d/s m 4750 4000000000 3000000000\n\
        d m 2750 4000000000 12\n\
        d/x m 4755 1000 0\n\
        fifo i 600 4000000000 4000000000 f\n\
        socket i 777 0 0 s\n\
        empty m 1777 0 65534\n";
    fs::write(source.join("d/s"), "set-ID\n").unwrap();
    fs::write(dir.join("definitions"), definitions).unwrap();
    let line = "source i -quiet -no-progress -noappend -mkfs-time 951782399 -pf definitions";
    run(mksquashfs
        .command()
        .args(line.split(' '))
        .current_dir(dir.path())
        .stdout(Stdio::null()));
    let mut offset = vec![0; 4096];
    offset.extend(fs::read(dir.join("i")).unwrap());
    fs::write(dir.join("offset"), offset).unwrap();
    fs::write(dir.join("list"), "d/e\n\n# comment\n  links\n").unwrap();
    Some(())
}

/// Makes an image `j` of the same files with other options.
fn make_kind(dir: &TempDir, mksquashfs: &Tool, options: &str) {
    let file = fs::File::create(dir.join("j")).unwrap();
    let to = if options == "-stream" { "-" } else { "j" };
    let line = format!("source {to} {options} -quiet -no-progress -noappend -pf definitions");
    let mut command = mksquashfs.command();
    command.args(line.split(' ')).current_dir(dir.path());
    if options == "-stream" {
        run(command.stdout(file));
    } else {
        run(command.stdout(Stdio::null()));
    }
}

/// Without the lines on threads, blocks and progress.
fn common(outcome: Outcome) -> Outcome {
    let is_common = |line: &&str| {
        !line.is_empty()
            && !line.starts_with("Parallel unsquashfs")
            && !line.ends_with(" to write")
            && !line.starts_with('[')
    };
    let out = outcome.out.split(['\n', '\r']).filter(is_common);
    let out = out.collect::<Vec<_>>().join("\n");
    Outcome { out, ..outcome }
}

/// Compares with the original, and names the lines that differ.
fn compare(dir: &TempDir, name: &str, original: &Tool, lines: &[&str]) {
    let mut differences = String::new();
    for line in lines {
        let theirs = common(outcome(dir.path(), name, Some(original), line));
        let ours = common(outcome(dir.path(), name, None, line));
        if theirs != ours {
            differences += &format!("{line}\n  theirs: {theirs:#?}\n  ours:   {ours:#?}\n");
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

#[test]
fn unsquashfs_does_the_same() {
    let dir = TempDir::new();
    let (Some(unsquashfs), Some(sqfscat)) = (tool("unsquashfs"), tool("sqfscat")) else {
        return;
    };
    if sample(&dir).is_some() {
        compare(&dir, "unsquashfs", &unsquashfs, LINES);
        compare(&dir, "sqfscat", &sqfscat, SQFSCAT_LINES);
    }
}

#[test]
fn images_of_all_kinds_are_listed_alike() {
    let dir = TempDir::new();
    let (Some(unsquashfs), Some(mksquashfs)) = (newer_tool("unsquashfs"), newer_tool("mksquashfs"))
    else {
        return;
    };
    if sample(&dir).is_none() {
        return;
    }
    for options in [
        "-comp gzip -Xcompression-level 5 -Xwindow-size 10 -Xstrategy fixed,filtered -b 4096",
        "-comp lzo -Xalgorithm lzo1x_1 -no-fragments",
        "-comp lzo -Xcompression-level 3 -b 1M",
        "-comp lz4 -Xhc -always-use-fragments -no-exports",
        "-comp xz -Xbcj x86,arm -Xdict-size 50%",
        "-comp zstd -Xcompression-level 3 -noI -noD -noF -noX",
        "-comp lzma -no-xattrs -nopad",
        "-no-duplicates -noId -all-root",
        "-stream",
    ] {
        make_kind(&dir, &mksquashfs, options);
        let lines = ["-s", "-lln -full", "-llc", "-q -n -d out"].map(|option| {
            let files = if option.starts_with("-q") {
                "a d links"
            } else {
                ""
            };
            format!("unsquashfs {option} ../j {files}")
        });
        compare(
            &dir,
            "unsquashfs",
            &unsquashfs,
            &lines.each_ref().map(|line| &**line),
        );
    }
}

#[test]
fn a_newer_unsquashfs_does_the_same() {
    let dir = TempDir::new();
    let (Some(unsquashfs), Some(sqfscat)) = (newer_tool("unsquashfs"), newer_tool("sqfscat"))
    else {
        return;
    };
    if sample(&dir).is_some() {
        compare(&dir, "unsquashfs", &unsquashfs, NEWER_LINES);
        compare(&dir, "unsquashfs", &unsquashfs, LINES);
        compare(&dir, "sqfscat", &sqfscat, NEWER_SQFSCAT_LINES);
        compare(&dir, "sqfscat", &sqfscat, SQFSCAT_LINES);
    }
}

#[test]
fn no_option_of_unsquashfs_is_without_a_case() {
    let dir = TempDir::new();
    let all = [LINES, NEWER_LINES, OUR_LINES, &["-v -version"]].concat();
    assert_no_option_is_without_a_case("unsquashfs", &all);
    let all = [
        SQFSCAT_LINES,
        NEWER_SQFSCAT_LINES,
        LINES,
        OUR_LINES,
        &["-v -version"],
    ]
    .concat();
    assert_no_option_is_without_a_case("sqfscat", &all);
    for line in OUR_LINES {
        let line = format!("unsquashfs -q {line} ../i");
        let Outcome { code, out, files } = outcome(dir.path(), "unsquashfs", None, &line);
        assert_eq!((code, &*out, files.len()), (Some(1), "", 0), "{line}");
    }
    for option in ["-v", "-version"] {
        let line = format!("unsquashfs {option}");
        let Outcome { code, out, .. } = outcome(dir.path(), "unsquashfs", None, &line);
        assert!(
            out.starts_with("unsquashfs version 4.7.5 (restow "),
            "{out}"
        );
        // As theirs, which needs an image.
        assert_eq!(code, Some(1));
    }
}
