//! `restow stream verify`: looks for anything wrong with a stream.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use restow::stream::{SentSubvolume, Verified, VerifyOptions};
use restow::{Address, Input};
use tree::diff::Change;
use tree::json::Object;
use tree::{Error, FileKind};

use super::ahead::ReadAhead;
use super::input::{Hashed, name, open};
use crate::bar::Bar;
use crate::diff::line;
use crate::options::{AspectArgs, SilentArgs, SourceArgs, ThreadArgs};
use crate::{message, text};
use restow::text::of_uuid;

/// Verify a send stream, without receiving it
///
/// Checks the checksum, the attributes and the order of all commands, and that the stream ends
/// where it should. Decompresses all data and compares the lengths. Follows the names of files:
/// every path must lead to a file that exists, and through no symbolic link. Files of the parent of
/// an incremental stream are unknown and assumed to exist. Prints the subvolumes and the
/// parents that they need. Uses at most 64 MiB of memory.
///
/// With --against, compares the subvolume that the stream makes with a tree, as `restow diff` does:
/// the last one, or that of STREAM:NAME. An incremental stream needs its parent (--base).
///
/// Checksums detect damage, not forgery: anyone who changes a stream can recompute them. Keep the
/// digest that `restow stream info` prints in a safe place, and pass it to --sha256.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  restow stream verify home.stream
  restow stream verify --no-data home.stream
  restow stream verify --json home.stream
  restow copy home.stream home.btrfs && restow stream verify --against home.btrfs home.stream
  cat home.stream | restow stream verify -

Exit codes: 0 no errors; 1 an error or a difference found; 2 failure.")]
pub(crate) struct Verify {
    /// A send stream; `-` is standard input
    file: PathBuf,

    /// Do not decompress data
    #[arg(long)]
    no_data: bool,

    /// Fail if the SHA-256 digest of the file is not DIGEST
    #[arg(long, value_name = "DIGEST", value_parser = digest)]
    sha256: Option<String>,

    /// Compare the resulting subvolume with this directory, archive, image or stream
    #[arg(long, value_name = "TREE")]
    against: Option<PathBuf>,

    #[command(flatten)]
    aspects: AspectArgs,

    #[command(flatten)]
    source: SourceArgs,

    /// Print the result as one line of JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    silent: SilentArgs,

    #[command(flatten)]
    threads: ThreadArgs,
}

/// Returns whether nothing is wrong.
///
/// # Errors
/// The stream cannot be read.
pub(crate) fn run(args: &Verify) -> Result<bool> {
    let address = Address::of(&args.file)?;
    address.refuse_container_image()?;
    if args.against.is_some() && address.is_standard_input() {
        bail!(
            "--against reads the stream twice, and standard input can be read once; save it to a file first"
        );
    }
    if args.against.is_none() && address.subvolume.is_some() {
        bail!("STREAM:NAME applies with --against only");
    }
    let bar = Bar::new("verified", args.silent.quiet);
    let input = open(&address.path, &bar)?;
    verify(args, &address, input, &bar)
}

/// Verifies a stream for `restow check`. Returns whether nothing is wrong.
///
/// # Errors
/// It cannot be read.
pub(crate) fn check(
    address: &Address,
    input: Input,
    (no_data, json): (bool, bool),
    (silent, threads): (SilentArgs, ThreadArgs),
) -> Result<bool> {
    let args = Verify {
        file: address.path.clone(),
        no_data,
        sha256: None,
        against: None,
        aspects: AspectArgs::default(),
        source: SourceArgs::default(),
        json,
        silent,
        threads,
    };
    verify(&args, address, input, &Bar::new("verified", silent.quiet))
}

fn verify(args: &Verify, address: &Address, input: Input, bar: &Bar) -> Result<bool> {
    let input = input.into_reader();
    let mut input = ReadAhead::new(Hashed::new(input, args.sha256.is_some()));
    let options = VerifyOptions::default().data(!args.no_data);
    let result = restow::stream::verify(&mut input, options, args.threads.parallel(), bar);
    bar.finish();
    let error = match &result {
        Err(error) if is_io(error) => {
            return Err(result.unwrap_err()).with_context(|| format!("read {}", name(&args.file)));
        }
        Err(error) => Some(message::of_tree_error(error)),
        Ok(_) => None,
    };
    // After an error, the rest was not read.
    let found = match error {
        None => input.finish().finish(),
        Some(_) => None,
    };
    let mismatch = (found.zip(args.sha256.as_ref()))
        .filter(|(found, expected)| found != *expected)
        .map(|(found, expected)| format!("SHA-256 digest is {found}, not {expected}"));
    let error = error.or(mismatch);
    let mut out: Box<dyn Write> = if args.silent.quiet {
        Box::new(io::sink())
    } else {
        Box::new(BufWriter::new(io::stdout().lock()))
    };
    // A damaged stream is not compared.
    let differences = match &args.against {
        Some(tree) if error.is_none() => Some(compared(args, address, tree, &mut out)?),
        _ => None,
    };
    match (args.json, &error, &result) {
        (true, ..) => writeln!(
            out,
            "{}",
            json(&result.unwrap_or_default(), error.as_deref(), differences)
        )?,
        (false, Some(error), _) => writeln!(out, "{error}")?,
        (false, None, result) => {
            if let Ok(verified) = result {
                show(verified, args.no_data, &mut out)?;
            }
            if let Some(differences) = differences {
                writeln!(out, "{}", text::count(differences, "difference"))?;
            }
        }
    }
    out.flush()?;
    Ok(error.is_none() && differences.unwrap_or(0) == 0)
}

/// Compares the resulting subvolume with a tree, prints the differences and returns their number.
fn compared(args: &Verify, stream: &Address, tree: &Path, out: &mut impl Write) -> Result<u64> {
    let tree = Address::of(tree)?;
    let [first, second] = args.source.open_pair([stream, &tree], None)?;
    for source in [&first, &second] {
        for note in source.notes().iter().chain(source.lost()) {
            message::tell(&format!("{}: {note}", source.name()));
        }
    }
    let bar = Bar::new("compared", args.silent.quiet);
    let how = (args.aspects.aspects(), args.threads.parallel());
    let mut differences = 0;
    let names = [first.name(), second.name()];
    let result = first.compare(&second, how, &bar, &mut |difference| {
        let is_dir = difference.change == Change::OnlyInSecond(FileKind::Directory);
        if is_dir && second.is_place_of_subvolume(&difference.path) {
            return Ok(());
        }
        differences += 1;
        if args.json {
            return Ok(());
        }
        Ok(writeln!(out, "{}", line(difference, names))?)
    });
    bar.finish();
    result?;
    Ok(differences)
}

fn is_io(error: &Error) -> bool {
    match error {
        Error::Io(_) => true,
        Error::Part { error, .. } => is_io(error),
        _ => false,
    }
}

fn show(verified: &Verified, no_data: bool, out: &mut impl Write) -> Result<()> {
    for subvolume in &verified.subvolumes {
        writeln!(out, "{}", of_subvolume(subvolume))?;
    }
    let more = verified.subvolume_count - verified.subvolumes.len() as u64;
    if more > 0 {
        writeln!(out, "and {}", text::count(more, "subvolume"))?;
    }
    let decoded = if no_data {
        "data not decompressed".to_owned()
    } else {
        format!(
            "{} decompressed",
            text::count(verified.extents_decoded, "extent")
        )
    };
    writeln!(
        out,
        "no errors: {}, {}, {}, {decoded}",
        text::of_bytes(verified.bytes),
        text::count(verified.streams, "stream"),
        text::count(verified.commands, "command"),
    )?;
    if verified.has_untracked_names {
        writeln!(
            out,
            "note: there are more names than fit into memory; not all were followed"
        )?;
    }
    Ok(())
}

/// A subvolume in words.
pub(crate) fn of_subvolume(subvolume: &SentSubvolume) -> String {
    let SentSubvolume {
        name,
        uuid,
        ctransid,
        parent,
    } = subvolume;
    let name = text::of_name(name);
    let uuid = of_uuid(uuid);
    match parent {
        None => format!("{name}: full, UUID {uuid}, transaction {ctransid}"),
        Some((parent, transid)) => format!(
            "{name}: incremental, UUID {uuid}, transaction {ctransid}; needs parent {} at transaction {transid}",
            of_uuid(parent)
        ),
    }
}

/// A subvolume as a JSON object.
pub(crate) fn json_subvolume(subvolume: &SentSubvolume) -> Object {
    let object = Object::new()
        .name("name", &subvolume.name)
        .text("uuid", &of_uuid(&subvolume.uuid))
        .number("ctransid", subvolume.ctransid);
    match &subvolume.parent {
        Some((uuid, transid)) => object
            .text("parent_uuid", &of_uuid(uuid))
            .number("parent_ctransid", *transid),
        None => object,
    }
}

fn json(verified: &Verified, error: Option<&str>, differences: Option<u64>) -> String {
    let mut object = match error {
        None => Object::new().null("error"),
        Some(error) => Object::new().text("error", error),
    };
    if let Some(differences) = differences {
        object = object.number("differences", differences);
    }
    object
        .number("bytes", verified.bytes)
        .number("streams", verified.streams)
        .number("commands", verified.commands)
        .number("extents_decoded", verified.extents_decoded)
        .flag("all_names_followed", !verified.has_untracked_names)
        .list("subvolumes", verified.subvolumes.iter().map(json_subvolume))
        .line()
}

fn digest(words: &str) -> Result<String> {
    let is_digest = words.len() == 64 && words.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_digest {
        bail!("must be 64 hexadecimal digits");
    }
    Ok(words.to_ascii_lowercase())
}
