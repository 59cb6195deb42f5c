//! A small tree with one of everything in the format.

use super::{RawKind, RawNode, RawSquashfs, RawXattr};
use crate::Rng;

/// Compressible content.
fn text(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let words = ["tar ", "feather ", "rope ", "anchor ", "keel\n"];
    let mut text = Vec::new();
    while text.len() < len {
        text.extend(words[rng.index(words.len())].as_bytes());
    }
    text.truncate(len);
    text
}

fn node(name: &str, kind: RawKind) -> RawNode {
    RawNode {
        name: name.to_owned(),
        kind,
        extended: false,
        xattrs: None,
    }
}

fn extended(node: RawNode, xattrs: Option<u32>) -> RawNode {
    RawNode {
        extended: true,
        xattrs,
        ..node
    }
}

/// The sample: 4 KiB blocks, files with and without tails, blocks and holes, a directory whose
/// listing is longer than a metadata block and has an index, hard and symbolic links, devices, and
/// attributes in both forms.
pub fn sample_tree(codec: u16, encode: &dyn Fn(&[u8]) -> Option<Vec<u8>>) -> RawSquashfs<'_> {
    let file = |name: &str, content: Vec<u8>, tail: bool| node(name, RawKind::File(content, tail));
    let many = (0..300).map(|n| file(&format!("{n:03}-{}", "x".repeat(24)), Vec::new(), true));
    let noise = Rng::new(1).bytes(6000);
    let mut hole = vec![0; 8192];
    hole.extend(text(1, 4096));
    let root = RawKind::Directory(vec![
        extended(node("big", RawKind::Directory(many.collect())), None),
        file("blocks", text(2, 3 * 4096), false),
        node("disk", RawKind::Device(true, 0x0801)),
        file("empty", Vec::new(), false),
        extended(node("fifo", RawKind::Fifo), Some(0)),
        node("hard", RawKind::Link("blocks".to_owned())),
        extended(file("hole", hole, false), None),
        node("link-a", RawKind::Symlink("../outside".to_owned())),
        node(
            "link-b",
            RawKind::Directory(vec![file("loot", b"loot".to_vec(), true)]),
        ),
        file("mixed", text(3, 2 * 4096 + 500), true),
        file("noise", noise, false),
        node("null", RawKind::Device(false, 0x0103)),
        extended(node("soft", RawKind::Symlink("sub/tail".to_owned())), None),
        node(
            "sub",
            RawKind::Directory(vec![
                node(
                    "deep",
                    RawKind::Directory(vec![file("file", text(4, 100), true)]),
                ),
                node("nothing", RawKind::Directory(Vec::new())),
                file("tail", text(5, 3000), true),
                extended(file("with", text(6, 5000), true), Some(1)),
            ]),
        ),
        node("wire", RawKind::Socket),
        extended(node("zone", RawKind::Directory(Vec::new())), Some(2)),
    ]);
    let xattr = |namespace: u16, name: &str, value: &[u8], elsewhere: bool| RawXattr {
        namespace,
        name: name.to_owned(),
        value: value.to_vec(),
        elsewhere,
    };
    let long = [b'v'; 5000];
    let mut root = node("", root);
    // Only the extended form can state that a file has two names.
    if let RawKind::Directory(nodes) = &mut root.kind {
        nodes[1].extended = true;
    }
    RawSquashfs {
        codec,
        encode,
        block_log: 12,
        root,
        ids: vec![0, 1000],
        xattrs: vec![
            vec![xattr(1, "t", b"a value", false)],
            vec![
                xattr(0, "long", &long, false),
                xattr(2, "label", b"a value", true),
            ],
            vec![xattr(0, "empty", b"", false), xattr(0, "same", &long, true)],
        ],
    }
}

/// A small part of the sample, so that its image is small: a seed for fuzzing.
pub fn small_tree(codec: u16, encode: &dyn Fn(&[u8]) -> Option<Vec<u8>>) -> RawSquashfs<'_> {
    let mut tree = sample_tree(codec, encode);
    if let RawKind::Directory(nodes) = &mut tree.root.kind {
        nodes.retain(|node| !matches!(&*node.name, "blocks" | "hard" | "mixed" | "noise"));
        for node in nodes {
            if let RawKind::Directory(nodes) = &mut node.kind {
                nodes.truncate(3);
            }
        }
    }
    for set in &mut tree.xattrs {
        for xattr in set {
            xattr.value.truncate(20);
        }
    }
    tree
}
