//! `restow diff`: compares two trees.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use restow::{Address, ImageAt};
use tree::Error;
use tree::diff::{Change, Difference};
use tree::json::Object;

use crate::bar::Bar;
use crate::options::only_one_is_standard_input;
use crate::options::{AspectArgs, SOURCE_HELP, SOURCE_LONG_HELP, SourceArgs, ThreadArgs, image_at};
use crate::text;

/// The version of the JSON form.
const VERSION: u32 = 1;

/// Compare two trees
///
/// Prints a line for each difference: files in only one of the trees; and for files in both,
/// differences in kind, mode, owner, modification time, size, contents (the first differing byte),
/// link target, device number, extended attributes, and hard links.
///
/// Times are compared in nanoseconds, or in seconds if one of the trees stores only seconds: a
/// SquashFS image, or a tar archive without PAX times.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  restow diff src src.tar
  restow diff --ignore mtime,owner old.tar new.tar
  restow diff disk.btrfs:monday disk.btrfs:tuesday
  restow diff -q a b && echo same

Exit codes: 0 no differences; 1 differences; 2 failure.")]
pub(crate) struct Diff {
    #[arg(value_name = "A", help = SOURCE_HELP, long_help = SOURCE_LONG_HELP)]
    first: PathBuf,

    /// The tree to compare it with, named in the same way
    #[arg(value_name = "B")]
    second: PathBuf,

    #[command(flatten)]
    aspects: AspectArgs,

    /// Print a JSON object per difference and one with their number, which docs/json.md describes
    #[arg(long, conflicts_with = "quiet")]
    json: bool,

    /// Print nothing, and stop at the first difference
    #[arg(short, long)]
    quiet: bool,

    #[command(flatten)]
    threads: ThreadArgs,

    #[command(flatten)]
    source: SourceArgs,

    /// The same for B alone, if its image is at another place than that of A
    #[arg(
        long,
        value_name = "BYTES|search|partition:N",
        value_parser = image_at,
        help_heading = "Image sources"
    )]
    second_image_at: Option<ImageAt>,
}

/// Returns whether there are differences.
///
/// # Errors
/// A tree cannot be read, or the differences cannot be written.
pub(crate) fn run(args: &Diff) -> Result<bool> {
    let (first, second) = (Address::of(&args.first)?, Address::of(&args.second)?);
    only_one_is_standard_input(&first, &second)?;
    let [first, second] = args
        .source
        .open_pair([&first, &second], args.second_image_at)?;
    let mut out = BufWriter::new(io::stdout().lock());
    let bar = Bar::new("compared", args.quiet);
    let how = (args.aspects.aspects(), args.threads.parallel());
    let names = [first.name(), second.name()];
    if args.json {
        let header = Object::of_schema("diff", VERSION);
        let header = header.text("first", names[0]).text("second", names[1]);
        writeln!(out, "{}", header.line())?;
    }
    let mut found: u64 = 0;
    let compared = first.compare(&second, how, &bar, &mut |difference| {
        found += 1;
        if args.quiet {
            // An error ends the comparison; it is not reported.
            return Err(Error::InvalidInput("found"));
        }
        if args.json {
            return Ok(writeln!(out, "{}", object(difference).line())?);
        }
        Ok(writeln!(out, "{}", line(difference, names))?)
    });
    bar.finish();
    if !(found > 0 && args.quiet) {
        compared?;
    }
    if args.json {
        let result = Object::new().number("differences", found);
        writeln!(out, "{}", result.line())?;
    }
    out.flush()?;
    Ok(found > 0)
}

/// A difference as an object.
fn object(difference: &Difference) -> Object {
    let object = Object::new().name("path", &difference.path);
    let of = |change: &str| object.text("change", change);
    let kind = |kind| text::of_kind(kind);
    match &difference.change {
        Change::OnlyInFirst(it) => of("only in first").text("kind", kind(*it)),
        Change::OnlyInSecond(it) => of("only in second").text("kind", kind(*it)),
        Change::Kind(a, b) => of("kind").text("first", kind(*a)).text("second", kind(*b)),
        Change::Permissions(a, b) => {
            let object = of("mode").text("first", &format!("{a:04o}"));
            object.text("second", &format!("{b:04o}"))
        }
        Change::Owner(a, b) => of("owner")
            .number("first_uid", a.0)
            .number("first_gid", a.1)
            .number("second_uid", b.0)
            .number("second_gid", b.1),
        Change::Mtime(a, b) => of("mtime").time("first", *a).time("second", *b),
        Change::Size(a, b) => of("size")
            .number("first_bytes", *a)
            .number("second_bytes", *b),
        Change::Content { at } => of("content").number("at", *at),
        Change::LinkTarget(a, b) => of("target").name("first", a).name("second", b),
        Change::Rdev(a, b) => of("device")
            .number("first_major", a.major)
            .number("first_minor", a.minor)
            .number("second_major", b.major)
            .number("second_minor", b.minor),
        Change::Xattr {
            name,
            first,
            second,
        } => {
            let object = of("xattr").name("name", name);
            both(object, first.as_deref(), second.as_deref())
        }
        Change::HardLink(a, b) => both(of("hard link"), a.as_deref(), b.as_deref()),
        Change::Holes { at } => of("holes").number("at", *at),
        Change::XattrsUnlisted => of("xattrs not compared"),
    }
}

/// Adds bytes, as far as there are any.
fn both(mut object: Object, first: Option<&[u8]>, second: Option<&[u8]>) -> Object {
    for (key, bytes) in [("first", first), ("second", second)] {
        if let Some(bytes) = bytes {
            object = object.name(key, bytes);
        }
    }
    object
}

/// A difference in words.
pub(crate) fn line(difference: &Difference, [first, second]: [&str; 2]) -> String {
    let path = text::of_path(&difference.path);
    let kind = |kind| text::of_kind(kind);
    match &difference.change {
        Change::OnlyInFirst(it) => format!("only in {first}: {path} ({})", kind(*it)),
        Change::OnlyInSecond(it) => format!("only in {second}: {path} ({})", kind(*it)),
        Change::Kind(a, b) => format!("{path}: kind {} | {}", kind(*a), kind(*b)),
        Change::Permissions(a, b) => format!("{path}: mode {a:04o} | {b:04o}"),
        Change::Owner(a, b) => format!("{path}: owner {}:{} | {}:{}", a.0, a.1, b.0, b.1),
        Change::Mtime(a, b) => {
            let of =
                |time: &tree::Time| format!("{}.{:09}", text::of_time(*time), time.nanoseconds);
            format!("{path}: time {} | {}", of(a), of(b))
        }
        Change::Size(a, b) => format!("{path}: size {a} | {b}"),
        Change::Content { at } => format!("{path}: contents differ starting at byte {at}"),
        Change::LinkTarget(a, b) => {
            format!(
                "{path}: link target {} | {}",
                text::of_name(a),
                text::of_name(b)
            )
        }
        Change::Rdev(a, b) => {
            format!(
                "{path}: device {},{} | {},{}",
                a.major, a.minor, b.major, b.minor
            )
        }
        Change::Xattr {
            name,
            first,
            second,
        } => {
            let of = |value: &Option<Box<[u8]>>| match value {
                None => "none".to_owned(),
                Some(value) if value.len() <= 64 => format!("\"{}\"", value.escape_ascii()),
                Some(value) => format!("{} bytes", value.len()),
            };
            format!(
                "{path}: extended attribute {} {} | {}",
                text::of_name(name),
                of(first),
                of(second)
            )
        }
        Change::HardLink(a, b) => {
            let of = |path: &Option<Box<[u8]>>| match path {
                None => "no earlier file".to_owned(),
                Some(path) => text::of_path(path),
            };
            format!("{path}: hard link to {} | {}", of(a), of(b))
        }
        Change::Holes { at } => format!("{path}: holes differ starting at byte {at}"),
        Change::XattrsUnlisted => {
            format!("{path}: extended attributes not compared: Linux lists at most 64 KiB of names")
        }
    }
}
