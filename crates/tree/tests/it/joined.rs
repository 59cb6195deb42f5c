//! Several trees as one.

use std::collections::HashSet;
use std::sync::Arc;

use testkit::MemoryFs;
use tree::{Error, FileKind, FileSystem, Graft, Ino, Inventory, Joined, Limits};

/// The path of a graft.
fn path(path: &str) -> Vec<Box<[u8]>> {
    let names = path.split('/').filter(|name| !name.is_empty());
    names.map(|name| name.as_bytes().into()).collect()
}

fn ino(tree: &dyn FileSystem, path: &str) -> Ino {
    let names = path.split('/');
    names.fold(tree.root(), |dir, name| {
        tree.lookup(dir, name.as_bytes()).unwrap().ino
    })
}

fn content(tree: &dyn FileSystem, path: &str) -> Vec<u8> {
    let mut content = [0; 16];
    let len = tree.read_at(ino(tree, path), 0, &mut content).unwrap();
    content[..len].to_vec()
}

/// The paths of all files but the root.
fn paths(tree: &dyn FileSystem) -> Vec<String> {
    let inventory = Inventory::of(tree, &Limits::default()).unwrap();
    let names = inventory.names().skip(1);
    names
        .map(|entry| String::from_utf8(inventory.path(entry)).unwrap())
        .collect()
}

/// A tree of `dir/sub/f`, whose content this is, with a second name `dir/link`.
fn sample(content: &[u8]) -> Arc<dyn FileSystem> {
    let mut tree = MemoryFs::new();
    let dir = tree.add_dir(tree.root(), "dir");
    let sub = tree.add_dir(dir, "sub");
    let file = tree.add_file(sub, "f", content);
    tree.link(dir, "link", file);
    Arc::new(tree)
}

#[test]
fn no_trees_are_an_empty_directory() {
    let empty = Joined::new(Vec::new()).unwrap();
    assert_eq!(paths(&empty), [""; 0]);
    let root = empty.metadata(empty.root()).unwrap();
    assert_eq!((root.kind, root.permissions), (FileKind::Directory, 0o755));
    assert!(matches!(empty.metadata(Ino(7)), Err(Error::NotFound)));
}

#[test]
fn files_of_the_first_tree_keep_their_numbers() {
    let base = sample(b"base");
    let grafts = vec![
        Graft::at(Vec::new(), Arc::clone(&base)),
        Graft::at(path("dir/z"), sample(b"z")),
        Graft::at(path("dir/a"), sample(b"a")),
    ];
    let joined = Joined::new(grafts).unwrap();
    for path in ["dir", "dir/sub", "dir/sub/f", "dir/link"] {
        assert_eq!(ino(&joined, path), ino(&*base, path), "{path}");
    }
    assert_eq!(joined.root(), base.root());
    assert_eq!(content(&joined, "dir/z/dir/sub/f"), b"z");
    assert_eq!(content(&joined, "dir/a/dir/link"), b"a");
    let inventory = Inventory::of(&joined, &Limits::default()).unwrap();
    assert_eq!((inventory.file_count(), inventory.entry_count()), (12, 15));
    let numbers: HashSet<Ino> = inventory.files().map(|file| inventory.ino(file)).collect();
    assert_eq!(numbers.len(), 12);
}

#[test]
fn directories_of_several_trees_have_the_entries_of_all() {
    let mut over = MemoryFs::new();
    let dir = over.add_dir(over.root(), "dir");
    let sub = over.add_dir(dir, "sub");
    over.add_file(sub, "f", b"over");
    over.add_file(sub, "g", b"new");
    let grafts = [sample(b"under"), Arc::new(over)].map(|tree| Graft::at(path("in"), tree));
    let joined = Joined::new(grafts.into()).unwrap();
    let must = [
        "in",
        "in/dir",
        "in/dir/link",
        "in/dir/sub",
        "in/dir/sub/f",
        "in/dir/sub/g",
    ];
    assert_eq!(paths(&joined), must);
    assert_eq!(content(&joined, "in/dir/sub/f"), b"over");
    assert_eq!(content(&joined, "in/dir/link"), b"under");
    assert_eq!(joined.replaced(), 1);
}

/// The numbers of a joined tree are large, and more trees than numbers tell apart are joined.
#[test]
fn numbers_that_say_too_little_are_replaced() {
    let inner = || {
        let one = Graft::at(Vec::new(), sample(b"1"));
        let two = Graft::at(path("two"), sample(b"2"));
        Arc::new(Joined::new(vec![one, two]).unwrap())
    };
    let many = (0..1100).map(|number| Graft::at(path(&format!("{number:04}")), inner()));
    let joined = Joined::new(many.collect()).unwrap();
    for number in ["0000", "0001", "1099"] {
        assert_eq!(content(&joined, &format!("{number}/dir/sub/f")), b"1");
        let in_two = format!("{number}/two/dir");
        assert_eq!(content(&joined, &format!("{in_two}/sub/f")), b"2");
        let (file, link) = (format!("{in_two}/sub/f"), format!("{in_two}/link"));
        assert_eq!(ino(&joined, &file), ino(&joined, &link));
    }
    let inventory = Inventory::of(&joined, &Limits::default()).unwrap();
    assert_eq!(inventory.file_count(), 1 + 1100 * 8);
}
