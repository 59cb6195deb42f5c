//! Images that are made in parts, and joined.

use std::sync::Arc;

use codec::{Filters, Settings};
use squashfs::{Fragments, Options, create, create_part, join, part_source};
use testkit::{MemoryFs, Rng};
use tree::{
    Duplicates, FileSystem, ImagePart, Inventory, Limits, MemoryResult, NoProgress, Parallel,
    PartNumber, ReadAt, Result,
};

use crate::sources::text;

/// Small and large files, equal ones far apart, tails, holes, names of one file, empty files.
fn tree(extra: &[u8]) -> MemoryFs {
    let mut fs = MemoryFs::new();
    let root = fs.root();
    for dir in 0..4 {
        let sub = fs.add_dir(root, format!("{dir}"));
        for n in 0..40u64 {
            let seed = if n % 3 == 0 { n } else { 100 * dir + n };
            fs.add_file(sub, format!("{n:02}"), &text(seed, (n * n * 9) as usize));
        }
        let large = fs.add_file(sub, "large", &text(dir % 2, 70_000 + dir as usize % 2));
        fs.link(root, format!("name of {dir}"), large);
    }
    fs.add_file(root, "noise", &Rng::new(1).bytes(30_000));
    fs.add_sparse(
        root,
        "hole",
        200_000,
        &[(50_000, &text(7, 20_000)), (199_990, b"the end")],
    );
    fs.add_file(root, "extra", extra);
    fs
}

fn inventory(fs: &MemoryFs) -> Inventory<'_> {
    Inventory::of(fs, &Limits::default()).unwrap()
}

fn threads() -> Parallel {
    Parallel::new(2)
}

fn whole(fs: &MemoryFs, options: &Options) -> Vec<u8> {
    let result = MemoryResult::default();
    let mut output = result.output();
    create(&inventory(fs), options, threads(), &NoProgress, &mut output).unwrap();
    output.commit().unwrap();
    result.take()
}

fn part(
    fs: &MemoryFs,
    options: &Options,
    (n, of): (u32, u32),
    equal: Option<Duplicates>,
) -> Vec<u8> {
    let result = MemoryResult::default();
    let mut output = result.output();
    let number = (PartNumber::new(n, of).unwrap(), equal);
    create_part(
        &inventory(fs),
        options,
        number,
        threads(),
        &NoProgress,
        &mut output,
    )
    .unwrap();
    output.commit().unwrap();
    result.take()
}

fn joined(fs: &MemoryFs, options: &Options, parts: &[Vec<u8>]) -> Result<Vec<u8>> {
    let headers: Result<Vec<ImagePart>> = parts.iter().map(|it| ImagePart::read(it)).collect();
    let open = |index: usize| Ok(Arc::new(parts[index].clone()) as Arc<dyn ReadAt>);
    let result = MemoryResult::default();
    let mut output = result.output();
    let parts = (&headers?[..], &open as &_);
    join(
        &inventory(fs),
        options,
        parts,
        threads(),
        &NoProgress,
        &mut output,
    )?;
    output.commit()?;
    Ok(result.take())
}

#[test]
fn parts_make_the_image_of_one_machine() {
    let fs = tree(b"");
    let xz = Settings::Xz {
        level: 1,
        extreme: false,
        dictionary_bytes: 8192,
        filters: Filters(0),
    };
    for (compression, fragments, duplicates) in [
        (Some(Settings::Zstd { level: 3 }), Fragments::Always, true),
        (
            Some(Settings::Zstd { level: 15 }),
            Fragments::SmallFiles,
            false,
        ),
        (
            Some(Settings::Zlib { level: 6 }),
            Fragments::SmallFiles,
            true,
        ),
        (Some(xz), Fragments::None, true),
        (Some(Settings::Lz4), Fragments::Always, true),
        (Some(Settings::Lzo), Fragments::SmallFiles, true),
        (None, Fragments::Always, true),
    ] {
        let options = Options::default()
            .compression(compression)
            .fragments(fragments)
            .duplicates(duplicates)
            .block_bytes(4096);
        let expected = whole(&fs, &options);
        for of in [2, 7] {
            // Part 0 says which files are equal, and options of the tables may differ.
            let first = part(&fs, &options, (0, of), None);
            let of_blocks = options.clone().exportable(false).mkfs_time(7);
            let parts = (1..=of).map(|n| {
                let bytes: Arc<dyn ReadAt> = Arc::new(first.clone());
                let equal = ImagePart::read(&*bytes).unwrap();
                let equal =
                    (n % 2 == 0).then(|| equal.equal_files(&bytes, &inventory(&fs)).unwrap());
                part(&fs, &of_blocks, (n, of), equal)
            });
            let parts: Vec<_> = parts.collect();
            let image = joined(&fs, &options, &parts).unwrap();
            assert!(image == expected, "{of} parts, {options:?}");
        }
    }
}

#[test]
fn no_damage_of_a_part_is_joined() {
    let (fs, options) = (tree(b""), Options::default().block_bytes(4096));
    let options = options.compression(Settings::Lz4);
    let parts = [1, 2].map(|n| part(&fs, &options, (n, 2), None));
    let names = u64::from(inventory(&fs).entry_count()) * 2;
    let mut rng = Rng::new(1);
    for case in 0..testkit::cases(24) {
        let mut parts = parts.to_vec();
        let damaged = &mut parts[case as usize % 2];
        let at = rng.index(damaged.len());
        // The digests of names only name the file in an error.
        if (96..96 + names).contains(&(at as u64)) {
            continue;
        }
        match case % 3 {
            0 => damaged[at] ^= 1 << rng.below(8),
            1 => damaged.truncate(at),
            _ => drop(damaged.splice(at..at, [0; 4])),
        }
        let error = joined(&fs, &options, &parts)
            .map(drop)
            .expect_err("a damaged part");
        assert!(!error.to_string().is_empty());
    }
}

/// The digest of such a list is right.
#[test]
fn equal_files_are_of_one_size_and_each_has_one_original() {
    let (fs, options) = (tree(b""), Options::default().block_bytes(4096));
    let inventory = inventory(&fs);
    let found = Duplicates::find(&inventory, threads()).unwrap();
    let (file, original) = found.pairs().next().unwrap();
    let other = inventory
        .files()
        .find(|&it| inventory.size(it) == 9)
        .unwrap();
    for (pairs, is_right) in [
        (vec![(file, original)], true),
        (vec![(file, original), (original, file)], false),
        (vec![(file, file)], false),
        (vec![(file, other)], false),
    ] {
        let bytes = part(&fs, &options, (0, 2), Some(Duplicates::of(pairs)));
        let bytes: Arc<dyn ReadAt> = Arc::new(bytes);
        let read = ImagePart::read(&*bytes).unwrap();
        let equal = read.equal_files(&bytes, &inventory);
        assert_eq!(equal.is_ok(), is_right);
    }
}

#[test]
fn a_part_knows_its_tree() {
    let (fs, options) = (tree(b"a"), Options::default());
    let bytes: Arc<dyn ReadAt> = Arc::new(part(&fs, &options, (1, 2), None));
    let header = ImagePart::read(&*bytes).unwrap();
    let differs = |fs: &MemoryFs, options: &Options| {
        let inventory = inventory(fs);
        let source = part_source(&inventory, options);
        let mismatch = header.mismatch(&bytes, &inventory, &source).unwrap();
        format!("{mismatch:?}")
    };
    assert_eq!(differs(&tree(b"b"), &options), "None");
    let extra = inventory(&fs).find(b"extra").unwrap();
    let named = format!("Some(Tree(Some({extra:?})))");
    assert_eq!(differs(&tree(b"bb"), &options), named);
    let other = options.clone().block_bytes(4096);
    assert_eq!(differs(&fs, &other), "Some(Options)");
}
