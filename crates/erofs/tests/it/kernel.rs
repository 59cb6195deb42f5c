//! The committed images are what Linux shows, so that their manifests are right.

use testkit::{FsType, Mount, golden};
use tree::manifest::Manifest;
use tree::{Aspects, HostDir};

use crate::vectors::{IMAGES, path};

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
