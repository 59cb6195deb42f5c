//! `restow stream dump`: prints the commands of a stream.

use std::fmt::Write as _;
use std::io::{self, BufWriter, Read, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use restow::stream::{CommandRecord, StreamReader, Value, json};

use super::ahead::ReadAhead;
use super::input::{name, open};
use crate::bar::Bar;
use crate::options::QuietArgs;
use crate::text;
use restow::text::of_uuid;

/// Print the commands of a send stream, one line each
///
/// Each line has the offset and the number of a command, its name, and its attributes as Linux
/// calls them. Paths are not checked: they can be anything. `btrfs receive --dump` prints other
/// lines.
///
/// With --json, each line is a JSON object. Names that are not UTF-8 are in Base64, under a key
/// that ends in `_base64`. With --data as well, `restow stream undump` builds the stream from these
/// lines.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  restow stream dump home.stream
  restow stream dump --json home.stream
  restow stream dump --json --data home.stream > home.json

Exit codes: 0 success; 2 failure.")]
pub(crate) struct Dump {
    /// A send stream; `-` is standard input
    file: PathBuf,

    /// Print a JSON object per line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    quiet: QuietArgs,

    /// Include the data of files, in Base64
    #[arg(long, requires = "json")]
    data: bool,
}

/// Prints the commands.
///
/// # Errors
/// The stream is damaged, or cannot be read; the part printed before is right.
pub(crate) fn run(args: &Dump) -> Result<()> {
    let input = open(&args.file, &Bar::hidden())?.into_reader();
    let mut reader = StreamReader::new(ReadAhead::new(input)).any_paths();
    let mut out = BufWriter::new(io::stdout().lock());
    let printed = print(&mut reader, args, &mut out);
    // Output before an error helps to find it.
    out.flush()?;
    printed
}

fn print(reader: &mut StreamReader<impl Read>, args: &Dump, out: &mut impl Write) -> Result<()> {
    let read = || format!("read {}", name(&args.file));
    let mut text = String::new();
    loop {
        let at = reader.position();
        let Some(version) = reader.next_stream().with_context(read)? else {
            return Ok(());
        };
        if args.json {
            writeln!(out, "{}", json::header(version, at))?;
        } else {
            writeln!(out, "{at:>10} {:>8} stream version={version}", 0)?;
        }
        while let Some(record) = reader.next_command().with_context(read)? {
            if args.json {
                writeln!(out, "{}", json::command(&record, args.data))?;
            } else {
                text.clear();
                line(&record, &mut text);
                out.write_all(text.as_bytes())?;
            }
        }
    }
}

/// Writes the line of a command.
fn line(record: &CommandRecord<'_>, to: &mut String) {
    text::number(record.at, b' ', 10, to);
    *to += " ";
    text::number(record.number, b' ', 8, to);
    *to += " ";
    *to += record.command.name();
    for (name, value) in record.attributes() {
        *to += " ";
        *to += name;
        *to += "=";
        match value {
            Value::Number(number) if name.ends_with("mode") => {
                // Writing to a string does not fail.
                let _ = write!(to, "{number:#o}");
            }
            Value::Number(number) => text::number(number, b' ', 0, to),
            Value::Time(time) => {
                text::time(time, 'T', to);
                *to += ".";
                text::number(time.nanoseconds.into(), b'0', 9, to);
                *to += "Z";
            }
            Value::Uuid(uuid) => *to += &of_uuid(&uuid),
            Value::Bytes(bytes) => {
                *to += "\"";
                if bytes.contains(&b'"') {
                    *to += &text::of_name(bytes).replace('"', "\\\"");
                } else {
                    text::name(bytes, to);
                }
                *to += "\"";
            }
            Value::Data(data) => {
                text::number(data.len() as u64, b' ', 0, to);
                *to += " bytes";
            }
        }
    }
    *to += "\n";
}
