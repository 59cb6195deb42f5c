//! Packs a directory into a tar archive: `cargo run -p restow-tree --example pack -- DIRECTORY
//! ARCHIVE`.
use std::error::Error;
use std::path::Path;

use tree::{HostDir, Inventory, Limits, NoProgress, Output, Parallel};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(from), Some(to)) = (arguments.next(), arguments.next()) else {
        return Err("usage: pack DIRECTORY ARCHIVE".into());
    };
    let directory = HostDir::open(Path::new(&from))?;
    let inventory = Inventory::of(&directory, &Limits::default())?;
    // The archive gets its name when it is complete and on disk.
    let mut output = Output::create(Path::new(&to), false)?;
    let parallel = Parallel::available();
    tree::tar::write(&inventory, false, parallel, &NoProgress, &mut output)?;
    output.commit()?;
    Ok(())
}
