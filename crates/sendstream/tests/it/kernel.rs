//! Converted streams, received by Linux and read back.

use std::fs;
use std::path::Path;

use codec::Settings;
use sendstream::{ConvertOptions, Recode, Version, convert};
use testkit::{Access, BackingFile, FsType, LoopDevice, Mount, TempDir, Tool, run, tool};
use tree::{Aspects, HostDir, Inventory, Limits, NoProgress, Parallel, manifest};

use crate::sample::kernel_made;

/// What a directory holds, as text.
fn manifest_of(dir: &Path) -> String {
    let tree = HostDir::open(dir).unwrap();
    let inventory = Inventory::of(&tree, &Limits::default()).unwrap();
    let mut text = Vec::new();
    let parallel = Parallel::new(1);
    let aspects = Aspects::default();
    manifest::write(&inventory, &aspects, parallel, &NoProgress, &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

/// Receives two streams, a full and an incremental one, and returns what is there after a remount.
fn received(btrfs: &Tool, mkfs: &Tool, streams: [&[u8]; 2], options: &str) -> [String; 2] {
    let backing = BackingFile::create(256 << 20);
    run(mkfs.command().arg("--quiet").arg(backing.path()));
    let device = LoopDevice::attach(backing, Access::ReadWrite);
    let mount = Mount::new(device, FsType::Btrfs, options);
    let dir = TempDir::new();
    for stream in streams {
        let file = dir.join("stream");
        fs::write(&file, stream).unwrap();
        run(btrfs
            .command()
            .args(["receive", "-f"])
            .arg(&file)
            .arg(mount.path()));
    }
    let backing = mount.unmount();
    let device = LoopDevice::attach(backing, Access::ReadOnly);
    let mount = Mount::new(device, FsType::Btrfs, "");
    ["a", "b"].map(|name| manifest_of(&mount.path().join(name)))
}

#[test]
#[ignore = "needs root"]
fn linux_receives_converted_streams() {
    let (Some(btrfs), Some(mkfs)) = (tool("btrfs"), tool("mkfs.btrfs")) else {
        return;
    };
    let [first, second] = ["full.v1", "inc.v1"].map(kernel_made);
    let expected = received(&btrfs, &mkfs, [&first, &second], "");
    let zstd = |level| Recode::Encode(Settings::Zstd { level });
    let cases = [
        (["full.v1", "inc.v1"], Version::V2, zstd(15), ""),
        (
            ["full.v1", "inc.v1"],
            Version::V2,
            Recode::Encode(Settings::Lzo),
            "",
        ),
        (
            ["full.v2", "inc.v2"],
            Version::V2,
            Recode::Encode(Settings::Zlib { level: 9 }),
            "",
        ),
        (
            ["zstd.full.v2c", "zstd.inc.v2c"],
            Version::V1,
            Recode::Keep,
            "compress=lzo",
        ),
        (
            ["lzo.full.v2c", "lzo.inc.v2c"],
            Version::V2,
            zstd(22),
            "nodatasum",
        ),
        (
            ["zlib.full.v2c", "zlib.inc.v2c"],
            Version::V2,
            Recode::Decode,
            "",
        ),
        (
            ["zlib.full.v2c", "zlib.inc.v2c"],
            Version::V2,
            zstd(-5),
            "max_inline=0",
        ),
    ];
    for (names, version, recode, mounted) in cases {
        let options = ConvertOptions::default()
            .version(Some(version))
            .recode(recode)
            .drops_fileattr(true)
            .trusts_holes(true);
        // The streams of each algorithm are of other subvolumes: their parents differ.
        let streams = names.map(|name| {
            let stream = kernel_made(name);
            let mut output = Vec::new();
            let parallel = Parallel::new(2);
            convert(&stream[..], &mut output, &options, parallel, &NoProgress).unwrap();
            output
        });
        let got = received(&btrfs, &mkfs, [&streams[0], &streams[1]], mounted);
        let is_same_tree = names[0].starts_with("full") || names[0].starts_with("zstd");
        for (got, expected) in got.iter().zip(&expected) {
            if is_same_tree {
                assert!(got == expected, "{names:?} {version} {recode:?}");
            } else {
                let originals = names.map(kernel_made);
                let originals = received(&btrfs, &mkfs, [&originals[0], &originals[1]], "");
                assert!(originals.contains(got), "{names:?} {version} {recode:?}");
            }
        }
    }
}
