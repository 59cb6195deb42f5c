//! `tar2sqfs` and `sqfs2tar`.

use std::fs;
use std::process::Stdio;

use testkit::{TempDir, Tool, newer_tool, run, tool};

use super::{Outcome, assert_no_option_is_without_a_case, outcome};

/// Each writes the image `o`, which `unsquashfs` lists and extracts. The archives are `../tar`,
/// without directories, and `../dot`, with `./` and all directories.
const LINES: &[&str] = &[
    "tar2sqfs o < ../tar",
    "tar2sqfs o < ../dot",
    "tar2sqfs --force o < ../dot.gz",
    "touch o; tar2sqfs o < ../tar",
    "touch o; tar2sqfs -f o < ../tar",
    "tar2sqfs -r a/b o < ../tar",
    "tar2sqfs -q --root-becomes=a o < ../dot",
    "tar2sqfs -r ./a/b/ o < ../dot",
    "tar2sqfs -r a/b/c o < ../dot",
    "tar2sqfs -r a/b -S o < ../tar",
    "tar2sqfs -r a/b --no-symlink-retarget o < ../tar",
    "tar2sqfs -k o < ../dot",
    "tar2sqfs --no-keep-time -d mtime=77 o < ../tar",
    "tar2sqfs -d uid=3,gid=4,mode=0710,mtime=77 o < ../tar",
    "tar2sqfs --defaults uid=3 o < ../dot",
    "SOURCE_DATE_EPOCH=99; export SOURCE_DATE_EPOCH; tar2sqfs o < ../tar",
    "tar2sqfs -x o < ../dot",
    "tar2sqfs --no-xattr o < ../dot",
    "tar2sqfs -s o < ../dot",
    "tar2sqfs --no-skip o < ../dot",
    "tar2sqfs -e o < ../dot",
    "tar2sqfs --exportable o < ../dot",
    "tar2sqfs -T o < ../dot",
    "tar2sqfs --no-tail-packing o < ../dot",
    "tar2sqfs -b 4096 o < ../dot",
    "tar2sqfs --block-size 1M o < ../dot",
    "tar2sqfs -B 65536 o < ../dot",
    "tar2sqfs --dev-block-size 1024 o < ../dot",
    "tar2sqfs -j 1 -Q 5 --quiet o < ../dot",
    "tar2sqfs --num-jobs 2 --queue-backlog 5 o < ../dot",
    "tar2sqfs -c gzip o < ../dot",
    "tar2sqfs -c gzip -X level=3,window=15 o < ../dot",
    "tar2sqfs -c xz --comp-extra level=3,x86 o < ../dot",
    "tar2sqfs -c lzo -X level=3 o < ../dot",
    // unsquashfs 4.5.1 does not read theirs.
    "tar2sqfs --compressor lz4 -X hc o < ../dot && rm o",
    "tar2sqfs -c zstd -X level=3 o < ../dot",
    "tar2sqfs -b 5000 o < ../dot",
    "tar2sqfs -c none o < ../dot",
    "tar2sqfs -c zstd -X level=99 o < ../dot",
    "tar2sqfs -Z o < ../dot",
    "tar2sqfs",
];

const NEWER_LINES: &[&str] = &[
    "tar2sqfs --no-pad o < ../dot",
    "tar2sqfs -E 'boot/*' o < ../dot",
    "tar2sqfs -E '*rd' --exclude=b?ot/x/[!a]* o < ../dot",
    "tar2sqfs --exclude '*b*' o < ../dot",
    "tar2sqfs -r a -E 'b/c/*' -E 'a/b/[rt]*' o < ../dot",
    "tar2sqfs -E 'a\\/b/rel*' -E '{a,b}' o < ../dot",
];

const OUR_LINES: &[&str] = &["-h", "--help", "-V", "--version"];

/// Each writes the archive `o`, which `tar` lists and extracts.
const SQFS2TAR_LINES: &[&str] = &[
    "sqfs2tar ../image > o",
    "sqfs2tar -c gzip ../image > o",
    "sqfs2tar --compressor xz ../image > o",
    "sqfs2tar -d a/b -k ../image > o",
    "sqfs2tar --subdir a/b --keep-as-dir ../image > o",
    "sqfs2tar -r . ../image > o",
    "sqfs2tar --root-becomes top ../image > o",
    "sqfs2tar -X ../image > o",
    "sqfs2tar --no-xattr ../image > o",
    "sqfs2tar -L ../image > o",
    "sqfs2tar --no-hard-links ../image > o",
    "sqfs2tar -s ../image > o",
    "sqfs2tar --no-skip -c nothing ../image",
    "sqfs2tar ../nothing",
    "sqfs2tar",
];

/// Two archives of one tree, and an image of it.
fn sample(dir: &TempDir, tar2sqfs: &Tool) -> Option<()> {
    let (tar, setfattr) = (tool("tar")?, tool("setfattr")?);
    let source = dir.join("source");
    for path in ["a/b/c", "boot/x"] {
        fs::create_dir_all(source.join(path)).unwrap();
    }
    fs::write(source.join("a/b/c/f"), "hello\n").unwrap();
    fs::hard_link(source.join("a/b/c/f"), source.join("a/b/hard")).unwrap();
    for (target, link) in [
        ("/a/b/c/f", "a/b/absolute"),
        ("/a/bb", "a/b/other"),
        ("c/f", "a/b/relative"),
        ("a/b/c", "a/b/bare"),
        ("/a/b", "a/b/top"),
        ("../b", "a/b/up"),
    ] {
        std::os::unix::fs::symlink(target, source.join(link)).unwrap();
    }
    fs::write(source.join("boot/x/k"), vec![b'k'; 300_000]).unwrap();
    let at = |name: &str| dir.join(name).into_os_string().into_string().unwrap();
    let line = |line: &str| {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        words
    };
    setfattr.run(line(&format!("-n user.x -v y {}", at("source/a/b/c/f"))));
    let how = "--xattrs --xattrs-include=* --mtime=@1000000 --sort=name --owner=5 --group=6";
    let common = format!("{how} -C {}", at("source"));
    tar.run(line(&format!("{common} -cf {} .", at("dot"))));
    tar.run(line(&format!("{common} -czf {} .", at("dot.gz"))));
    let files = "a/b/c/f a/b/hard a/b/absolute a/b/other a/b/relative a/b/bare a/b/top boot/x/k";
    tar.run(line(&format!("{common} -cf {} {files}", at("tar"))));
    run(tar2sqfs
        .command()
        .args(["-q", &at("image")])
        .stdin(fs::File::open(dir.join("dot")).unwrap())
        .stdout(Stdio::null()));
    Some(())
}

/// Compares with the original: exit codes, and the output as `show` prints it.
fn compare(dir: &TempDir, name: &str, original: &Tool, lines: &[&str], show: &str) {
    let mut differences = String::new();
    for line in lines {
        let [theirs, ours] = [Some(original), None].map(|original| {
            // Progress is no result, and neither is the output itself.
            let line = format!("({line}) >>log 2>&1; code=$?; {show}; rm -f o log; exit $code");
            outcome(dir.path(), name, original, &line)
        });
        if theirs != ours {
            differences += &format!("{line}\n  theirs: {theirs:#?}\n  ours:   {ours:#?}\n");
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

/// The tree and the facts of an image that do not depend on the encoder.
const SHOW_IMAGE: &str = "if [ -s o ]; then unsquashfs -lln -full-precision o || unsquashfs -lln o; \
    unsquashfs -q -n -d out o; unsquashfs -s o | grep -v '^Filesystem size\\|^Fragments are\\|\
    Strategies selected\\|compression\\|window\\|use-fragments'; unsquashfs -mkfs-time o; fi 2>/dev/null; true";

/// The members and the tree of an archive, without the root, which the original leaves out.
const SHOW_ARCHIVE: &str = "if [ -s o ]; then tar tvf o --numeric-owner --full-time | \
    sed 's| [.]/| |g; / $/d' | sort; \
    mkdir out; tar xpf o -C out --xattrs --xattrs-include='*'; getfattr -dR out; \
    chown 0:0 out; chmod 755 out; touch -d @0 out; fi 2>/dev/null; true";

#[test]
fn tar2sqfs_does_the_same() {
    let dir = TempDir::new();
    let (Some(tar2sqfs), Some(sqfs2tar)) = (tool("tar2sqfs"), tool("sqfs2tar")) else {
        return;
    };
    if tool("unsquashfs").is_some() && sample(&dir, &tar2sqfs).is_some() {
        compare(&dir, "tar2sqfs", &tar2sqfs, LINES, SHOW_IMAGE);
        compare(&dir, "sqfs2tar", &sqfs2tar, SQFS2TAR_LINES, SHOW_ARCHIVE);
    }
}

#[test]
fn a_newer_tar2sqfs_does_the_same() {
    let dir = TempDir::new();
    let (Some(tar2sqfs), Some(sqfs2tar)) = (newer_tool("tar2sqfs"), newer_tool("sqfs2tar")) else {
        return;
    };
    if tool("unsquashfs").is_some() && sample(&dir, &tar2sqfs).is_some() {
        compare(&dir, "tar2sqfs", &tar2sqfs, NEWER_LINES, SHOW_IMAGE);
        compare(&dir, "tar2sqfs", &tar2sqfs, LINES, SHOW_IMAGE);
        compare(&dir, "sqfs2tar", &sqfs2tar, SQFS2TAR_LINES, SHOW_ARCHIVE);
    }
}

/// The original fails for directories of images with hard links.
#[test]
fn sqfs2tar_without_and_with_directories() {
    let dir = TempDir::new();
    let (Some(tar2sqfs), Some(_)) = (tool("tar2sqfs"), tool("tar")) else {
        return;
    };
    if sample(&dir, &tar2sqfs).is_none() {
        return;
    }
    for (options, members) in [
        ("", "./ a/ a/b/ a/b/c/ a/b/c/f boot/ boot/x/ boot/x/k"),
        ("-d boot", "./ x/ x/k"),
        ("-d boot -k", "./ boot/ boot/x/ boot/x/k"),
        (
            "-d a/b/c -d boot",
            "./ a/ a/b/ a/b/c/ a/b/c/f boot/ boot/x/ boot/x/k",
        ),
        ("-r top -d boot/x", "./ top/ top/k"),
    ] {
        let line =
            format!("sqfs2tar {options} ../image | tar t --exclude='a/b/[abhortu]*' | xargs");
        let Outcome { out, .. } = outcome(dir.path(), "sqfs2tar", None, &line);
        assert_eq!(out.trim_end(), members, "{options}");
    }
}

#[test]
fn no_option_of_tar2sqfs_is_without_a_case() {
    let dir = TempDir::new();
    let all = [LINES, NEWER_LINES, OUR_LINES].concat();
    assert_no_option_is_without_a_case("tar2sqfs", &all);
    assert_no_option_is_without_a_case("sqfs2tar", SQFS2TAR_LINES);
    for line in OUR_LINES {
        let line = format!("tar2sqfs -q {line} o");
        let Outcome { code, out, files } = outcome(dir.path(), "tar2sqfs", None, &line);
        assert_eq!((code, &*out, files.len()), (Some(1), "", 0), "{line}");
    }
}
