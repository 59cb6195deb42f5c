//! `restow copy`

mod args;
mod current;
mod destination;
mod names;
mod words;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::mem;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use clap::ArgMatches;
use restow::{
    Address, CopyJob, CopyNote, CopyOptions, CopySummary, ErofsSummary, Error, Format, HashTree,
    SourceNote, SourceTree,
};
use tree::edit::{Edits, Patterns, Selection};
use tree::json::Object;
use tree::{Joined, KeptCount, OutputPath};

use crate::bar::Bar;
use crate::message::{self, tell};
use crate::options::{REMOTE_SHARE, SourceArgs, bound_remote_cache};
use crate::text;
use args::refuse_what_does_not_apply;
use destination::{is_there, refuse_before_reading};

pub(crate) use args::Copy;
use names::path_line;
pub(crate) use names::{NameLine, Names};
pub(crate) use words::{CopyWords, of_unrestored};

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
    let format = Format::of(&args.dst, args.format());
    !args.rescue.skips() && !matches!(format, Ok(Format::Stream | Format::File))
}

fn copy(args: &Copy, typed: &ArgMatches) -> Result<bool> {
    let start = Instant::now();
    let format = Format::of(&args.dst, args.format())?;
    if args.json && args.dst == Path::new("-") {
        bail!("--json: standard output is DST");
    }
    refuse_what_does_not_apply(typed, format, args.layer())?;
    if let Some(bytes) = args.memory {
        bound_remote_cache(bytes / REMOTE_SHARE);
    }
    let options = args.options(format)?;
    let address = Address::of(&args.src)?;
    if address.is_standard_input() && args.edits.takes_standard_input() {
        bail!("--files-from -: standard input is SRC");
    }
    let mut sources = address.paths();
    let files = &args.source.file;
    let further = args.source.base.iter().chain(&files.device);
    sources.extend(further.chain(&files.backing).cloned());
    for words in &args.with {
        sources.extend(Address::of(&split(words).0)?.paths());
    }
    refuse_before_reading(&sources, args, format)?;
    if format == Format::File {
        // A symbolic link stays, and the file behind it is replaced.
        let dst = match OutputPath::of(&args.dst)? {
            OutputPath::Named(path) => path,
            OutputPath::Open(_) => args.dst.clone(),
        };
        let source = only_file(args, &dst)?;
        let edits = args.edits.edits(&[])?;
        return match copy_tree(args, (&dst, format), &source, &options, edits)? {
            Some(summary) => report(args, format, &source, &summary, start),
            None => Ok(true),
        };
    }
    // A btrfs image becomes one with all its subvolumes, not only with those below the default one.
    let source = args.source().open(&address, format == Format::Btrfs)?;
    let source = source.for_format(format, &args.dst, &options)?;
    let mut edits = args.edits.edits(&args.paths)?;
    let (source, joined) = join(source, args, edits.as_mut())?;
    let Some(summary) = copy_tree(args, (&args.dst, format), &source, &options, edits)? else {
        return Ok(true);
    };
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
    report(args, format, &source, &summary, start)
}

/// The source with those of `--with`, each where it belongs; and the view that joins them, if there
/// is one. It takes the selection out of the edits.
fn join(
    source: SourceTree,
    args: &Copy,
    edits: Option<&mut Edits>,
) -> Result<(SourceTree, Option<Arc<Joined>>)> {
    if args.with.is_empty() && args.root_becomes.is_none() && args.strip_components == 0 {
        return Ok((source, None));
    }
    let root = args.root_becomes.as_deref().map(OsStr::as_bytes);
    let mut others = Vec::new();
    for words in &args.with {
        let (path, at) = split(words);
        let mut source = args.source();
        // It is the hash of SRC.
        source.file.root_hash = None;
        others.push((open_further(args, &path, &source)?, at));
    }
    let selection: Option<Selection> = edits.map(|edits| mem::take(&mut edits.selection));
    let selection = selection.unwrap_or_default();
    let root = root.unwrap_or_default();
    let (source, joined) = source.join(root, others, selection, args.strip_components)?;
    Ok((source, Some(joined)))
}

fn open_further(args: &Copy, path: &Path, source: &SourceArgs) -> Result<SourceTree> {
    let options = source.options(false);
    let accepts_changes = args.rescue.accept_changed;
    let source = SourceTree::open_further(&Address::of(path)?, &options, accepts_changes)?;
    Ok(source)
}

/// `SRC2` or `SRC2=PATH`, taken apart at the last `=`, unless there is a file with the whole name,
/// or it is in the query of an object.
pub(crate) fn split(words: &OsString) -> (PathBuf, &[u8]) {
    let bytes = words.as_bytes();
    let equals = bytes.iter().rposition(|&byte| byte == b'=');
    let is_web = bytes.starts_with(b"https://") || bytes.starts_with(b"http://");
    let equals = equals.filter(|&at| !is_web || !bytes[..at].contains(&b'?'));
    match equals {
        Some(at) if !Path::new(words).exists() => {
            let source = OsStr::from_bytes(&bytes[..at]);
            (source.into(), &bytes[at + 1..])
        }
        _ => (words.into(), b""),
    }
}

/// The one file that `--to file` copies, as a tree in which it has the name of the destination.
fn only_file(args: &Copy, dst: &Path) -> Result<SourceTree> {
    let (_, name) = linux::split_path(dst).context("DST has no file name")?;
    Ok(match &args.paths[..] {
        [path] => {
            let source = open_further(args, &args.src, &args.source())?;
            source.only_file(path.as_bytes(), name)?
        }
        [] if args.source.file.root_hash.is_some() => {
            bail!("--root-hash is for files in an image, and SRC is copied as it is")
        }
        [] => SourceTree::of_file(&args.src, name)?,
        _ => bail!("--to file copies one file"),
    })
}

fn copy_tree(
    args: &Copy,
    (dst, format): (&Path, Format),
    source: &SourceTree,
    options: &CopyOptions,
    edits: Option<Edits>,
) -> Result<Option<CopySummary>> {
    // A directory may share the data with its copy, which then is not read.
    let decompressed = SourceNote::Decompressed;
    let is_known = |note: &&SourceNote| format != Format::Dir || **note != decompressed;
    for note in source.notes().iter().filter(is_known).chain(source.lost()) {
        tell(&format!("{}: {note}", source.name()));
    }
    // A list of files takes the place of the bar.
    let bar = Bar::new("copied", args.quiet || args.verbose);
    let copied = CopyJob::with(source, (dst, format), edits, options, |job| {
        let inventory = job.inventory();
        warn_of_excluded(args, job);
        if let Some(list) = &options.priorities {
            args.squashfs.warn_of_unlisted(list, inventory);
        }
        let names = Names::new(
            &bar,
            inventory,
            args.verbose.then_some(path_line),
            &args.dst,
        );
        let words = args.if_changed.then(|| current::words(args, source));
        let words = words.transpose()?;
        let is_current = || match &words {
            Some(words) => job.is_current(words),
            None => Ok(false),
        };
        if is_current()? {
            return Ok(None);
        }
        let written = job.write(&names, &mut |why| {
            let why = message::of_error(&why.into());
            tell(&format!("nothing is reused: {why}"));
        });
        names.finish();
        match written.map_err(anyhow::Error::from) {
            // Another one was faster, perhaps with the same.
            Err(error) if message::is_existing(&error) && is_current()? => Ok(None),
            written => written.map(Some),
        }
    });
    let copied = copied.map_err(|error| match is_there(&args.dst) {
        Some(reason) if format == Format::Dir && message::is_existing(&error) => anyhow!(reason),
        _ if Address::is_written_object(dst) && message::is_existing(&error) => {
            let name = text::of_host_path(dst, "-");
            anyhow!("{name} already exists; --overwrite replaces it")
        }
        _ => error,
    })?;
    let Some(summary) = copied else {
        if args.json {
            let object = Object::of_schema("copy", VERSION)
                .name("destination", args.dst.as_os_str().as_bytes())
                .flag("current", true);
            message::print_result(object)?;
        } else {
            let name = text::of_host_path(dst, "-");
            tell(&format!("{name} is up to date"));
        }
        return Ok(None);
    };
    if let Some(can_delete) = summary.read_only.filter(|_| !args.quiet) {
        tell(match (can_delete, options.btrfs.size) {
            (true, None) => {
                "Linux can delete files in the image but not add any until it is enlarged; --slack leaves free space"
            }
            (true, Some(_)) => {
                "Linux can delete files in the image but may find no room to add any; a larger --size leaves free space"
            }
            (false, _) => {
                "Linux can only read the image: its free space is too small to delete or add files; a larger --size or device leaves more"
            }
        });
    }
    let is_cloned = |note: &CopyNote| matches!(note, CopyNote::Cloned(_));
    let is_read = format == Format::Dir && !summary.notes.iter().any(is_cloned);
    if is_read && source.notes().contains(&decompressed) {
        tell(&format!("{}: {decompressed}", source.name()));
    }
    Ok(Some(summary))
}

/// Names the patterns of `--exclude` that match nothing, and those that match only in the root
/// although they are wildcards and would match elsewhere, too.
fn warn_of_excluded(args: &Copy, job: &CopyJob<'_>) {
    let inventory = job.inventory();
    let unmatched: Vec<&[u8]> = job.unmatched_exclude().collect();
    let in_root: Vec<&[u8]> = args.edits.excluded_in_root().collect();
    let anywhere = in_root.iter().map(|pattern| [b"**/", *pattern].concat());
    let anywhere: Vec<_> = anywhere.map(|pattern| Patterns::new([pattern])).collect();
    if !anywhere.is_empty() {
        for entry in inventory.names() {
            let path = inventory.path(entry);
            anywhere.iter().for_each(|it| _ = it.matches(&path));
        }
    }
    let elsewhere = |pattern: &[u8]| {
        let at = in_root.iter().position(|known| *known == pattern)?;
        let is_found = anywhere[at].unmatched().next().is_none();
        let pattern = text::of_name(pattern);
        is_found.then(|| format!("; `**/{pattern}` matches in all directories"))
    };
    for pattern in &unmatched {
        let hint = elsewhere(pattern).unwrap_or_default();
        let pattern = text::of_name(pattern);
        tell(&format!("nothing matches --exclude {pattern}{hint}"));
    }
    if args.quiet {
        return;
    }
    for pattern in &in_root {
        let is_wildcard = pattern.iter().any(|byte| b"*?[{".contains(byte));
        let hint = elsewhere(pattern).filter(|_| is_wildcard && !unmatched.contains(pattern));
        if let Some(hint) = hint {
            let pattern = text::of_name(pattern);
            tell(&format!(
                "--exclude {pattern} applies to the root only{hint}"
            ));
        }
    }
}

/// Prints the result, and returns whether everything could be preserved.
///
/// # Errors
/// The words cannot be written to standard output.
fn report(
    args: &Copy,
    format: Format,
    source: &SourceTree,
    summary: &CopySummary,
    start: Instant,
) -> Result<bool> {
    let is_whole = summary.is_whole() && source.lost().is_empty();
    let seconds = start.elapsed().as_secs_f64();
    let old = args.image.reuse.as_deref();
    let words = CopyWords::of((&args.dst, format), old, source, summary);
    if args.json {
        message::print_result(object(args, source, summary, &words, seconds))?;
        return Ok(is_whole);
    }
    words.losses.iter().for_each(|(_, words)| tell(words));
    words
        .lost
        .iter()
        .take(NAMED_MAX)
        .for_each(|words| tell(words));
    if words.lost.len() > NAMED_MAX {
        tell(&format!("and {} more", words.lost.len() - NAMED_MAX));
    }
    if !args.quiet {
        words.notes.iter().for_each(|note| tell(note));
        if let Some(image) = &summary.image {
            tell(&format!("image {}", image.manifest));
        }
        if let Some(tree) = &summary.verity {
            let (hash, offset) = (text::of_digits(&tree.root_hash), tree.offset);
            tell(&format!("root hash {hash}, hash offset {offset}"));
        }
        let CopySummary {
            files,
            read_bytes,
            written_bytes,
            used_bytes,
            kept,
            ..
        } = *summary;
        let stored = used_bytes.unwrap_or(written_bytes);
        // Directories and plain tar archives store files uncompressed.
        let ratio = match format {
            Format::Squashfs
            | Format::Btrfs
            | Format::Erofs
            | Format::TarGz
            | Format::TarXz
            | Format::TarZst
            | Format::CpioZst
            | Format::Oci
            | Format::OciArchive
                if stored > 0 =>
            {
                format!(", ratio {:.3}", read_bytes as f64 / stored as f64)
            }
            _ => String::new(),
        };
        let padding = summary
            .erofs
            .as_ref()
            .map_or(0, |image| image.padding_bytes);
        let padding = match padding {
            0 => String::new(),
            bytes => format!(", {} of it padding", text::of_bytes(bytes)),
        };
        let kept = kept_in_words(kept);
        let (read, stored) = (text::of_bytes(read_bytes), text::of_bytes(stored));
        let size = used_bytes.map_or(String::new(), |_| {
            format!(" to an image of {}", text::of_bytes(written_bytes))
        });
        let memory = peak_memory().map_or(String::new(), |bytes| {
            format!(", peak memory {}", text::of_bytes(bytes))
        });
        let files = text::count(files, "file");
        tell(&format!(
            "{files}, {read} read, {stored} written{size}{padding}{ratio}{kept}, {seconds:.2} s{memory}"
        ));
    }
    Ok(is_whole)
}

/// The result as an object.
fn object(
    args: &Copy,
    source: &SourceTree,
    summary: &CopySummary,
    words: &CopyWords,
    seconds: f64,
) -> Object {
    let KeptCount {
        count,
        decoded,
        by_checksum,
    } = summary.kept;
    let kept = Object::new()
        .number("extents", count)
        .number("verified_by_checksum", by_checksum)
        .number("verified_by_decoding", decoded);
    let losses = words.losses.iter().map(|(path, words)| {
        let object = Object::new().name("path", path);
        object.text("message", words)
    });
    let lost: Vec<String> = source.lost().iter().map(ToString::to_string).collect();
    let not_preserved = words.lost.iter().chain(&lost);
    let object = Object::of_schema("copy", VERSION)
        .text("source", source.name())
        .name("destination", args.dst.as_os_str().as_bytes())
        .number("files", summary.files)
        .number("read_bytes", summary.read_bytes)
        .number("written_bytes", summary.written_bytes)
        .object("kept", kept)
        .fraction("seconds", seconds);
    let object = match &summary.image {
        Some(image) => {
            let digests = Object::new().text("digest", &image.manifest.to_string());
            let digests = digests.text("layer", &image.layer.to_string());
            object.object("image", digests)
        }
        None => object,
    };
    let object = match &summary.verity {
        Some(tree) => object.object("verity", of_verity(tree)),
        None => object,
    };
    let object = match peak_memory() {
        Some(bytes) => object.number("peak_memory_bytes", bytes),
        None => object,
    };
    let object = match &summary.erofs {
        Some(image) => object.object("erofs", of_erofs(image)),
        None => object,
    };
    object
        .list("losses", losses)
        .texts("not_preserved", not_preserved.map(String::as_str))
        .texts("notes", words.notes.iter().map(String::as_str))
}

/// A hash tree of dm-verity.
fn of_verity(tree: &HashTree) -> Object {
    Object::new()
        .text("root_hash", &text::of_digits(&tree.root_hash))
        .text("salt", &text::of_digits(&tree.salt))
        .text("uuid", &text::of_uuid(&tree.uuid))
        .number("data_blocks", tree.data_blocks)
        .number("hash_offset", tree.offset)
        .number("hash_bytes", tree.bytes)
}

/// The units of an EROFS image, and its parts that are no content.
fn of_erofs(image: &ErofsSummary) -> Object {
    let recoded = image.recoded.iter().map(|(&reason, &count)| {
        let object = Object::new().text("reason", reason);
        object.number("extents", count)
    });
    Object::new()
        .number("kept_units", image.image.kept.count)
        .number("encoded_units", image.image.encoded)
        .number("plain_units", image.plain_units)
        .number("shared_units", image.shared_units)
        .number("padding_bytes", image.padding_bytes)
        .number("metadata_bytes", image.metadata_bytes)
        .number("named_bytes", image.device_bytes)
        .list("recoded", recoded)
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
pub(crate) fn peak_memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_follows_the_last_equals_sign() {
        for (words, source, at) in [
            ("a", "a", ""),
            ("a=b/c", "a", "b/c"),
            ("a=b=c", "a=b", "c"),
            ("a=", "a", ""),
        ] {
            let words = OsString::from(words);
            assert_eq!(split(&words), (source.into(), at.as_bytes()));
        }
    }
}
