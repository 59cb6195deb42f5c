//! `restow index`: EROFS images of metadata alone.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;
use restow::{Address, CopyNote, CopyOptions, CopySummary, Format, Kernel, SourceTree};
use tree::json::Object;

use crate::bar::Bar;
use crate::copy::{CopyWords, split};
use crate::message::{self, tell};
use crate::options::{ThreadArgs, epoch, erofs_settings, open_options};
use crate::text;

/// The version of the JSON form.
const VERSION: u32 = 1;

/// Make an EROFS image whose data stays in images, streams or archives that exist
///
/// OUT has the names, inodes and attributes of IMAGE, and names its data where it is in IMAGE,
/// which is neither copied nor changed. Linux mounts OUT with IMAGE as its device: a btrfs image
/// where Linux has no btrfs, or a SquashFS image without the single cache of SquashFS. A subvolume
/// or snapshot is IMAGE:PATH or IMAGE:ID; without it, a btrfs image is shown from its top level.
///
/// Each further IMAGE is a layer over those before it, as in overlayfs: files of the later one
/// count, and its whiteouts and opaque directories hide others.
///
/// A full send stream or a tar archive (plain, or .tar.zst with a seek table) is indexed as well:
/// `ls`, `cat`, `copy` and `mount` of OUT with `--device IMAGE` then read the parts of it that they
/// need, from a web server or object storage, too. OUT has a digest of each 64 KiB of it.
///
/// Data that EROFS cannot name there is in OUT, encoded again, and counted by the reason: of other
/// codecs (xz, LZO), striped, from the middle of an extent.
///
/// OUT is of no use without IMAGE, and only as long as that stays as it is. restow refuses another
/// IMAGE, and one whose tables changed, or parts of a stream or archive; for a subvolume of btrfs,
/// new snapshots and changes of other subvolumes do not count. Linux cannot check that: a changed
/// SquashFS image, or a balance, defragmentation or deletion in a btrfs image, makes files wrong
/// without an error. Keep IMAGE read-only, or under dm-verity or fs-verity.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  restow index src.squashfs out.erofs
  restow index disk.btrfs:monday monday.erofs
                                         one snapshot
  restow index --min-kernel 6.12 disk.btrfs disk.erofs
                                         for a Linux without btrfs, as of RHEL 10
  restow index --device b.img a.img both.erofs
                                         a file system on two devices
  restow index src.squashfs live.squashfs layers.erofs
                                         two layers
  restow index --with disk.btrfs:monday=snapshots/monday src.squashfs merged.erofs
                                         one tree of both
  restow index --update disk.btrfs:monday monday.erofs
                                         only if monday was replaced
  restow index monday.stream monday.idx && restow cat --device monday.stream monday.idx notes
                                         one file of a stream, which can be in a bucket (s3://...)
  restow index src.squashfs out.erofs && restow check --device src.squashfs out.erofs

Mount the first one with `mount -t erofs -o ro,device=$(losetup -rf --show src.squashfs) out.erofs DIR`, several
images with a device= for each, in order. `restow mount --device src.squashfs out.erofs DIR` needs no loop device.

Environment:
  SOURCE_DATE_EPOCH  Seconds since 1970: no file in OUT gets a later time

Exit codes: 0 success; 1 success, but something could not be preserved; 2 failure.")]
pub(crate) struct Index {
    /// SquashFS, btrfs or EROFS images, subvolumes in btrfs images, send streams or tar archives
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<PathBuf>,

    /// The EROFS image to write
    out: PathBuf,

    /// Add the next device of the btrfs or EROFS image (repeatable); mount with the devices in this
    /// order
    #[arg(long, value_name = "IMAGE")]
    device: Vec<PathBuf>,

    /// Add IMAGE in the directory PATH of the tree, over the files there (repeatable)
    #[arg(long, value_name = "IMAGE[=PATH]")]
    with: Vec<OsString>,

    /// Make an image that Linux VERSION and newer can read
    ///
    /// Before 6.15, only the data of btrfs can be named, of the codec of --compress.
    /// [default: 6.15; 6.17 for streams and archives]
    #[arg(long, value_name = "VERSION")]
    min_kernel: Option<Kernel>,

    /// Compress data that is stored in OUT with CODEC: zstd:1 to zstd:22, gzip:1 to gzip:12, lz4 or
    /// lz4:hc
    #[arg(long, value_name = "CODEC", default_value = "zstd:3")]
    compress: String,

    /// Replace the file OUT if it exists, once the new one is complete
    #[arg(long, conflicts_with = "update")]
    overwrite: bool,

    /// Replace OUT if an image changed since OUT was made, and otherwise leave it as it is; other
    /// options are not compared
    #[arg(long)]
    update: bool,

    /// Print only errors, and properties that could not be preserved
    #[arg(short, long)]
    quiet: bool,

    /// Print a JSON object on standard output with the result, which docs/json.md describes
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    threads: ThreadArgs,
}

/// Returns whether everything could be preserved.
///
/// # Errors
/// The index failed; nothing was written.
pub(crate) fn run(args: &Index) -> Result<bool> {
    let out = text::of_host_path(&args.out, "standard output");
    index(args).with_context(|| format!("index {out}"))
}

fn index(args: &Index) -> Result<bool> {
    let start = Instant::now();
    let mut options = CopyOptions::default()
        .overwrite(args.overwrite)
        .parallel(args.threads.parallel())
        .spool_dir(open_options().spool_dir)
        .epoch(epoch()?);
    options.erofs = (options.erofs).compression(erofs_settings(&args.compress)?);
    let images = args.images.iter().map(|image| Address::of(image));
    let images = images.collect::<Result<Vec<_>, _>>()?;
    let with = args.with.iter().map(|words| {
        let (image, at) = split(words);
        Ok((Address::of(&image)?, at))
    });
    let with = with.collect::<Result<Vec<_>>>()?;
    if args.update && args.out.symlink_metadata().is_ok() {
        let all = images.iter().chain(with.iter().map(|(image, _)| image));
        let parallel = args.threads.parallel();
        if restow::is_current_index(all, &args.device, &args.out, parallel)? {
            return current(args);
        }
        options.overwrite = true;
    }
    let bar = Bar::new("indexed", args.quiet);
    let made = restow::index(
        &images,
        &with,
        &args.device,
        &args.out,
        args.min_kernel,
        options,
        &bar,
    );
    bar.finish();
    let (source, summary) = made?;
    report(args, &source, &summary, start)
}

/// Says that OUT stays as it is.
fn current(args: &Index) -> Result<bool> {
    if args.json {
        let object = Object::of_schema("index", VERSION)
            .name("destination", args.out.as_os_str().as_bytes())
            .flag("current", true);
        message::print_result(object)?;
    } else if !args.quiet {
        tell("OUT is an index of the images as they are");
    }
    Ok(true)
}

fn report(
    args: &Index,
    source: &SourceTree,
    summary: &CopySummary,
    start: Instant,
) -> Result<bool> {
    let is_whole = summary.is_whole() && source.lost().is_empty();
    let words = CopyWords::of((&args.out, Format::Erofs), None, source, summary);
    words.losses.iter().for_each(|(_, words)| tell(words));
    words.lost.iter().for_each(|words| tell(words));
    let Some(made) = &summary.erofs else {
        return Ok(is_whole);
    };
    let stored = made.image.data_bytes;
    if args.json {
        let recoded = made.recoded.iter().map(|(&reason, &count)| {
            let object = Object::new().text("reason", reason);
            object.number("extents", count)
        });
        let object = Object::of_schema("index", VERSION)
            .text("source", source.name())
            .name("destination", args.out.as_os_str().as_bytes())
            .number("files", summary.files)
            .number("content_bytes", summary.read_bytes)
            .number("written_bytes", summary.written_bytes)
            .number("named_units", made.device_units)
            .number("named_bytes", made.device_bytes)
            .number("stored_bytes", stored)
            .list("stored", recoded)
            .texts("not_preserved", words.lost.iter().map(String::as_str))
            .fraction("seconds", start.elapsed().as_secs_f64());
        message::print_result(object)?;
        return Ok(is_whole);
    }
    if args.quiet {
        return Ok(is_whole);
    }
    for note in &summary.notes {
        if let CopyNote::Recoded(count, reason) = note {
            let extents = text::count(*count, "extent");
            tell(&format!("{extents} stored in OUT: {reason}"));
        }
    }
    let files = text::count(summary.files, "file");
    let [named, stored, written] =
        [made.device_bytes, stored, summary.written_bytes].map(text::of_bytes);
    let units = text::count(made.device_units, "unit");
    let seconds = start.elapsed().as_secs_f64();
    tell(&format!(
        "{files}, {units} of {named} named where they are, {stored} of data stored, {written} written, {seconds:.2} s"
    ));
    Ok(is_whole)
}
