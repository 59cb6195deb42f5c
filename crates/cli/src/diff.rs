//! `restow diff`

use std::io::{self, BufWriter, Write};

use anyhow::Result;
use tree::Error;
use tree::diff::{Change, Difference, READ_FIRST, READ_SECOND, diff};

use crate::args::{self, Diff};
use crate::bar::Bar;
use crate::{open, text, threads};

/// Returns whether there are differences.
pub(crate) fn run(args: &Diff) -> Result<bool> {
    open::only_one_is_standard_input(&args.first, &args.second)?;
    let (first, second) = open::both(&args.first, &args.second, &args.source)?;
    let names = [&args.first, &args.second].map(|path| text::of_host_path(path, "standard input"));
    let mut out = BufWriter::new(io::stdout().lock());
    let bar = Bar::new("compared", args.quiet);
    let mut found = false;
    let result = diff(
        &*first.tree,
        &*second.tree,
        &args::aspects(&args.ignore, args.holes),
        threads(args.threads),
        &bar,
        &mut |difference| {
            found = true;
            if args.quiet {
                // Nobody is interested in more. This ends the comparison, and is not told.
                return Err(Error::InvalidInput("found"));
            }
            Ok(writeln!(out, "{}", line(&difference, &names))?)
        },
    );
    bar.finish();
    match result {
        Err(_) if found && args.quiet => {}
        Err(Error::File {
            verb: READ_FIRST,
            path,
            error,
        }) => {
            return Err(first.name_error(error.in_file("read", &path)));
        }
        Err(Error::File {
            verb: READ_SECOND,
            path,
            error,
        }) => {
            return Err(second.name_error(error.in_file("read", &path)));
        }
        other => other?,
    }
    out.flush()?;
    Ok(found)
}

fn line(difference: &Difference, [first, second]: &[String; 2]) -> String {
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
        Change::Content { at } => format!("{path}: content differs from byte {at} on"),
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
                "{path}: attribute {} {} | {}",
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
        Change::Holes { at } => format!("{path}: holes differ from byte {at} on"),
    }
}
