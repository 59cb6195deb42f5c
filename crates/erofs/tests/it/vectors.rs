//! Committed images give the trees that they were made from.

use std::fs;
use std::path::{Path, PathBuf};

use erofs::Erofs;
use testkit::golden;
use tree::manifest::Manifest;
use tree::{Aspects, ByPath, CheckOptions, ExtentKind, FileSystem, NoProgress, Parallel};

use crate::hand::{RareImage, rare};

/// The names of the images.
pub(crate) const IMAGES: [&str; 10] = [
    "plain",
    "chunks",
    "lz4-legacy",
    "lz4",
    "lz4-fragments",
    "small-blocks",
    "records",
    "deflate",
    "lzma",
    "metabox",
];

pub(crate) fn path(name: &str, extension: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("testdata/{name}.{extension}"))
}

pub(crate) fn read(name: &str) -> Vec<u8> {
    fs::read(path(name, "erofs")).unwrap()
}

pub(crate) fn open(image: Vec<u8>) -> tree::Result<Erofs> {
    Erofs::open(vec![Box::new(image)])
}

/// The findings of a check, one a line.
pub(crate) fn findings(image: &Erofs) -> String {
    let mut words = String::new();
    let options = CheckOptions::EVERYTHING;
    let mut report = |finding: tree::Finding| words += &format!("{finding}\n");
    let checked = image.check(options, Parallel::new(2), &NoProgress, &mut report);
    assert!(checked.unwrap().findings >= words.lines().count() as u64);
    words
}

#[test]
fn images_have_the_content_of_their_manifests_and_no_fault() {
    for name in IMAGES {
        let image = open(read(name)).unwrap();
        let manifest = Manifest::of(&image, &Aspects::default()).unwrap();
        golden(path(name, "manifest"), manifest.as_str());
        assert_eq!(findings(&image), "", "{name}");
    }
}

#[test]
fn forms_that_no_mkfs_makes_are_read() {
    for RareImage {
        name,
        image,
        content,
    } in rare(4096)
    {
        let image = open(image).unwrap();
        assert_eq!(findings(&image), "", "{name}");
        let file = image.find("file").unwrap().ino;
        assert!(image.read("file").unwrap() == content, "{name}");
        let extents = image.extents(file, 0).unwrap();
        let holes = (extents.iter()).filter(|extent| extent.kind == ExtentKind::Hole);
        assert_eq!(holes.map(|hole| hole.len).sum::<u64>(), 8192, "{name}");
    }
}
