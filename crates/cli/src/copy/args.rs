//! The arguments of `restow copy`.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::builder::{PathBufValueParser, PossibleValue, TypedValueParser};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, ValueEnum};
use codec::{Packer, Wrapper};
use restow::{Address, CopyOptions, Format, LayerFormat, PartNumber, Version, subvolume_name};
use tree::OutputPath;
use tree::json::Json;

use crate::options::{
    BtrfsArgs, DirectoryArgs, EditArgs, ErofsArgs, ImageArgs, RescueArgs, SOURCE_HELP,
    SOURCE_LONG_HELP, SourceArgs, SquashfsArgs, StreamArgs, ThreadArgs, bytes, epoch, open_options,
};
use crate::stream::settings;
use crate::text;

/// Maximum size of a configuration: registries accept 4 MiB.
const CONFIG_BYTES_MAX: u64 = 4 << 20;

const BASE_HELP: &str = "\
Replay this send stream first (repeatable): an incremental stream needs its parent. To write a container image: put a \
layer with the differences on those of this one, as in oci:DIR:NAME";

/// Copy a file tree into another container
///
/// The format of SRC is detected from its content. The format of DST follows from its name: `.tar`
/// and `-` are tar archives, `.tar.gz` (`.tgz`), `.tar.xz` (`.txz`) and `.tar.zst` (`.tzst`)
/// compressed ones; `.cpio` and `.cpio.zst` are cpio archives, as of an initramfs; `.squashfs`,
/// `.sqfs`, `.sfs` and `.snap` are SquashFS images; `.btrfs` is a btrfs image; `.erofs` is an EROFS
/// image; `.stream` and `.send` are btrfs send streams; `oci:DIR[:NAME]` and
/// `oci-archive:FILE[:NAME]` are container images; a name without an ending is a directory, and
/// other endings are refused. `--to` overrides this. If DST is an existing directory, it must be
/// empty, or `--merge` or `--replace` must decide about its contents; that of container images may
/// have others. DST appears under its final name only when it is complete and on disk: an error or
/// Ctrl-C leaves nothing behind. Only a block device is written in place. After `kill -9` or a
/// power failure, a name like `.DST.restow-PID-N.tmp` can be left beside DST, or
/// `..restow-PID-N.tmp` in it with `--merge`; the next copy to the same DST removes it.
#[derive(Debug, Args)]
#[command(mut_arg("base", |it| it.value_name("STREAM|IMAGE").help(BASE_HELP).long_help(BASE_HELP)))]
#[command(after_help = "\
Examples:
  restow copy src src.tar                        directory to tar
  restow copy src.tar dst                        tar to directory
  restow copy src src.tar.zst                    compressed tar that is read in place
  restow copy src - | ssh host 'tar xf - -C dst' tar to standard output
  curl -s URL | restow copy - dst                tar, compressed or not, from standard input
  restow copy --overwrite src backup.tar         replace an existing archive
  restow copy --merge src.tar dst                extract into a directory with files
  restow copy --compress zstd:19 src src.squashfs
                                                 directory to SquashFS
  restow copy --compress zstd:9 src src.btrfs    directory to btrfs
  restow copy --compress lz4:hc src src.erofs    directory to EROFS
  restow copy src.btrfs:home home.squashfs       one subvolume
  restow copy src src.stream                     directory to btrfs send stream
  restow copy src.squashfs dst etc 'usr/*/bin'   selected files
  restow copy --with b=opt/b a both.tar          two directories, the second in opt/b
  restow copy src oci:images:app                 directory to container image, one layer
  restow copy --base oci:images:base new oci:images:next
                                                 a layer with the differences, on those of base
  restow copy --to file src.tar fstab.bak snapshot/etc/fstab
                                                 one file, with its mode and times
  restow copy --exclude '... *.o' --all-root src src.tar
                                                 without object files, owned by root

Environment:
  SOURCE_DATE_EPOCH  Seconds since 1970: no file in an image gets a later time

Exit codes: 0 success; 1 success, but something could not be preserved; 2 failure.")]
pub(crate) struct Copy {
    #[arg(help = SOURCE_HELP, long_help = SOURCE_LONG_HELP)]
    pub(crate) src: PathBuf,

    /// Where to write the tree; `-` is standard output
    #[arg(value_parser = PathBufValueParser::new().map(destination))]
    pub(crate) dst: PathBuf,

    /// Copy only these files and directories, with the directories above them: paths in SRC (or a
    /// SRC2 of --with), or patterns as for --exclude [default: everything]
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,

    /// Add the tree SRC2, in the directory PATH of DST; of files in both, the later one counts
    /// (repeatable)
    #[arg(
        long,
        value_name = "SRC2[=PATH]",
        help_heading = "Selecting and changing files"
    )]
    pub(crate) with: Vec<OsString>,

    /// Put SRC into the directory PATH of DST, which is made with those above it
    #[arg(
        long,
        value_name = "PATH",
        help_heading = "Selecting and changing files"
    )]
    pub(crate) root_becomes: Option<OsString>,

    /// Remove the first N names from each path in SRC, and leave out files with no more than those:
    /// PATH and --exclude are paths before that
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        hide_default_value = true,
        help_heading = "Selecting and changing files"
    )]
    pub(crate) strip_components: u16,

    /// Store times in whole seconds, rounded down, or in nanoseconds; in a tar archive, nanoseconds
    /// take another KiB for each file that has them
    #[arg(
        long,
        value_name = "UNIT",
        default_value = "ns",
        help_heading = "Selecting and changing files"
    )]
    time_precision: TimePrecision,

    /// Write DST in this format, regardless of its name
    #[arg(long, value_name = "FORMAT")]
    pub(crate) to: Option<DestinationFormat>,

    /// Replace the file DST if it exists, once the new one is complete
    ///
    /// A symbolic link stays, and the file that it leads to is replaced. The new file gets the
    /// permissions, access control list and owner of the old one; other names (hard links) keep
    /// the old one. A block device is written in place, and an error leaves it without a valid
    /// image. In a layout of container images, the image of that name is replaced. For directories,
    /// see --merge and --replace.
    #[arg(long)]
    pub(crate) overwrite: bool,

    /// Objects: keep the parts that were sent if the copy ends early, and continue an unfinished
    /// upload: everything is made again, and only the parts that the store lacks are sent
    #[arg(long)]
    pub(crate) resume: bool,

    /// Objects: do nothing if the object was made by the same version with the same options from
    /// the same files, by their names, sizes, modification times and attributes; replace an older
    /// one
    #[arg(long)]
    pub(crate) if_changed: bool,

    /// Objects: read the object when it is complete, and compare it with the sent parts
    #[arg(long)]
    pub(crate) read_back: bool,

    #[command(flatten)]
    pub(crate) threads: ThreadArgs,

    /// Take at most this much memory, with fewer threads and smaller buffers if necessary; the
    /// result does not depend on it. Fail before DST is written if the options need more
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) memory: Option<u64>,

    /// Print only errors, and properties that could not be preserved
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// List files as they are copied: on standard output, or on standard error if DST is `-`
    #[arg(short, long, conflicts_with = "quiet")]
    pub(crate) verbose: bool,

    /// Print a JSON object on standard output with the result and the properties that could not be
    /// preserved, which docs/json.md describes
    #[arg(long, conflicts_with = "verbose")]
    pub(crate) json: bool,

    /// Fail if the source holds more than BYTES of file data (guards against decompression bombs)
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) max_content: Option<u64>,

    #[command(flatten)]
    pub(crate) edits: EditArgs,

    #[command(flatten)]
    pub(crate) rescue: RescueArgs,

    #[command(flatten)]
    pub(crate) directory: DirectoryArgs,

    #[command(flatten)]
    pub(crate) image: ImageArgs,

    #[command(flatten)]
    pub(crate) squashfs: SquashfsArgs,

    /// Make only part I of N of the image, so that each can be made on another machine
    ///
    /// DST holds the compressed data of an equal share of the content, for --parts; `--to btrfs`
    /// makes parts of btrfs images. All machines need the same files, by names, sizes and
    /// modification times, and the same options. Part 0 lists the equal files alone: with --parts,
    /// the others need not search them.
    #[arg(long, value_name = "I/N", value_parser = part, conflicts_with = "verbose", help_heading = "SquashFS and btrfs images")]
    part: Option<PartNumber>,

    /// Join all parts of the image, which becomes the one that a single machine would make; no
    /// content in SRC is read (repeatable; of a directory, the files in it that end in `.part`)
    #[arg(long, value_name = "PART", help_heading = "SquashFS and btrfs images")]
    parts: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) btrfs: BtrfsArgs,

    #[command(flatten)]
    pub(crate) erofs: ErofsArgs,

    #[command(flatten)]
    pub(crate) stream: StreamArgs,

    /// Take the configuration of a container image from FILE, as `skopeo inspect --config` prints
    /// one: environment, command, labels, platform [default: that of --base, or of SRC]
    #[arg(long, value_name = "FILE", help_heading = "Container images")]
    config: Option<PathBuf>,

    /// Make the layer a FORMAT [default: tar]
    ///
    /// An image of a file system is mounted without being unpacked, by programs that know such
    /// layers: stacker and atomfs, and containerd with its erofs snapshotter. The options for
    /// SquashFS or EROFS images apply, and --base may have such layers, too.
    #[arg(long, value_name = "FORMAT", help_heading = "Container images")]
    layer: Option<LayerKind>,

    #[command(flatten)]
    pub(crate) source: SourceArgs,
}

/// The argument of `--time-precision`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TimePrecision {
    /// Whole seconds
    S,
    /// Nanoseconds
    Ns,
}

/// The argument of `--layer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LayerKind {
    /// A tar archive, which all programs read
    Tar,
    /// A SquashFS image
    Squashfs,
    /// An EROFS image
    Erofs,
}

/// `-` for all names of standard output, such as `/dev/stdout`.
fn destination(path: PathBuf) -> PathBuf {
    match OutputPath::of(&path) {
        Ok(OutputPath::Open(1)) => Path::new("-").to_owned(),
        _ => path,
    }
}

/// The argument of `--to`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DestinationFormat(Format);

impl ValueEnum for DestinationFormat {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [DestinationFormat; 14] = [
            DestinationFormat(Format::Dir),
            DestinationFormat(Format::File),
            DestinationFormat(Format::Tar),
            DestinationFormat(Format::TarGz),
            DestinationFormat(Format::TarXz),
            DestinationFormat(Format::TarZst),
            DestinationFormat(Format::Cpio),
            DestinationFormat(Format::CpioZst),
            DestinationFormat(Format::Squashfs),
            DestinationFormat(Format::Btrfs),
            DestinationFormat(Format::Erofs),
            DestinationFormat(Format::Stream),
            DestinationFormat(Format::Oci),
            DestinationFormat(Format::OciArchive),
        ];
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (name, help) = match self.0 {
            Format::Dir => ("dir", "A directory"),
            Format::File => (
                "file",
                "One regular file, with its mode and times: SRC itself, or PATH in it",
            ),
            Format::Tar => ("tar", "A tar archive (PAX)"),
            Format::TarGz => ("tar.gz", "A tar archive, compressed with gzip"),
            Format::TarXz => ("tar.xz", "A tar archive, compressed with xz"),
            Format::TarZst => ("tar.zst", "A tar archive, compressed with zstd"),
            Format::Cpio => ("cpio", "A cpio archive (newc), as of an initramfs"),
            Format::CpioZst => ("cpio.zst", "The same, compressed with zstd"),
            Format::Squashfs => ("squashfs", "A SquashFS image"),
            Format::Btrfs => ("btrfs", "A btrfs image"),
            Format::Erofs => ("erofs", "An EROFS image"),
            Format::Stream => ("stream", "A btrfs send stream"),
            Format::Oci => (
                "oci",
                "A container image in an OCI layout: DST is DIR[:NAME]",
            ),
            Format::OciArchive => (
                "oci-archive",
                "A container image in a tar archive of an OCI layout: DST is FILE[:NAME]",
            ),
        };
        let value = PossibleValue::new(name).help(help);
        Some(match self.0 {
            Format::TarGz => value.alias("tgz"),
            Format::TarXz => value.alias("txz"),
            Format::TarZst => value.alias("tzst"),
            _ => value,
        })
    }
}

impl Copy {
    /// The format that was chosen.
    pub(crate) fn format(&self) -> Option<Format> {
        let chosen = self.to.map(|format| format.0);
        if self.part.is_none() || chosen.is_some() {
            return chosen;
        }
        // A part has any name, but not that of another image.
        match Format::of(&self.dst, None) {
            Ok(format) if format != Format::Dir => None,
            _ => Some(Format::Squashfs),
        }
    }

    /// The options of the source, with those for damaged ones, and without those of a container
    /// image as DST.
    pub(crate) fn source(&self) -> SourceArgs {
        let mut source = SourceArgs {
            skip_damaged: self.rescue.skips(),
            ..self.source.clone()
        };
        source.base.retain(|base| !is_image(base));
        if self.writes_image() && !is_image(&self.src) {
            source.platform = None;
        }
        source
    }

    fn writes_image(&self) -> bool {
        Format::of(&self.dst, self.format()).is_ok_and(Format::is_container_image)
    }

    /// The options for the library.
    ///
    /// # Errors
    /// An option is impossible for the format, or a list cannot be read.
    pub(crate) fn options(&self, format: Format) -> Result<CopyOptions> {
        let mut options = CopyOptions::default();
        options.overwrite = self.overwrite;
        options.parallel = self.threads.parallel();
        options.memory_max = self.memory;
        if let Some(bytes) = self.max_content {
            options.limits.content_bytes_max = bytes;
        }
        options.skip_unreadable = self.rescue.skip_unreadable;
        options.keep_damaged = self.rescue.keep_damaged;
        options.accept_changed = self.rescue.accept_changed;
        options.existing = self.directory.existing(self.overwrite);
        options.owners = !self.directory.no_owners;
        options.sync = !self.directory.no_sync;
        options.whole_seconds = self.time_precision == TimePrecision::S;
        options.recompress = self.image.recompress;
        options.reuse.clone_from(&self.image.reuse);
        options.trust_mtime = self.image.trust_mtime;
        options.duplicates = !self.image.no_duplicates;
        options.verify = self.image.verify();
        options.verity = self.image.verity();
        let open = open_options();
        options.spool_dir = open.spool_dir;
        options.remote = open.remote;
        self.set_upload(&mut options)?;
        options.part = self.part;
        options.parts.clone_from(&self.parts);
        match format {
            Format::Squashfs => {
                self.squashfs.set(&self.image, &mut options)?;
                if self.image.dual {
                    let codec = options.squashfs.compression;
                    self.erofs.set_dual(codec, &mut options)?;
                    if !options.erofs.keeps_unaligned() {
                        bail!(
                            "--dual: SquashFS does not align its data, which needs --min-kernel 6.15"
                        );
                    }
                }
            }
            Format::Btrfs => {
                self.btrfs.set(&self.image, &mut options)?;
                if self.image.dual {
                    let codec = options.btrfs.compression;
                    self.erofs.set_dual(codec, &mut options)?;
                }
            }
            Format::Erofs => {
                let shared = (&self.squashfs, &self.btrfs);
                self.erofs.set(&self.image, shared, &mut options)?;
            }
            Format::Stream => self.set_stream(&mut options)?,
            Format::Oci | Format::OciArchive => self.set_image(&mut options)?,
            Format::TarGz | Format::TarXz | Format::TarZst | Format::CpioZst => {
                options.level = level(format.wrapper(), self.image.compress.as_deref())?;
            }
            Format::Tar | Format::Cpio | Format::Dir | Format::File => {}
        }
        if matches!(format, Format::Cpio | Format::CpioZst) {
            options.epoch = epoch()?;
        }
        Ok(options)
    }

    #[cfg(feature = "remote")]
    fn set_upload(&self, options: &mut CopyOptions) -> Result<()> {
        if !Address::is_written_object(&self.dst) {
            for (is_wanted, name) in [
                (self.resume, "resume"),
                (self.read_back, "read-back"),
                (self.if_changed, "if-changed"),
            ] {
                if is_wanted {
                    bail!("--{name}: DST is not an object of a store (s3://, gs://, az://)");
                }
            }
        }
        options.upload.read_back = self.read_back;
        options.upload.overwrite = self.overwrite;
        options.upload.resume = self.resume;
        Ok(())
    }

    #[cfg(not(feature = "remote"))]
    fn set_upload(&self, _: &mut CopyOptions) -> Result<()> {
        if self.resume || self.read_back || self.if_changed {
            bail!("--resume, --read-back and --if-changed: this build writes no objects");
        }
        Ok(())
    }

    /// The format of a layer that is an image of a file system.
    pub(crate) fn layer(&self) -> Option<LayerFormat> {
        match self.layer {
            None | Some(LayerKind::Tar) => None,
            Some(LayerKind::Squashfs) => Some(LayerFormat::Squashfs),
            Some(LayerKind::Erofs) => Some(LayerFormat::Erofs),
        }
    }

    fn set_image(&self, options: &mut CopyOptions) -> Result<()> {
        options.epoch = epoch()?;
        options.image.layer = self.layer();
        match options.image.layer {
            Some(LayerFormat::Squashfs) => self.squashfs.set(&self.image, options)?,
            Some(LayerFormat::Erofs) => {
                let shared = (&self.squashfs, &self.btrfs);
                self.erofs.set(&self.image, shared, options)?;
            }
            None => {
                let compress = self.image.compress.as_deref();
                let wrapper = match compress.map(|words| words.split(':').next()) {
                    None | Some(Some("zstd")) => Some(Wrapper::Zstd),
                    Some(Some("gzip")) => Some(Wrapper::Gzip),
                    Some(Some("none")) => None,
                    _ => bail!("--compress: layers of container images take zstd, gzip or none"),
                };
                options.level = level(wrapper, compress)?;
                options.image.wrapper = wrapper;
            }
        }
        let image = &mut options.image;
        image.platform.clone_from(&self.source.platform);
        let bases: Vec<&PathBuf> = self.source.base.iter().filter(|it| is_image(it)).collect();
        image.base = match bases[..] {
            [] => None,
            [base] => Some(base.clone()),
            _ => bail!("--base: a container image is put on one other"),
        };
        if let Some(file) = &self.config {
            let reading = || format!("--config {}", text::of_host_path(file, "-"));
            let mut bytes = Vec::new();
            let opened = File::open(file).with_context(reading)?;
            let read = opened.take(CONFIG_BYTES_MAX + 1).read_to_end(&mut bytes);
            read.with_context(reading)?;
            let config = Json::parse(&bytes).filter(|it| matches!(it, Json::Object(_)));
            if config.is_none() || bytes.len() as u64 > CONFIG_BYTES_MAX {
                bail!("{}: must be a JSON object of at most 4 MiB", reading());
            }
            image.config = config;
        }
        Ok(())
    }

    fn set_stream(&self, options: &mut CopyOptions) -> Result<()> {
        if self.rescue.skips() {
            bail!("--skip-unreadable and --keep-damaged do not apply to a btrfs send stream");
        }
        let name = self.stream.name.as_ref().map(|name| name.as_bytes());
        let stream = &mut options.stream;
        stream.name = Some(subvolume_name(&self.dst, name)?);
        stream.uuid = self.btrfs.uuid();
        stream.plain = self.image.compress.is_some();
        stream.encode = match self.image.compress.as_deref() {
            None | Some("none") => None,
            Some(words) => Some(settings(words).with_context(|| format!("--compress {words}"))?),
        };
        if self.stream.proto == Some(Version::V1) && stream.encode.is_some() {
            bail!("version 1 of send streams has no compressed data");
        }
        stream.version = self.stream.proto.unwrap_or(stream.version);
        Ok(())
    }
}

/// The argument of `--part`.
fn part(words: &str) -> Result<PartNumber> {
    let (number, of) = words.split_once('/').unwrap_or_default();
    let number = number.parse().ok().zip(of.parse().ok());
    let number = number.and_then(|(number, of)| PartNumber::new(number, of));
    number.context("must be I/N, from 1/N to N/N, or 0/N")
}

/// Whether an address names a container image by a word.
fn is_image(address: &Path) -> bool {
    Address::of(address).is_ok_and(|address| address.is_container_image())
}

/// The level that `--compress` gives for an archive that is compressed as a whole: `zstd:19` or
/// `zstd`.
fn level(wrapper: Option<Wrapper>, compress: Option<&str>) -> Result<Option<u8>> {
    let Some(wrapper) = wrapper else {
        return Ok(None);
    };
    let level = match compress.map(|words| words.split_once(':').unwrap_or((words, ""))) {
        Some((name, _)) if name != wrapper.name() => {
            bail!(
                "--compress {name}: the name of DST says that it is compressed with {}",
                wrapper.name()
            )
        }
        None | Some((_, "")) => None,
        Some((_, level)) => Some(
            level
                .parse()
                .with_context(|| format!("`{level}` is not a level"))?,
        ),
    };
    Packer::new(wrapper, level).context("--compress")?;
    Ok(level)
}

/// The headings of options for some formats of the destination only, and these formats. Options
/// without a heading, and those of sources, apply to all.
const HEADINGS: [(&str, &[Format]); 8] = [
    ("Directories", &[Format::Dir, Format::File]),
    (
        "SquashFS, btrfs and EROFS images",
        &[Format::Squashfs, Format::Btrfs, Format::Erofs],
    ),
    (
        "SquashFS and btrfs images",
        &[Format::Squashfs, Format::Btrfs],
    ),
    ("SquashFS images", &[Format::Squashfs]),
    ("btrfs images", &[Format::Btrfs]),
    ("EROFS images", &[Format::Erofs]),
    ("btrfs send streams", &[Format::Stream]),
    ("Container images", &[Format::Oci, Format::OciArchive]),
];

/// Options below the heading of another format that apply to send streams, and to EROFS images.
const OF_STREAMS: [&str; 2] = ["compress", "uuid"];
const OF_EROFS: [&str; 5] = ["uuid", "label", "block_size", "mkfs_time", "align"];

/// Options of images that do not apply to EROFS images.
const NOT_OF_EROFS: [&str; 2] = ["trust_mtime", "dual"];

/// Options of images that do not apply to images in layers.
const NOT_OF_LAYERS: [&str; 6] = ["dual", "offset", "part", "parts", "verity", "verity_salt"];

/// Options for directories that do not apply to a single file.
const OF_DIRECTORIES: [&str; 10] = [
    "file_contexts",
    "keep_directory_symlink",
    "strip_components",
    "files_from",
    "merge",
    "keep_existing",
    "keep_newer",
    "replace",
    "with",
    "root_becomes",
];

/// Refuses options on the command line that do not apply to the format of the destination, or to
/// that of its layer.
///
/// # Errors
/// There is such an option; the error names it.
pub(crate) fn refuse_what_does_not_apply(
    typed: &ArgMatches,
    format: Format,
    layer: Option<LayerFormat>,
) -> Result<()> {
    let layer = layer.map(|layer| match layer {
        LayerFormat::Squashfs => Format::Squashfs,
        LayerFormat::Erofs => Format::Erofs,
    });
    for option in Copy::augment_args(clap::Command::new("copy")).get_arguments() {
        let id = option.get_id().as_str();
        if typed.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        if format == Format::File && OF_DIRECTORIES.contains(&id) {
            bail!(
                "--{} does not apply to a file",
                option.get_long().unwrap_or(id)
            );
        }
        let heading = option.get_help_heading();
        let is_of_layer = !NOT_OF_LAYERS.contains(&id);
        let layer = layer.filter(|_| is_of_layer && format.is_container_image());
        let is_dual = !format.is_container_image() && typed.get_flag("dual");
        let applies_to = |format| applies(id, heading, format) || is_dual && id == "min_kernel";
        if !applies_to(format) && !layer.is_some_and(applies_to) {
            let (name, noun) = (option.get_long().unwrap_or(id), format.noun());
            let advice = if format == Format::Tar && id == "compress" {
                "; name it `.tar.zst`, `.tar.gz` or `.tar.xz`"
            } else {
                ""
            };
            bail!("--{name} does not apply to {noun}{advice}");
        }
    }
    Ok(())
}

/// Whether an option below a heading applies to a format.
fn applies(id: &str, heading: Option<&str>, format: Format) -> bool {
    let is_shared = format == Format::Stream && OF_STREAMS.contains(&id)
        || format == Format::Erofs && OF_EROFS.contains(&id)
        || (format.wrapper().is_some() || format.is_container_image()) && id == "compress";
    let known = HEADINGS.iter().find(|(known, _)| Some(*known) == heading);
    let is_other = known.is_some_and(|(_, formats)| !formats.contains(&format))
        || format == Format::Erofs && NOT_OF_EROFS.contains(&id);
    is_shared || !is_other
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_heading_says_what_its_options_apply_to() {
        let command = Copy::augment_args(clap::Command::new("copy"));
        let mut unused = HEADINGS.map(|(heading, _)| heading).to_vec();
        for option in command.get_arguments() {
            let heading = option.get_help_heading().unwrap_or(FOR_ALL[0]);
            unused.retain(|unused| *unused != heading);
            let known = HEADINGS.iter().any(|(known, _)| *known == heading);
            let of_source = heading.ends_with(" sources");
            assert!(
                known || of_source || FOR_ALL.contains(&heading),
                "{heading}"
            );
        }
        assert_eq!(unused, [""; 0]);
    }

    /// Headings of options that apply to every destination.
    const FOR_ALL: [&str; 2] = ["Options", "Selecting and changing files"];

    #[test]
    fn a_codec_is_that_of_the_name() {
        let of = |words| level(Some(Wrapper::Zstd), words);
        assert_eq!(of(None).unwrap(), None);
        assert_eq!(of(Some("zstd")).unwrap(), None);
        assert_eq!(of(Some("zstd:19")).unwrap(), Some(19));
        for wrong in ["gzip", "gzip:9", "zstd:23", "zstd:0", "zstd:x", "19"] {
            assert!(of(Some(wrong)).is_err(), "{wrong}");
        }
    }
}
