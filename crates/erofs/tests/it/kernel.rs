//! The committed images are what Linux shows, so that their manifests are right.

use std::fs;

use testkit::{FsType, Mount, TempDir, golden};
use tree::manifest::Manifest;
use tree::{Aspects, HostDir};

use crate::hand::{RareImage, rare};
use crate::hostile::with_deflate;
use crate::vectors::{IMAGES, findings, open, path};

#[test]
#[ignore = "needs root"]
fn linux_shows_the_manifests() {
    for name in IMAGES {
        let mount = Mount::read_only(path(name, "erofs"), FsType::Erofs);
        let dir = HostDir::open(mount.path()).unwrap();
        let manifest = Manifest::of(&dir, &Aspects::default()).unwrap();
        golden(path(name, "manifest"), manifest.as_str());
        drop(dir);
        mount.unmount();
    }
}

#[test]
#[ignore = "needs root"]
fn linux_shows_forms_that_no_mkfs_makes() {
    let dir = TempDir::new();
    for RareImage {
        name,
        image,
        content,
    } in rare(4096)
    {
        // Linux 6.18 knows neither form of holes; of those by a mark, it reads the zeros.
        if name == "holes by a count" {
            continue;
        }
        let path = dir.join("image");
        fs::write(&path, image).unwrap();
        let mount = Mount::read_only(&path, FsType::Erofs);
        let is = fs::read(mount.path().join("file")).unwrap();
        assert!(is == content, "{name}");
        mount.unmount();
    }
}

#[test]
#[ignore = "needs root"]
fn linux_refuses_deflate_as_the_check_does() {
    let dir = TempDir::new();
    let path = dir.join("image");
    let ends = (1..6).chain([100]).map(|behind| (behind, 0));
    for place in ends.chain([(1, 5000), (4096, 4)]) {
        for (is_partial, size) in [(false, 30_000), (true, 30_000), (false, 29_999)] {
            let image = with_deflate(place, is_partial, size);
            fs::write(&path, &image).unwrap();
            let mount = Mount::read_only(&path, FsType::Erofs);
            let is = fs::read(mount.path().join("file"));
            mount.unmount();
            let found = findings(&open(image).unwrap());
            assert_eq!(
                is.is_ok(),
                found.is_empty(),
                "{place:?} {is_partial}: {found}"
            );
        }
    }
}
