//! What the check finds wrong with images that can be read, and of which Linux shows something
//! else, or nothing.

use squashfs::Squashfs;
use testkit::{Part, RawKind, RawSquashfs, sample_tree};
use tree::{CheckOptions, NoProgress, Parallel};

/// What the check finds wrong with the image of a tree.
fn findings(tree: &RawSquashfs, edit: &mut dyn FnMut(Part<'_>, &mut Vec<u8>)) -> Vec<String> {
    let image = Squashfs::open(tree.build(edit).bytes).unwrap();
    let mut found = Vec::new();
    let mut report = |finding: tree::Finding| found.push(finding.to_string());
    let everything = CheckOptions::EVERYTHING;
    let checked = image.check(everything, Parallel::new(2), &NoProgress, &mut report);
    assert_eq!(checked.unwrap().findings, found.len() as u64);
    found
}

/// A changed field: what it is, the inode it is in, its place, its new value, and what the check
/// says.
type Case = (
    &'static str,
    Part<'static>,
    usize,
    &'static [u8],
    &'static str,
);

const CASES: &[Case] = &[
    (
        "an entry with the inode number of another file",
        Part::Listing("link-b"),
        12 + 2,
        &[5, 0],
        "directory entry has the wrong inode number",
    ),
    (
        "a mode with the bits of a file type",
        Part::Inode("blocks"),
        2,
        &[0xa4, 0x81],
        "inode's mode has bits of a file type",
    ),
    (
        "an empty file with a fragment",
        Part::Inode("empty"),
        20,
        &[0; 4],
        "file without a tail has a fragment",
    ),
    (
        "a file without names",
        Part::Inode("wire"),
        16,
        &[0; 4],
        "inode has a link count of 0",
    ),
    (
        "a directory without names",
        Part::Inode("sub/deep"),
        20,
        &[0; 4],
        "inode has a link count of 0",
    ),
    (
        "a directory with another parent",
        Part::Inode("sub/deep"),
        28,
        &[1, 0, 0, 0],
        "directory's inode names the wrong parent",
    ),
    (
        "an index that leads into a run",
        Part::Inode("big"),
        40,
        &[12, 0, 0, 0],
        "directory index leads to no run of its listing",
    ),
    (
        "an index that leads to another metadata block",
        Part::Inode("big"),
        44,
        &[0; 4],
        "directory index leads to no run of its listing",
    ),
    (
        "an owner that Linux takes for none",
        Part::Table("ids"),
        0,
        &[0xff; 4],
        "file's owner is the reserved number 2^32 - 1",
    ),
    (
        "a table of extended attributes without sets",
        Part::List("xattr ids"),
        8,
        &[0; 4],
        "table of extended attributes has no sets",
    ),
    (
        "names and values of extended attributes that begin elsewhere",
        Part::List("xattr ids"),
        0,
        &[0xf0],
        "table's list does not end where the next begins",
    ),
    (
        "a table of fragments that cannot be read",
        Part::Metadata("fragments", 0),
        0,
        &[0, 0x80],
        "metadata block's stored length is impossible",
    ),
];

#[test]
fn what_linux_shows_otherwise_is_found() {
    let tree = sample_tree(1, &|_| None);
    assert_eq!(findings(&tree, &mut |_, _| ()), [""; 0]);
    for &(name, wanted, at, value, words) in CASES {
        let found = findings(&tree, &mut |part, bytes| {
            if part == wanted {
                assert_ne!(
                    &bytes[at..at + value.len()],
                    value,
                    "{name} changes nothing"
                );
                bytes[at..at + value.len()].copy_from_slice(value);
            }
        });
        let is_found = found.iter().any(|finding| finding.contains(words));
        assert!(is_found, "{name}: {found:?}");
    }
}

/// Linux reads targets of less than a page, and cuts longer ones.
#[test]
fn symbolic_links_longer_than_linux_follows_are_found() {
    for (len, is_found) in [(4095, false), (4096, true)] {
        let mut tree = sample_tree(1, &|_| None);
        if let RawKind::Directory(nodes) = &mut tree.root.kind {
            let link = nodes.iter_mut().find(|node| node.name == "link-a");
            link.unwrap().kind = RawKind::Symlink("x".repeat(len));
        }
        let found = findings(&tree, &mut |_, _| ());
        let words = "symbolic link's target is longer than Linux follows";
        assert_eq!(
            found.iter().any(|finding| finding.contains(words)),
            is_found
        );
        assert_eq!(found.len(), usize::from(is_found), "{found:?}");
    }
}

/// Linux does not mount it.
#[test]
fn an_lz4_image_without_its_options_is_found() {
    for with_options in [false, true] {
        let found = findings(&sample_tree(5, &|_| None), &mut |part, bytes| {
            if with_options && part == Part::Options {
                bytes.extend([8, 0x80, 1, 0, 0, 0, 0, 0, 0, 0]);
            }
        });
        let must: &[&str] = if with_options {
            &[]
        } else {
            &["lz4 image has no record of its options"]
        };
        assert_eq!(found.len(), must.len(), "{found:?}");
        assert!(found.iter().zip(must).all(|(is, must)| is.contains(must)));
    }
}

/// Linux allocates the dictionary that the options name, and metadata needs 8 KiB.
#[test]
fn an_xz_image_with_a_short_dictionary_is_found() {
    for (dictionary_bytes, is_found) in [(8192_u32, false), (4096, true)] {
        let found = findings(&sample_tree(4, &|_| None), &mut |part, bytes| {
            if part == Part::Options {
                bytes.extend([8, 0x80]);
                bytes.extend(dictionary_bytes.to_le_bytes());
                bytes.extend([0; 4]);
            }
        });
        let words = "xz image has a dictionary shorter than a metadata block";
        assert_eq!(
            found.iter().any(|finding| finding.contains(words)),
            is_found
        );
        assert_eq!(found.len(), usize::from(is_found), "{found:?}");
    }
}
