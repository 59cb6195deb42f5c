//! Random damage, a few numbers at a time: our check finds something wrong wherever `btrfs check`
//! does.

use std::collections::BTreeMap;

use testkit::{BtrfsImage, BtrfsKey, Rng, TempDir, cases};

use crate::damage::verdict;
use crate::fields;
use crate::judges::{JudgedFile, judges, versions};
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
    let Some(judges) = judges(false) else { return };
    let dir = TempDir::new();
    let good = small();
    let file = JudgedFile::new(&good, dir.join("image"), &judges);
    let mut missed = Vec::new();
    let mut counts: BTreeMap<(bool, bool), u64> = BTreeMap::new();
    for case in 0..cases(400) {
        let mut rng = Rng::new(case);
        let mut image = good.clone();
        let what = damage(&mut image, &mut rng);
        let lines = verdict(&image);
        let is_clean = !file.findings(&image)[0];
        *counts.entry((is_clean, lines.is_empty())).or_default() += 1;
        if lines.is_empty() && !is_clean {
            missed.push(format!("{case}: {what}"));
        }
    }
    println!(
        "campaign: {:?}; (sound to it, sound to us): {counts:?}",
        versions(&judges)
    );
    assert!(missed.is_empty(), "{} missed: {missed:#?}", missed.len());
    // Images that Linux refuses to read, and other nonsense that btrfs check overlooks, are only a
    // part.
    let [both, ours] = [(false, false), (true, false)].map(|key| counts[&key]);
    assert!(
        both > 4 * ours && counts[&(true, true)] > ours,
        "{counts:?}"
    );
}

/// A change of these bytes of a tree block does not count as a miss: `owner` in its header
/// (docs/log/btrfs-check.md).
const OWNER: std::ops::Range<usize> = 88..96;

/// Changes up to 16 bytes of a tree block, and says which.
fn overwrite(image: &mut BtrfsImage, rng: &mut Rng) -> (String, std::ops::Range<usize>) {
    let trees = fields::trees(image);
    let tree = trees[rng.index(trees.len())];
    let blocks = image.blocks(tree);
    let at = blocks[rng.index(blocks.len())];
    let old = image.block(at);
    let count = u32::from_le_bytes(*old[96..].first_chunk().unwrap()) as usize;
    let head = 101 + count * if old[100] == 0 { 25 } else { 33 };
    // Of a leaf, mostly the used parts: free space may hold anything.
    let (from, to) = match rng.below(8) {
        0 => (32, old.len()),
        1..4 => (32, head),
        _ if old[100] == 0 && count > 0 => {
            let last = 101 + 25 * (count - 1) + 17;
            let data = u32::from_le_bytes(*old[last..].first_chunk().unwrap()) as usize;
            (101 + data, old.len())
        }
        _ => (32, head),
    };
    let len = [1, 1, 2, 4, 8, 16][rng.index(6)].min(to - from);
    let start = from + rng.index(to - from - len + 1);
    let range = start..start + len;
    let mut new = old[range.clone()].to_vec();
    match rng.below(4) {
        0 => new = rng.bytes(len),
        1 => new[rng.index(len)] ^= 1 << rng.below(8),
        2 => {
            let from = rng.index(old.len() - len);
            new.copy_from_slice(&old[from..from + len]);
        }
        _ => {
            let mut word = [0; 8];
            word[..len.min(8)].copy_from_slice(&new[..len.min(8)]);
            let word = number(rng, u64::from_le_bytes(word)).to_le_bytes();
            new[..len.min(8)].copy_from_slice(&word[..len.min(8)]);
        }
    }
    if new == old[range.clone()] {
        return overwrite(image, rng);
    }
    image.edit_block(at, |block| block[range.clone()].copy_from_slice(&new));
    let name = format!("tree {tree}, block {at}, bytes {range:?}: {new:x?}");
    (name, range)
}

#[test]
#[expect(clippy::print_stdout, reason = "a campaign prints it")]
fn random_bytes_of_tree_blocks_that_btrfs_check_finds_are_found() {
    let dir = TempDir::new();
    let images = fields::images(dir.path());
    let count = cases(60);
    let Some(judges) = judges(count > 60) else {
        return;
    };
    let files: Vec<JudgedFile<'_>> = (images.iter().enumerate())
        .map(|(number, good)| JudgedFile::new(good, dir.join(format!("{number}")), &judges))
        .collect();
    let mut counts: BTreeMap<(Vec<bool>, bool), u64> = BTreeMap::new();
    let mut missed = Vec::new();
    for case in 0..count {
        let mut rng = Rng::new(1000 + case);
        let which = rng.index(images.len());
        let mut image = images[which].clone();
        let (name, range) = overwrite(&mut image, &mut rng);
        let is_found = !verdict(&image).is_empty();
        let theirs = files[which].findings(&image);
        let is_owner = OWNER.start <= range.start && range.end <= OWNER.end;
        if theirs.contains(&true) && !is_found && !is_owner {
            missed.push(format!("{case}: {name}: {theirs:?}"));
        }
        *counts.entry((theirs, is_found)).or_default() += 1;
    }
    let versions = versions(&judges);
    println!("campaign: {versions:?} and restow find something: {counts:?}");
    assert!(missed.is_empty(), "{} missed: {missed:#?}", missed.len());
}
