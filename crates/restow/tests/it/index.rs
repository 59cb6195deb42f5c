//! Changed indexes, and changed images under them.

use std::fs;
use std::sync::Arc;

use codec::Settings;
use erofs::{Erofs, Kernel};
use restow::{Address, CopyOptions};
use testkit::{Rng, TempDir};
use tree::{CheckOptions, FileKind, FileSystem, Inventory, Limits, NoProgress, Parallel, ReadAt};

/// Indexes and their images.
fn pairs(dir: &TempDir) -> Vec<(Vec<u8>, Arc<Vec<u8>>)> {
    let src = dir.join("src");
    fs::create_dir(&src).unwrap();
    let mut noise = vec![0; 9000];
    Rng::new(1).fill(&mut noise);
    fs::write(src.join("noise"), noise).unwrap();
    for (name, count) in [("large", 30_000), ("small", 300), ("tiny", 4)] {
        let lines: String = (0..count).map(|n| format!("line {n}\n")).collect();
        fs::write(src.join(name), lines).unwrap();
    }
    let mut pairs = Vec::new();
    for (name, squashfs, kernel) in [
        ("a.squashfs", Some(Settings::Zstd { level: 1 }), (6, 15)),
        ("b.squashfs", Some(Settings::Lz4), (6, 17)),
        ("c.squashfs", Some(Settings::Zlib { level: 6 }), (6, 15)),
        ("d.squashfs", None, (6, 15)),
        ("e.btrfs", None, (6, 15)),
        ("f.btrfs", None, (6, 12)),
    ] {
        let (image, out) = (dir.join(name), dir.join(name).with_extension("erofs"));
        let mut options = CopyOptions::default();
        options.squashfs.compression = squashfs;
        restow::copy(restow::open(&src).unwrap(), &image, &options, &NoProgress).unwrap();
        let kernel = Some(Kernel(kernel.0, kernel.1));
        let options = CopyOptions::default();
        let address = Address::of(&image).unwrap();
        restow::index(&[address], &[], &[], &out, kernel, options, &NoProgress).unwrap();
        pairs.push((fs::read(&out).unwrap(), Arc::new(fs::read(&image).unwrap())));
    }
    pairs
}

/// An image that the check accepts can be read.
#[test]
fn changed_indexes_and_images_are_refused_or_read_in_bounds() {
    let name = "index::changed_indexes_and_images_are_refused_or_read_in_bounds";
    if !testkit::is_bounded(name, 256) {
        return;
    }
    let dir = TempDir::new();
    let pairs = pairs(&dir);
    let mut rng = Rng::new(2);
    let (mut refused, mut accepted) = (0, 0);
    for case in 0..testkit::cases(300) {
        let (mut index, mut image) = pairs[case % pairs.len()].clone();
        for _ in 0..1 + rng.index(3) {
            let of_image = image.len() < 1 << 20 && rng.chance(3);
            let bytes = if of_image {
                Arc::make_mut(&mut image)
            } else {
                &mut index
            };
            // The checksum of the first block finds changes there.
            let at = 4096.min(bytes.len() - 1) + rng.index(bytes.len() - 4096.min(bytes.len() - 1));
            bytes[at] = match rng.index(3) {
                0 => 0xff,
                1 => bytes[at] ^ 1 << rng.index(8),
                _ => bytes[at].wrapping_add(1),
            };
        }
        let sources: Vec<Box<dyn ReadAt>> = vec![Box::new(index), Box::new(image)];
        let Ok(erofs) = Erofs::open(sources) else {
            refused += 1;
            continue;
        };
        let checked = erofs.check(
            CheckOptions::EVERYTHING,
            Parallel::new(1),
            &NoProgress,
            &mut drop,
        );
        if !checked.is_ok_and(|summary| summary.findings == 0) {
            refused += 1;
            continue;
        }
        accepted += 1;
        let inventory = Inventory::of(&erofs, &Limits::default()).unwrap();
        let mut buffer = vec![0; 1 << 20];
        for file in inventory.files() {
            if inventory.kind(file) == FileKind::Regular {
                erofs.read_at(inventory.ino(file), 0, &mut buffer).unwrap();
            }
        }
    }
    assert!(refused > 20 && accepted > 20, "{refused} {accepted}");
}
