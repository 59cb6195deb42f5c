//! What decides how a file is encoded, and that preallocated space stays preallocated.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use btrfs::{Options, Rule, Subvolume};
use codec::{Algorithm, Settings};
use testkit::{FsType, MemoryFs, Mount, Rng, TempDir, run, tool};
use tree::edit::Patterns;
use tree::usage::StorageForm;
use tree::{
    Extent, ExtentId, ExtentKind, FileAttributes, FileKind, FileSystem, HostDir, Inventory, Limits,
};

use crate::images::{check, make, open, usage, with};
use crate::kernel::Kernel;
use crate::kernel::ours::{ROOM, mount_to_write, prove_to_linux};

const COMPRESSED: u32 = 0x4;
const UNCOMPRESSED: u32 = 0x400;
const NOCOW: u32 = 0x80_0000;

const ZSTD: Option<Settings> = Some(Settings::Zstd { level: 3 });

/// The algorithm of each extent of each file.
fn encodings(tree: &dyn FileSystem) -> Vec<String> {
    let inventory = Inventory::of(tree, &Limits::default()).unwrap();
    let files = inventory.files();
    let files = files.filter(|&file| inventory.kind(file) == FileKind::Regular);
    let mut lines: Vec<String> = files
        .map(|file| {
            let path = inventory.path(inventory.first_name(file));
            let extents = tree.extents(inventory.ino(file), 0).unwrap();
            let kinds = extents.iter().map(|extent| match extent.kind {
                ExtentKind::Encoded(encoding) => match encoding.algorithm {
                    Algorithm::Zlib => "zlib",
                    Algorithm::Zstd => "zstd",
                    _ => "lzo",
                },
                _ => "plain",
            });
            let kinds: Vec<&str> = kinds.collect();
            format!("{}: {}", path.escape_ascii(), kinds.join(" "))
        })
        .collect();
    lines.sort();
    lines
}

/// Content that any sample calls compressible, content that only the sample calls incompressible,
/// and noise.
fn contents(rng: &mut Rng) -> [(&'static str, Vec<u8>); 4] {
    let mut hidden = vec![0; 100_000];
    for step in hidden.chunks_mut(256) {
        let noise = rng.bytes(16);
        step[..16].copy_from_slice(&noise);
    }
    let text = |bytes: usize, rng: &mut Rng| -> Vec<u8> {
        let mut text = rng.bytes(60).repeat(bytes.div_ceil(60));
        text.truncate(bytes);
        text
    };
    [
        ("text", text(100_000, rng)),
        ("inline", text(900, rng)),
        ("hidden", hidden),
        ("noise", rng.bytes(100_000)),
    ]
}

#[test]
fn nocow_force_marks_property_and_rule_decide_in_this_order() {
    let text = b"what decides how a file is encoded ".repeat(3000);
    let mut source = MemoryFs::new();
    let root = source.root();
    let mut add = |name: &str, attributes: u32, property: Option<&str>| {
        let file = source.add_file(root, name, &text);
        source.metadata_mut(file).attributes = FileAttributes(attributes);
        if let Some(value) = property {
            source.add_xattr(file, b"btrfs.compression", value.as_bytes());
        }
    };
    add("bare", 0, None);
    add("c", COMPRESSED, None);
    add("m", UNCOMPRESSED, None);
    add("nocow lzo", NOCOW, Some("lzo"));
    add("none", UNCOMPRESSED, Some("none"));
    add("none alone", 0, Some("none"));
    add("lzo", COMPRESSED, Some("lzo"));
    add("zlib", COMPRESSED, Some("zlib"));
    add("zstd with a level", COMPRESSED, Some("zstd:9"));
    add("unknown", 0, Some("brotli"));
    let rule = |compression| Rule {
        patterns: Arc::new(Patterns::new(["*"])),
        compression,
    };
    let options = |compression, force, rules: &[Option<Settings>]| {
        with(compression, force)
            .rules(rules.iter().map(|&settings| rule(settings)).collect())
            .duplicates(false)
    };
    // In the order of names: bare, c, lzo, m, nocow lzo, none, none alone, unknown, zlib, zstd with
    // a level.
    let cases = [
        (options(None, false, &[]), "- - lzo - - - - - zlib zstd"),
        (
            options(ZSTD, false, &[]),
            "zstd zstd lzo - - - - zstd zlib zstd",
        ),
        (
            options(Some(Settings::Lzo), true, &[]),
            "lzo lzo lzo lzo - lzo lzo lzo zlib zstd",
        ),
        (
            options(ZSTD, false, &[Some(Settings::Lzo)]),
            "lzo lzo lzo - - lzo lzo lzo lzo lzo",
        ),
        (options(ZSTD, true, &[None]), "- - - - - - - - - -"),
        (
            options(None, true, &[Some(Settings::Lzo)]),
            "lzo lzo lzo lzo - lzo lzo lzo lzo lzo",
        ),
    ];
    let dir = TempDir::new();
    let image = dir.join("image");
    for (options, expected) in cases {
        make(&source, &image, &options, 2);
        let tree = open(&image).subvolume(5).unwrap();
        let found: Vec<String> = encodings(&tree)
            .iter()
            .map(|line| line.split_once(": ").unwrap().1.replace("plain", "-"))
            .collect();
        assert_eq!(found.join(" "), expected, "{:?}", encodings(&tree));
        check(&image);
    }
}

/// Files with every combination of property and attribute, each with every content.
fn combinations(at: &Path) {
    let mut rng = Rng::new(19);
    let properties = ["", "zlib", "lzo", "zstd", "none"];
    for property in properties {
        for (attribute, order) in [("", ""), ("+c", "1"), ("+c", "2"), ("+m", "1"), ("+m", "2")] {
            for (kind, content) in contents(&mut rng) {
                let path = at.join(format!("{property},{attribute}{order},{kind}"));
                fs::write(&path, b"").unwrap();
                let set = || {
                    if !property.is_empty() {
                        run(Command::new("setfattr")
                            .args(["-n", "btrfs.compression", "-v", property])
                            .arg(&path));
                    }
                };
                if order != "2" {
                    set();
                }
                if !attribute.is_empty() {
                    let other = if attribute == "+c" { "-m" } else { "-c" };
                    run(Command::new("chattr").args([other, attribute]).arg(&path));
                }
                if order == "2" {
                    set();
                }
                fs::write(&path, content).unwrap();
            }
        }
    }
    for (kind, content) in contents(&mut rng) {
        let path = at.join(format!("nocow,{kind}"));
        fs::write(&path, b"").unwrap();
        run(Command::new("chattr").arg("+C").arg(&path));
        fs::write(&path, content).unwrap();
    }
}

#[test]
#[ignore = "needs root"]
fn what_decides_how_a_file_is_encoded_is_what_decides_in_linux() {
    if tool("setfattr").is_none() {
        return;
    }
    let dir = TempDir::new();
    let image = dir.join("image");
    let lzo = Some(Settings::Lzo);
    let zlib = Some(Settings::Zlib { level: 9 });
    for (mount, compression, force) in [
        ("", None, false),
        ("compress=zstd:3", ZSTD, false),
        ("compress=lzo", lzo, false),
        ("compress-force=lzo", lzo, true),
        ("compress-force=zlib:9", zlib, true),
        ("compress-force=zstd:3", ZSTD, true),
    ] {
        let Some(kernel) = Kernel::create(&[], mount) else {
            return;
        };
        combinations(kernel.path());
        let backing = kernel.unmount();
        let theirs = open(backing.path()).subvolume(5).unwrap();
        let options = with(compression, force)
            .keep_extents(false)
            .duplicates(false);
        make(&theirs, &image, &options, 2);
        let ours = open(&image).subvolume(5).unwrap();
        let (theirs, ours) = (encodings(&theirs), encodings(&ours));
        assert_eq!(theirs.len(), 104);
        let differ = theirs.iter().zip(&ours).filter(|pair| pair.0 != pair.1);
        let differ: Vec<_> = differ.collect();
        assert!(differ.is_empty(), "{mount}: {differ:#?}");
    }
}

/// `chattr +c` also sets the property; the attribute alone, as other writers leave it, chooses no
/// algorithm.
#[test]
#[ignore = "needs root"]
fn the_compress_attribute_alone_decides_nothing_in_linux() {
    let (dir, text) = (TempDir::new(), b"some text ".repeat(10_000));
    let image = dir.join("image");
    let file = |content: &[u8]| {
        let mut source = MemoryFs::new();
        let file = source.add_file(source.root(), "file", content);
        source.metadata_mut(file).attributes = FileAttributes(COMPRESSED);
        source
    };
    for (mount_options, compression) in [("", None), ("compress=lzo", Some(Settings::Lzo))] {
        let options = with(compression, false).slack(ROOM);
        make(&file(b""), &image, &options, 2);
        let mount = mount_to_write(&image, mount_options);
        fs::write(mount.path().join("file"), &text).unwrap();
        mount.unmount();
        let theirs = encodings(&open(&image).subvolume(5).unwrap());
        make(&file(&text), &image, &options, 2);
        let ours = encodings(&open(&image).subvolume(5).unwrap());
        assert_eq!(theirs, ours, "{mount_options}");
    }
}

/// Offset, length and kind of each extent of each file.
fn extents(tree: &Subvolume) -> Vec<String> {
    let inventory = Inventory::of(tree, &Limits::default()).unwrap();
    let mut lines = Vec::new();
    for file in inventory.files() {
        if inventory.kind(file) != FileKind::Regular {
            continue;
        }
        let path = inventory.path(inventory.first_name(file));
        let mut last: Option<(&str, u64, u64)> = None;
        let mut show = |kind: &str, from: u64, to: u64| {
            lines.push(format!("{} {kind} {from} {to}", path.escape_ascii()));
        };
        for extent in tree.extents(inventory.ino(file), 0).unwrap() {
            let kind = match extent.kind {
                ExtentKind::Hole => "hole",
                ExtentKind::Preallocated { .. } => "preallocated",
                _ => "data",
            };
            match &mut last {
                Some((known, _, end)) if *known == kind => *end = extent.end(),
                _ => {
                    if let Some((kind, from, to)) = last {
                        show(kind, from, to);
                    }
                    last = Some((kind, extent.offset, extent.end()));
                }
            }
        }
        if let Some((kind, from, to)) = last {
            show(kind, from, to);
        }
    }
    lines
}

#[test]
fn preallocated_space_is_preallocated_in_the_image() {
    let mut source = MemoryFs::new();
    let root = source.root();
    let extent = |offset, len, kind, id: Option<u64>| Extent {
        offset,
        len,
        kind,
        id: id.map(ExtentId),
    };
    let reserved = |stored_offset| ExtentKind::Preallocated { stored_offset };
    let stated = source.add_file(root, "0", b"");
    source.add_encoded(stated, extent(0, 1, ExtentKind::Hole, None), b"");
    source.lie_about_extents(stated, Vec::new());
    let large = 300 << 20;
    let file = source.add_sparse(root, "large", large + 1, &[]);
    source.lie_about_extents(file, vec![extent(0, large + 1, reserved(0), Some(1 << 30))]);
    // A part of the same space, with data in its middle.
    let file = source.add_sparse(root, "part", 20 << 20, &[(10 << 20, &[7; 4096])]);
    let plain = ExtentKind::Plain { stored_offset: 0 };
    let parts = vec![
        extent(0, 10 << 20, reserved(8192), Some(1 << 30)),
        extent(10 << 20, 4096, plain, None),
        extent(
            (10 << 20) + 4096,
            (10 << 20) - 4096,
            reserved((10 << 20) + 12288),
            Some(1 << 30),
        ),
    ];
    source.lie_about_extents(file, parts);
    let file = source.add_sparse(root, "small", 100, &[]);
    source.lie_about_extents(file, vec![extent(0, 100, reserved(0), Some(1 << 20))]);
    // Equal content, but a hole: not the same space.
    let hole = source.add_sparse(root, "hole", 100, &[]);
    source.lie_about_extents(hole, vec![extent(0, 100, ExtentKind::Hole, None)]);
    let dir = TempDir::new();
    let image = dir.join("image");
    make(&source, &image, &Options::default(), 2);
    check(&image);
    let tree = open(&image).subvolume(5).unwrap();
    assert_eq!(
        extents(&tree),
        [
            "hole hole 0 100",
            &format!("large preallocated 0 {}", large + 1),
            "part preallocated 0 10485760",
            "part data 10485760 10489856",
            "part preallocated 10489856 20971520",
            "small preallocated 0 100",
        ]
    );
    let usage = usage(tree.btrfs()).unwrap();
    assert_eq!(
        usage.of(StorageForm::Preallocated).stored,
        large + 4096 + 4096
    );
    assert!(fs::metadata(&image).unwrap().len() > large);
}

#[test]
#[ignore = "needs root"]
fn preallocated_extents_of_linux_stay_preallocated() {
    let Some(kernel) = Kernel::create(&[], "") else {
        return;
    };
    let fallocate = |arguments: &[&str], path: &str| {
        run(Command::new("fallocate")
            .args(arguments)
            .arg(kernel.path().join(path)));
    };
    kernel.btrfs(&["subvolume", "create", "@own"]);
    fallocate(&["-l", "20000000"], "own/large");
    fallocate(&["-l", "100"], "own/small");
    fallocate(&["-l", "1000000"], "own/written");
    fallocate(&["-o", "500000", "-l", "500000"], "own/behind a hole");
    kernel.btrfs(&["subvolume", "snapshot", "@own", "@snapshot"]);
    let written = kernel.path().join("snapshot/written");
    let file = fs::OpenOptions::new().write(true).open(written).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[7; 50_000], 100_000).unwrap();
    drop(file);
    let backing = kernel.unmount();
    let source = open(backing.path()).subvolume(5).unwrap();
    let inventory = Inventory::of(&source, &Limits::default()).unwrap();
    let subvolumes = source.subvolumes_in(&inventory).unwrap();
    let dir = TempDir::new();
    let image = dir.join("image");
    let options = Options::default()
        .subvolumes(subvolumes.into_iter().map(|own| own.1).collect())
        .slack(ROOM);
    make(&source, &image, &options, 2);
    let copy = open(&image).subvolume(5).unwrap();
    assert_eq!(extents(&source), extents(&copy));
    let reserved = |tree: &Subvolume| {
        let usage = usage(tree.btrfs()).unwrap();
        usage.of(StorageForm::Preallocated).stored
    };
    assert!(reserved(&copy) <= reserved(&source) && reserved(&copy) > 20_000_000);
    let mount = Mount::read_only(backing.path(), FsType::Btrfs);
    let expected = HostDir::open(mount.path()).unwrap();
    prove_to_linux(&image, &expected, None, "preallocated");
}
