//! The tables by which the work was decided that this project continues, measured again: `cargo xtask tables`.
//!
//! Each table has a record (`bench/record/published/NAME.csv`), from which its part of `docs/published.md` and its plot are made.

/// Copies of a corpus on btrfs.
mod btrfs;
/// Codecs as a device calls them.
mod device;
/// Compression and decompression through a device.
mod devices;
/// A tar archive on btrfs.
mod extract;
/// Buffers hashed.
mod hash;
/// zstd by its levels.
mod levels;
/// Tables and plots.
mod page;
/// Peers in C that are built when they are needed.
mod peers;
/// What was measured.
mod record;
/// What is asked for, data, directories, processes.
mod settings;
/// SquashFS images.
mod squashfs;
/// Send streams.
mod streams;
mod work;

use std::path::Path;
use std::time::Instant;

use clap::Parser;

use page::{Place, Shown};
use record::Record;
use settings::Settings;

/// A table of docs/published.md.
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    /// Measures it, and verifies what comes out.
    measure: fn(&Settings, &mut Record) -> Result<(), String>,
    /// Makes text and a drawing of the record.
    show: fn(&Record) -> Shown,
}

/// All of them, in the order of the page.
pub(crate) const TABLES: &[Table] = &[
    Table {
        name: "devices",
        help: "Ratio against speed of each method through a device, in both directions",
        measure: devices::measure,
        show: devices::show,
    },
    Table {
        name: "squashfs",
        help: "Ratio of SquashFS images against the speed of making and of reading them",
        measure: squashfs::measure,
        show: squashfs::show,
    },
    Table {
        name: "hash",
        help: "Speed of hashes by the size of the buffer",
        measure: hash::measure,
        show: hash::show,
    },
    Table {
        name: "levels",
        help: "Ratio against speed of levels -15 to 15, in both directions",
        measure: levels::measure,
        show: levels::show,
    },
    Table {
        name: "streams",
        help: "Elapsed time of sending and receiving, by mode",
        measure: streams::measure,
        show: streams::show,
    },
    Table {
        name: "btrfs",
        help: "Ratio on btrfs against the speed of writing and of reading",
        measure: btrfs::measure,
        show: btrfs::show,
    },
    Table {
        name: "extract",
        help: "Time to copy a tar archive, to extract it and to read the tree",
        measure: extract::measure,
        show: extract::show,
    },
];

/// Measures the tables that are named, or all.
pub(crate) fn tables(arguments: &[String]) -> Result<(), String> {
    let words = std::iter::once("cargo xtask tables".to_owned()).chain(arguments.iter().cloned());
    let settings = Settings::parse_from(words);
    let unknown = |name: &&String| !TABLES.iter().any(|table| table.name == **name);
    if let Some(name) = settings.names.iter().find(unknown) {
        let names: Vec<_> = TABLES.iter().map(|table| table.name).collect();
        return Err(format!(
            "no table is called {name}; there are {}",
            names.join(", ")
        ));
    }
    let place = match settings.out() {
        Some(dir) => Place::other(dir)?,
        None => Place::docs(),
    };
    let is_named = |table: &&Table| {
        settings.names.is_empty() || settings.names.iter().any(|name| name == table.name)
    };
    for table in TABLES.iter().filter(is_named) {
        if settings.again {
            if place.record(table.name).exists() {
                place.put(table)?;
            }
            continue;
        }
        println!("{}: {}", table.name, table.help);
        let start = Instant::now();
        let mut record = Record::default();
        page::circumstances(&mut record);
        (table.measure)(&settings, &mut record).map_err(|why| format!("{}: {why}", table.name))?;
        record.say("seconds", format!("{:.0}", start.elapsed().as_secs_f64()));
        place.keep(table, &record)?;
        println!("{}\n", page::show(table, &record).text);
    }
    Ok(())
}

/// The address space that a device takes, printed by a process of its own.
pub(crate) fn device_memory(arguments: &[String]) -> Result<(), String> {
    let [_, direction, method, who, file] = arguments else {
        return Err("direction, method, who and file are needed".into());
    };
    devices::print_memory(direction, method, who, Path::new(file))
}
