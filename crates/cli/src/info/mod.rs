//! `restow info`: shows the contents of an image.

mod btrfs;
mod erofs;
mod oci;
mod squashfs;

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use tree::json::Object;

use crate::options::{QuietArgs, SourceArgs};
use crate::{text, usage};
use anyhow::{Context, Result, bail};
use clap::Args;
use restow::info::{BtrfsInfo, ContainerImagesInfo, ErofsInfo, SquashfsInfo};
use restow::{Address, Container, DiskFile, ImageRange, Partition};

/// The version of the JSON form.
const VERSION: u32 = 1;

/// Show the contents of an image: format, features, space by algorithm
///
/// For a disk image: the places and formats of its partitions. For a disk file (qcow2, VMDK, VHDX,
/// VHD), before that: its format, the sizes of the disk and of its clusters, and the files behind
/// it. For a SquashFS or EROFS image: codec
/// and settings or features, sizes, and counts. For a btrfs image: label, UUID, features, devices,
/// space by profile, subvolumes, and the space that files take by compression algorithm; with
/// IMAGE:SUBVOLUME or --subvolume, only the space of files in that subvolume. For container images:
/// names and platforms, and the configuration and layers of the one that is selected.
#[derive(Debug, Args)]
#[command(mut_arg("base", |arg| arg.hide(true)))]
#[command(mut_arg("ignore_zeros", |arg| arg.hide(true)))]
#[command(mut_arg("one_file_system", |arg| arg.hide(true)))]
#[command(after_help = "\
Examples:
  restow info image.squashfs
  restow info image.btrfs
  restow info image.btrfs:home --path user
                                  space that a directory takes

Exit codes: 0 success; 2 failure.")]
pub(crate) struct Info {
    /// A SquashFS, btrfs or EROFS image, or container images; IMAGE:PATH and IMAGE:ID select a
    /// subvolume
    image: PathBuf,

    /// Show only the space that this file or directory of a btrfs image takes, including everything
    /// below it
    #[arg(long, value_name = "PATH", help_heading = "btrfs sources")]
    path: Option<OsString>,

    /// Print a JSON object, which docs/json.md describes
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    quiet: QuietArgs,

    #[command(flatten)]
    source: SourceArgs,
}

/// Prints the contents of an image.
///
/// # Errors
/// It is not an image, or cannot be read.
pub(crate) fn run(args: &Info) -> Result<()> {
    let source = &args.source;
    for (is_given, option) in [
        (!source.base.is_empty(), "--base"),
        (source.ignore_zeros, "--ignore-zeros"),
        (source.one_file_system, "--one-file-system"),
    ] {
        if is_given {
            bail!("an image: {option} does not apply");
        }
    }
    let address = Address::of(&args.image)?;
    let open = || format!("open {}", address.name());
    if address.is_container_image() {
        if source.file.root_hash.is_some() {
            bail!("{}: a container image: --root-hash does not apply", open());
        }
        return show_container_images(&address, args, "a container image");
    }
    address.refuse_container_image()?;
    let options = args.source.options(false);
    let container = Container::open(&address.path, &options).with_context(open)?;
    let disk = container.disk_file().cloned();
    args.source
        .file
        .refuse_options_of_disks(disk.as_ref())
        .with_context(open)?;
    let disk = disk.as_ref();
    if !matches!(container, Container::Tar(..)) {
        source.refuse_platform().with_context(open)?;
    }
    match container {
        Container::Btrfs(file) => show_btrfs(file, &address, args, disk),
        Container::SendStream(_) => {
            bail!("{}: a btrfs send stream: use `restow stream info`", open())
        }
        Container::Squashfs(file) => {
            let image = || {
                if address.subvolume.is_some() {
                    bail!("a SquashFS image has no subvolumes");
                }
                if args.path.is_some() {
                    bail!("not a btrfs image: --path does not apply");
                }
                args.source.refuse_options_of_btrfs()?;
                args.source.file.refuse_device()?;
                Ok(file.open_squashfs()?)
            };
            let image = image().with_context(open)?;
            let read = || format!("read {}", address.name());
            let info = SquashfsInfo::of(&image).with_context(read)?;
            if args.json {
                return json(squashfs::object(&info, of_source(&address, disk)));
            }
            let mut words = of_disk_file(disk);
            squashfs::show(&info, &mut words)?;
            print(&words)
        }
        Container::Erofs(file) => {
            let image = || {
                if address.subvolume.is_some() {
                    bail!("an EROFS image has no subvolumes");
                }
                if args.path.is_some() {
                    bail!("not a btrfs image: --path does not apply");
                }
                args.source.refuse_options_of_btrfs()?;
                Ok(file.open_erofs(&options)?)
            };
            let image = image().with_context(open)?;
            let read = || format!("read {}", address.name());
            let info = ErofsInfo::of(&image).with_context(read)?;
            if args.json {
                return json(erofs::object(&info, of_source(&address, disk)));
            }
            let mut words = of_disk_file(disk);
            erofs::show(&info, &mut words)?;
            print(&words)
        }
        Container::Disk(partitions, _) if args.json => {
            json(of_partitions(&partitions, of_source(&address, disk)))
        }
        Container::Disk(partitions, _) => show_partitions(&partitions, of_disk_file(disk)),
        Container::Tar(..) => show_container_images(&address, args, container.noun()),
        other => bail!("{}: {}, not an image", open(), other.noun()),
    }
}

/// Shows the images of a layout. `noun` is the container if it is none.
fn show_container_images(address: &Address, args: &Info, noun: &str) -> Result<()> {
    let open = || format!("open {}", address.name());
    let refuse = || -> Result<()> {
        if args.path.is_some() {
            bail!("not a btrfs image: --path does not apply");
        }
        args.source.refuse_options_of_btrfs()?;
        args.source.file.refuse_device()
    };
    refuse().with_context(open)?;
    let options = args.source.options(false);
    let info = ContainerImagesInfo::of(address, &options).with_context(open)?;
    let Some(info) = info.filter(|_| address.subvolume.is_none()) else {
        bail!("{}: {noun}, not an image", open());
    };
    if args.json {
        return json(oci::object(&info, of_source(address, None)));
    }
    let mut words = Vec::new();
    oci::show(&info, &mut words)?;
    print(&words)
}

/// Lists the partitions of a disk image, with the option that reads one.
fn show_partitions(partitions: &[Partition], mut words: Vec<u8>) -> Result<()> {
    words.extend_from_slice(b"format          disk image with partitions\n");
    for partition in partitions {
        let Partition {
            number,
            start,
            len,
            label,
            format,
            ..
        } = partition;
        let format = format.unwrap_or("unknown");
        write!(
            words,
            "partition {number:<5} at {start}, {len} bytes, {format}"
        )?;
        if !label.is_empty() {
            write!(words, ", {label}")?;
        }
        words.push(b'\n');
    }
    print(&words)
}

/// The same as an object.
fn of_partitions(partitions: &[Partition], source: Object) -> Object {
    let list = partitions.iter().map(|partition| {
        let object = Object::new()
            .number("number", partition.number)
            .number("at", partition.start)
            .number("bytes", partition.len)
            .text("label", &partition.label);
        match partition.format {
            Some(format) => object.text("format", format),
            None => object,
        }
    });
    source.text("format", "disk").list("partitions", list)
}

/// The files of a disk in a line each.
fn of_disk_file(disk: Option<&Arc<DiskFile>>) -> Vec<u8> {
    let mut words = String::new();
    for (number, layer) in disk.iter().flat_map(|disk| disk.layers()).enumerate() {
        let path = text::of_host_path(&layer.path, "standard input");
        words += &match number {
            0 => format!("disk file       {}", layer.format),
            _ => format!("backing file    {path}, {}", layer.format),
        };
        words += &format!(", {} bytes", layer.disk_bytes);
        if layer.block_bytes > 0 {
            words += &format!(" in clusters of {}", layer.block_bytes);
        }
        if layer.snapshots > 0 {
            let snapshots = text::count(layer.snapshots.into(), "snapshot");
            words += &format!(", {snapshots} (--disk-snapshot)");
        }
        words.push('\n');
    }
    words.into_bytes()
}

/// The beginning of an object.
fn of_source(address: &Address, disk: Option<&Arc<DiskFile>>) -> Object {
    let object = Object::of_schema("info", VERSION).text("source", &address.name());
    let Some(disk) = disk else {
        return object;
    };
    let layers = disk.layers().iter().map(|layer| {
        Object::new()
            .name("path", layer.path.as_os_str().as_bytes())
            .text("format", &layer.format)
            .number("disk_bytes", layer.disk_bytes)
            .number("cluster_bytes", layer.block_bytes)
            .number("snapshots", layer.snapshots)
    });
    object.list("disk_file", layers)
}

fn json(object: Object) -> Result<()> {
    print((object.line() + "\n").as_bytes())
}

fn show_btrfs(
    file: ImageRange,
    address: &Address,
    args: &Info,
    disk: Option<&Arc<DiskFile>>,
) -> Result<()> {
    let open = || format!("open {}", address.name());
    let options = args.source.options(false);
    let btrfs = file.open_btrfs(&options).with_context(open)?;
    let id = restow::named_subvolume(&btrfs, address, &options).with_context(open)?;
    let info = BtrfsInfo::of(&btrfs);
    let read = || format!("read {}", address.name());
    let Some(path) = &args.path else {
        let object = of_source(address, disk);
        if args.json {
            return json(btrfs::object(&info, id, object).with_context(read)?);
        }
        let mut words = of_disk_file(disk);
        let shown = btrfs::show(&info, id, &mut words);
        // Output before an error may help to find it.
        print(&words)?;
        return shown.with_context(read);
    };
    let tree = restow::open_subvolume(&btrfs, address, &options).with_context(open)?;
    let path = path.as_bytes();
    let totals = BtrfsInfo::usage_below(&tree, path);
    let totals = totals.with_context(|| format!("{}: {}", read(), text::of_name(path)))?;
    if args.json {
        let object = of_source(address, disk).text("format", "btrfs");
        let object = object.name("path", path);
        return json(object.object("usage", usage::of_totals(&totals)));
    }
    print(usage::forms(&totals, true).as_bytes())
}

/// Prints text that is complete, so that an error is known to be that of the output.
fn print(words: &[u8]) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(words)?;
    Ok(out.flush()?)
}
