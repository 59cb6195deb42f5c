//! Copies to container images.

use std::io::{self, Write};

use codec::Wrapper;
use oci::{DigestWriter, ImageLayout, LayoutWriter, NewImage, NewLayer, Platform};
use tree::tar::{is_whiteout, write_layer};
use tree::{Device, EntryId, FileKind, Inventory, OverlayLayer, Progress};

use super::format::Format;
use super::job::CopyJob;
use super::layer::LayerPart;
use super::packed::Packing;
use super::summary::{CopySummary, Unpreserved};
use super::{erofs, squashfs, tar};
use crate::compare::of_pair;
use crate::container_image::{self, OpenedImage};
use crate::error::{During, refuse};
use crate::{Address, Error, ImageDestination, OpenOptions, Result, text};

/// Writes a container image: one layer, or one on those of a base.
///
/// # Errors
/// The source or the base cannot be read, or the destination cannot be written.
pub(super) fn write(
    job: &CopyJob<'_>,
    progress: &dyn Progress,
    warn: &mut dyn FnMut(Error),
) -> Result<CopySummary> {
    let (all, options) = (job.options, &job.options.image);
    let media_type = match options.wrapper {
        None => "application/vnd.oci.image.layer.v1.tar",
        Some(Wrapper::Gzip) => "application/vnd.oci.image.layer.v1.tar+gzip",
        Some(Wrapper::Zstd) => "application/vnd.oci.image.layer.v1.tar+zstd",
        Some(_) => refuse!("layers are compressed with zstd or gzip, or not"),
    };
    let base = open_base(job)?;
    // Names and devices that would hide others are left out.
    let hides = |entry: EntryId| match options.layer {
        None => is_whiteout(&job.inventory.name(entry)),
        Some(_) => {
            let file = job.inventory.file(entry);
            job.inventory.kind(file) == FileKind::CharDevice
                && job.inventory.metadata(file).rdev == Device::default()
        }
    };
    let whiteouts: Vec<EntryId> = job.inventory.names().filter(|&it| hides(it)).collect();
    let rest = (!whiteouts.is_empty()).then(|| job.inventory.without(hides));
    let inventory = rest.as_ref().unwrap_or(&job.inventory);
    let part = match &base {
        None => None,
        Some(_) if all.skips() => {
            refuse!("files that cannot be read cannot be compared with those of --base")
        }
        Some((_, base)) => {
            let part = LayerPart::of(&*base.tree, inventory, job.parallel);
            let of_base = |error| Error::from(error).during("read the tree of --base");
            let of_source = |error| job.source.name_error(error);
            Some(part.map_err(|error| of_pair(error, [&of_base, &of_source]))?)
        }
    };
    let (inventory, removed) = match &part {
        Some(part) => (&part.inventory, &part.removed[..]),
        None => (inventory, &[][..]),
    };
    let (files, bytes) = (inventory.file_count(), inventory.content_bytes());
    progress.expect(Some(files.into()), Some(bytes));
    let marked = OverlayLayer::of(inventory.tree());
    let image = match all.content_format(job.format) {
        format @ (Format::Squashfs | Format::Erofs) => {
            let inventory = marked.inventory(inventory, removed)?;
            Some(LayerPlan::of(job.with_part(format, inventory), warn)?)
        }
        _ => None,
    };
    let mut writer = begin(job)?;
    let copy = |writer: &mut LayoutWriter| -> tree::Result<()> {
        let Some((layout, base)) = &base else {
            return Ok(());
        };
        let mut layers = base.image.image.layers.iter();
        layers.try_for_each(|layer| writer.copy_layer(layout, layer))
    };
    copy(&mut writer).during(|| job.on_dst("write"))?;
    let mut result = match image {
        Some(image) => image.write(&mut writer, progress)?,
        None => write_archive(job, (inventory, removed), media_type, &mut writer, progress)?,
    };
    let platform = options
        .platform
        .clone()
        .unwrap_or_else(Platform::of_machine);
    let of_source = job.source.container_image().map(|it| &it.image.config);
    let base = base.as_ref().map(|(_, base)| &base.image.image);
    let image = NewImage {
        config: (options.config.as_ref())
            .or(base.map(|base| &base.config))
            .or(of_source),
        platform: &platform,
        base,
        created: job.newest_mtime(),
        created_by: "restow copy",
    };
    let image = writer.finish(&image).during(|| job.on_dst("finish"))?;
    let paths = whiteouts.iter().map(|&entry| job.inventory.path(entry));
    result.unpreserved.extend(paths.map(Unpreserved::Whiteout));
    result.image = Some(image);
    Ok(result)
}

/// Writes a layer that is a tar archive of these files, and whiteouts of these paths.
fn write_archive(
    job: &CopyJob<'_>,
    (inventory, removed): (&Inventory<'_>, &[Vec<u8>]),
    media_type: &'static str,
    writer: &mut LayoutWriter,
    progress: &dyn Progress,
) -> Result<CopySummary> {
    let all = job.options;
    let made = writer.add_layer(|out| {
        let fill = |out: &mut dyn Write| {
            let mut out = DigestWriter::new(out);
            let summary = write_layer(
                inventory,
                removed,
                all.skips(),
                job.parallel,
                progress,
                &mut out,
            )?;
            Ok((summary, out.finish().0))
        };
        let ((summary, diff_id), bytes) = match all.image.wrapper {
            None => {
                let (summary, diff_id) = fill(out)?;
                let bytes = summary.archive_bytes;
                ((summary, diff_id), bytes)
            }
            Some(wrapper) => {
                let level = all.level;
                Packing { wrapper, level }.write(job.parallel, out, fill)?
            }
        };
        let layer = NewLayer {
            media_type,
            diff_id,
        };
        Ok(((summary, bytes), layer))
    });
    let (summary, bytes) = job.name_error(made)?;
    Ok(tar::summary(job, summary, bytes))
}

/// A layer that is an image of a file system.
struct LayerPlan<'a> {
    job: CopyJob<'a>,
    options: LayerOptions,
}

enum LayerOptions {
    Squashfs(Box<::squashfs::Options>),
    Erofs(Box<::erofs::Options>),
}

impl<'a> LayerPlan<'a> {
    /// Plans the layer of the files of a job.
    ///
    /// # Errors
    /// An option is impossible.
    fn of(job: CopyJob<'a>, warn: &mut dyn FnMut(Error)) -> Result<LayerPlan<'a>> {
        let options = match job.format {
            Format::Erofs => LayerOptions::Erofs(Box::new(erofs::options(&job, warn)?)),
            _ => LayerOptions::Squashfs(Box::new(squashfs::options(&job, warn)?)),
        };
        Ok(LayerPlan { job, options })
    }

    fn write(&self, writer: &mut LayoutWriter, progress: &dyn Progress) -> Result<CopySummary> {
        let job = &self.job;
        let (parallel, spool_dir) = (job.parallel, &job.options.spool_dir);
        match &self.options {
            LayerOptions::Squashfs(options) => {
                // The names of stacker, whose programs mount such layers.
                let codec = options.compression.map(|it| it.algorithm().name());
                let plus = codec.map_or(String::new(), |codec| format!("+{codec}"));
                let media_type = format!("application/vnd.stacker.image.layer.squashfs{plus}");
                let made = writer.add_image(&media_type, spool_dir, |output| {
                    ::squashfs::create(&job.inventory, options, parallel, progress, output)
                });
                Ok(squashfs::summary(job, job.name_error(made)?))
            }
            LayerOptions::Erofs(options) => {
                // The name of containerd.
                let made =
                    writer.add_image("application/vnd.erofs.layer.v1", spool_dir, |output| {
                        ::erofs::create(&job.inventory, options, parallel, progress, output)
                    });
                Ok(erofs::summary(job, job.name_error(made)?))
            }
        }
    }
}

/// The image on whose layers the new one is put, with its layout.
fn open_base(job: &CopyJob<'_>) -> Result<Option<(ImageLayout, OpenedImage)>> {
    let options = &job.options.image;
    let Some(base) = &options.base else {
        return Ok(None);
    };
    let address = Address::of(base)?;
    if !address.is_container_image() {
        refuse!(
            "--base {}: must be a container image, as in oci:DIR:NAME",
            address.name()
        );
    }
    let open = OpenOptions {
        platform: options.platform.clone(),
        remote: job.options.remote.clone(),
        spool_dir: job.options.spool_dir.clone(),
        ..OpenOptions::default()
    };
    let opened = || {
        let Some(layout) = container_image::open_layout(&address, &open)? else {
            refuse!("no container image");
        };
        let image = container_image::open(&layout, &address, &open, None)?;
        let layers = &image.image.image.layers;
        if options.layer.is_none() && layers.iter().any(|layer| !layer.is_tar()) {
            refuse!(
                "its layers are images of file systems: --layer squashfs or --layer erofs makes one on them"
            );
        }
        Ok((layout, image))
    };
    opened()
        .during(|| format!("open {}", address.name()))
        .map(Some)
}

fn begin(job: &CopyJob<'_>) -> Result<LayoutWriter> {
    let ImageDestination { path, name } = ImageDestination::of(job.dst)?;
    let name = name.as_deref();
    if job.format == Format::OciArchive {
        return Ok(LayoutWriter::in_archive(job.output()?, name));
    }
    match LayoutWriter::in_dir(&path, name, job.options.overwrite) {
        Err(tree::Error::Io(error)) if error.kind() == io::ErrorKind::AlreadyExists => {
            let dir = text::of_host_path(&path, "-");
            match name {
                Some(name) => refuse!("{dir} has an image {name}; --overwrite replaces it"),
                None => refuse!(
                    "{dir} has an image without a name; --overwrite replaces it, oci:DIR:NAME adds another"
                ),
            }
        }
        writer => writer.during(|| job.on_dst("create")),
    }
}
