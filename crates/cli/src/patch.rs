//! `restow patch`: applies a patch.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use restow::Address;
use restow::patch::{
    APPLY_MEMORY_BYTES, ApplyOptions, Destination, PatchError, PatchFile, is_same,
};
use tree::Error;
use tree::json::Object;

use crate::bar::Bar;
use crate::delta::open;
use crate::options::{QuietArgs, bytes};
use crate::stream::input;
use crate::text;

/// The version of the form of --json.
const VERSION: u32 = 1;

/// Make NEW of OLD and a patch of `restow delta`
///
/// The patch is read once, and can come from a pipe: it is applied while it is downloaded. Each
/// part of it is verified before it is used, its result afterwards, and NEW gets its name when its
/// SHA-256 is right. OLD can be a block device that is in use.
///
/// NEW can be a block device, such as the other one of two partitions. OLD is then verified before
/// anything is written, NEW is read back, and its first 128 KiB are written last: until then it is
/// no image, as in `restow patch --overwrite /dev/mmcblk0p2 - /dev/mmcblk0p3`. OLD and NEW must
/// differ.
///
/// Data takes less than 16 MB of memory unless the patch was made with --memory.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  restow patch v1.squashfs v1-v2.patch new.squashfs
  restow patch --resume v1.squashfs v1-v2.patch new.squashfs
  ssh server 'cat v1-v2.patch' | restow patch v1.squashfs - new.squashfs

Exit codes: 0 success; 2 failure.")]
pub(crate) struct Patch {
    /// The file or block device from which the patch was made
    old: PathBuf,

    /// The patch; `-` is standard input
    patch: PathBuf,

    /// The file to make, or a block device
    new: PathBuf,

    /// Go on where an earlier run with this option was stopped: it leaves .NEW.restow-partial, or
    /// a block device; what is there is verified
    #[arg(long)]
    resume: bool,

    /// Allow this much memory for buffers
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value_t = APPLY_MEMORY_BYTES)]
    memory: u64,

    /// Print a JSON object
    #[arg(long)]
    json: bool,

    /// Replace NEW if it exists, or write over the block device
    #[arg(long)]
    overwrite: bool,

    #[command(flatten)]
    quiet: QuietArgs,
}

/// Applies a patch.
///
/// # Errors
/// The patch is damaged, OLD is another file, or NEW cannot be written.
pub(crate) fn run(args: &Patch) -> Result<()> {
    let new_name = text::of_host_path(&args.new, "-");
    if is_same(&args.old, &args.new) {
        bail!(
            "{new_name} is OLD, too: a patch is not applied in place; write another file or partition"
        );
    }
    let old = open(&args.old)?;
    let bar = Bar::new("patched", args.quiet.quiet);
    let stream = input::open(&args.patch, &Bar::hidden())?.into_reader();
    let patch = restow::patch::Patch::open(stream).map_err(|error| named(error, args))?;
    Address::refuse_remote_destination(&args.new)?;
    let new = Destination::open(&args.new, args.overwrite, args.resume);
    let new = new.map_err(|error| match error {
        Error::Io(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            anyhow!("{new_name} already exists; --overwrite replaces it")
        }
        error => anyhow::Error::from(error).context(format!("create {new_name}")),
    })?;
    let options = ApplyOptions::default().memory_bytes(args.memory);
    let applied = patch.apply(&old, new, &options, &bar);
    bar.finish();
    let applied = applied.map_err(|error| named(error, args))?;
    if args.json {
        let object = Object::of_schema("patch", VERSION)
            .number("patch_bytes", applied.patch_bytes)
            .number("new_bytes", applied.new_bytes)
            .number("resumed_bytes", applied.resumed_bytes);
        writeln!(io::stdout(), "{}", object.line())?;
    }
    Ok(())
}

/// Adds the operation and the file.
fn named(error: PatchError, args: &Patch) -> anyhow::Error {
    let (verb, path) = match error.file() {
        PatchFile::Old => ("read", &args.old),
        PatchFile::Patch => ("apply", &args.patch),
        _ => ("write", &args.new),
    };
    let error = match error {
        PatchError::Patch(error) | PatchError::New(error) => anyhow::Error::from(error),
        PatchError::Old(error) => error.into(),
        error => error.into(),
    };
    error.context(format!(
        "{verb} {}",
        text::of_host_path(path, "standard input")
    ))
}
