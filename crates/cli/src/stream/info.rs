//! `restow stream info`: shows the contents of a stream.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use restow::stream::{Changes, StreamInfo};
use tree::json::Object;

use super::ahead::ReadAhead;
use super::input::{Hashed, name, open};
use super::verify::{json_subvolume, of_subvolume};
use crate::bar::Bar;
use crate::options::QuietArgs;
use crate::text;

/// Show the contents of a send stream: subvolumes, changes, sizes by command and algorithm, SHA-256
///
/// For each subvolume, shows the parent that it needs and the changes. Data is not decompressed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  restow stream info home.stream
  restow stream info --json home.stream

Exit codes: 0 success; 2 failure.")]
pub(crate) struct Info {
    /// A send stream; `-` is standard input
    file: PathBuf,

    #[command(flatten)]
    quiet: QuietArgs,

    /// Print the result as one line of JSON
    #[arg(long)]
    json: bool,
}

/// Prints the contents of the stream.
///
/// # Errors
/// It is damaged, or cannot be read.
pub(crate) fn run(args: &Info) -> Result<()> {
    let bar = Bar::new("read", args.quiet.quiet);
    let input = Hashed::new(open(&args.file, &bar)?.into_reader(), true);
    let mut input = ReadAhead::new(input);
    let info = StreamInfo::read(&mut input, &bar);
    bar.finish();
    let info = info.with_context(|| format!("read {}", name(&args.file)))?;
    let digest = input.finish().finish().unwrap_or_default();
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{}", json(&info, &digest))?;
    } else {
        show(&info, &digest, &mut out)?;
    }
    Ok(())
}

fn show(info: &StreamInfo, digest: &str, out: &mut impl Write) -> Result<()> {
    let versions: Vec<_> = info.versions.iter().map(ToString::to_string).collect();
    writeln!(out, "version     {}", versions.join(", "))?;
    writeln!(
        out,
        "size        {} ({})",
        text::of_bytes(info.bytes),
        text::count(info.commands(), "command")
    )?;
    writeln!(out, "SHA-256     {digest}")?;
    for it in &info.subvolumes {
        writeln!(out, "\n{}", of_subvolume(&it.subvolume))?;
        let shown = changes(&it.changes).into_iter();
        for (_, number, words, is_bytes) in shown.filter(|(_, number, ..)| *number > 0) {
            if is_bytes {
                writeln!(out, "  {:>10}  {words}", text::of_bytes(number))?;
            } else {
                writeln!(out, "  {number:>10}  {words}")?;
            }
        }
    }
    let more = info.subvolume_count - info.subvolumes.len() as u64;
    if more > 0 {
        writeln!(out, "and {}", text::count(more, "subvolume"))?;
    }
    writeln!(out, "\ncommand           number        size")?;
    for (name, total) in info.by_command() {
        let size = text::of_bytes(total.bytes);
        writeln!(out, "{name:<14}{:>10}{size:>12}", total.commands)?;
    }
    let mut encoded = info.by_algorithm().peekable();
    if encoded.peek().is_some() {
        writeln!(out, "\nalgorithm        extents      stored     in files")?;
        for (algorithm, total) in encoded {
            let [stored, file] = [total.stored_bytes, total.file_bytes].map(text::of_bytes);
            let name = of_algorithm(algorithm);
            writeln!(out, "{name:<14}{:>10}{stored:>12}{file:>13}", total.extents)?;
        }
        let plain = text::of_bytes(info.plain_bytes);
        writeln!(out, "{:<14}{:>10}{plain:>12}{plain:>13}", "none", "")?;
    }
    Ok(())
}

/// The changes by name, number and words, and whether they are bytes.
fn changes(of: &Changes) -> [(&'static str, u64, &'static str, bool); 13] {
    [
        ("files_created", of.files_created, "files created", false),
        (
            "directories_created",
            of.directories_created,
            "directories created",
            false,
        ),
        (
            "names_removed",
            of.names_removed,
            "names of files removed",
            false,
        ),
        (
            "directories_removed",
            of.directories_removed,
            "directories removed",
            false,
        ),
        (
            "renamed",
            of.renamed,
            "files and directories renamed",
            false,
        ),
        ("links", of.links, "hard links created", false),
        (
            "files_written",
            of.files_written,
            "files with changed content",
            false,
        ),
        ("written_bytes", of.written_bytes, "written", true),
        (
            "cloned_bytes",
            of.cloned_bytes,
            "shared with other files",
            true,
        ),
        ("punched_bytes", of.punched_bytes, "of holes punched", true),
        (
            "updated_bytes",
            of.updated_bytes,
            "changed, without the data",
            true,
        ),
        ("truncated", of.truncated, "sizes set", false),
        (
            "attributes",
            of.attributes,
            "permissions, owners and attributes set",
            false,
        ),
    ]
}

fn of_algorithm(algorithm: codec::Algorithm) -> &'static str {
    match algorithm {
        codec::Algorithm::Zlib => "zlib",
        algorithm => algorithm.name(),
    }
}

fn json(info: &StreamInfo, digest: &str) -> String {
    let subvolumes = info.subvolumes.iter().map(|it| {
        let changes = changes(&it.changes).into_iter();
        let object = json_subvolume(&it.subvolume);
        changes.fold(object, |object, (key, number, ..)| {
            object.number(key, number)
        })
    });
    let by_command = info.by_command().fold(Object::new(), |object, (name, it)| {
        let total = Object::new().number("commands", it.commands);
        object.object(name, total.number("bytes", it.bytes))
    });
    let encoded = info
        .by_algorithm()
        .fold(Object::new(), |object, (algorithm, it)| {
            let sector = match algorithm {
                codec::Algorithm::LzoBtrfs { sector_bytes } => format!("-{sector_bytes}"),
                _ => String::new(),
            };
            let total = Object::new()
                .number("extents", it.extents)
                .number("stored_bytes", it.stored_bytes)
                .number("file_bytes", it.file_bytes);
            object.object(&format!("{}{sector}", of_algorithm(algorithm)), total)
        });
    Object::new()
        .numbers("versions", info.versions.iter().map(|it| it.number()))
        .number("streams", info.streams)
        .number("bytes", info.bytes)
        .number("commands", info.commands())
        .text("sha256", digest)
        .list("subvolumes", subvolumes)
        .object("by_command", by_command)
        .number("plain_bytes", info.plain_bytes)
        .object("encoded", encoded)
        .line()
}
