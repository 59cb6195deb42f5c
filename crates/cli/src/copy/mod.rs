//! `restow copy`

mod args;
mod btrfs;
mod destination;
mod directory;
mod job;
mod readable;
mod squashfs;
mod tar;

use std::fs;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::ArgMatches;

use tree::Kept;

use crate::address::Address;
use crate::message::tell;
use crate::options::BtrfsArgs;
use crate::source::{Source, Unnamed};
use crate::text;
use args::refuse_what_does_not_apply;
use destination::{Kind, refuse_before_reading};
use job::{Done, Job};

pub(crate) use args::Copy;

/// Lost items that are printed one by one before the rest is only counted.
const NAMED_MAX: usize = 20;

/// Returns whether everything could be preserved.
///
/// # Errors
/// The copy failed; nothing was written.
pub(crate) fn run(args: &Copy, typed: &ArgMatches) -> Result<bool> {
    copy(args, typed).with_context(|| {
        let src = text::of_host_path(&args.src, "standard input");
        let dst = text::of_host_path(&args.dst, "standard output");
        format!("copy {src} to {dst}")
    })
}

fn copy(args: &Copy, typed: &ArgMatches) -> Result<bool> {
    let start = Instant::now();
    let kind = Kind::of(&args.dst, args.to)?;
    refuse_what_does_not_apply(typed, kind)?;
    match kind {
        Kind::Squashfs => args.squashfs.compression(&args.image).map(drop)?,
        Kind::Btrfs => BtrfsArgs::compression(&args.image).map(drop)?,
        _ => {}
    }
    let address = Address::of(&args.src)?;
    refuse_before_reading(&address.path, &args.dst, kind, args.overwrite)?;
    // A btrfs image becomes one with all its subvolumes, not only with those below the default one.
    let unnamed = if kind == Kind::Btrfs {
        Unnamed::TopLevel
    } else {
        Unnamed::Default
    };
    let mut source = Source::open(&address, &args.source, unnamed)?;
    if kind == Kind::Btrfs {
        source.take_times(args.btrfs.host_times())?;
    }
    for note in &source.notes {
        tell(&format!("{}: {note}", source.name()));
    }
    let edited = args.edits.apply(&source.tree, &args.paths)?;
    let job = Job {
        args,
        source: &source,
        tree: edited.as_ref().map_or(&*source.tree, |edited| edited),
        edited: edited.as_ref(),
        parallel: args.threads.parallel(),
    };
    let done = match kind {
        Kind::Dir => directory::write(&job)?,
        Kind::Tar => tar::write(&job)?,
        Kind::Squashfs => squashfs::write(&job)?,
        Kind::Btrfs => btrfs::write(&job)?,
        Kind::Stream => unreachable!("refused above"),
    };
    for (number, lost) in done.lost.iter().enumerate() {
        if number == NAMED_MAX {
            tell(&format!("and {} more", done.lost.len() - NAMED_MAX));
            break;
        }
        tell(lost);
    }
    if !args.quiet {
        let seconds = start.elapsed().as_secs_f64();
        let Done {
            files,
            read,
            written,
            kept,
            ..
        } = done;
        // Directories and tar archives store files uncompressed.
        let ratio = match kind {
            Kind::Squashfs | Kind::Btrfs if written > 0 => {
                format!(", ratio {:.3}", read as f64 / written as f64)
            }
            _ => String::new(),
        };
        let kept = kept_in_words(kept);
        let (read, written) = (text::of_bytes(read), text::of_bytes(written));
        let memory = peak_memory().map_or(String::new(), |bytes| {
            format!(", peak memory {}", text::of_bytes(bytes))
        });
        let files = text::count(files, "file");
        tell(&format!(
            "{files}, {read} read, {written} written{ratio}{kept}, {seconds:.2} s{memory}"
        ));
    }
    Ok(done.lost.is_empty())
}

/// How much was copied in compressed form, and how it was verified; empty if nothing was.
fn kept_in_words(kept: Kept) -> String {
    let Kept {
        count,
        decoded,
        by_checksum,
    } = kept;
    let neither = count - decoded - by_checksum;
    let ways = [
        (by_checksum, "verified by checksum"),
        (decoded, "decompressed to verify"),
        (neither, "not verified"),
    ];
    let ways: Vec<String> = (ways.iter())
        .filter(|(some, _)| *some > 0)
        .map(|(some, way)| {
            if *some == count {
                (*way).to_owned()
            } else {
                format!("{some} {way}")
            }
        })
        .collect();
    if count == 0 {
        return String::new();
    }
    format!(", {count} kept compressed ({})", ways.join(", "))
}

/// The peak memory use of this process, as the kernel reports it.
fn peak_memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}
