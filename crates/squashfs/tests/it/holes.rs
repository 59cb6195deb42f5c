//! Work goes by what an image stores, not by what its files claim.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use codec::Settings;
use squashfs::{ExcessHoles, Options, Squashfs, create, excess_holes};
use testkit::{CountedBytes, HookedFs, MemoryFs, Part, RawKind, RawNode, RawSquashfs, TempDir};
use tree::extract::{ExtractOptions, extract};
use tree::manifest::Manifest;
use tree::{
    Aspects, CheckOptions, Error, ExtentKind, Extents, FileSystem, Inventory, Limits, NoProgress,
    Output, Parallel, Result,
};

use crate::vectors::encoder;

fn inventory(fs: &dyn FileSystem) -> Inventory<'_> {
    Inventory::of(fs, &Limits::default()).unwrap()
}

/// Writes an image without committing it.
fn write(fs: &dyn FileSystem, options: &Options) -> Result<squashfs::CreateSummary> {
    let dir = TempDir::new();
    let mut output = Output::create(&dir.join("image"), false).unwrap();
    let parallel = Parallel::new(2);
    let inventory = inventory(fs);
    create(&inventory, options, parallel, &NoProgress, &mut output)
}

#[test]
fn an_8_eb_file_is_refused_with_the_size_of_its_list() {
    let mut fs = MemoryFs::new();
    let root = fs.root();
    let size = i64::MAX as u64;
    let file = fs.add_sparse(root, "huge", size, &[(1 << 50, b"data")]);
    fs.add_sparse(root, "small", 1 << 20, &[]);
    let fs = HookedFs::new(fs, |_, _| panic!("nothing is read"));
    let inventory = inventory(&fs);
    let found = excess_holes(&inventory, &Options::default()).unwrap();
    let huge = (inventory.files()).find(|&id| inventory.ino(id) == file);
    let bytes = size - 4 + (1 << 20);
    let expected = ExcessHoles {
        file: huge.unwrap(),
        file_bytes: size - 4,
        bytes,
        list_bytes: bytes.div_ceil(128 << 10) * 4,
    };
    assert_eq!(found, Some(expected));
    let error = write(&fs, &Options::default()).unwrap_err();
    let words = "store huge: limit reached: larger holes than the options allow in an image";
    assert_eq!(error.to_string(), words);
}

#[test]
fn holes_up_to_the_limit_are_stored_and_data_does_not_count() {
    let mut fs = MemoryFs::new();
    let root = fs.root();
    let data = vec![7; 1 << 20];
    for name in ["a", "b"] {
        fs.add_sparse(root, name, 10 << 30, &[(5 << 30, &data)]);
    }
    fs.add_file(root, "data", &data);
    let holes = 2 * ((10 << 30) - (1 << 20));
    let with = |sparse_max| Options::default().sparse_max(sparse_max);
    assert!(write(&fs, &with(holes)).is_ok());
    assert!(matches!(
        write(&fs, &with(holes - 1)),
        Err(Error::File { verb: "store", .. })
    ));
}

/// An image with two files of 1 MiB blocks: one has as many as these metadata blocks hold, all of
/// them holes, and one claims as many as could be in the smallest metadata blocks, but has none.
fn claiming(metadata_blocks: u64) -> Vec<u8> {
    let encode = encoder(Some(Settings::Zstd { level: 1 }));
    let node = |name: &str, kind| RawNode {
        name: name.to_owned(),
        kind,
        extended: true,
        xattrs: None,
    };
    let file = || RawKind::File(Vec::new(), false);
    let tree = RawSquashfs {
        codec: 6,
        encode: &encode,
        block_log: 20,
        root: node(
            "",
            RawKind::Directory(vec![node("claimed", file()), node("listed", file())]),
        ),
        ids: vec![0],
        xattrs: Vec::new(),
    };
    let zeros = encode(&[0; 8192]).unwrap();
    let zeros = [&(zeros.len() as u16).to_le_bytes()[..], &zeros].concat();
    let listed = (8192 - 2 * 56) / 4 + metadata_blocks * 2048;
    let claimed = metadata_blocks * zeros.len() as u64 / 3 * 2048;
    let image = tree.build(&mut |part, bytes| match part {
        Part::Inode("claimed") => bytes[24..32].copy_from_slice(&(claimed << 20).to_le_bytes()),
        Part::Inode("listed") => {
            bytes[24..32].copy_from_slice(&(listed << 20).to_le_bytes());
            bytes.resize(8192 - 56, 0);
        }
        Part::Metadata("inodes", 0) => bytes.extend(zeros.repeat(metadata_blocks as usize)),
        _ => {}
    });
    image.bytes
}

#[test]
fn a_small_image_that_claims_petabytes_of_holes_costs_what_it_stores() {
    // 84 TB in 700 KB; more than there are checkpoints in the list of a file.
    let metadata_blocks = 40_000;
    let reads = Arc::new(AtomicU64::new(0));
    let bytes = CountedBytes(claiming(metadata_blocks), Arc::clone(&reads));
    let image = Squashfs::open(bytes).unwrap();
    let took = |what: &str| {
        let reads = reads.swap(0, Ordering::Relaxed);
        assert!(reads < 4 * metadata_blocks + 1000, "{what}: {reads} reads");
    };
    let listed = image.lookup(image.root(), b"listed").unwrap().ino;
    let size = image.metadata(listed).unwrap().size;
    let mut extents = Extents::new(&image, listed, size);
    let extent = extents.next().unwrap().unwrap();
    assert_eq!((extent.len, extent.kind), (size, ExtentKind::Hole));
    assert_eq!(extents.next().unwrap(), None);
    took("its extents");
    let mut end = [1; 10];
    assert_eq!(image.read_at(listed, size - 10, &mut end).unwrap(), 10);
    assert_eq!(end, [0; 10]);
    assert_eq!(image.read_at(listed, size / 2, &mut end).unwrap(), 10);
    took("reads at the end and in the middle");

    let claimed = image.lookup(image.root(), b"claimed").unwrap().ino;
    let error = image.extents(claimed, 0).unwrap_err().to_string();
    assert!(
        error.starts_with("files have more blocks together"),
        "{error}"
    );

    let mut findings = Vec::new();
    let options = CheckOptions::EVERYTHING;
    let mut report = |finding: tree::Finding| findings.push(finding);
    image
        .check(options, Parallel::new(2), &NoProgress, &mut report)
        .unwrap();
    assert_eq!(findings.len(), 1, "{findings:?}");
    took("a check");

    let sound = tree::edit::Edits {
        selection: tree::edit::Selection {
            exclude: tree::edit::Patterns::new(["claimed"]).into(),
            ..Default::default()
        },
        ..tree::edit::Edits::default()
    };
    let fs = tree::edit::Edited::new(Arc::new(image), sound).unwrap();
    let inventory = inventory(&fs);
    let manifest = Manifest::of(&fs, &Aspects::ALL).unwrap();
    took("a manifest");
    let mut archive = Vec::new();
    tree::tar::write(
        &inventory,
        false,
        Parallel::new(2),
        &NoProgress,
        &mut archive,
    )
    .unwrap();
    took("a copy to tar");
    let tar = tree::tar::Tar::open(Box::new(archive), Limits::default()).unwrap();
    assert_eq!(Manifest::of(&tar, &Aspects::ALL).unwrap(), manifest);
    let error = write(&fs, &Options::default()).unwrap_err().to_string();
    assert!(error.starts_with("store listed: "), "{error}");
    took("a copy to SquashFS");
    let Some(dir) = TempDir::for_huge_files() else {
        return;
    };
    let options = ExtractOptions {
        existing: tree::extract::Existing::Refuse,
        skip_unreadable: false,
        owners: false,
        sync: false,
        parallel: Parallel::new(2),
        ..ExtractOptions::default()
    };
    extract(&inventory, &dir.join("copy"), &options, &NoProgress).unwrap();
    assert_eq!(dir.join("copy/listed").metadata().unwrap().len(), size);
    took("a copy to a directory");
}
