//! Random damage, a few numbers at a time: our check finds something wrong wherever `btrfs check`
//! does.

use std::collections::BTreeMap;
use std::fs::File;

use testkit::{BtrfsImage, BtrfsKey, Rng, TempDir, cases, run, tool};

use crate::damage::{is_clean_to_btrfs, verdict};
use crate::small::small;

/// All trees of the image.
const TREES: [u64; 12] = [1, 2, 3, 4, 5, 7, 9, 10, 256, 257, 258, -9_i64 as u64];

/// Numbers with a special meaning somewhere.
fn number(rng: &mut Rng, old: u64) -> u64 {
    const SPECIAL: [u64; 10] = [
        0,
        1,
        2,
        256,
        4096,
        65_536,
        1 << 32,
        1 << 63,
        u64::MAX,
        u64::MAX - 4095,
    ];
    match rng.below(5) {
        0 => SPECIAL[rng.index(SPECIAL.len())],
        1 => old.wrapping_add(1),
        2 => old.wrapping_sub(1),
        3 => old.wrapping_add_signed([4096, -4096, 65_536, 256][rng.index(4)]),
        _ => old ^ 1 << rng.below(64),
    }
}

/// Changes an item, removes it, or gives it another key that preserves the order of its leaf.
fn damage(image: &mut BtrfsImage, rng: &mut Rng) -> String {
    let tree = TREES[rng.index(TREES.len())];
    let items = image.items(tree);
    let index = rng.index(items.len());
    let item = &items[index];
    let (before, after) = (
        index.checked_sub(1).map(|i| items[i].key),
        items.get(index + 1),
    );
    match rng.below(8) {
        0 if items.len() > 1
            && items.iter().filter(|other| other.leaf == item.leaf).count() > 1 =>
        {
            image.remove(tree, item.key);
            format!("tree {tree}: {:?} removed", item.key)
        }
        1 => {
            let mut key: BtrfsKey = item.key;
            match rng.below(3) {
                0 => key.0 = number(rng, key.0),
                1 => key.1 = number(rng, key.1.into()) as u8,
                _ => key.2 = number(rng, key.2),
            }
            let is_between = before.is_none_or(|before| before < key)
                && after.is_none_or(|after| key < after.key);
            if !is_between {
                return damage(image, rng);
            }
            image.rekey(tree, item.key, key);
            format!("tree {tree}: {:?} is now {key:?}", item.key)
        }
        2 => {
            let others = items
                .iter()
                .filter(|other| other.key.1 == item.key.1 && other.data.len() == item.data.len());
            let others: Vec<_> = others.collect();
            let other = others[rng.index(others.len())];
            if other.data == item.data {
                return damage(image, rng);
            }
            image.set(tree, item.key, 0, &other.data);
            format!(
                "tree {tree}: {:?} has the data of {:?}",
                item.key, other.key
            )
        }
        _ => {
            if item.data.is_empty() {
                return damage(image, rng);
            }
            let len = [1, 2, 4, 8][rng.index(4)].min(item.data.len());
            let at = rng.index(item.data.len() - len + 1);
            let mut word = [0; 8];
            word[..len].copy_from_slice(&item.data[at..at + len]);
            let old = u64::from_le_bytes(word);
            let new = number(rng, old).to_le_bytes();
            if new[..len] == word[..len] {
                return damage(image, rng);
            }
            image.set(tree, item.key, at, &new[..len]);
            format!(
                "tree {tree}: {:?} byte {at}: {:x?} is now {:x?}",
                item.key,
                &word[..len],
                &new[..len]
            )
        }
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "a campaign prints it")]
fn random_damage_that_btrfs_check_finds_is_found() {
    let Some(btrfs) = tool("btrfs") else { return };
    let dir = TempDir::new();
    let path = dir.join("image");
    let good = small();
    good.write_file(&path);
    let file = File::options().write(true).open(&path).unwrap();
    let mut missed = Vec::new();
    let mut counts: BTreeMap<(bool, bool), u64> = BTreeMap::new();
    for case in 0..cases(400) {
        let mut rng = Rng::new(case);
        let mut image = good.clone();
        let what = damage(&mut image, &mut rng);
        let lines = verdict(&image);
        image.write_changes(&file, false);
        let is_clean = is_clean_to_btrfs(&btrfs, &path);
        image.write_changes(&file, true);
        *counts.entry((is_clean, lines.is_empty())).or_default() += 1;
        if lines.is_empty() && !is_clean {
            missed.push(format!("{case}: {what}"));
        }
    }
    let version = run(btrfs.command().arg("--version")).stdout;
    let version = String::from_utf8_lossy(&version);
    let version = version.lines().next().unwrap_or_default();
    println!("campaign: {version}; (sound to it, sound to us): {counts:?}");
    assert!(missed.is_empty(), "{} missed: {missed:#?}", missed.len());
    // Images that Linux refuses to read, and other nonsense that btrfs check overlooks, are only a
    // part.
    let [both, ours] = [(false, false), (true, false)].map(|key| counts[&key]);
    assert!(
        both > 4 * ours && counts[&(true, true)] > ours,
        "{counts:?}"
    );
}
