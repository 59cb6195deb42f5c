//! Use of space, of trees in memory.

use testkit::MemoryFs;
use tree::usage::{All, ByExtents, NodeKind, StorageForm, Totals, Types, UsageTree, measure};
use tree::{
    DirEntry, Encoding, Error, Extent, ExtentId, ExtentKind, FileKind, FileSystem, NoProgress,
    Result,
};

fn root(fs: &MemoryFs) -> DirEntry {
    DirEntry {
        name: Box::default(),
        ino: fs.root(),
        kind: FileKind::Directory,
    }
}

fn measured(fs: &MemoryFs, nodes: &mut UsageTree, types: &mut Types) -> Result<Totals> {
    let visitors = &mut All(vec![nodes, types]);
    measure(fs, &ByExtents(fs), (&root(fs), b""), &NoProgress, visitors)
}

/// An extent of 100 stored bytes that decode to 1000.
fn encoded(id: u64, begin: u64, len: u64) -> Extent {
    let encoding = Encoding {
        algorithm: codec::Algorithm::Zstd,
        stored_len: 100,
        unencoded_len: 1000,
        unencoded_offset: begin,
    };
    Extent {
        offset: 0,
        len,
        kind: ExtentKind::Encoded(encoding),
        id: Some(ExtentId(id)),
    }
}

#[test]
fn sums_of_directories_and_types_are_the_total() {
    let mut fs = MemoryFs::new();
    let top = fs.root();
    let a = fs.add_dir(top, "a");
    let deep = fs.add_dir(a, "deep");
    let deeper = fs.add_dir(deep, "deeper");
    for (dir, name) in [(deeper, "x.txt"), (a, "y.txt"), (top, "z.bin")] {
        let file = fs.add_file(dir, name, &[1; 1000]);
        // The first two share an extent: the one in `a/deep` comes first.
        let id = u64::from(name == "z.bin");
        fs.lie_about_extents(file, vec![encoded(id, 0, 1000)]);
    }
    let linked = fs.add_sparse(deep, "first", 10_000, &[(5000, &[2; 700])]);
    fs.link(top, "second", linked);
    for number in 0..20 {
        fs.add_file(deep, format!("f{number:02}"), &vec![3; 10 + number]);
    }
    fs.add_symlink(top, "link", b"a");
    let (mut nodes, mut types) = (UsageTree::new(5, 2), Types::default());
    let totals = measured(&fs, &mut nodes, &mut types).unwrap();
    let small: u64 = (10..30).sum();
    let zstd = totals.of(StorageForm::Encoded("zstd"));
    assert_eq!((zstd.extents, zstd.references), (2, 3));
    assert_eq!(
        (zstd.stored, zstd.decoded, zstd.referenced),
        (200, 2000, 3000)
    );
    assert_eq!(
        (totals.files, totals.directories, totals.others),
        (25, 4, 1)
    );
    assert_eq!(totals.shared_bytes, 100);
    assert_eq!(totals.of(StorageForm::Plain).referenced, small + 2 * 700);
    assert_eq!(totals.hole_bytes, 2 * 9300);

    let all = nodes.all();
    assert_eq!((all[0].amount, all[0].files), (totals.total(), 25));
    let by_type = types.sorted();
    let sum: u64 = by_type.iter().map(|(_, _, amount)| amount.stored).sum();
    assert_eq!(sum, totals.total().stored);
    let paths = |depth| {
        let listed = nodes.directories(depth).into_iter();
        let paths = listed.map(|at| String::from_utf8(nodes.path(at)).unwrap());
        paths.collect::<Vec<_>>()
    };
    assert_eq!(paths(1), ["a"]);
    // What is deeper has no node of its own, and is part of the sum.
    assert_eq!(paths(9), ["a", "a/deep"]);
    let deep = nodes.directories(2)[1];
    let in_deep: Vec<_> = all.iter().filter(|it| it.parent as usize == deep).collect();
    let others = in_deep
        .iter()
        .find(|it| it.kind == NodeKind::Others)
        .unwrap();
    assert_eq!((others.files, others.amount.stored), (16, (10..26).sum()));
    let children: u64 = in_deep.iter().map(|it| it.amount.stored).sum();
    assert_eq!(children, all[deep].amount.stored);
    assert_eq!(all[deep].amount.stored, small + 700 + 100);
    let a = nodes.directories(1)[0];
    assert_eq!(
        all[a].amount.stored, all[deep].amount.stored,
        "y.txt shares what x.txt has"
    );
}

#[test]
fn a_directory_within_itself_is_an_error() {
    let mut fs = MemoryFs::new();
    let top = fs.root();
    let dir = fs.add_dir(top, "d");
    fs.push_entry(dir, "again", dir, FileKind::Directory);
    let (mut nodes, mut types) = (UsageTree::new(5, 2), Types::default());
    match measured(&fs, &mut nodes, &mut types) {
        Err(Error::File { path, .. }) => assert_eq!(&*path, b"d/again"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn directories_may_be_deeper_than_any_stack() {
    let mut fs = MemoryFs::new();
    let mut dir = fs.root();
    for _ in 0..20_000 {
        dir = fs.add_dir(dir, "d");
    }
    fs.add_file(dir, "f", b"12345");
    let (mut nodes, mut types) = (UsageTree::new(5, 64), Types::default());
    let totals = measured(&fs, &mut nodes, &mut types).unwrap();
    assert_eq!((totals.directories, totals.total().stored), (20_001, 5));
    assert!(nodes.all().len() < 70);
    assert_eq!(nodes.all()[0].amount.stored, 5);
}
