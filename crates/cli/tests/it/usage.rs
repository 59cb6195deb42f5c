//! Where the stored bytes are: compared with compsize, opened by ncdu, drawn.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::Command;

use testkit::{Access, BackingFile, FsType, LoopDevice, Mount, Rng, TempDir, run, tool};

use super::btrfs_source::small;
use super::json::{Json, object_of};
use super::{ok, run_in};

/// The numbers of an amount: disk usage, uncompressed, referenced.
fn amount(of: &Json) -> [u64; 3] {
    ["disk_usage_bytes", "uncompressed_bytes", "referenced_bytes"].map(|key| of[key].number())
}

#[test]
fn a_squashfs_image_adds_up() {
    let Some(mksquashfs) = tool("mksquashfs") else {
        return;
    };
    let dir = TempDir::new();
    let text = b"the same words again and again, ".repeat(10_000);
    fs::create_dir_all(dir.join("src/sub")).unwrap();
    fs::write(dir.join("src/text.txt"), &text).unwrap();
    fs::write(dir.join("src/sub/copy.txt"), &text).unwrap();
    fs::hard_link(dir.join("src/text.txt"), dir.join("src/link.txt")).unwrap();
    fs::write(dir.join("src/noise.bin"), Rng::new(1).bytes(300_000)).unwrap();
    fs::write(dir.join("src/sub/small"), "tail").unwrap();
    let sparse = File::create(dir.join("src/sparse.img")).unwrap();
    sparse.set_len(1 << 20).unwrap();
    symlink("text.txt", dir.join("src/l")).unwrap();
    let quiet = ["-quiet", "-no-progress", "-noappend"];
    run(mksquashfs
        .command()
        .args([dir.join("src"), dir.join("i.squashfs")])
        .args(quiet));
    let (out, _) = ok(&dir, "usage --json --depth 2 i.squashfs");
    let usage = object_of(&out);
    let counts = ["files", "directories", "other_files"].map(|key| usage[key].number());
    assert_eq!(counts, [6, 2, 1]);
    assert_eq!(usage["hole_bytes"].number(), 1 << 20);
    let total = amount(&usage["total"]);
    // Noise, two names of one file, a copy of it, and a tail.
    assert_eq!(total[2], 300_000 + 3 * text.len() as u64 + 4);
    assert_eq!(total[1], 300_000 + text.len() as u64 + 4);
    // The copy shares the blocks; the other name is the same file.
    let gzip = amount(&usage["by_algorithm"].list()[1]);
    assert!(
        usage["shared_bytes"].number() > 0 && usage["shared_bytes"].number() <= gzip[0] + 300_000
    );
    let image = fs::metadata(dir.join("i.squashfs")).unwrap().len();
    let parts = ["metadata_bytes", "slack_bytes"].map(|key| usage[key].number());
    assert_eq!(total[0] + parts.iter().sum::<u64>(), image);
    let by_type = usage["by_type"].list();
    let types: Vec<&str> = by_type.iter().map(|it| it["type"].text()).collect();
    assert_eq!(types, ["bin", "txt", "", "img"]);
    let sum: u64 = by_type.iter().map(|it| amount(it)[0]).sum();
    assert_eq!(sum, total[0]);
    let by_file = usage["by_file"].list();
    let files: Vec<&str> = by_file.iter().map(|it| it["path"].text()).collect();
    assert_eq!(&files[..1], ["noise.bin"]);
    assert!(files.contains(&"sub/small") && !files.contains(&"sparse.img"));
    let sum: u64 = by_file.iter().map(|it| amount(it)[0]).sum();
    assert_eq!(sum, total[0]);
    // As text.
    let (out, _) = ok(&dir, "usage -b --top 1 i.squashfs");
    let rows: Vec<&str> = out
        .lines()
        .skip_while(|it| !it.ends_with(" File"))
        .collect();
    let more = format!("and {} more (--top)", files.len() - 1);
    assert!(rows[1].ends_with("  noise.bin") && rows[2] == more, "{out}");
    let (out, _) = ok(&dir, "usage -b i.squashfs sub");
    assert!(out.starts_with("Processed 2 files, "), "{out}");
    assert!(
        out.contains("\nTOTAL ") && !out.contains("Metadata"),
        "{out}"
    );
}

#[test]
fn a_stream_and_a_part_of_an_image_are_measured() {
    let dir = TempDir::new();
    fs::create_dir_all(dir.join("src/d")).unwrap();
    let words = b"words ".repeat(50_000);
    fs::write(dir.join("src/d/f"), &words).unwrap();
    fs::write(dir.join("src/g"), Rng::new(2).bytes(5000)).unwrap();
    ok(&dir, "copy -q src i.btrfs --compress zstd --compress-force");
    ok(&dir, "copy -q i.btrfs s.stream");
    let of = |line: &str| object_of(&ok(&dir, line).0);
    let (image, stream) = (of("usage --json i.btrfs"), of("usage --json s.stream"));
    let zstd = |usage: &Json| {
        let forms = usage["by_algorithm"].list();
        let found = forms.iter().find(|it| it["algorithm"].text() == "zstd");
        amount(found.expect("it is compressed"))
    };
    // Both hold the same extents, but the image counts whole sectors.
    assert_eq!(zstd(&image)[0], zstd(&stream)[0]);
    assert!(zstd(&stream)[2] >= words.len() as u64);
    let len = fs::metadata(dir.join("s.stream")).unwrap().len();
    assert_eq!(
        stream["metadata_bytes"].number() + amount(&stream["total"])[0],
        len
    );
    let part = of("usage --json i.btrfs d");
    assert_eq!(amount(&part["total"]), zstd(&image));
    assert!(part.get("metadata_bytes").is_none());
    // A directory on another file system is plain.
    let directory = of("usage --json src");
    assert_eq!(amount(&directory["total"]), [words.len() as u64 + 5000; 3]);
}

#[test]
fn drawings_are_always_the_same() {
    let dir = TempDir::new();
    small().write_file(&dir.join("i"));
    ok(&dir, "usage i --svg i.svg --html i.html");
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/usage-small.svg");
    let svg = fs::read_to_string(dir.join("i.svg")).unwrap();
    testkit::golden(golden, &svg);
    let html = fs::read_to_string(dir.join("i.html")).unwrap();
    assert!(
        html.len() < 300_000 && html.contains("<svg ") && html.contains("<h2>Directories</h2>")
    );
    // The only address is that of the name space.
    assert_eq!(html.matches("http").count(), 1);
    let (code, _, words) = run_in(dir.path(), ["usage", "i", "--svg", "no/i.svg"]);
    assert_eq!(code, 2);
    assert_eq!(words, "restow: write no/i.svg: no such file or directory\n");
}

#[test]
fn ncdu_opens_the_list() {
    let Some(ncdu) = tool("ncdu") else {
        return;
    };
    let dir = TempDir::new();
    fs::create_dir_all(dir.join("src/a \"quoted\\\" name/deeper")).unwrap();
    fs::write(dir.join("src/a \"quoted\\\" name/deeper/f"), [1; 100_000]).unwrap();
    fs::write(dir.join("src/one"), [2; 70_000]).unwrap();
    fs::hard_link(dir.join("src/one"), dir.join("src/two")).unwrap();
    symlink("one", dir.join("src/link")).unwrap();
    let odd = OsStr::from_bytes(b"odd\xff");
    fs::write(dir.join("src").join(odd), "odd").unwrap();
    ok(&dir, "copy -q src i.squashfs");
    let (code, list, words) = {
        let output = super::restow(["usage", "--ncdu", "i.squashfs"])
            .current_dir(dir.path())
            .output()
            .unwrap();
        (output.status.code(), output.stdout, output.stderr)
    };
    assert_eq!((code, &*words), (Some(0), &b""[..]));
    fs::write(dir.join("list"), &list).unwrap();
    // It reads the list, and writes it again.
    run(ncdu
        .command()
        .args(["-0", "-f", "list", "-o", "again"])
        .current_dir(dir.path()));
    let again = fs::read(dir.join("again")).unwrap();
    let names = |list: &[u8]| {
        let list = String::from_utf8_lossy(list);
        let names = list.matches("\"name\":").count();
        (names, list.matches("\"hlnkc\":true").count())
    };
    assert_eq!(names(&again), names(&list));
    assert_eq!(names(&again), (8, 2));
}

#[test]
#[ignore = "needs root"]
fn the_unwritten_rest_of_a_preallocated_extent_has_no_row() {
    compare_with_compsize(&[], "compress=zstd:3", |dir, rng| {
        let path = dir.join("reserved");
        File::create(&path).unwrap();
        run(Command::new("fallocate").args(["-l", "1000000"]).arg(&path));
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&rng.bytes(50_000), 0).unwrap();
    });
}

/// Files as compsize may find them: of all lengths, sparse, preallocated, shared, overwritten.
fn shapes(dir: &Path, rng: &mut Rng) {
    let text = b"some words that compress, ".repeat(40_000);
    for len in [0, 1, 100, 2000, 4095, 4096, 4097, 131_072, 500_001] {
        fs::write(dir.join(format!("text{len}")), &text[..len]).unwrap();
        fs::write(dir.join(format!("noise{len}")), rng.bytes(len)).unwrap();
    }
    let file = File::create(dir.join("sparse")).unwrap();
    file.write_all_at(&text[..10_000], 5_000_000).unwrap();
    file.set_len(9_000_000).unwrap();
    for (name, arguments) in [
        ("reserved", &["-l", "1000000"][..]),
        ("beyond", &["-n", "-l", "700000"]),
    ] {
        File::create(dir.join(name)).unwrap();
        run(Command::new("fallocate")
            .args(arguments)
            .arg(dir.join(name)));
    }
    let reserved = OpenOptions::new()
        .write(true)
        .open(dir.join("reserved"))
        .unwrap();
    reserved.write_all_at(&text[..50_000], 200_000).unwrap();
    sync(dir);
    let clone = |from: &str, to: &str| {
        run(Command::new("cp")
            .arg("--reflink=always")
            .args([dir.join(from), dir.join(to)]));
    };
    clone("text500001", "clone");
    clone("noise500001", "noise clone");
    // Parts are overwritten or cut off, and their extents stay.
    for name in ["text500001", "noise500001"] {
        let file = OpenOptions::new().write(true).open(dir.join(name)).unwrap();
        file.write_all_at(&text[..20_000], 150_000).unwrap();
        file.set_len(400_000).unwrap();
    }
    sync(dir);
    fs::hard_link(dir.join("text100"), dir.join("link to inline")).unwrap();
    fs::hard_link(dir.join("clone"), dir.join("link to clone")).unwrap();
}

fn sync(path: &Path) {
    run(Command::new("sync").arg("--file-system").arg(path));
}

/// Mounts a new file system, or again with other options.
fn mounted(backing: BackingFile, options: &str) -> Mount {
    let device = LoopDevice::attach(backing, Access::ReadWrite);
    Mount::new(device, FsType::Btrfs, options)
}

/// The table of compsize, without the room behind each line.
fn lines(table: &str) -> Vec<&str> {
    let lines = table.lines().take_while(|line| !line.is_empty());
    lines.map(str::trim_end).collect()
}

/// Fills an image by this function, and compares the tables of all its files and of a directory.
fn compare_with_compsize(mkfs: &[&str], options: &str, fill: impl FnOnce(&Path, &mut Rng)) {
    let (Some(mkfs_btrfs), Some(compsize)) = (tool("mkfs.btrfs"), tool("compsize")) else {
        return;
    };
    let backing = BackingFile::create(512 << 20);
    run(mkfs_btrfs
        .command()
        .args(mkfs)
        .arg("--quiet")
        .arg(backing.path()));
    let mount = mounted(backing, options);
    let part = mount.path().join("part");
    fs::create_dir(&part).unwrap();
    fill(&part, &mut Rng::new(options.len() as u64));
    sync(mount.path());
    let theirs = |path: &Path| {
        let output = compsize.run([Path::new("-b"), path]);
        String::from_utf8(output.stdout).unwrap()
    };
    let (whole, of_part) = (theirs(mount.path()), theirs(&part));
    // While it is mounted.
    let (code, ours, words) = run_in(mount.path(), ["usage", "-b", "."]);
    assert_eq!((code, &*words), (0, ""));
    assert_eq!(lines(&ours), lines(&whole), "mounted, {options}");
    let backing = mount.unmount();
    let image = backing.path().to_str().expect("it has a plain name");
    for (args, theirs) in [
        (vec!["usage", "-b", image], &whole),
        (vec!["usage", "-b", image, "part"], &of_part),
        (vec!["info", image], &whole),
    ] {
        let (code, ours, words) = run_in(Path::new("/"), &args);
        assert_eq!((code, &*words), (0, ""), "{args:?}");
        let from = ours.find("Processed").expect("it has the table");
        let ours = lines(&ours[from..]);
        assert!(ours.len() >= 4, "{ours:?}");
        assert_eq!(ours, lines(theirs), "{args:?}, {mkfs:?}, {options}");
    }
}

#[test]
#[ignore = "needs root"]
fn is_compsize_on_images_of_each_algorithm() {
    for algorithm in ["none", "zlib", "lzo", "zstd"] {
        compare_with_compsize(&[], &format!("compress-force={algorithm}"), shapes);
    }
}

#[test]
#[ignore = "needs root"]
fn is_compsize_with_shared_trees_links_and_other_layouts() {
    // Snapshots, of which the files change.
    compare_with_compsize(&[], "compress=zstd:3", |dir, rng| {
        let btrfs = tool("btrfs").expect("mkfs.btrfs is there");
        let at = dir.parent().expect("it has one");
        super::btrfs_in(&btrfs, at, &["subvolume", "create", "own"]);
        shapes(&at.join("own"), rng);
        super::btrfs_in(
            &btrfs,
            at,
            &["subvolume", "snapshot", "own", "part/snapshot"],
        );
        let snapshot = dir.join("snapshot");
        let file = OpenOptions::new()
            .write(true)
            .open(snapshot.join("clone"))
            .unwrap();
        file.write_all_at(&rng.bytes(70_000), 60_000).unwrap();
        fs::remove_file(snapshot.join("noise131072")).unwrap();
        fs::write(snapshot.join("new"), rng.bytes(3000)).unwrap();
    });
    // A thousand symbolic links and a thousand hard links.
    compare_with_compsize(&[], "compress-force=lzo", |dir, rng| {
        shapes(dir, rng);
        for number in 0..1000 {
            symlink("text4096", dir.join(format!("symlink{number}"))).unwrap();
            let name = ["text131072", "text100", "noise4097"][number % 3];
            fs::hard_link(dir.join(name), dir.join(format!("link{number}"))).unwrap();
        }
    });
    // Other node sizes, nothing inline, data and metadata together.
    compare_with_compsize(&["-n", "4096"], "compress-force=zlib,max_inline=0", shapes);
    compare_with_compsize(&["--mixed"], "compress-force=zstd", shapes);
}

/// Quotas judge: those of each subvolume, and those of a group of three.
#[test]
#[ignore = "needs root"]
fn subvolumes_share_as_much_as_quota_groups_say() {
    let (Some(mkfs), Some(btrfs)) = (tool("mkfs.btrfs"), tool("btrfs")) else {
        return;
    };
    let backing = BackingFile::create(512 << 20);
    run(mkfs.command().arg("--quiet").arg(backing.path()));
    let mount = mounted(backing, "compress=zstd:1");
    let at = mount.path();
    let in_mount = |args: &[&str]| super::btrfs_in(&btrfs, at, args);
    in_mount(&["subvolume", "create", "home"]);
    let mut rng = Rng::new(32);
    shapes(&at.join("home"), &mut rng);
    for number in 0..600 {
        fs::write(at.join(format!("home/file{number}")), rng.bytes(3000)).unwrap();
    }
    let mut snapshots = Vec::new();
    for day in 1..6 {
        let name = format!("day{day}");
        in_mount(&["subvolume", "snapshot", "home", &name]);
        fs::write(at.join(format!("home/new{day}")), rng.bytes(40_000 * day)).unwrap();
        let changed = at.join(format!("home/file{}", day * 50));
        fs::write(changed, rng.bytes(9000)).unwrap();
        fs::remove_file(at.join(format!("{name}/file{day}"))).unwrap();
        snapshots.push(name);
    }
    run(Command::new("cp")
        .arg("--reflink=always")
        .args([at.join("home/new1"), at.join("clone")]));
    sync(at);
    in_mount(&["quota", "enable", "."]);
    // A second scan would not begin while the first one runs.
    in_mount(&["quota", "rescan", "-W", "."]);
    in_mount(&["qgroup", "create", "1/100", "."]);
    let info = |name: &str| {
        let out = in_mount(&["inspect-internal", "rootid", name]);
        let out = String::from_utf8(out).unwrap();
        out.trim().parse::<u64>().unwrap()
    };
    let together = [&*snapshots[1], &*snapshots[2], "home"];
    for name in together {
        in_mount(&[
            "qgroup",
            "assign",
            "--no-rescan",
            &format!("0/{}", info(name)),
            "1/100",
            ".",
        ]);
    }
    in_mount(&["quota", "rescan", "-w", "."]);
    sync(at);
    let groups = in_mount(&["qgroup", "show", "--raw", "."]);
    let groups = String::from_utf8(groups).unwrap();
    let theirs = |id: &str| -> [u64; 2] {
        let mut lines = groups.lines().map(|line| line.split_whitespace());
        let line = lines.find_map(|mut words| (words.next() == Some(id)).then_some(words));
        let numbers: Vec<u64> = line.expect(id).map_while(|it| it.parse().ok()).collect();
        [numbers[0], numbers[1]]
    };
    let mut expected: Vec<(u64, [u64; 2])> = vec![(5, theirs("0/5"))];
    for name in snapshots.iter().map(String::as_str).chain(["home"]) {
        let id = info(name);
        expected.push((id, theirs(&format!("0/{id}"))));
    }
    expected.sort_unstable();
    let freed = theirs("1/100")[1];
    let backing = mount.unmount();
    let image = backing.path().to_str().expect("it has a plain name");
    let mut args = vec!["usage", "--json", image];
    for name in together {
        args.extend(["--if-deleted", name]);
    }
    let (code, out, words) = run_in(Path::new("/"), &args);
    assert_eq!((code, &*words), (0, ""));
    let usage = object_of(&out);
    let ours: Vec<(u64, [u64; 2])> = usage["by_subvolume"]
        .list()
        .iter()
        .map(|row| {
            let bytes = ["referenced_bytes", "exclusive_bytes"].map(|key| row[key].number());
            (row["id"].number(), bytes)
        })
        .collect();
    assert_eq!(ours, expected, "{groups}");
    assert!(freed > 3 * 4096, "the test is of something");
    assert_eq!(usage["freed_bytes"].number(), freed, "{groups}");
}
