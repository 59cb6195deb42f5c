//! The command lines of other programs: each case is run by the program and by restow, which must
//! have the same exit code, print the same and leave the same files.

mod mkfs_btrfs; // mkfs.btrfs
mod mksquashfs; // mksquashfs and sqfstar

use std::fs;

/// The options of a program in docs/compat.md.
fn options(name: &str) -> Vec<String> {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/compat.md"));
    let page = page.unwrap();
    let section = page
        .split("\n## ")
        .find(|it| it.lines().next() == Some(name));
    let rows = section.unwrap().lines().filter_map(|line| {
        let (options, _) = line.strip_prefix("| `")?.split_once('`')?;
        Some(options.to_owned())
    });
    let words = rows.flat_map(|row| row.split([',', ' ']).map(str::to_owned).collect::<Vec<_>>());
    words.filter(|word| word.starts_with('-')).collect()
}

/// Requires that each option in docs/compat.md is in a line.
#[track_caller]
fn assert_no_option_is_without_a_case(name: &str, lines: &[&str]) {
    let has = |option: &String| {
        let words = lines.iter().flat_map(|line| line.split([' ', '=']));
        words.into_iter().any(|word| word == option)
    };
    let missing: Vec<String> = options(name).into_iter().filter(|it| !has(it)).collect();
    assert!(missing.is_empty(), "{name}: no case has {missing:?}");
}
