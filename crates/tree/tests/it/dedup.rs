//! All identical files are found, and no others.

use std::collections::HashMap;
use std::fs;

use testkit::{MemoryFs, Rng, TempDir};
use tree::{Duplicates, FileKind, FileSystem, HostDir, Inventory, Limits, Parallel};

/// The obviously correct way: all contents in a map.
fn expected(inventory: &Inventory<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut first: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
    let mut pairs = Vec::new();
    for entry in inventory.names() {
        let file = inventory.file(entry);
        let is_file = inventory.kind(file) == FileKind::Regular && inventory.size(file) > 0;
        if !is_file || !inventory.is_first_name(entry) {
            continue;
        }
        let mut content = vec![0; inventory.size(file) as usize];
        let ino = inventory.ino(file);
        inventory.tree().read_at(ino, 0, &mut content).unwrap();
        let path = inventory.path(entry);
        match first.get(&content) {
            Some(original) => pairs.push((path, original.clone())),
            None => drop(first.insert(content, path)),
        }
    }
    pairs.sort();
    pairs
}

fn found(inventory: &Inventory<'_>, threads: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let duplicates = Duplicates::find(inventory, Parallel::new(threads)).unwrap();
    let path = |file| inventory.path(inventory.first_name(file));
    let pairs = inventory.files();
    let pairs = pairs.filter_map(|file| Some((path(file), path(duplicates.original(file)?))));
    let mut pairs: Vec<_> = pairs.collect();
    pairs.sort();
    assert_eq!(pairs.len(), duplicates.len());
    assert_eq!(pairs.is_empty(), duplicates.is_empty());
    pairs
}

#[test]
fn random_trees_against_the_map_of_contents() {
    for case in 0..testkit::cases(30) {
        let mut rng = Rng::new(case);
        let mut tree = MemoryFs::new();
        let mut dirs = vec![tree.root()];
        let mut files = Vec::new();
        for n in 0..rng.below(80) {
            let dir = dirs[rng.index(dirs.len())];
            // Names whose order differs from the order of creation.
            let name = format!("{}-{n}", rng.below(10));
            // Few lengths and few contents, at the limits of read sizes.
            let len = [0, 1, 4096, 65_536, 65_537, 262_145, 600_000][rng.index(7)];
            let mut content = vec![rng.below(2) as u8; len];
            if let Some(last) = content.last_mut() {
                *last = rng.below(2) as u8;
            }
            match rng.below(6) {
                0 => dirs.push(tree.add_dir(dir, name)),
                1 if !files.is_empty() => tree.link(dir, name, files[rng.index(files.len())]),
                2 => files.push(tree.add_sparse(dir, name, len as u64, &[])),
                _ => files.push(tree.add_file(dir, name, &content)),
            }
        }
        let inventory = Inventory::of(&tree, &Limits::default()).unwrap();
        let expected = expected(&inventory);
        for threads in [1, 2, 8] {
            assert_eq!(found(&inventory, threads), expected, "case {case}");
        }
    }
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let dir = TempDir::new();
    fs::write(dir.join("a"), b"content").unwrap();
    fs::create_dir(dir.join("dir")).unwrap();
    fs::write(dir.join("dir/short"), b"content").unwrap();
    let tree = HostDir::open(dir.path()).unwrap();
    let inventory = Inventory::of(&tree, &Limits::default()).unwrap();
    fs::write(dir.join("dir/short"), b"con").unwrap();
    let error = Duplicates::find(&inventory, Parallel::new(2)).unwrap_err();
    assert!(error.to_string().starts_with("read dir/short: "), "{error}");
}
