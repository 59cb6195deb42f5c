//! Tests of container images.

mod chunked; // layers with a table of contents
mod hostile; // layouts that are damaged or mean harm
mod layouts; // images in directories and archives, compressed and not
mod rules; // how layers are merged

use std::path::Path;
use std::sync::Arc;

use oci::LayoutKind;
use testkit::ImageLayout;
use tree::tar::{Tar, TarOptions};
use tree::{FileKind, FileSystem, Inventory, Limits, Result};

/// A layout in an archive.
fn open(layout: &ImageLayout) -> Result<oci::ImageLayout> {
    let archive = Tar::open(Box::new(layout.archive()), Limits::default())?;
    let kind = oci::ImageLayout::kind_of(&archive).unwrap_or(LayoutKind::Oci);
    oci::ImageLayout::open(Arc::new(archive), kind)
}

/// The tree of its first image.
fn tree_of(layout: &ImageLayout) -> Result<Tar> {
    let layout = open(layout)?;
    let image = layout.image(&layout.images()[0])?;
    let options = TarOptions::default();
    let layers = layout.open_layers(&image, None, Path::new("/tmp"), limits(), options)?;
    Ok(layers.archives.expect("all layers are archives"))
}

fn limits() -> Limits {
    Limits {
        inodes_max: 100_000,
        ..Limits::default()
    }
}

/// A tree in the notation of [`testkit::layer`].
fn notation(tree: &dyn FileSystem) -> Vec<String> {
    let inventory = Inventory::of(tree, &limits()).unwrap();
    let lines = inventory.names().filter_map(|name| {
        let file = inventory.file(name);
        let ino = inventory.ino(file);
        let metadata = tree.metadata(ino).unwrap();
        let path = String::from_utf8(inventory.path(name)).unwrap();
        if path.is_empty() {
            return None;
        }
        let (line, usual) = match metadata.kind {
            FileKind::Directory => (path + "/", 0o755),
            FileKind::Symlink => {
                let target = String::from_utf8(tree.read_link(ino).unwrap()).unwrap();
                (format!("{path}>{target}"), 0o777)
            }
            FileKind::Regular => {
                let mut content = vec![0; metadata.size as usize];
                tree.read_at(ino, 0, &mut content).unwrap();
                let content = String::from_utf8(content).unwrap();
                let links = match metadata.nlink {
                    1 => String::new(),
                    count => format!("*{count}"),
                };
                (format!("{path}={content}{links}"), 0o644)
            }
            _ => (path + "|", 0o644),
        };
        let mode = metadata.permissions;
        Some(if mode == usual {
            line
        } else {
            format!("{line}@{mode:o}")
        })
    });
    let mut lines: Vec<String> = lines.collect();
    lines.sort();
    lines
}
