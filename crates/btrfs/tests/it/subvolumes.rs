//! Directories that become subvolumes.

use std::path::Path;

use btrfs::{NewSubvolume, Numbers, Options, Received, Subvolume, SubvolumeInfo};
use testkit::{BtrfsImage, HookedFs, MemoryFs, Rng, TempDir};
use tree::{
    Aspects, Error, FileIdentity, FileSystem, Inventory, Limits, NoProgress, Output, Parallel, Time,
};

use crate::images::{check, make, manifest_of, open};

/// Subvolumes in directories and in each other, and snapshots of one of them.
pub(crate) fn nested() -> (MemoryFs, Options) {
    let mut source = MemoryFs::new();
    let (root, mut rng) = (source.root(), Rng::new(5));
    let dir = source.add_dir(root, "dir");
    let content = rng.bytes(300_000);
    let text = b"some text in every snapshot ".repeat(10_000);
    let mut subvolumes = Vec::new();
    let mut add = |source: &mut MemoryFs, parent, path: &str| {
        let name = path.rsplit('/').next().unwrap();
        let own = source.add_dir(parent, name);
        source.add_file(own, "noise", &content);
        source.add_file(own, "text", &text);
        source.add_file(own, "own", path.as_bytes());
        let sub = source.add_dir(own, "sub");
        let file = source.add_file(sub, "linked", b"twice");
        source.link(own, "link", file);
        source.add_symlink(own, "to", b"sub/linked");
        subvolumes.push(NewSubvolume {
            path: path.as_bytes().to_vec(),
            ..NewSubvolume::default()
        });
        own
    };
    let first = add(&mut source, root, "first");
    add(&mut source, first, "first/inner");
    add(&mut source, dir, "dir/second");
    add(&mut source, root, "snapshot");
    add(&mut source, root, "snapshot 2");
    add(&mut source, root, "received");
    let uuid = [0x11; 16];
    subvolumes[0].uuid = Some(uuid);
    for snapshot in [3, 4] {
        subvolumes[snapshot].parent_uuid = Some(uuid);
        subvolumes[snapshot].is_read_only = true;
        subvolumes[snapshot].uuid = Some([0x20 + snapshot as u8; 16]);
    }
    let time = |seconds| Time {
        seconds,
        nanoseconds: 7,
    };
    subvolumes[5].is_read_only = true;
    subvolumes[5].otime = Some(time(1));
    subvolumes[5].received = Some(Received {
        uuid: [0x33; 16],
        stransid: 1234,
        rtransid: 1,
        stime: time(2),
        rtime: time(3),
    });
    let options = Options::default()
        .subvolumes(subvolumes)
        .default_subvolume(Some(b"dir/second".to_vec()));
    (source, options)
}

/// Path and properties.
fn shown(list: &[SubvolumeInfo]) -> Vec<String> {
    let one = |own: &SubvolumeInfo| {
        let path = String::from_utf8(own.path.clone().unwrap()).unwrap();
        let first = |uuid: Option<[u8; 16]>| uuid.map_or(0, |uuid| uuid[0]);
        let (parent, received) = (first(own.parent_uuid), first(own.received_uuid));
        format!("{path} {} {parent:x} {received:x}", own.is_read_only)
    };
    list.iter().map(one).collect()
}

fn top(image: &Path) -> Subvolume {
    open(image).subvolume(5).unwrap()
}

#[test]
fn directories_become_subvolumes_and_stay_so_in_a_copy() {
    let dir = TempDir::new();
    let (image, copy) = (dir.join("image"), dir.join("copy"));
    let (source, options) = nested();
    let summary = make(&source, &image, &options, 2);
    assert_eq!((summary.subvolumes, summary.image.duplicates), (7, 15));
    check(&image);
    let opened = open(&image);
    let list = opened.subvolumes().unwrap();
    assert_eq!(
        shown(&list),
        [
            " false 0 0",
            "first false 0 0",
            "received true 0 33",
            "snapshot true 11 0",
            "snapshot 2 true 11 0",
            "dir/second false 0 0",
            "first/inner false 0 0",
        ]
    );
    assert_eq!(opened.default_subvolume().unwrap(), list[5].id);
    assert_eq!(manifest_of(&top(&image)), manifest_of(&source));
    let own = opened.subvolume(list[3].id).unwrap();
    let whole = Inventory::of(&own, &Limits::default()).unwrap();
    assert_eq!(whole.file_count(), 7);
    // Data is stored once, and a copy of everything is identical, including UUIDs and times of
    // sending.
    let source = top(&image);
    let inventory = Inventory::of(&source, &Limits::default()).unwrap();
    let found = source.subvolumes_in(&inventory).unwrap();
    let find = |path: &[u8]| found.iter().find(|own| own.1.path == path).unwrap();
    assert_eq!(find(b"received").1.received, options.subvolumes[5].received);
    assert_eq!(find(b"received").1.otime, options.subvolumes[5].otime);
    let again = options
        .subvolumes(found.into_iter().map(|own| own.1).collect())
        .duplicates(false);
    let copied = make(&source, &copy, &again, 2);
    assert_eq!(
        (copied.image.data_bytes, copied.extents),
        (summary.image.data_bytes, summary.extents)
    );
    check(&copy);
    let copied = open(&copy).subvolumes().unwrap();
    assert_eq!(shown(&copied), shown(&list));
    for (one, other) in list.iter().zip(&copied) {
        assert_eq!(one.uuid, other.uuid);
    }
}

#[test]
fn a_hard_link_into_another_subvolume_becomes_a_file_that_shares_its_content() {
    let dir = TempDir::new();
    let image = dir.join("image");
    let mut source = MemoryFs::new();
    let root = source.root();
    let (a, b) = (source.add_dir(root, "a"), source.add_dir(root, "b"));
    let file = source.add_file(a, "one", &Rng::new(1).bytes(100_000));
    source.link(a, "two", file);
    source.link(b, "three", file);
    let subvolume = |path: &[u8]| NewSubvolume {
        path: path.to_vec(),
        ..NewSubvolume::default()
    };
    let options = Options::default().subvolumes(vec![subvolume(b"b")]);
    let summary = make(&source, &image, &options, 1);
    assert_eq!(summary.split_links, [b"a/one"]);
    assert_eq!(summary.extents, 1);
    check(&image);
    let tree = top(&image);
    let names = |dir: &[u8], name: &[u8]| {
        let dir = tree.lookup(tree.root(), dir).unwrap().ino;
        let file = tree.lookup(dir, name).unwrap().ino;
        tree.metadata(file).unwrap().nlink
    };
    assert_eq!((names(b"a", b"two"), names(b"b", b"three")), (2, 1));
    // Paths that cannot become subvolumes are rejected before anything is written.
    let inventory = Inventory::of(&source, &Limits::default()).unwrap();
    let refused = |subvolumes: Vec<NewSubvolume>, default: Option<&[u8]>| {
        let options = Options::default()
            .subvolumes(subvolumes)
            .default_subvolume(default.map(<[u8]>::to_vec));
        let output = Output::create(&dir.join("never"), false).unwrap();
        let parallel = Parallel::new(1);
        btrfs::create(&inventory, &options, parallel, &NoProgress, &output).unwrap_err()
    };
    for path in [&b"a/one"[..], b"c"] {
        let error = refused(vec![subvolume(path)], None);
        assert!(matches!(error, Error::File { .. }), "{error}");
    }
    refused(vec![subvolume(b"a"), subvolume(b"a")], None);
    refused(vec![subvolume(b"a")], Some(b"b"));
}

#[test]
fn a_comparison_of_snapshots_reads_nothing_that_they_share() {
    let dir = TempDir::new();
    let image = dir.join("image");
    let (source, options) = nested();
    make(&source, &image, &options, 1);
    let btrfs = open(&image);
    // Reading any of the large files fails.
    let view = |path: &[u8]| {
        let tree = btrfs
            .subvolume(btrfs.find_subvolume(path).unwrap())
            .unwrap();
        let number = |name: &[u8]| tree.lookup(tree.root(), name).unwrap().ino;
        let shared = [number(b"noise"), number(b"text")];
        HookedFs::new(tree, move |file, _| {
            if shared.contains(&file) {
                return Err(Error::InvalidInput("shared content was read"));
            }
            Ok(())
        })
    };
    let (first, second) = (view(b"snapshot"), view(b"snapshot 2"));
    let mut found = Vec::new();
    let mut report = |difference: tree::diff::Difference| {
        found.push(format!("{difference:?}"));
        Ok(())
    };
    let (aspects, parallel) = (Aspects::ALL, Parallel::new(2));
    tree::diff::diff(
        &first,
        &second,
        &aspects,
        parallel,
        &NoProgress,
        &mut report,
    )
    .unwrap();
    assert_eq!(found, ["own: Size(8, 10)"]);
    // When the same image is opened separately, nothing is known to be shared.
    let other = open(&image);
    let id = other.find_subvolume(b"snapshot").unwrap();
    let other = other.subvolume(id).unwrap();
    assert_ne!(other.storage().store, first.storage().store);
    let mut report = |_| Ok(());
    let compared = tree::diff::diff(&first, &other, &aspects, parallel, &NoProgress, &mut report);
    assert!(compared.is_err());
}

#[test]
fn an_image_that_continues_another_keeps_its_numbers() {
    let dir = TempDir::new();
    let image = dir.join("image");
    let mut source = MemoryFs::new();
    let identity = |number, transaction| {
        Some(FileIdentity {
            number,
            generation: 7,
            transaction,
        })
    };
    // Nothing is unchanged between the two, so they share no blocks.
    for (name, transaction) in [("one", 8), ("two", 1 << 60)] {
        let own = source.add_dir(source.root(), name);
        source.metadata_mut(own).identity = identity(256, transaction);
        let file = source.add_file(own, "f", &[1; 9000]);
        source.metadata_mut(file).identity = identity(300, transaction);
        source.add_file(own, "new", &[2; 10]);
    }
    let subvolume = |path: &str, numbers| NewSubvolume {
        path: path.as_bytes().to_vec(),
        numbers,
        ..NewSubvolume::default()
    };
    let numbers = Numbers {
        id: 280,
        ctransid: 30,
        otransid: 20,
    };
    let options = Options::default()
        .subvolumes(vec![
            subvolume("two", None),
            subvolume("one", Some(numbers)),
        ])
        .generation(Some(50))
        .size_min(200 << 20);
    let summary = make(&source, &image, &options, 2);
    assert_eq!(summary.image.image_bytes, 200 << 20);
    assert!(summary.is_writable);
    check(&image);
    let opened = open(&image);
    assert_eq!(opened.superblock().generation.0, 50);
    let list = opened.subvolumes().unwrap();
    let list: Vec<_> = list.iter().map(|own| (own.id, own.ctransid)).collect();
    assert_eq!(list, [(5, 50), (280, 30), (281, 50)]);
    let found = |id: u64, name: &[u8]| {
        let tree = opened.subvolume(id).unwrap();
        let ino = tree.lookup(tree.root(), name).unwrap().ino;
        let identity = tree.metadata(ino).unwrap().identity.unwrap();
        (identity.number, identity.generation, identity.transaction)
    };
    assert_eq!(found(280, b"f"), (300, 7, 8));
    // What is newer than everything is of the last transaction.
    assert_eq!(found(281, b"f"), (300, 7, 50));
    let [one, two] = [280, 281].map(|id| found(id, b"new"));
    assert_eq!((one.1, two.1), (50, 50));
    assert!(one.0 != two.0 && one.0 > 300 && two.0 > 300);
    // IDs that cannot be are refused.
    for id in [1, 5, 255, 280] {
        let numbers = Numbers { id, ..numbers };
        let mut options = options.clone();
        options.subvolumes[0].numbers = Some(numbers);
        let output = Output::create(&dir.join("other"), false).unwrap();
        let inventory = Inventory::of(&source, &Limits::default()).unwrap();
        let made = btrfs::create(&inventory, &options, Parallel::new(1), &NoProgress, &output);
        assert!(matches!(made, Err(Error::InvalidInput(_))), "{id}");
    }
}

#[test]
fn a_deleted_subvolume_that_is_still_seen_is_no_empty_directory() {
    let dir = TempDir::new();
    let path = dir.join("image");
    let (source, options) = nested();
    make(&source, &path, &options, 2);
    let list = open(&path).subvolumes().unwrap();
    let second = list
        .iter()
        .find(|own| own.path.as_deref() == Some(b"dir/second"));
    let mut image = BtrfsImage::read_file(&path);
    image.set(1, (second.unwrap().id, 132, 0), 216, &[0; 4]);
    let top = crate::hostile::open(&image).unwrap().subvolume(5).unwrap();
    let error = Inventory::of(&top, &Limits::default()).unwrap_err();
    let is_named = matches!(&error, Error::File { path, .. } if **path == *b"dir/second");
    assert!(is_named, "{error}");
}
