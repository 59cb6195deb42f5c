//! Lists the files of a SquashFS image: `cargo run -p restow-squashfs --example list -- IMAGE`.
use std::error::Error;
use std::fs::File;
use std::io::{Write, stdout};

use squashfs::Squashfs;
use tree::{Inventory, Limits};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: list IMAGE")?;
    let image = Squashfs::open(File::open(path)?)?;
    // The limits bound memory: an image from a stranger can claim anything.
    let inventory = Inventory::of(&image, &Limits::default())?;
    let mut out = stdout().lock();
    for entry in inventory.names() {
        let size = inventory.size(inventory.file(entry));
        write!(out, "{size:>12} ")?;
        // Names are bytes.
        out.write_all(&inventory.path(entry))?;
        out.write_all(b"\n")?;
    }
    Ok(())
}
