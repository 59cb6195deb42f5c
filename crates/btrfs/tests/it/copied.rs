//! Images that the kernel wrote, copied by us: the kernel shows the same tree, and shared data is
//! still shared.

use std::collections::HashMap;
use std::fs;

use btrfs::Subvolume;
use testkit::{BackingFile, FsType, Mount, Rng, TempDir, cases};
use tree::usage::StorageForm;
use tree::{ExtentKind, FileKind, FileSystem, HostDir, Inventory, Limits};

use crate::images::{make, open, usage, with};
use crate::kernel::ours::{ROOM, prove_to_linux};
use crate::kernel::{Kernel, shapes, stress};

const SECTOR: u64 = 4096;

/// Trees from one file system: random changes, with snapshots before and after them.
fn snapshots(options: &str, seed: u64) -> Option<BackingFile> {
    let kernel = Kernel::create(&[], options)?;
    let mut rng = Rng::new(seed);
    kernel.btrfs(&["subvolume", "create", "@own"]);
    let own = kernel.path().join("own");
    shapes(&own, seed);
    kernel.btrfs(&["subvolume", "snapshot", "-r", "@own", "@before"]);
    stress(&own, &mut rng, 150);
    fs::remove_file(own.join("overwritten")).unwrap();
    kernel.btrfs(&["subvolume", "snapshot", "@own", "@after"]);
    stress(&kernel.path().join("after"), &mut rng, 50);
    Some(kernel.unmount())
}

/// The place of each sector of every file, as an extent number and an offset in its decoded data.
fn places(tree: &Subvolume) -> HashMap<(Vec<u8>, u64), (u64, u64)> {
    let inventory = Inventory::of(tree, &Limits::default()).unwrap();
    let mut all = HashMap::new();
    for file in inventory.files() {
        if inventory.kind(file) != FileKind::Regular {
            continue;
        }
        let (path, mut at) = (inventory.path(inventory.first_name(file)), 0);
        while at < inventory.size(file) {
            for extent in tree.extents(inventory.ino(file), at).unwrap() {
                at = extent.offset + extent.len;
                let begin = match extent.kind {
                    ExtentKind::Hole | ExtentKind::Preallocated { .. } => continue,
                    ExtentKind::Plain { stored_offset } => stored_offset,
                    ExtentKind::Encoded(encoding) => encoding.unencoded_offset,
                };
                let Some(id) = extent.id else { continue };
                for skip in (0..extent.len).step_by(SECTOR as usize) {
                    let place = (path.clone(), extent.offset + skip);
                    all.insert(place, (id.0, begin + skip));
                }
            }
        }
    }
    all
}

/// Wherever files of the source share stored bytes, the files of the copy do too.
fn assert_still_shared(source: &Subvolume, copy: &Subvolume) {
    let (source, copy) = (places(source), places(copy));
    let mut moved = HashMap::new();
    for (place, from) in &source {
        if let Some(to) = copy.get(place) {
            assert_eq!(moved.entry(from).or_insert(to), &to, "{place:?}");
        }
    }
    // Everything that is not inline, most of it referenced more than once.
    assert!(10 * copy.len() > 9 * source.len());
    assert!(3 * moved.len() < 2 * copy.len(), "{}", moved.len());
}

#[test]
#[ignore = "needs root"]
fn linux_sees_its_snapshots_and_clones_in_our_copy() {
    let all = ["compress-force=zstd", "", "compress=lzo", "nodatacow"];
    let dir = TempDir::new();
    let image = dir.join("image");
    for round in 0..cases(2) {
        let options = all[round as usize % all.len()];
        let Some(backing) = snapshots(options, round) else {
            return;
        };
        let mount = Mount::read_only(backing.path(), FsType::Btrfs);
        let expected = HostDir::open(mount.path()).unwrap();
        let source = open(backing.path()).subvolume(5).unwrap();
        let inventory = Inventory::of(&source, &Limits::default()).unwrap();
        let subvolumes = source.subvolumes_in(&inventory).unwrap();
        assert_eq!(subvolumes.len(), 4, "{options}");
        let ours = with(None, false)
            .subvolumes(subvolumes.into_iter().map(|own| own.1).collect())
            .duplicates(false)
            .slack(ROOM);
        make(&source, &image, &ours, 2);
        let copy = open(&image).subvolume(5).unwrap();
        assert_still_shared(&source, &copy);
        // Snapshots made by Linux share their trees too.
        let stored = |tree: &Subvolume| {
            let usage = usage(tree.btrfs()).unwrap();
            let preallocated = usage.of(StorageForm::Preallocated).stored;
            usage.total().stored - usage.inline.stored - preallocated
        };
        let (before, after) = (stored(&source), stored(&copy));
        assert!(after <= before, "{options}: {after} of {before}");
        prove_to_linux(&image, &expected, None, options);
    }
}
