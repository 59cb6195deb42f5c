use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::{Access, BackingFile, FsType, LoopDevice, Mount, TempDir, nasty_tree, run, tool};

use super::{Foreground, Mounted, counter, script};
use crate::memory::peak_so_far;
use crate::{restow, run_in, shown};

/// What `find` shows of all files but directories, and of directories; what `stat` shows of
/// devices; and all attributes of files whose path is not too long for a system call.
const METADATA: &str = r"
find . ! -type d -printf '%P %y %m %n %U %G %s %T@ %l\0' | sort -z | tr '\0' '\n'
find . -type d -printf '%P %y %m %U %G %T@\0' | sort -z | tr '\0' '\n'
find . \( -type b -o -type c \) -exec stat -c '%n %t %T' {} + | sort
find . -print0 | sort -z | xargs -0 getfattr -h -d -m- -e hex --absolute-names -- 2> /dev/null || true
";

/// The content of all files but the largest, and those whose path is too long for a system call.
const CONTENT: &str = r"
find . -type f -size -65536k -print0 | grep -zavE '^.{4000}' | sort -z | xargs -0 sha256sum
";

/// Numbers of files.
const NUMBERS: &str = r"find . -printf '%P %i %n\0' | sort -z | tr '\0' '\n'";

/// The sizes of directories.
const DIRECTORIES: &str = r"find . -type d -printf '%P %s\0' | sort -z | tr '\0' '\n'";

/// Where the data of each file is.
fn data(dir: &Path) -> Vec<(PathBuf, Vec<(u64, u64)>)> {
    let list = script(
        dir,
        r"find . -type f -printf '%P\0' | sort -z | tr '\0' '\n'",
    );
    let mut found = Vec::new();
    for path in list.lines().filter(|path| path.is_ascii()) {
        let Ok(file) = File::open(dir.join(path)) else {
            continue;
        };
        let mut ranges = Vec::new();
        let mut at = 0;
        while let Some(from) = linux::seek_data(&file, at).unwrap() {
            at = linux::seek_hole(&file, from).unwrap().unwrap();
            ranges.push((from, at));
        }
        found.push((path.into(), ranges));
    }
    found
}

fn same(one: &Path, other: &Path, questions: &[&str]) {
    for question in questions {
        let [one, other] = [one, other].map(|dir| script(dir, question));
        if one != other {
            let lines = one
                .lines()
                .zip(other.lines())
                .filter(|(one, other)| one != other);
            let lines: Vec<_> = lines.take(5).collect();
            panic!("{question}\n{lines:#?}\n{} {}", one.len(), other.len());
        }
        assert!(!one.is_empty());
    }
}

fn copy(dir: &TempDir, destination: &str) -> PathBuf {
    let (code, _, words) = run_in(dir.path(), ["copy", "-q", "src", destination]);
    assert!(code < 2, "{words}");
    dir.join(destination)
}

#[test]
#[ignore = "needs root"]
fn directories_archives_and_streams_show_their_tree() {
    let dir = TempDir::new();
    let src = dir.join("src");
    fs::create_dir(&src).unwrap();
    nasty_tree(&src);
    // Archives hold no sockets, and what a stream replaces has other times.
    script(&src, "find . -type s -delete");
    let mounted = Mounted::new(&src, [""; 0]);
    same(&src, mounted.path(), &[METADATA, CONTENT]);
    assert_eq!(data(&src), data(mounted.path()));
    mounted.unmount();
    for name in ["x.tar", "x.stream"] {
        if name == "x.stream" {
            // Streams have no paths longer than 4,095 bytes.
            script(
                &src,
                "find . -maxdepth 1 -name 'aaaaaaaaaa*' -exec rm -r {} +",
            );
        }
        let mounted = Mounted::new(&copy(&dir, name), [""; 0]);
        same(&src, mounted.path(), &[METADATA, CONTENT]);
        let with_holes = |dir: &Path| data(&dir.join("holes"));
        assert_eq!(with_holes(&src), with_holes(mounted.path()), "{name}");
        mounted.unmount();
    }
}

#[test]
#[ignore = "needs root"]
fn compressed_archives_and_streams_of_images_are_mounted() {
    let dir = TempDir::new();
    script(
        dir.path(),
        "mkdir -p src/sub; echo one > src/sub/file; ln src/sub/file src/sub/hard; tar czf x.tar.gz --format=pax -C src .",
    );
    let mounted = Mounted::new(&dir.join("x.tar.gz"), [""; 0]);
    same(&dir.join("src"), mounted.path(), &[METADATA, CONTENT]);
    mounted.unmount();
    // A subvolume of an image, as a stream.
    let copy = ["copy", "-q", "src", "x.btrfs", "--as-subvolume", "sub:ro"];
    let (code, _, words) = run_in(dir.path(), copy);
    assert_eq!(code, 0, "{words}");
    let (code, _, words) = run_in(dir.path(), ["send", "-f", "full", "x.btrfs:sub"]);
    assert_eq!(code, 0, "{words}");
    let mounted = Mounted::new(&dir.join("full"), [""; 0]);
    same(&dir.join("src/sub"), mounted.path(), &[CONTENT]);
    mounted.unmount();
}

#[test]
#[ignore = "needs root"]
fn squashfs_images_are_as_linux_mounts_them() {
    let Some(mksquashfs) = tool("mksquashfs") else {
        return;
    };
    let dir = TempDir::new();
    let src = dir.join("src");
    fs::create_dir(&src).unwrap();
    nasty_tree(&src);
    for codec in ["gzip", "lzo", "lz4", "xz", "zstd"] {
        let image = dir.join(format!("{codec}.squashfs"));
        let mut command = mksquashfs.command();
        command
            .arg(&src)
            .arg(&image)
            .args(["-comp", codec, "-quiet", "-no-progress"]);
        command.args(["-b", if codec == "xz" { "1M" } else { "128K" }]);
        command.output().unwrap();
        let theirs = Mount::read_only(&image, FsType::Squashfs);
        let ours = Foreground::new(&image, [""; 0]);
        same(theirs.path(), ours.path(), &[METADATA, CONTENT, NUMBERS]);
        drop(theirs);
        let words = ours.unmount();
        assert_eq!(counter(&words, "problems:"), 0, "{words}");
    }
}

#[test]
#[ignore = "needs root"]
fn btrfs_images_are_as_linux_mounts_them() {
    let Some(mkfs) = tool("mkfs.btrfs") else {
        return;
    };
    let Some(_) = tool("btrfs") else { return };
    for codec in ["zlib", "lzo", "zstd"] {
        let backing = BackingFile::create(1 << 30);
        mkfs.run([Path::new("-q"), backing.path()]);
        let device = LoopDevice::attach(backing, Access::ReadWrite);
        let mount = Mount::new(device, FsType::Btrfs, &format!("compress-force={codec}"));
        let top = mount.path();
        fs::create_dir(top.join("tree")).unwrap();
        nasty_tree(&top.join("tree"));
        script(
            top,
            "seq 1 300000 > text; head -c 3M /dev/urandom > noise
             btrfs -q subvolume create sub; echo in > sub/file; ln sub/file sub/link
             btrfs -q subvolume create sub/nested; echo deeper > sub/nested/file
             btrfs -q subvolume snapshot -r sub snap; btrfs -q subvolume create other
             sync -f .",
        );
        let backing = mount.unmount();
        let theirs = Mount::read_only(backing.path(), FsType::Btrfs);
        let ours = Foreground::new(backing.path(), [""; 0]);
        // Linux makes up times for what a snapshot shows of a subvolume.
        let question = METADATA.replace("find . ", "find . -path ./snap/nested -prune -o ");
        same(
            theirs.path(),
            ours.path(),
            &[&question, CONTENT, DIRECTORIES],
        );
        assert_eq!(data(theirs.path()), data(ours.path()));
        let numbers = "find . -path ./sub -prune -o -path ./snap -prune -o -path ./other -prune -o -printf '%P %i %n\\0' | sort -z | tr '\\0' '\\n'";
        same(theirs.path(), ours.path(), &[numbers]);
        // Times of birth.
        let born = |dir: &Path| script(dir, "stat -c %W.%w text noise sub/file tree");
        assert_eq!(born(theirs.path()), born(ours.path()));
        // Numbers of nested subvolumes are the same whatever was seen first, and unique.
        let number = |dir: &Path, path: &str| fs::metadata(dir.join(path)).unwrap().ino();
        let again = Mounted::new(backing.path(), [""; 0]);
        for path in [
            "other",
            "sub/nested/file",
            "sub",
            "snap/file",
            "sub/nested",
            "snap/nested",
        ] {
            assert_eq!(
                number(ours.path(), path),
                number(again.path(), path),
                "{path}"
            );
        }
        let all = script(
            again.path(),
            "find . -printf '%i\\n' | sort | uniq -d | wc -l",
        );
        let links = script(
            again.path(),
            "find . ! -type d -links +1 -printf '%i\\n' | sort -u | wc -l",
        );
        assert_eq!(all, links);
        drop(theirs);
        again.unmount();
        let words = ours.unmount();
        assert_eq!(counter(&words, "problems:"), 0, "{words}");
        // A subvolume of it, in three ways.
        for options in ["subvol=sub", "subvol=/sub", "subdir=sub"] {
            let mounted = Mounted::new(backing.path(), ["-o", options]);
            assert_eq!(
                fs::read(mounted.path().join("nested/file")).unwrap(),
                b"deeper\n"
            );
            mounted.unmount();
        }
    }
}

#[test]
#[ignore = "needs root"]
fn nothing_is_decoded_twice_while_it_fits() {
    let Some(mksquashfs) = tool("mksquashfs") else {
        return;
    };
    let dir = TempDir::new();
    script(
        dir.path(),
        "mkdir src; seq 1 4000000 > src/large; for n in $(seq 300); do seq $n 900 > src/$n; done",
    );
    for size in ["128K", "1M"] {
        let image = dir.join(format!("{size}.squashfs"));
        let mut command = mksquashfs.command();
        command.arg(dir.join("src")).arg(&image);
        run(command.args(["-comp", "zstd", "-quiet", "-no-progress", "-b", size]));
        let mounted = Foreground::new(&image, ["-o", "max_threads=2"]);
        // Eight readers at random places, in the same order and in others.
        script(
            mounted.path(),
            "read_some() { RANDOM=$1; for n in $(seq 300); do
               dd if=large bs=4096 count=1 skip=$((RANDOM % 7000)) status=none; done; }
             for n in 1 2 3 4 1 2 3 4; do read_some $n > /dev/null & done; wait
             cat [0-9]* > /dev/null; md5sum large > /dev/null",
        );
        same(&dir.join("src"), mounted.path(), &[CONTENT]);
        let words = mounted.unmount();
        assert!(counter(&words, "decoded") > 0);
        assert_eq!(counter(&words, "of these again"), 0, "{words}");
    }
}

#[test]
#[ignore = "needs root"]
fn a_walk_takes_few_requests() {
    let Some(mksquashfs) = tool("mksquashfs") else {
        return;
    };
    let dir = TempDir::new();
    script(
        dir.path(),
        "for d in $(seq 20); do mkdir -p src/$d; for f in $(seq 50); do echo $d $f > src/$d/$f; done; done",
    );
    let image = dir.join("x.squashfs");
    let mut command = mksquashfs.command();
    command.arg(dir.join("src")).arg(&image);
    run(command.args(["-quiet", "-no-progress", "-no-xattrs"]));
    let mounted = Foreground::new(&image, [""; 0]);
    for _ in 0..3 {
        script(
            mounted.path(),
            "ls -lR . > /dev/null; cat */* > /dev/null; ! ls nowhere 2> /dev/null",
        );
    }
    let words = mounted.unmount();
    // Each file is asked for or sent once, although it was read three times; two requests for each
    // directory.
    let sent = counter(&words, " read ") + counter(&words, "asked for:");
    assert_eq!(sent, 1000, "{words}");
    assert!(counter(&words, "readdirplus") <= 50, "{words}");
    // The name that is nowhere, and what leads to the mount.
    assert!(counter(&words, "lookup") <= 3, "{words}");
    for name in ["release ", "readdir ", "listxattr"] {
        assert!(!words.contains(name), "{words}");
    }
    for name in ["open ", "opendir ", "getxattr "] {
        assert!(
            !words.contains(name) || counter(&words, name) <= 2,
            "{words}"
        );
    }
}

#[test]
#[ignore = "needs root"]
fn overlayfs_stands_on_a_mount() {
    let dir = TempDir::new();
    script(
        dir.path(),
        "mkdir -p src/sub up work merged; echo below > src/sub/file; tar cf x.tar -C src .",
    );
    let mounted = Mounted::new(&dir.join("x.tar"), [""; 0]);
    let lower = mounted.path().display();
    let how = format!("lowerdir={lower},upperdir=up,workdir=work");
    run(Command::new("mount")
        .args(["-t", "overlay", "overlay", "-o", &how, "merged"])
        .current_dir(dir.path()));
    let shown = script(
        &dir.join("merged"),
        "cat sub/file; echo above >> sub/file; cat sub/file; rm -r sub; ls",
    );
    run(Command::new("umount").arg(dir.join("merged")));
    assert_eq!(shown, "below\nbelow\nabove\n");
    assert_eq!(
        fs::read(mounted.path().join("sub/file")).unwrap(),
        b"below\n"
    );
    mounted.unmount();
}

#[test]
#[ignore = "needs root"]
fn files_read_in_order_are_sent_before_they_are_asked_for() {
    let Some(mksquashfs) = tool("mksquashfs") else {
        return;
    };
    let dir = TempDir::new();
    script(
        dir.path(),
        "for d in $(seq 20); do mkdir -p src/$d; for f in $(seq 100); do seq $d $((f * 9)) > src/$d/$f; done; done",
    );
    let image = dir.join("x.squashfs");
    let mut command = mksquashfs.command();
    command.arg(dir.join("src")).arg(&image);
    run(command.args(["-comp", "zstd", "-quiet", "-no-progress"]));
    let btrfs = dir.join("x.btrfs");
    let (src, made) = (dir.join("src"), btrfs.clone());
    let args = ["copy", "-q", "--compress", "zstd"].map(PathBuf::from);
    run(&mut restow(args.iter().chain([&src, &made])));
    for image in [image, btrfs] {
        let mounted = Foreground::new(&image, ["-o", "max_threads=2"]);
        // One after another, and then two programs at once, after the kernel has forgotten what it
        // had.
        same(&dir.join("src"), mounted.path(), &[CONTENT]);
        script(
            mounted.path(),
            "find . -type f -exec cat {} + > /dev/null
             echo 3 > /proc/sys/vm/drop_caches
             find . -type f -exec md5sum {} + > /dev/null & find . -type f -exec cat {} + > /dev/null; wait",
        );
        same(&dir.join("src"), mounted.path(), &[CONTENT]);
        let words = mounted.unmount();
        assert!(counter(&words, "asked for:") > 1000, "{words}");
        assert!(counter(&words, "read ") < 3000, "{words}");
    }
}

/// Programs such as `tar` read the few files of a directory after listing it: two requests for
/// each, and hardly any for files.
#[test]
#[ignore = "needs root"]
fn files_of_small_directories_are_sent_with_their_names() {
    let dir = TempDir::new();
    script(
        dir.path(),
        "for d in $(seq 300); do mkdir -p src/$((d % 10))/$d; seq $d 999 > src/$((d % 10))/$d/file; done",
    );
    let image = copy(&dir, "x.squashfs");
    let mounted = Foreground::new(&image, ["-o", "max_threads=2"]);
    let read = "tar -cf - --sort=name . | md5sum";
    same(&dir.join("src"), mounted.path(), &[read]);
    script(mounted.path(), "echo 3 > /proc/sys/vm/drop_caches");
    same(&dir.join("src"), mounted.path(), &[read]);
    let words = mounted.unmount();
    assert!(counter(&words, "asked for:") > 400, "{words}");
    assert!(counter(&words, " read ") < 200, "{words}");
}

#[test]
#[ignore = "needs root"]
fn the_size_of_the_image_is_that_of_the_file_system() {
    let dir = TempDir::new();
    script(dir.path(), "mkdir src; seq 999 > src/file");
    let image = copy(&dir, "x.btrfs");
    let bytes = fs::metadata(&image).unwrap().len().to_string();
    let mut top = image.clone().into_os_string();
    top.push(":/");
    for source in [image.as_os_str(), &top] {
        let mounted = Mounted::new(Path::new(source), [""; 0]);
        let shown = script(mounted.path(), "df -B1 --output=size . | tail -1");
        assert_eq!(shown.trim(), bytes);
        mounted.unmount();
    }
}

#[test]
#[ignore = "needs root"]
fn an_incremental_stream_is_mounted_on_what_it_is_based_on() {
    let (Some(mkfs), Some(_)) = (tool("mkfs.btrfs"), tool("btrfs")) else {
        return;
    };
    let dir = TempDir::new();
    let backing = BackingFile::create(256 << 20);
    mkfs.run([Path::new("-q"), backing.path()]);
    let device = LoopDevice::attach(backing, Access::ReadWrite);
    let mount = Mount::new(device, FsType::Btrfs, "compress-force=zstd");
    let out = dir.path().display();
    script(
        mount.path(),
        &format!(
            "btrfs -q subvolume create sub; mkdir sub/dir; seq 1 90000 > sub/dir/one; seq 5 > sub/two
             btrfs -q subvolume snapshot -r sub first; btrfs -q send first -f {out}/first
             echo more >> sub/dir/one; rm sub/two; mv sub/dir sub/moved; echo three > sub/three
             btrfs -q subvolume snapshot -r sub second; btrfs -q send -p first second -f {out}/second
             ln sub/three sub/four; setfattr -n user.a -v b sub/three
             btrfs -q subvolume snapshot -r sub third; btrfs -q send -p second third -f {out}/third"
        ),
    );
    let chain = ["--base", "first", "--base", "second"].map(|word| match word {
        "--base" => word.into(),
        name => dir.join(name).into_os_string(),
    });
    for (name, base) in [("first", 0), ("second", 2), ("third", 4)] {
        let mounted = Mounted::new(&dir.join(name), &chain[..base]);
        same(
            &mount.path().join(name),
            mounted.path(),
            &[METADATA, CONTENT],
        );
        mounted.unmount();
    }
}

/// Opens a file by a handle, as a server of NFS does.
const BY_HANDLE: &str = r#"
import ctypes, os, sys
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("data", ctypes.c_ubyte * 128)]
libc = ctypes.CDLL(None, use_errno=True)
point, kept, name = sys.argv[1:4]
handle = Handle(bytes=128)
if not os.path.exists(kept):
    number = ctypes.c_int()
    done = libc.name_to_handle_at(-100, os.path.join(point, name).encode(), ctypes.byref(handle), ctypes.byref(number), 0)
    assert done == 0, os.strerror(ctypes.get_errno())
    open(kept, "wb").write(bytes(handle))
else:
    handle = Handle.from_buffer_copy(open(kept, "rb").read())
    file = libc.open_by_handle_at(os.open(point, os.O_RDONLY), ctypes.byref(handle), os.O_RDONLY)
    assert file >= 0, os.strerror(ctypes.get_errno())
    print(os.read(file, 100).decode())
"#;

#[test]
#[ignore = "needs root"]
fn a_file_handle_of_nfs_is_valid_after_the_next_mount() {
    let Some(python) = tool("python3") else {
        return;
    };
    let dir = TempDir::new();
    script(
        dir.path(),
        "mkdir -p src/a/b src/c; for n in $(seq 50); do echo $n > src/c/$n; done; echo deep > src/a/b/file",
    );
    for image in ["x.squashfs", "x.btrfs", "x.tar"] {
        let (code, _, words) = run_in(dir.path(), ["copy", "-q", "src", image]);
        assert_eq!(code, 0, "{words}");
        let kept = dir.join(format!("{image}.handle"));
        let ask = |mounted: &Mounted| {
            let mut command = python.command();
            command.args(["-c", BY_HANDLE]).arg(mounted.path());
            let output = run(command.arg(&kept).arg("a/b/file"));
            String::from_utf8(output.stdout).unwrap()
        };
        let mounted = Mounted::new(&dir.join(image), [""; 0]);
        assert_eq!(ask(&mounted), "");
        mounted.unmount();
        // Nothing was looked up in this one.
        let mounted = Mounted::new(&dir.join(image), [""; 0]);
        assert_eq!(ask(&mounted), "deep\n\n");
        mounted.unmount();
    }
}

#[test]
#[ignore = "needs root"]
fn a_mount_keeps_to_its_memory() {
    let dir = TempDir::new();
    let data = "head -c 8M /dev/urandom | base64 > src/$n";
    let make = format!("mkdir src; for n in 1 2 3 4 5 6 7 8 9 10 11 12; do {data}; done");
    script(dir.path(), &make);
    let read = "ls | xargs -P4 -n1 md5sum | sort";
    for name in ["x.squashfs", "x.btrfs", "x.tar"] {
        let image = copy(&dir, name);
        let refused = restow(["mount", "--memory", "16M"])
            .args([&image, &dir.join("src")])
            .output();
        let (code, _, words) = shown(&refused.unwrap());
        let least = words.split("this mount needs ").nth(1);
        let least = least.and_then(|it| it.split(' ').next()?.parse::<u64>().ok());
        assert!(code == 2 && least.is_some(), "{name}: {words}");
        for more in [0, 24] {
            let memory = least.unwrap() + more + 1;
            let options = ["--memory", &format!("{memory}M"), "-o", "max_threads=8"];
            let mounted = Foreground::new(&image, options);
            same(&dir.join("src"), mounted.path(), &[read]);
            let used = peak_so_far(mounted.id()).unwrap();
            assert!(used <= memory << 20, "{name}: {memory} MiB, {used}");
            mounted.unmount();
        }
    }
}
