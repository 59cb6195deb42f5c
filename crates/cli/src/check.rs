//! `restow check`: verifies an image, archive or stream.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use codec::Wrapper;
use restow::{Address, Container, ImageRange, Input, Platform};
use tree::json::Object;
use tree::{CheckOptions, Corrupt, DataCheck, Error, Finding};

use crate::bar::Bar;
use crate::options::{ImageFileArgs, SilentArgs, ThreadArgs};
use crate::{message, stream, text};

/// The version of the JSON form.
const VERSION: u32 = 1;

/// Verify an image, archive or send stream
///
/// Reads all of it, decompresses all data, and cross-checks redundant information. Never changes
/// it.
///
/// btrfs: checksums of all data and metadata, in every copy; that compressed data decompresses;
/// references to blocks and extents against the extent tree; names against inodes; allocated space
/// against its use. SquashFS, which has no checksums: names against inodes; inode numbers against
/// the export table; blocks against each other and against the inodes. EROFS: names, attributes and
/// link counts against inodes; clusters against each other. tar: header checksums, numbers, paths
/// and attributes, and the end marker; of compressed archives also all frames, their checksums, and
/// the seek table against them. Container images (`oci:DIR[:NAME]`): lengths and digests of all
/// blobs, also of layers before compression, layers that are SquashFS or EROFS images as above, and
/// the merged tree. Send streams: as `restow stream
/// verify`.
///
/// With `--root-hash`, each block of an image and its hash tree first; the first that is wrong is
/// named, and ends the check.
#[derive(Debug, Args)]
#[command(mut_arg("hash_tree", |it| it.visible_alias("verity")))]
#[command(after_help = "\
Examples:
  restow check image.squashfs
  restow check image.btrfs
  restow check --no-data image.btrfs     metadata only
  restow check --device b.img a.img      a file system on two devices
  restow check home.stream
  restow check oci:images:base           one image of a layout

Exit codes: 0 no errors; 1 errors found; 2 failure.")]
pub(crate) struct Check {
    /// A SquashFS, btrfs or EROFS image, tar or cpio archive, send stream or container image; `-`
    /// is standard input
    image: PathBuf,

    /// Do not read file contents
    #[arg(long)]
    no_data: bool,

    /// Verify the checksums of file contents, but do not decompress them (btrfs only)
    #[arg(long, conflicts_with = "no_data")]
    no_decode: bool,

    /// Print a JSON object per error and one with the result, which docs/json.md describes
    #[arg(long, conflicts_with = "quiet")]
    json: bool,

    /// Continue after the end of a tar archive: for concatenated archives
    #[arg(long, help_heading = "Tar archives as sources")]
    ignore_zeros: bool,

    /// Verify the container images for this platform only, as in linux/arm64 [default: all]
    #[arg(
        long,
        value_name = "OS/ARCH[/VARIANT]",
        help_heading = "Container images as sources"
    )]
    platform: Option<Platform>,

    #[command(flatten)]
    file: ImageFileArgs,

    #[command(flatten)]
    silent: SilentArgs,

    #[command(flatten)]
    threads: ThreadArgs,
}

impl Check {
    /// Refuses options that apply to images only.
    ///
    /// # Errors
    /// There is such an option; the error names it.
    fn refuse_options_of_images(&self) -> Result<()> {
        if self.no_decode {
            bail!("not a btrfs image: --no-decode does not apply");
        }
        if self.file.image_at.is_some() {
            bail!("not an image: --image-at does not apply");
        }
        self.file.refuse_options_of_disks(None)?;
        if self.file.root_hash.is_some() {
            bail!("not an image: --root-hash does not apply");
        }
        self.file.refuse_device()
    }

    fn refuse_checksums(&self, article_and_format: &str) -> Result<()> {
        if self.no_decode {
            bail!("--no-decode: {article_and_format} image has no checksums; use --no-data");
        }
        Ok(())
    }

    /// Prints the result of a format without checksums, and returns whether there is no error.
    /// Counts have a name in JSON and a noun.
    fn conclude(&self, errors: u64, counts: &[(&str, &str, u64)], decoded: u64) -> Result<bool> {
        let mut out = io::stdout().lock();
        if self.json {
            let mut object = Object::new().number("errors", errors);
            for &(name, _, number) in counts {
                object = object.number(name, number);
            }
            writeln!(out, "{}", object.number("decoded_bytes", decoded).line())?;
        } else if !self.silent.quiet {
            write!(out, "{} in ", text::count(errors, "error"))?;
            for &(_, noun, number) in counts {
                write!(out, "{}, ", text::count(number, noun))?;
            }
            writeln!(out, "{} of data decoded", text::count(decoded, "byte"))?;
        }
        Ok(errors == 0)
    }

    fn options(&self) -> CheckOptions {
        let data = if self.no_data {
            DataCheck::Skip
        } else if self.no_decode {
            DataCheck::Checksums
        } else {
            DataCheck::Decode
        };
        CheckOptions::EVERYTHING.data(data)
    }
}

/// Returns whether the image has no errors.
///
/// # Errors
/// It is not an image, or cannot be read.
pub(crate) fn run(args: &Check) -> Result<bool> {
    let address = Address::of(&args.image)?;
    let name = address.name();
    let open = || format!("open {name}");
    if address.subvolume.is_some() {
        let image = text::of_host_path(&address.path, "-");
        bail!("check {name}: check verifies whole files: use `restow check {image}`");
    }
    if address.is_container_image() {
        return check_images(&address, &name, args);
    }
    if args.platform.is_some() {
        bail!(
            "{}: not a container image: --platform does not apply",
            open()
        );
    }
    address.refuse_container_image()?;
    // A fault there is no reason to call it unreadable.
    if args.file.root_hash.is_some() && !verify(&address.path, &name, args)? {
        return Ok(false);
    }
    let container = Container::open(&address.path, &args.file.options()).with_context(open)?;
    args.file
        .refuse_options_of_disks(container.disk_file())
        .with_context(open)?;
    if args.ignore_zeros && !matches!(container, Container::Tar(..)) {
        bail!(
            "{}: {}: --ignore-zeros does not apply",
            open(),
            container.noun()
        );
    }
    match container {
        Container::Btrfs(file) => check_btrfs(file, &name, args),
        Container::Squashfs(file) => check_squashfs(file, &name, args),
        Container::Erofs(file) => check_erofs(file, &name, args),
        Container::SendStream(input) => {
            args.refuse_options_of_images().with_context(open)?;
            let how = (args.no_data, args.json);
            stream::check(&address, input, how, (args.silent, args.threads))
        }
        Container::Tar(input, wrapper) => check_tar(input, wrapper, &name, args),
        Container::Cpio(input) => check_tar(input, None, &name, args),
        other => bail!("{}: {}, which check does not verify", open(), other.noun()),
    }
}

/// Verifies all blocks with the root hash, and returns whether they are right.
fn verify(image: &Path, name: &str, args: &Check) -> Result<bool> {
    let (options, parallel) = (args.file.options(), args.threads.parallel());
    let bar = Bar::new("verified", args.silent.quiet);
    let verified = restow::verify_image(image, &options, parallel, &bar);
    bar.finish();
    let finding = match verified {
        Ok(_) => return Ok(true),
        Err(restow::Error::Tree(error @ Error::Corrupt(_))) => Finding::from(error),
        Err(error) => return Err(error).with_context(|| format!("read {name}")),
    };
    reported(name, args, |_, report| {
        report(finding);
        anyhow::Ok(())
    })?;
    args.conclude(1, &[], 0)
}

fn check_tar(input: Input, wrapper: Option<Wrapper>, name: &str, args: &Check) -> Result<bool> {
    let open = || format!("open {name}");
    args.refuse_options_of_images().with_context(open)?;
    if args.no_data {
        bail!("{}: --no-data does not apply to an archive", open());
    }
    let mut options = args.file.options();
    options.ignore_zeros = args.ignore_zeros;
    let summary = reported(name, args, |_, report| {
        restow::check_archive(input, wrapper, &options, report)
    })?;
    print_counts(
        args,
        summary.findings,
        &[("name", summary.names)],
        (summary.bytes, "archive"),
    )?;
    Ok(summary.findings == 0)
}

/// Prints the findings, the things that were checked by their names, and the bytes of archives or
/// layers.
fn print_counts(
    args: &Check,
    errors: u64,
    counted: &[(&str, u64)],
    (bytes, of): (u64, &str),
) -> Result<()> {
    let mut out = io::stdout().lock();
    if args.json {
        let object = Object::new().number("errors", errors);
        let object = counted.iter().fold(object, |object, (name, count)| {
            object.number(&format!("{name}s"), *count)
        });
        writeln!(out, "{}", object.number("archive_bytes", bytes).line())?;
    } else if !args.silent.quiet {
        let things = counted
            .iter()
            .map(|(name, count)| text::count(*count, name));
        writeln!(
            out,
            "{} in {}, {} of {of}",
            text::count(errors, "error"),
            things.collect::<Vec<_>>().join(", "),
            text::count(bytes, "byte")
        )?;
    }
    Ok(())
}

fn check_images(address: &Address, name: &str, args: &Check) -> Result<bool> {
    let open = || format!("open {name}");
    args.refuse_options_of_images().with_context(open)?;
    if args.no_data || args.ignore_zeros {
        let option = if args.no_data {
            "--no-data"
        } else {
            "--ignore-zeros"
        };
        bail!("{}: {option} does not apply to container images", open());
    }
    let mut options = args.file.options();
    options.platform.clone_from(&args.platform);
    let summary = reported(name, args, |_, report| {
        restow::check_images(address, &options, report)
    })?;
    let counted = [
        ("image", summary.images),
        ("layer", summary.layers),
        ("name", summary.names),
    ];
    print_counts(args, summary.findings, &counted, (summary.bytes, "layers"))?;
    Ok(summary.findings == 0)
}

fn check_btrfs(file: ImageRange, name: &str, args: &Check) -> Result<bool> {
    let btrfs = file
        .open_btrfs(&args.file.options())
        .with_context(|| format!("open {name}"))?;
    let parallel = args.threads.parallel();
    let summary = reported(name, args, |bar, report| {
        btrfs.check(args.options(), parallel, bar, report)
    })?;
    let mut notes: Vec<String> = summary.notes.iter().map(ToString::to_string).collect();
    if btrfs.has_log() {
        notes.push(
            "the image was not unmounted cleanly; its log was read, but not compared with the trees"
                .to_owned(),
        );
    }
    let mut out = io::stdout().lock();
    if args.json {
        let object = Object::new()
            .number("errors", summary.findings)
            .number("tree_blocks", summary.tree_blocks)
            .number("extents", summary.extents)
            .number("inodes", summary.inodes)
            .number("verified_bytes", summary.data_bytes)
            .number("decoded_bytes", summary.decoded_bytes)
            .texts("notes", notes.iter().map(String::as_str));
        writeln!(out, "{}", object.line())?;
    } else if !args.silent.quiet {
        writeln!(
            out,
            "{} in {}, {}, {}, {} of data verified, {} decoded",
            text::count(summary.findings, "error"),
            text::count(summary.tree_blocks, "tree block"),
            text::count(summary.extents, "extent"),
            text::count(summary.inodes, "inode"),
            text::count(summary.data_bytes, "byte"),
            text::count(summary.decoded_bytes, "byte")
        )?;
        for note in &notes {
            writeln!(out, "note: {note}")?;
        }
    }
    Ok(summary.findings == 0)
}

fn check_squashfs(file: ImageRange, name: &str, args: &Check) -> Result<bool> {
    let open = || {
        args.file.refuse_device()?;
        args.refuse_checksums("a SquashFS")?;
        anyhow::Ok(file.open_squashfs()?)
    };
    let image = open().with_context(|| format!("open {name}"))?;
    let parallel = args.threads.parallel();
    let summary = reported(name, args, |bar, report| {
        image.check(args.options(), parallel, bar, report)
    })?;
    let counts = [
        ("inodes", "inode", summary.inodes),
        ("blocks", "block", summary.blocks),
        ("fragments", "fragment", summary.fragments),
    ];
    args.conclude(summary.findings, &counts, summary.data_bytes)
}

fn check_erofs(file: ImageRange, name: &str, args: &Check) -> Result<bool> {
    let open = || {
        args.refuse_checksums("an EROFS")?;
        anyhow::Ok(file.open_erofs(&args.file.options())?)
    };
    let image = open().with_context(|| format!("open {name}"))?;
    let parallel = args.threads.parallel();
    let summary = reported(name, args, |bar, report| {
        image.check(args.options(), parallel, bar, report)
    })?;
    let counts = [
        ("inodes", "inode", summary.inodes),
        ("clusters", "compressed cluster", summary.clusters),
    ];
    args.conclude(summary.findings, &counts, summary.data_bytes)
}

/// Runs a check with a progress bar, and prints its findings.
fn reported<S, E>(
    name: &str,
    args: &Check,
    check: impl FnOnce(&Bar, &mut dyn FnMut(Finding)) -> Result<S, E>,
) -> Result<S>
where
    Result<S, E>: Context<S, E>,
{
    let mut out = io::stdout().lock();
    if args.json {
        let header = Object::of_schema("check", VERSION).text("source", name);
        writeln!(out, "{}", header.line())?;
    }
    let mut result = Ok(());
    let bar = Bar::new("checked", args.silent.quiet);
    let summary = check(&bar, &mut |finding| {
        if result.is_ok() && !args.silent.quiet {
            let words = message::of_finding(&finding);
            result = if args.json {
                writeln!(out, "{}", object(&finding, &words).line())
            } else {
                writeln!(out, "{words}")
            };
        }
    });
    bar.finish();
    let summary = summary.with_context(|| format!("read {name}"))?;
    result?;
    Ok(summary)
}

/// A finding as an object.
fn object(finding: &Finding, words: &str) -> Object {
    let mut object = Object::new().text("error", words);
    if let Some((kind, number)) = finding.part {
        let part = Object::new().text("kind", kind).number("number", number);
        object = object.object("part", part);
    }
    if let Some(path) = &finding.file {
        object = object.name("path", path);
    }
    if let Error::Corrupt(Corrupt { what, at, got }) = finding.error {
        object = object.text("what", what);
        object = object.number("at", at).number("found", got);
    }
    object
}
