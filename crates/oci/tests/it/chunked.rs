//! Layers with a table of contents (zstd:chunked), which are read in place.

use std::fmt::Write as _;

use codec::Wrapper;
use testkit::{ImageLayout, layer};
use tree::{ByPath, sha256};

use crate::layouts::packed;
use crate::{notation, tree_of};

/// A layer under construction.
pub(crate) struct Chunked {
    archive: Vec<u8>,
    stored: Vec<u8>,
    entries: Vec<String>,
}

fn digest(bytes: &[u8]) -> String {
    let digits = sha256(bytes).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    });
    format!("sha256:{digits}")
}

impl Chunked {
    /// A layer of members in the notation of [`layer`], with content in parts of this length.
    pub(crate) fn of(members: &[&str], part_bytes: usize) -> Chunked {
        let mut chunked = Chunked {
            archive: Vec::new(),
            stored: Vec::new(),
            entries: Vec::new(),
        };
        for member in members {
            chunked.add(member, part_bytes);
        }
        chunked.archive.extend([0; 1024]);
        chunked.stored.extend(packed(Wrapper::Zstd, &[0; 1024]));
        chunked
    }

    fn add(&mut self, member: &str, part_bytes: usize) {
        let bytes = layer([member]);
        let (header, content) = bytes[..bytes.len() - 1024].split_at(512);
        self.archive.extend(header);
        self.archive.extend(content);
        self.stored.extend(packed(Wrapper::Zstd, header));
        let name = member.split(['=', '>', '^']).next().unwrap();
        let target = member.split(['>', '^']).nth(1).unwrap_or_default();
        let content = member.split_once('=').map_or("", |it| it.1).as_bytes();
        let (kind, mode) = match &member[name.len()..member.len().min(name.len() + 1)] {
            "=" => ("reg", 0o644),
            ">" => ("symlink", 0o777),
            "^" => ("hardlink", 0o644),
            _ => ("dir", 0o755),
        };
        let mut starts = Vec::new();
        for part in content.chunks(part_bytes) {
            starts.push((self.stored.len(), part));
            self.stored.extend(packed(Wrapper::Zstd, part));
        }
        let end = self.stored.len();
        let mut entry = format!(
            r#"{{"type":"{kind}","name":"{name}","linkName":"{target}","mode":{mode},"size":{},"modtime":"2020-09-13T12:26:40Z","accesstime":"0001-01-01T00:00:00Z""#,
            content.len()
        );
        if let Some((at, _)) = starts.first() {
            let digest = digest(content);
            write!(
                entry,
                r#","offset":{at},"endOffset":{end},"digest":"{digest}""#
            )
            .unwrap();
        }
        if starts.len() > 1 {
            for (number, (at, part)) in starts.iter().enumerate() {
                if number > 0 {
                    self.entries.push(entry + "}");
                    let at_file = number * part_bytes;
                    entry = format!(
                        r#"{{"type":"chunk","name":"{name}","offset":{at},"chunkOffset":{at_file}"#
                    );
                }
                let (len, digest) = (part.len(), digest(part));
                write!(entry, r#","chunkSize":{len},"chunkDigest":"{digest}""#).unwrap();
            }
        }
        self.entries.push(entry + "}");
        let padding = content.len().next_multiple_of(512) - content.len();
        self.stored.extend(packed(Wrapper::Zstd, &vec![0; padding]));
    }

    /// The text of the table.
    pub(crate) fn table(&self) -> String {
        format!(r#"{{"version":1,"entries":[{}]}}"#, self.entries.join(","))
    }

    /// An image of the layer, with this table in it.
    pub(crate) fn image(&self, table: &str) -> ImageLayout {
        let table = packed(Wrapper::Zstd, table.as_bytes());
        let mut stored = self.stored.clone();
        stored.extend([0x50, 0x2a, 0x4d, 0x18]);
        stored.extend((table.len() as u32).to_le_bytes());
        let at = stored.len();
        stored.extend(&table);
        // The type is in a text of JSON, in which more fields can follow it.
        let prefix = "io.github.containers.zstd-chunked.manifest";
        let media_type = format!(
            r#"application/vnd.oci.image.layer.v1.tar+zstd","annotations":{{"{prefix}-checksum":"{}","{prefix}-position":"{at}:{}:0:1"}},"more":""#,
            digest(&table),
            table.len()
        );
        ImageLayout::default().with(
            "latest",
            "amd64",
            [(&*media_type, stored, self.archive.clone())],
        )
    }
}

pub(crate) const MEMBERS: [&str; 8] = [
    "d/",
    "d/one=abc",
    "d/many=0123456789abcdefghijklmnopqrstuvwxyz",
    "empty=",
    "link>d/one",
    "hard^d/many",
    "d/.wh.none=",
    "last=z",
];
const TREE: [&str; 6] = [
    "d/",
    "d/many=0123456789abcdefghijklmnopqrstuvwxyz*2",
    "d/one=abc",
    "empty=",
    "hard=0123456789abcdefghijklmnopqrstuvwxyz*2",
    "last=z",
];

/// The blob of the layer: the longest of the image.
fn blob(layout: &mut ImageLayout) -> &mut Vec<u8> {
    layout.files.values_mut().max_by_key(|it| it.len()).unwrap()
}

#[test]
fn only_the_table_and_wanted_parts_are_read() {
    let chunked = Chunked::of(&MEMBERS, 10);
    let mut layout = chunked.image(&chunked.table());
    let mut expected = TREE.map(str::to_owned).to_vec();
    expected.push("link>d/one".to_owned());
    assert_eq!(notation(&tree_of(&layout).unwrap()), expected);
    // Without everything but the table and the content of one file, that file is still there.
    let one = packed(Wrapper::Zstd, b"abc");
    let stored = blob(&mut layout);
    let at = stored.windows(one.len()).position(|it| it == one).unwrap();
    let end = chunked.stored.len();
    stored[4..at].fill(0xff);
    stored[at + one.len()..end].fill(0xff);
    let tree = tree_of(&layout).unwrap();
    assert_eq!(tree.read("d/one").unwrap(), b"abc");
    assert_eq!(tree.read("empty").unwrap(), b"");
    let words = tree.read("last").unwrap_err().to_string();
    assert!(words.contains("part of a file at byte"), "{words}");
}

#[test]
fn parts_and_tables_have_their_digests() {
    let chunked = Chunked::of(&MEMBERS, 10);
    // Another content of the same length.
    let mut layout = chunked.image(&chunked.table());
    let (right, wrong) = (packed(Wrapper::Zstd, b"abc"), packed(Wrapper::Zstd, b"abd"));
    assert_eq!(right.len(), wrong.len());
    let stored = blob(&mut layout);
    let at = stored
        .windows(right.len())
        .position(|it| it == right)
        .unwrap();
    stored[at..at + wrong.len()].copy_from_slice(&wrong);
    let words = tree_of(&layout)
        .unwrap()
        .read("d/one")
        .unwrap_err()
        .to_string();
    assert!(
        words.contains("does not have the digest in the table"),
        "{words}"
    );

    let mut layout = chunked.image(&chunked.table());
    *blob(&mut layout).last_mut().unwrap() ^= 1;
    let words = tree_of(&layout).err().unwrap().to_string();
    assert!(
        words.contains("content of a blob does not have its digest"),
        "{words}"
    );
}

#[test]
fn a_table_that_does_not_describe_the_layer_is_not_used() {
    let chunked = Chunked::of(&MEMBERS, 10);
    let table = chunked.table();
    for (from, to) in [
        (r#""version":1"#, r#""version":2"#),
        (r#""version":1"#, r#""version":1,"more":[{}]"#),
        (r#""type":"dir""#, r#""type":"other""#),
        // A name that is not UTF-8 in the archive.
        (r#""name":"last""#, "\"name\":\"l\u{fffd}st\""),
        (r#""chunkOffset":10"#, r#""chunkOffset":11"#),
        (r#""chunkSize":6"#, r#""chunkSize":5"#),
        (r#""size":3"#, r#""size":18446744073709551615"#),
        (r#""endOffset":"#, r#""endOffset":9"#),
        (r#""mode":420"#, r#""mode":-420"#),
        (r#""modtime":"2020"#, r#""modtime":"20200"#),
        ("]}", "]"),
    ] {
        assert!(table.contains(from), "{from}");
        let mut layout = chunked.image(&table.replace(from, to));
        assert_eq!(notation(&tree_of(&layout).unwrap()).len(), 7, "{to}");
        // Then the whole layer has to have its digest.
        blob(&mut layout)[4] ^= 1;
        assert!(tree_of(&layout).is_err(), "{to}");
    }
}
