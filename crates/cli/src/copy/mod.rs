//! `restow copy`

mod args;
mod btrfs;
mod destination;
pub(crate) mod directory;
mod job;
mod joined;
mod kind;
mod losses;
mod names;
mod packed;
mod reuse;
mod squashfs;
mod stream;
mod tar;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use clap::ArgMatches;
use restow::{Address, Error, SourceNote, SourceTree};
use tree::FileSystem;
use tree::json::Object;
use tree::rescue::Rescue;

use tree::{HostTimes, KeptCount};

use crate::message::{self, tell};
use crate::options::BtrfsArgs;
use crate::text;
use args::refuse_what_does_not_apply;
use destination::refuse_before_reading;
use job::{Done, Job, Lost};
use kind::Kind;

pub(crate) use args::Copy;

/// Lost items that are printed one by one before the rest is only counted.
const NAMED_MAX: usize = 20;
/// The version of the JSON form.
const VERSION: u32 = 1;

/// Returns whether everything could be preserved.
///
/// # Errors
/// The copy failed; nothing was written.
pub(crate) fn run(args: &Copy, typed: &ArgMatches) -> Result<bool> {
    copy(args, typed)
        .map_err(|error| suggest_options(error, args))
        .with_context(|| {
            let src = text::of_host_path(&args.src, "standard input");
            let dst = text::of_host_path(&args.dst, "standard output");
            format!("copy {src} to {dst}")
        })
}

/// Names the options for a file that changes while it is read, or that cannot be read.
fn suggest_options(error: anyhow::Error, args: &Copy) -> anyhow::Error {
    let is_changed = |cause: &(dyn std::error::Error + 'static)| {
        matches!(message::tree_error(cause), Some(tree::Error::Changed))
    };
    let is_unreadable = |cause: &(dyn std::error::Error + 'static)| {
        matches!(cause.downcast_ref(), Some(Error::UnreadableFile { .. }))
    };
    let skips = "--skip-unreadable leaves it out";
    let advice = if error.chain().any(is_changed) {
        format!("--accept-changed takes it as it is read, {skips}")
    } else if error.chain().any(is_unreadable) && can_skip(args) {
        skips.to_owned()
    } else {
        return error;
    };
    anyhow!("{}; {advice}", message::of_error(&error))
}

/// Whether files can be left out that are not: a send stream has all of them.
fn can_skip(args: &Copy) -> bool {
    let kind = Kind::of(&args.dst, args.to);
    !args.rescue.skips() && !matches!(kind, Ok(Kind::Stream | Kind::File))
}

fn copy(args: &Copy, typed: &ArgMatches) -> Result<bool> {
    let start = Instant::now();
    let kind = Kind::of(&args.dst, args.to)?;
    if args.json && args.dst == Path::new("-") {
        bail!("--json: standard output is DST");
    }
    refuse_what_does_not_apply(typed, kind)?;
    match kind {
        Kind::Squashfs => args.squashfs.compression(&args.image).map(drop)?,
        Kind::Btrfs => BtrfsArgs::compression(&args.image).map(drop)?,
        Kind::Stream => stream::refuse(args)?,
        Kind::TarGz | Kind::TarXz | Kind::TarZst => tar::refuse(args, kind)?,
        Kind::Tar | Kind::Dir | Kind::File => {}
    }
    let address = Address::of(&args.src)?;
    refuse_before_reading(&address.path, args, kind)?;
    if kind == Kind::File {
        return file(args, start);
    }
    // A btrfs image becomes one with all its subvolumes, not only with those below the default one.
    let mut source = args.source.open(&address, kind == Kind::Btrfs)?;
    let times = match kind {
        Kind::Btrfs => args.btrfs.host_times(),
        // It stores no others, and each takes memory.
        Kind::Squashfs => HostTimes::Modification,
        _ => HostTimes::default(),
    };
    if times != HostTimes::default() || args.rescue.accept_changed {
        source = source.reading(times, args.rescue.accept_changed)?;
    }
    let keeps_extents = match kind {
        Kind::Btrfs | Kind::Squashfs | Kind::Stream => true,
        Kind::Dir => directory::is_on_btrfs(&args.dst),
        Kind::Tar | Kind::TarGz | Kind::TarXz | Kind::TarZst | Kind::File => false,
    };
    // What changes while it is read is taken as it is then, and its extents with it.
    if keeps_extents && !args.rescue.accept_changed {
        source = source.with_stored_extents(times)?;
    }
    let (source, joined) = joined::join(source, args)?;
    let done = copy_tree(args, kind, &source, &args.paths)?;
    if let Some(count) = joined
        .map(|joined| joined.replaced())
        .filter(|&count| count > 0)
        && !args.quiet
    {
        let files = text::count(count, "file");
        tell(&format!(
            "{files} replaced by later ones with the same path"
        ));
    }
    report(args, kind, &source, &done, start)
}

/// Copies one regular file, with its mode and times.
fn file(args: &Copy, start: Instant) -> Result<bool> {
    let no_name = "DST has no file name";
    let (_, name) = linux::split_path(&args.dst).context(no_name)?;
    let source = joined::only_file(args, OsStr::from_bytes(name))?;
    let done = copy_tree(args, Kind::File, &source, &[])?;
    report(args, Kind::File, &source, &done, start)
}

fn copy_tree(args: &Copy, kind: Kind, source: &SourceTree, paths: &[OsString]) -> Result<Done> {
    // A directory may share the data with its copy, which then is not read.
    let is_known = |note: &&SourceNote| kind != Kind::Dir || **note != SourceNote::Decompressed;
    for note in source.notes().iter().filter(is_known).chain(source.lost()) {
        tell(&format!("{}: {note}", source.name()));
    }
    let edited = args.edits.apply(source.tree(), paths)?;
    let tree: &dyn FileSystem = edited.as_ref().map_or(&**source.tree(), |edited| edited);
    let rescue = Rescue::new(tree, args.rescue.keep_damaged);
    let rescue = args.rescue.skips().then_some(&rescue);
    let job = Job {
        args,
        source,
        tree: rescue.map_or(tree, |rescue| rescue),
        rescue,
        edited: edited.as_ref(),
        parallel: args.threads.parallel(),
    };
    Ok(match kind {
        Kind::Dir | Kind::File => directory::write(&job, kind)?,
        Kind::Tar | Kind::TarGz | Kind::TarXz | Kind::TarZst => tar::write(&job, kind)?,
        Kind::Squashfs => squashfs::write(&job)?,
        Kind::Btrfs => btrfs::write(&job)?,
        Kind::Stream => stream::write(&job)?,
    })
}

/// Says what was done, and returns whether everything could be preserved.
///
/// # Errors
/// The words cannot be written to standard output.
fn report(
    args: &Copy,
    kind: Kind,
    source: &SourceTree,
    done: &Done,
    start: Instant,
) -> Result<bool> {
    let is_whole = done.lost.is_empty() && done.listed.is_empty() && source.lost().is_empty();
    let seconds = start.elapsed().as_secs_f64();
    if args.json {
        let words = object(args, source, done, seconds).line() + "\n";
        let mut out = io::stdout().lock();
        out.write_all(words.as_bytes())?;
        out.flush()?;
        return Ok(is_whole);
    }
    for Lost { words, .. } in &done.listed {
        tell(words);
    }
    for (number, lost) in done.lost.iter().enumerate() {
        if number == NAMED_MAX {
            tell(&format!("and {} more", done.lost.len() - NAMED_MAX));
            break;
        }
        tell(lost);
    }
    if !args.quiet {
        done.notes.iter().for_each(|note| tell(note));
        let Done {
            files,
            read,
            written,
            used,
            kept,
            ..
        } = *done;
        let stored = used.unwrap_or(written);
        // Directories and plain tar archives store files uncompressed.
        let ratio = match kind {
            Kind::Squashfs | Kind::Btrfs | Kind::TarGz | Kind::TarXz | Kind::TarZst
                if stored > 0 =>
            {
                format!(", ratio {:.3}", read as f64 / stored as f64)
            }
            _ => String::new(),
        };
        let kept = kept_in_words(kept);
        let (read, stored) = (text::of_bytes(read), text::of_bytes(stored));
        let size = used.map_or(String::new(), |_| {
            format!(" to an image of {}", text::of_bytes(written))
        });
        let memory = peak_memory().map_or(String::new(), |bytes| {
            format!(", peak memory {}", text::of_bytes(bytes))
        });
        let files = text::count(files, "file");
        tell(&format!(
            "{files}, {read} read, {stored} written{size}{ratio}{kept}, {seconds:.2} s{memory}"
        ));
    }
    Ok(is_whole)
}

/// What was done, as an object.
fn object(args: &Copy, source: &SourceTree, done: &Done, seconds: f64) -> Object {
    let KeptCount {
        count,
        decoded,
        by_checksum,
    } = done.kept;
    let kept = Object::new()
        .number("extents", count)
        .number("verified_by_checksum", by_checksum)
        .number("verified_by_decoding", decoded);
    let losses = done.listed.iter().map(|Lost { path, words }| {
        let object = Object::new().name("path", path);
        object.text("message", words)
    });
    let lost: Vec<String> = source.lost().iter().map(ToString::to_string).collect();
    let not_preserved = done.lost.iter().chain(&lost);
    let object = Object::of_schema("copy", VERSION)
        .text("source", source.name())
        .name("destination", args.dst.as_os_str().as_bytes())
        .number("files", done.files)
        .number("read_bytes", done.read)
        .number("written_bytes", done.written)
        .object("kept", kept)
        .fraction("seconds", seconds);
    let object = match peak_memory() {
        Some(bytes) => object.number("peak_memory_bytes", bytes),
        None => object,
    };
    object
        .list("losses", losses)
        .texts("not_preserved", not_preserved.map(String::as_str))
        .texts("notes", done.notes.iter().map(String::as_str))
}

/// How much was copied in compressed form, and how it was verified; empty if nothing was.
fn kept_in_words(kept: KeptCount) -> String {
    let KeptCount {
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
