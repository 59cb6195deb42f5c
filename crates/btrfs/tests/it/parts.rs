//! Images that are made in parts, and joined.

use std::path::Path;
use std::sync::Arc;

use btrfs::{ChecksumType, Options, create, create_part, join, part_source};
use codec::Settings;
use testkit::{MemoryFs, Rng, TempDir, cases};
use tree::{
    CheckOptions, DataCheck, Duplicates, FileAttributes, FileSystem, Finding, ImagePart, Inventory,
    Limits, MemoryResult, NoProgress, Parallel, PartNumber, PartReader, PartWriter, ReadAt, Result,
};

use crate::images::{make, memory_tree, open, with};

fn inventory(fs: &dyn FileSystem) -> Inventory<'_> {
    Inventory::of(fs, &Limits::default()).unwrap()
}

fn threads() -> Parallel {
    Parallel::new(2)
}

fn whole(fs: &dyn FileSystem, options: &Options) -> Vec<u8> {
    let result = MemoryResult::default();
    let output = result.output();
    create(&inventory(fs), options, threads(), &NoProgress, &output).unwrap();
    output.commit().unwrap();
    result.take()
}

fn part(
    fs: &dyn FileSystem,
    options: &Options,
    (n, of): (u32, u32),
    equal: Option<Duplicates>,
) -> Vec<u8> {
    let result = MemoryResult::default();
    let mut output = result.output();
    let number = (PartNumber::new(n, of).unwrap(), equal);
    let inventory = inventory(fs);
    create_part(
        &inventory,
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

fn joined(fs: &dyn FileSystem, options: &Options, parts: &[Vec<u8>]) -> Result<Vec<u8>> {
    let headers: Result<Vec<ImagePart>> = parts.iter().map(|it| ImagePart::read(it)).collect();
    let open = |index: usize| Ok(Arc::new(parts[index].clone()) as Arc<dyn ReadAt>);
    let result = MemoryResult::default();
    let output = result.output();
    let parts = (&headers?[..], &open as &_);
    let inventory = inventory(fs);
    join(&inventory, options, parts, threads(), &NoProgress, &output)?;
    output.commit()?;
    Ok(result.take())
}

/// Files of every size, with holes, equal ones, one without checksums, one with a codec of its own.
fn tree() -> MemoryFs {
    let mut fs = memory_tree();
    let root = fs.root();
    let text = b"all work and no play ".repeat(20_000);
    fs.add_sparse(
        root,
        "a sparse file",
        900_000,
        &[(100_000, &text[..300_000]), (899_990, b"the end...")],
    );
    fs.add_sparse(root, "only a hole", 700_000, &[]);
    fs.add_sparse(root, "small hole", 3000, &[]);
    // Together more bytes than there are numbers.
    for number in 0..3 {
        let content = &text[number..100_000];
        fs.add_sparse(
            root,
            format!("z{number}"),
            (1 << 63) - 4096,
            &[(1 << 62, content)],
        );
    }
    let in_place = fs.add_file(root, "in place", &text);
    fs.metadata_mut(in_place).attributes = FileAttributes(FileAttributes::NO_COW);
    let own = fs.add_file(root, "own codec", &text[3..]);
    fs.add_xattr(own, b"btrfs.compression", b"lzo");
    fs
}

#[track_caller]
fn assert_joins(fs: &dyn FileSystem, options: &Options, counts: &[u32]) {
    let expected = whole(fs, options);
    for &of in counts {
        let first = part(fs, options, (0, of), None);
        // Options of the trees may differ.
        let of_data = options.clone().label(b"other".to_vec()).nodesize(4096);
        let parts = (1..=of).map(|n| {
            let bytes: Arc<dyn ReadAt> = Arc::new(first.clone());
            let equal = ImagePart::read(&*bytes).unwrap();
            let equal = (n % 2 == 0).then(|| equal.equal_files(&bytes, &inventory(fs)).unwrap());
            part(fs, &of_data, (n, of), equal)
        });
        let parts: Vec<_> = parts.collect();
        assert!(
            joined(fs, options, &parts).unwrap() == expected,
            "{of} parts, {options:?}"
        );
    }
}

#[test]
fn parts_make_the_image_of_one_machine() {
    let fs = tree();
    for (compression, checksum, counts) in [
        (
            Some(Settings::Zstd { level: 3 }),
            ChecksumType::Crc32c,
            &[2, 40][..],
        ),
        (Some(Settings::Lzo), ChecksumType::Blake2b, &[3]),
        (None, ChecksumType::Xxhash64, &[16]),
    ] {
        let options = with(compression, false).checksum(checksum);
        assert_joins(&fs, &options, counts);
        assert_joins(&fs, &options.duplicates(false), counts);
    }
}

/// Extents that are kept, and those that several files share.
#[test]
fn parts_keep_what_the_source_has_compressed() {
    let dir = TempDir::new();
    let image = dir.join("image");
    make(
        &tree(),
        &image,
        &with(Some(Settings::Zlib { level: 3 }), false),
        2,
    );
    let source = open(&image).subvolume(5).unwrap();
    for duplicates in [true, false] {
        let options = Options::default().duplicates(duplicates);
        assert_joins(&source, &options, &[5]);
        assert_joins(&source, &options.keep_extents(false), &[3]);
    }
}

#[test]
fn no_damage_of_a_part_is_joined() {
    let (fs, options) = (tree(), Options::default());
    let parts = [1, 2].map(|n| part(&fs, &options, (n, 2), None));
    let names = u64::from(inventory(&fs).entry_count()) * 2;
    let mut rng = Rng::new(1);
    for case in 0..cases(6) {
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
        joined(&fs, &options, &parts).map(drop).unwrap_err();
    }
}

/// The records of all parts: their words and bytes.
fn records(parts: &[Vec<u8>]) -> Vec<(u32, Vec<u8>)> {
    let headers: Vec<ImagePart> = parts
        .iter()
        .map(|it| ImagePart::read(it).unwrap())
        .collect();
    let open = |index: usize| Ok(Arc::new(parts[index].clone()) as Arc<dyn ReadAt>);
    let mut reader = PartReader::new((&headers, &open)).unwrap();
    let (mut buffer, mut records) = (vec![0; 200_000], Vec::new());
    while let Some((word, len)) = reader
        .next(|word| Some(word as usize), &mut buffer)
        .unwrap()
    {
        records.push((word, buffer[..len].to_vec()));
    }
    records
}

/// A part with these records, whose checksums are right.
fn written(fs: &dyn FileSystem, options: &Options, records: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let inventory = inventory(fs);
    let result = MemoryResult::default();
    let mut output = result.output();
    let equal = Duplicates::find(&inventory, threads()).unwrap();
    let source = part_source(&inventory, options);
    let number = PartNumber::new(1, 1).unwrap();
    let mut part = PartWriter::new(number, &source, &equal, &mut output).unwrap();
    for (word, bytes) in records {
        match word {
            0 => part.put_hole().unwrap(),
            _ => part.put(bytes.len() as u32, &[bytes]).unwrap(),
        }
    }
    part.finish().unwrap();
    output.commit().unwrap();
    result.take()
}

/// A record that is possible gives a sound image, though one of other content.
#[test]
fn no_record_with_a_right_checksum_gives_a_wrong_image() {
    let dir = TempDir::new();
    let image = dir.join("image");
    make(&tree(), &image, &Options::default(), 2);
    let source = open(&image).subvolume(5).unwrap();
    let options = Options::default().duplicates(false);
    for (fs, options) in [
        (&tree() as &dyn FileSystem, Options::default()),
        (&source, options),
    ] {
        let right = records(&[part(fs, &options, (1, 1), None)]);
        let mut rng = Rng::new(5);
        let mut refused = 0;
        for case in 0..cases(24) {
            let mut records = right.clone();
            let at = rng.index(records.len());
            match case % 6 {
                0 => drop(records.remove(at)),
                1 => records.insert(at, records[at].clone()),
                2 => records[at].1.truncate(rng.index(60)),
                3 => records.swap(at, rng.index(right.len())),
                // All fields, and the bits by which they differ most.
                _ => records[at].1[rng.index(48)] ^= 1 << rng.below(8),
            }
            let part = written(fs, &options, &records);
            match joined(fs, &options, &[part]) {
                Ok(bytes) => assert_sound(&bytes, &dir.join("joined")),
                Err(_) => refused += 1,
            }
        }
        assert!(refused > cases(24) / 2, "{refused}");
    }
}

/// Extents are not decoded: only the machine that made a part has their content.
fn assert_sound(bytes: &[u8], path: &Path) {
    std::fs::write(path, bytes).unwrap();
    let mut lines = Vec::new();
    let options = CheckOptions::default().data(DataCheck::Checksums);
    let mut take = |finding: Finding| lines.push(finding.to_string());
    open(path)
        .check(options, threads(), &NoProgress, &mut take)
        .unwrap();
    assert_eq!(lines, [""; 0]);
}

#[test]
fn a_part_knows_its_tree() {
    let (fs, options) = (tree(), Options::default());
    let bytes: Arc<dyn ReadAt> = Arc::new(part(&fs, &options, (1, 2), None));
    let header = ImagePart::read(&*bytes).unwrap();
    let differs = |fs: &MemoryFs, options: &Options| {
        let inventory = inventory(fs);
        let source = part_source(&inventory, options);
        let mismatch = header.mismatch(&bytes, &inventory, &source).unwrap();
        format!("{mismatch:?}")
    };
    assert_eq!(differs(&fs, &options.clone().label(b"x".to_vec())), "None");
    let mut other = tree();
    other.add_file(other.root(), "more", b"content");
    assert!(differs(&other, &options).starts_with("Some(Tree(Some("));
    let zlib = with(Some(Settings::Zlib { level: 3 }), false);
    assert_eq!(differs(&fs, &zlib), "Some(Options)");
    assert_eq!(differs(&fs, &options.duplicates(false)), "Some(Options)");
}
