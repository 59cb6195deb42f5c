//! Lists the subvolumes of a btrfs image: `cargo run -p restow-btrfs --example subvolumes --
//! IMAGE...`.
use std::error::Error;
use std::fs::File;
use std::io::{Write, stdout};

use btrfs::{Btrfs, OpenOptions};
use tree::ReadAt;

fn main() -> Result<(), Box<dyn Error>> {
    // A file system on several devices has an image for each.
    let mut images: Vec<Box<dyn ReadAt>> = Vec::new();
    for path in std::env::args_os().skip(1) {
        images.push(Box::new(File::open(path)?));
    }
    let btrfs = Btrfs::open_with(images, &OpenOptions::default())?;
    let mut out = stdout().lock();
    for subvolume in btrfs.subvolumes()? {
        let path = subvolume.path.unwrap_or_default();
        writeln!(out, "{:>6} /{}", subvolume.id, path.escape_ascii())?;
    }
    Ok(())
}
