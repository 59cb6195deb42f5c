//! `restow receive` into btrfs images that are not mounted.

use std::fs;
use std::path::Path;

use codec::{Algorithm, Encoder, Settings};
use sendstream::{Command, EncodedWrite};
use testkit::{
    Access, BackingFile, BtrfsImage, FsType, LoopDevice, Mount, Rng, TempDir, Tool, cases, run,
    tool,
};
use tree::manifest::Manifest;

use super::receive::{change, kernel_made, manifest, mounted, send, stream};
use super::{btrfs_in, names, run_in};

fn mount(image: &Path) -> Mount {
    let device = LoopDevice::attach(BackingFile::existing(image), Access::ReadWrite);
    Mount::new(device, FsType::Btrfs, "noatime,subvolid=5")
}

/// The line of `btrfs subvolume show` with this key.
fn show(btrfs: &Tool, path: &Path, key: &str) -> String {
    let shown = run(btrfs.command().args(["subvolume", "show"]).arg(path));
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let mut lines = shown.lines().map(str::trim);
    let line = lines.find_map(|line| line.strip_prefix(key));
    line.unwrap_or_else(|| panic!("{key} in {shown}"))
        .trim()
        .to_owned()
}

/// An image made by mkfs.btrfs, with a subvolume, a snapshot of it that is mounted by default, and
/// a directory.
fn made_by_mkfs(btrfs: &Tool, mkfs: &Tool, image: &Path, rng: &mut Rng) {
    fs::File::create(image).unwrap().set_len(512 << 20).unwrap();
    run(mkfs.command().args(["-q", "-L", "disk"]).arg(image));
    let mount = mount(image);
    let at = mount.path();
    let keep = at.join("keep");
    btrfs_in(btrfs, at, &["subvolume", "create", "keep"]);
    change(&keep, rng, 40);
    btrfs_in(btrfs, at, &["subvolume", "snapshot", "-r", "keep", "kept"]);
    change(&keep, rng, 10);
    fs::create_dir(at.join("dir")).unwrap();
    fs::write(at.join("dir/plain"), rng.bytes(100_000)).unwrap();
    btrfs_in(btrfs, at, &["subvolume", "set-default", "kept"]);
}

/// What must stay as it is of a subvolume.
fn facts(btrfs: &Tool, path: &Path) -> Vec<String> {
    let keys = [
        "UUID:",
        "Parent UUID:",
        "Subvolume ID:",
        "Flags:",
        "Creation time:",
    ];
    let facts = keys.into_iter().map(|key| show(btrfs, path, key));
    facts.collect()
}

/// The time of the root aside: what Linux does in it changes that, and `btrfs receive` does not
/// always set it last.
fn assert_same_but_root(expected: &Manifest, found: &Manifest, words: &str) {
    let difference = expected.difference(found);
    let mut rest = difference.lines().map(|line| &line[1..]);
    assert!(
        rest.all(|line| line.starts_with(". type=dir")),
        "{words}: {difference}"
    );
}

#[test]
#[ignore = "needs root"]
fn linux_takes_images_that_received_as_if_it_had_received() {
    let (Some(btrfs), Some(mkfs)) = (tool("btrfs"), tool("mkfs.btrfs")) else {
        return;
    };
    for seed in 0..cases(2) {
        let mut rng = Rng::new(seed);
        let options = ["compress-force=zstd", "compress-force=lzo", "noatime"];
        let source = mounted(&mkfs, options[(seed / 3) as usize % options.len()]);
        let at = source.path();
        btrfs_in(&btrfs, at, &["subvolume", "create", "s"]);
        for name in ["a", "b", "c", "d"] {
            change(&at.join("s"), &mut rng, 40);
            btrfs_in(&btrfs, at, &["subvolume", "snapshot", "-r", "s", name]);
        }
        let dir = TempDir::new();
        let image = dir.join("image");
        let is_ours = seed % 2 == 1;
        if is_ours {
            fs::create_dir(dir.join("tree")).unwrap();
            change(&dir.join("tree"), &mut rng, 30);
            let args = [
                "copy", "-q", "--size", "256M", "tree", "image", "--to", "btrfs",
            ];
            let (code, _, words) = run_in(dir.path(), args);
            assert_eq!((code, &*words), (0, ""));
        } else {
            made_by_mkfs(&btrfs, &mkfs, &image, &mut rng);
        }
        let of_old = |at: &Path| {
            let subvolumes = ["keep", "kept"].iter().map(|name| at.join(name));
            let subvolumes = subvolumes.filter(|_| !is_ours);
            let default = run(btrfs.command().args(["subvolume", "get-default"]).arg(at));
            // Without its generation: the tree is a new one.
            let default = String::from_utf8(default.stdout).unwrap();
            let default = default.replace(char::is_numeric, "");
            let facts = subvolumes.map(|path| facts(&btrfs, &path));
            (facts.collect::<Vec<_>>(), default)
        };
        let before = {
            let mount = mount(&image);
            (of_old(mount.path()), manifest(mount.path()))
        };
        let proto = [
            &["--proto", "2", "--compressed-data"][..],
            &["--proto", "1"],
            &["--proto", "2"],
        ][seed as usize % 3];
        let sent = |parent: Option<&str>, name: &str| {
            let mut options = proto.to_vec();
            options.extend(parent.iter().flat_map(|parent| ["-p", parent]));
            send(&btrfs, at, &options, name)
        };
        for (parent, name) in [(None, "a"), (Some("a"), "b"), (Some("b"), "c")] {
            fs::write(dir.join(name), sent(parent, name)).unwrap();
            let (code, out, words) = run_in(dir.path(), ["receive", "-f", name, "image"]);
            let more = words.lines().filter(|it| !it.contains("grew from"));
            let said: Vec<&str> = out.lines().chain(more).collect();
            let kind = if name == "a" { "subvol" } else { "snapshot" };
            assert_eq!(said, [format!("At {kind} {name}")], "seed {seed}");
            assert_eq!((code, out.is_empty()), (0, name == "a"), "seed {seed}");
            let checked = btrfs.command().arg("check").arg(&image).output().unwrap();
            assert!(checked.status.success(), "seed {seed} {name}: {checked:?}");
            let (code, out, words) = run_in(dir.path(), ["check", "image"]);
            assert_eq!(code, 0, "seed {seed} {name}: {out}{words}");
        }
        assert_eq!(names(dir.path()).len(), if is_ours { 5 } else { 4 });
        let target = mount(&image);
        let to = target.path();
        run(btrfs.command().args(["scrub", "start", "-B"]).arg(to));
        for name in ["a", "b", "c"] {
            let difference = manifest(&at.join(name)).difference(&manifest(&to.join(name)));
            assert_eq!(difference, "", "seed {seed} {name}");
            let of = |key: &str| show(&btrfs, &to.join(name), key);
            assert_eq!(of("Received UUID:"), show(&btrfs, &at.join(name), "UUID:"));
            assert!(of("Flags:").contains("readonly"), "seed {seed} {name}");
            let generation = show(&btrfs, &at.join(name), "Generation:");
            assert_eq!(of("Send transid:"), generation, "seed {seed} {name}");
            if name != "a" {
                let parent = if name == "b" { "a" } else { "b" };
                assert_eq!(of("Parent UUID:"), show(&btrfs, &to.join(parent), "UUID:"));
            }
        }
        // `btrfs receive` finds the parent by what we wrote.
        fs::write(dir.join("d"), sent(Some("c"), "d")).unwrap();
        run(btrfs
            .command()
            .args(["receive", "-q", "-f"])
            .args([&*dir.join("d"), to]));
        let [expected, found] = [at, to].map(|at| manifest(&at.join("d")));
        assert_same_but_root(&expected, &found, &format!("seed {seed}"));
        // Linux sends what we received, and what differs is small.
        let again = mounted(&mkfs, "noatime");
        for (parent, name) in [(None, "a"), (Some("a"), "b"), (Some("b"), "c")] {
            let mut options = vec!["--proto", "2", "--compressed-data"];
            options.extend(parent.iter().flat_map(|parent| ["-p", parent]));
            let stream = send(&btrfs, to, &options, name);
            fs::write(dir.join("again"), &stream).unwrap();
            run(btrfs
                .command()
                .args(["receive", "-q", "-f"])
                .args([&*dir.join("again"), again.path()]));
            let [expected, found] = [at, again.path()].map(|at| manifest(&at.join(name)));
            assert_same_but_root(&expected, &found, &format!("seed {seed} {name}"));
            let first = fs::metadata(dir.join(name)).unwrap().len();
            assert!(
                proto.len() < 3 || (stream.len() as u64) < first + first / 4 + 100_000,
                "seed {seed} {name}: {} of {first}",
                stream.len()
            );
        }
        // What was there is there, with its numbers.
        for name in ["a", "b", "c", "d"] {
            run(btrfs
                .command()
                .args(["subvolume", "delete"])
                .arg(to.join(name)));
        }
        assert_eq!(before.0, of_old(to), "seed {seed}");
        assert_same_but_root(&before.1, &manifest(to), &format!("seed {seed}, before"));
    }
}

/// A snapshot has an empty directory in the place of a subvolume that is nested in its original.
/// Its number was refused.
#[test]
#[ignore = "needs root"]
fn an_image_with_the_place_of_a_nested_subvolume_receives() {
    let (Some(btrfs), Some(mkfs)) = (tool("btrfs"), tool("mkfs.btrfs")) else {
        return;
    };
    let dir = TempDir::new();
    let image = dir.join("image");
    fs::File::create(&image)
        .unwrap()
        .set_len(256 << 20)
        .unwrap();
    run(mkfs.command().arg("-q").arg(&image));
    {
        let mount = mount(&image);
        for args in [
            &["create", "s"][..],
            &["create", "s/nested"],
            &["snapshot", "-r", "s", "kept"],
        ] {
            btrfs_in(&btrfs, mount.path(), &[&["subvolume"][..], args].concat());
        }
        fs::write(mount.path().join("s/nested/file"), "content").unwrap();
    }
    fs::create_dir(dir.join("tree")).unwrap();
    fs::write(dir.join("tree/new"), "sent").unwrap();
    for args in [
        &["copy", "-q", "tree", "sent.stream"][..],
        &["receive", "-q", "-f", "sent.stream", "image"],
    ] {
        let (code, _, words) = run_in(dir.path(), args);
        assert_eq!(code, 0, "{words}");
    }
    let checked = btrfs.command().arg("check").arg(&image).output().unwrap();
    assert!(checked.status.success(), "{checked:?}");
    let mount = mount(&image);
    let at = mount.path();
    assert_eq!(names(&at.join("kept/nested")), [""; 0]);
    assert_eq!(fs::read(at.join("s/nested/file")).unwrap(), b"content");
    assert_eq!(fs::read(at.join("sent/new")).unwrap(), b"sent");
    assert_ne!(show(&btrfs, &at.join("kept"), "Parent UUID:"), "-");
}

/// A directory with an image of a few files in it, and streams that Linux made.
fn with_image() -> TempDir {
    let dir = TempDir::new();
    fs::create_dir_all(dir.join("tree/backups")).unwrap();
    fs::write(dir.join("tree/file"), b"some text ".repeat(20_000)).unwrap();
    let args = ["copy", "-q", "tree", "image.btrfs", "--label", "disk"];
    assert_eq!(run_in(dir.path(), args).0, 0);
    for (file, name) in [("full", "zstd.full.v2c"), ("inc", "zstd.inc.v2c")] {
        fs::write(dir.join(file), kernel_made(name)).unwrap();
    }
    dir
}

#[test]
fn images_receive_a_chain_without_root() {
    let dir = with_image();
    let image = || fs::read(dir.join("image.btrfs")).unwrap();
    let before = image();
    let receive = |file: &str, more: &[&str]| {
        let args = [&["receive", "-f", file, "image.btrfs"], more].concat();
        run_in(dir.path(), args)
    };
    // The parent is missing.
    let (code, _, words) = receive("inc", &[]);
    assert_eq!(code, 2, "{words}");
    assert!(words.contains("no subvolume of the image has the UUID"));
    assert!(image() == before);
    // On the outputs that `btrfs receive` uses.
    for (file, said) in [
        ("full", ("", "At subvol a\n")),
        ("inc", ("At snapshot b\n", "")),
    ] {
        let (code, out, words) = receive(file, &[]);
        assert!(words.starts_with(said.1), "{words}");
        assert_eq!((code, &*out), (0, said.0), "{words}");
        let checked = run_in(dir.path(), ["check", "image.btrfs"]);
        assert_eq!(checked.0, 0, "{checked:?}");
    }
    let same = |args: &[&str]| {
        let (code, out, words) = run_in(dir.path(), [&["diff"], args].concat());
        assert_eq!((code, &*out), (0, ""), "{args:?}: {words}");
    };
    same(&["full", "image.btrfs:a"]);
    same(&["inc", "image.btrfs:b", "--base", "full"]);
    let (_, out, _) = run_in(dir.path(), ["cat", "image.btrfs", "file"]);
    assert!(out.as_bytes() == fs::read(dir.join("tree/file")).unwrap());
    let (_, shown, _) = run_in(dir.path(), ["info", "image.btrfs"]);
    assert!(shown.contains("disk"), "{shown}");
    // In a new image, all at once and as a chain, with what is shared stored once.
    fs::write(
        dir.join("both"),
        [kernel_made("zstd.full.v2c"), kernel_made("zstd.inc.v2c")].concat(),
    )
    .unwrap();
    let args = ["receive", "-q", "--to", "image", "-f"];
    for (file, image) in [("both", "both.btrfs"), ("full", "one.btrfs")] {
        let made = run_in(dir.path(), [&args[..], &[file, image]].concat());
        assert_eq!(made, (0, String::new(), String::new()));
        assert_eq!(run_in(dir.path(), ["check", image]).0, 0);
    }
    same(&["inc", "both.btrfs:b", "--base", "full"]);
    let size = |name: &str| fs::metadata(dir.join(name)).unwrap().len();
    let (both, one) = (size("both.btrfs"), size("one.btrfs"));
    assert!(both < one + one / 4, "{both} {one}");
    // Nothing is received twice.
    let before = image();
    let (code, _, words) = receive("inc", &[]);
    assert_eq!(code, 2);
    assert!(words.contains("the image has a file b"), "{words}");
    assert!(image() == before);
    // Another directory of the image has room for it.
    let args = ["receive", "-q", "-f", "inc", "image.btrfs:backups"];
    assert_eq!(run_in(dir.path(), args), (0, String::new(), String::new()));
    same(&["image.btrfs:b", "image.btrfs:backups/b"]);
    let args = ["receive", "-q", "-f", "full", "image.btrfs:b"];
    let (code, _, words) = run_in(dir.path(), args);
    assert_eq!(code, 2);
    assert!(words.contains("read-only subvolume"), "{words}");
    let args = ["receive", "-q", "-f", "full", "image.btrfs:file"];
    assert!(run_in(dir.path(), args).2.contains("not a directory"));
    assert_eq!(names(dir.path()).len(), 7, "{:?}", names(dir.path()));
}

#[test]
fn images_stay_as_they_are_where_a_stream_means_harm() {
    let dir = with_image();
    let before = fs::read(dir.join("image.btrfs")).unwrap();
    let ino = 257;
    let file = Command::Mkfile { path: b"f", ino };
    let text = b"text that repeats ".repeat(1000);
    let mut packed = vec![0; 1 << 16];
    let settings = Settings::Zstd { level: 3 };
    let mut encoder = Encoder::new(&settings).unwrap();
    let len = encoder
        .compress_extent(4096, &mut packed, &text[..16_384])
        .unwrap();
    packed.truncate(len);
    let encoded = |data, unencoded_len| {
        Command::EncodedWrite(EncodedWrite {
            path: b"f",
            file_offset: 0,
            unencoded_file_len: unencoded_len,
            unencoded_len,
            unencoded_offset: 0,
            compression: Algorithm::Zstd,
            encryption: None,
            data,
        })
    };
    let twice = packed.repeat(2);
    let write = |path| Command::Write {
        path,
        file_offset: 0,
        data: b"evil",
    };
    let clone = Command::Clone {
        file_offset: 0,
        clone_len: 4096,
        path: b"f",
        clone_uuid: [9; 16],
        clone_ctransid: 1,
        clone_path: b"f",
        clone_offset: 0,
    };
    let good = stream(&[file, encoded(&packed, 16_384)], true);
    let mut flipped = good.clone();
    let last = flipped.len() - 15;
    flipped[last] ^= 1;
    let cases = [
        ("missing end", stream(&[file, write(b"f")], false), ""),
        ("cut", good[..good.len() - 3].to_vec(), ""),
        ("flipped", flipped, "checksum"),
        ("no stream", b"btrfs-strea".to_vec(), ""),
        ("dots", stream(&[write(b"../precious")], true), ""),
        (
            "garbage",
            stream(&[file, encoded(&[0x55; 100], 16_384)], true),
            "not a zstd frame",
        ),
        (
            "two frames",
            stream(&[file, encoded(&twice, 16_384)], true),
            "",
        ),
        (
            "shorter than stated",
            stream(&[file, encoded(&packed, 8192)], true),
            "",
        ),
        (
            "unknown source",
            stream(&[file, clone], true),
            "clone source",
        ),
    ];
    for (name, bytes, expected) in cases {
        fs::write(dir.join("stream"), bytes).unwrap();
        let args = ["receive", "-q", "-f", "stream", "image.btrfs"];
        let (code, out, words) = run_in(dir.path(), args);
        assert_eq!((code, &*out), (2, ""), "{name}: {words}");
        assert!(words.contains(expected), "{name}: {words}");
        assert!(
            fs::read(dir.join("image.btrfs")).unwrap() == before,
            "{name}"
        );
        assert_eq!(
            names(dir.path()).len(),
            5,
            "{name}: {:?}",
            names(dir.path())
        );
    }
    // What is not verified is named.
    fs::write(dir.join("stream"), good).unwrap();
    let args = ["receive", "--no-verify", "-f", "stream", "image.btrfs"];
    let (code, _, words) = run_in(dir.path(), args);
    assert_eq!(code, 0, "{words}");
    assert!(
        words.contains("1 compressed extent not verified"),
        "{words}"
    );
    assert!(
        fs::read(dir.join("image.btrfs"))
            .unwrap()
            .windows(packed.len())
            .any(|it| it == packed)
    );
    let (_, out, _) = run_in(dir.path(), ["cat", "image.btrfs:s", "f"]);
    assert!(out.as_bytes() == &text[..16_384]);
}

/// The number of the top level's tree, and the kind of items that are extents of files.
const TOP_LEVEL: u64 = 5;
const EXTENT_DATA: u8 = 108;

/// What is received does not hide damage of what was there: the new image would have checksums for
/// it that are right.
#[test]
fn a_damaged_extent_of_the_image_is_found_and_the_image_stays_as_it_is() {
    for compress in ["none", "zstd", "lzo", "zlib"] {
        let dir = TempDir::new();
        fs::create_dir(dir.join("tree")).unwrap();
        // Half of it is noise: it compresses, and is not in a tree block.
        let noise = Rng::new(5).bytes(300_000);
        let text: String = noise.iter().map(|byte| format!("{byte:02x}")).collect();
        fs::write(dir.join("tree/file"), text).unwrap();
        let args = ["copy", "-q", "--compress", compress, "tree", "image.btrfs"];
        assert_eq!(run_in(dir.path(), args).0, 0);
        fs::write(dir.join("full"), kernel_made("zstd.full.v2c")).unwrap();
        let image = dir.join("image.btrfs");
        let whole = fs::read(&image).unwrap();
        let blocks = BtrfsImage::read_file(&image);
        let extents = blocks.items(TOP_LEVEL).into_iter();
        let extents: Vec<_> = extents.filter(|item| item.key.1 == EXTENT_DATA).collect();
        assert!(!extents.is_empty(), "{compress}");
        let mut rng = Rng::new(6);
        for item in extents {
            let field = |at: usize| {
                let bytes = item.data[at..at + 8].try_into().unwrap();
                u64::from_le_bytes(bytes)
            };
            let (disk_bytenr, disk_num_bytes) = (field(21), field(29));
            let within = rng.below(disk_num_bytes.min(4096)) as usize;
            let mut damaged = whole.clone();
            for place in blocks.places(disk_bytenr) {
                damaged[place as usize + within] ^= 1 << rng.below(8);
            }
            fs::write(&image, &damaged).unwrap();
            for more in [&[][..], &["--no-verify"], &["-j1"]] {
                let args = [&["receive", "-q", "-f", "full", "image.btrfs"], more].concat();
                let (code, out, words) = run_in(dir.path(), args);
                assert_eq!((code, &*out), (2, ""), "{compress} {more:?}: {words}");
                assert!(words.contains("checksum"), "{compress}: {words}");
                assert!(words.contains("file"), "{compress}: {words}");
                assert!(fs::read(&image).unwrap() == damaged, "{compress} {more:?}");
            }
            assert_eq!(names(dir.path()), ["full", "image.btrfs", "tree"]);
        }
        fs::write(&image, &whole).unwrap();
        let args = ["receive", "-q", "-f", "full", "image.btrfs"];
        assert_eq!(run_in(dir.path(), args), (0, String::new(), String::new()));
    }
}

#[test]
#[ignore = "needs root"]
fn an_image_that_is_attached_is_not_replaced() {
    let dir = with_image();
    let image = dir.join("image.btrfs");
    let device = LoopDevice::attach(BackingFile::existing(&image), Access::ReadOnly);
    let args = ["receive", "-q", "-f", "full", "image.btrfs"];
    let (code, _, words) = run_in(dir.path(), args);
    assert_eq!(code, 2);
    assert!(words.contains("it is attached to /dev/loop"), "{words}");
    let received = super::restow(["receive", "-q", "-f"])
        .args([&*dir.join("full"), device.path()])
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&received.stderr).into_owned();
    assert_eq!(received.status.code(), Some(2));
    assert!(words.contains("is a device"), "{words}");
}

#[test]
fn a_copy_of_a_stream_is_no_parent_and_the_error_says_so() {
    let dir = TempDir::new();
    for (file, name) in [("full.stream", "zstd.full.v2c"), ("inc.stream", "inc.v1")] {
        fs::write(dir.join(file), kernel_made(name)).unwrap();
    }
    assert_eq!(
        run_in(dir.path(), ["copy", "-q", "full.stream", "copy.btrfs"]).0,
        0
    );
    let args = ["receive", "-f", "inc.stream", "copy.btrfs"];
    let (code, _, words) = run_in(dir.path(), args);
    let why = "receive it first: a copy of its stream has neither";
    assert!(code == 2 && words.contains(why), "{words}");
}
