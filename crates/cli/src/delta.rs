//! `restow delta`: makes a patch.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use restow::Address;
use restow::patch::{APPLY_MEMORY_BYTES, DeltaInput, DeltaOptions, DeltaSummary, lz4_blocks, make};
use tree::Output;
use tree::json::Object;

use crate::bar::Bar;
use crate::options::{QuietArgs, ThreadArgs, bytes};
use crate::stream::input::create;
use crate::text;

/// The version of the form of --json.
const VERSION: u32 = 1;

/// Make a patch from which `restow patch` makes NEW of OLD
///
/// The files can be of any kind: images, archives, disks. Equal bytes are found at any place, and
/// compressed blocks are compared decoded: zstd in SquashFS, EROFS and btrfs images and in
/// archives, zlib in SquashFS and btrfs images, xz and LZ4 in SquashFS images. Of a changed block
/// only the difference is sent, if an encoder of restow gives it back. Applying the patch encodes
/// such a block again. Other blocks are sent as they are stored, unless OLD has them.
///
/// docs/json.md describes the output of --json.
#[derive(Debug, Args)]
#[command(override_usage = "\
restow delta [OPTIONS] <OLD> <NEW> <PATCH>
       restow delta [OPTIONS] --plan <OLD> <NEW>")]
#[command(after_help = "\
Examples:
  restow delta v1.squashfs v2.squashfs update.patch
  restow delta --plan v1.squashfs v2.squashfs
                                        what would be sent
  restow copy --reuse v1.squashfs src v3.squashfs
                                        an image that makes a small patch

Exit codes: 0 success; 2 failure.")]
pub(crate) struct Delta {
    /// The old file or block device
    old: PathBuf,

    /// The new file or block device
    new: PathBuf,

    /// The patch to write
    #[arg(required_unless_present = "plan")]
    patch: Option<PathBuf>,

    /// Write no patch, and print what would be in it
    #[arg(long, conflicts_with_all = ["patch", "overwrite"])]
    plan: bool,

    /// Let applying take this much memory for its buffers: a block that needs more to be encoded
    /// again, as of 1 MiB with zstd:19, is sent as it is
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value_t = APPLY_MEMORY_BYTES)]
    memory: u64,

    /// Print a JSON object
    #[arg(long)]
    json: bool,

    /// Replace PATCH if it exists
    #[arg(long)]
    overwrite: bool,

    #[command(flatten)]
    quiet: QuietArgs,

    #[command(flatten)]
    threads: ThreadArgs,
}

/// Makes a patch.
///
/// # Errors
/// A file cannot be read, or the patch cannot be written.
pub(crate) fn run(args: &Delta) -> Result<()> {
    let old = open(&args.old)?;
    let new = open(&args.new)?;
    let patch = args.patch.as_deref().unwrap_or(Path::new("-"));
    let mut output = if args.plan {
        Output::discarding()
    } else if patch == Path::new("-") {
        bail!("the patch is a file, since its header is written last");
    } else {
        create(patch, args.overwrite, None)?
    };
    let options = DeltaOptions::default()
        .memory_bytes(args.memory)
        .parallel(args.threads.parallel());
    let bar = Bar::new("compared", args.quiet.quiet);
    let (old_lz4, new_lz4) = (lz4_blocks(&old)?, lz4_blocks(&new)?);
    let old = DeltaInput::new(&old).lz4(&old_lz4);
    let new = DeltaInput::new(&new).lz4(&new_lz4);
    let made = make(&old, &new, &mut output, &options, &bar);
    bar.finish();
    let names = (
        text::of_host_path(&args.old, "-"),
        text::of_host_path(&args.new, "-"),
    );
    let made = made.with_context(|| format!("compare {} and {}", names.0, names.1))?;
    if !args.plan {
        let name = text::of_host_path(patch, "-");
        output.commit().with_context(|| format!("finish {name}"))?;
    }
    if args.quiet.quiet && !args.json && !args.plan {
        return Ok(());
    }
    let words = if args.json { json(&made) } else { table(&made) };
    let mut out = io::stdout().lock();
    out.write_all(words.as_bytes())?;
    Ok(out.flush()?)
}

/// Opens a file or block device that is read at any place.
///
/// # Errors
/// It cannot be opened, or is a pipe.
pub(crate) fn open(path: &Path) -> Result<File> {
    Address::refuse_remote_source(path)?;
    let name = text::of_host_path(path, "-");
    let file = File::open(path).with_context(|| format!("open {name}"))?;
    let kind = file.metadata()?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        bail!("{name} is neither a regular file nor a block device");
    }
    Ok(file)
}

fn table(made: &DeltaSummary) -> String {
    let rest = made.sent_bytes - made.foreign_bytes.min(made.sent_bytes);
    let blocks = |count| text::count(count, "block");
    let encoded = format!("encoded again on applying, {}", blocks(made.encoded_blocks));
    let foreign = format!(
        "blocks that restow does not encode so, {}",
        made.foreign_blocks
    );
    let rows = [
        (made.copied_bytes, "equal in the old file"),
        (made.zero_bytes, "zeros"),
        (made.encoded_bytes, &*encoded),
        (made.foreign_bytes, &*foreign),
        (rest, "other new bytes"),
    ];
    let mut words = String::new();
    for (bytes, what) in rows.iter().filter(|(bytes, _)| *bytes > 0) {
        words += &format!("{:>6}  {what}\n", text::of_size(*bytes));
    }
    let percent = made.patch_bytes as f64 * 100.0 / made.new_bytes.max(1) as f64;
    let patch = text::of_bytes(made.patch_bytes);
    let memory = text::of_size(made.memory_bytes);
    words
        + &format!(
            "patch: {patch}, {percent:.2} % of the new file; applying takes {memory} of buffers\n"
        )
}

fn json(made: &DeltaSummary) -> String {
    let object = Object::of_schema("delta", VERSION)
        .number("old_bytes", made.old_bytes)
        .number("new_bytes", made.new_bytes)
        .number("patch_bytes", made.patch_bytes)
        .number("memory_bytes", made.memory_bytes)
        .number("copied_bytes", made.copied_bytes)
        .number("zero_bytes", made.zero_bytes)
        .number("encoded_blocks", made.encoded_blocks)
        .number("encoded_bytes", made.encoded_bytes)
        .number("sent_bytes", made.sent_bytes)
        .number("foreign_blocks", made.foreign_blocks)
        .number("foreign_bytes", made.foreign_bytes);
    object.line() + "\n"
}
