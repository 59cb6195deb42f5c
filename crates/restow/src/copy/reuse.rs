//! The older image whose data a copy keeps.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::sync::Arc;

use codec::Settings;
use erofs::OldErofs;
use squashfs::{Compressor, Squashfs};
use tree::{FileSystem, OldImage};

use super::job::CopyJob;
use crate::error::{During, refuse};
use crate::{Address, Error, ImageAt, OpenOptions, Result, SourceTree, is_same_file, text};

/// The image to keep data of, if there is one that is not damaged beyond use.
///
/// # Errors
/// It does not exist, is in another format than `noun` says, or would be overwritten while it is
/// read.
fn open(
    job: &CopyJob<'_>,
    noun: &str,
    is_ours: impl Fn(&SourceTree) -> bool,
    warn: &mut dyn FnMut(Error),
) -> Result<Option<SourceTree>> {
    let Some(path) = &job.options.reuse else {
        return Ok(None);
    };
    let name = text::of_host_path(path, "standard input");
    let address = Address::of(path)?;
    if !address.is_object() {
        fs::metadata(&address.path).during(|| format!("open {name}"))?;
    }
    let is_device = fs::metadata(job.dst).is_ok_and(|dst| dst.file_type().is_block_device());
    if is_device && is_same_file(&address.path, job.dst) {
        refuse!(
            "{name} is the block device that is written, and cannot be reused at the same time"
        );
    }
    let open = |image_at| {
        let options = OpenOptions {
            top_level: true,
            image_at,
            remote: job.options.remote.clone(),
            spool_dir: job.options.spool_dir.clone(),
            ..OpenOptions::default()
        };
        SourceTree::open(&address, &options)
    };
    let at = Some(job.options.squashfs.offset).filter(|&at| at > 0);
    let opened = open(None).or_else(|error| match at {
        Some(at) => open(Some(ImageAt::Byte(at))),
        None => Err(error),
    });
    match opened {
        Ok(source) if is_ours(&source) => Ok(Some(source)),
        Ok(_) => refuse!("--reuse {name}: must be {noun}, as the destination is"),
        Err(error) => {
            warn(error);
            Ok(None)
        }
    }
}

fn old_image(job: &CopyJob<'_>, tree: Arc<dyn FileSystem>) -> OldImage {
    OldImage {
        tree,
        trust_mtime: job.options.trust_mtime,
    }
}

/// The SquashFS image to keep blocks of.
///
/// # Errors
/// It does not exist, or cannot be one.
pub(super) fn squashfs(job: &CopyJob<'_>, warn: &mut dyn FnMut(Error)) -> Result<Option<OldImage>> {
    let old = open(
        job,
        "a SquashFS image",
        |old| old.squashfs().is_some(),
        warn,
    )?;
    let Some(image) = old.as_ref().and_then(SourceTree::squashfs) else {
        return Ok(None);
    };
    let options = &job.options.squashfs;
    if let Some(why) = why_not(image, options.compression, options.block_bytes) {
        warn(Error::refused(why));
        return Ok(None);
    }
    Ok(Some(old_image(job, Arc::<Squashfs>::clone(image))))
}

/// Why no block of an image can be kept.
fn why_not(image: &Squashfs, settings: Option<Settings>, block_size: u32) -> Option<String> {
    let Some(settings) = settings else {
        return Some("the image is not compressed".to_owned());
    };
    let storage = image.storage();
    let old = storage.block_encoding?;
    if old.block_bytes != block_size {
        let (old, new) = (old.block_bytes / 1024, block_size / 1024);
        return Some(format!(
            "the old image has blocks of {old} KiB, the new one of {new} KiB"
        ));
    }
    if old.algorithm != settings.algorithm() {
        return Some("the old image is compressed with another codec".to_owned());
    }
    match (image.compressor(), settings) {
        // Linux allocates a dictionary of the size that the image records.
        (
            Compressor::Xz {
                dictionary_bytes: old,
                ..
            },
            Settings::Xz {
                dictionary_bytes: new,
                ..
            },
        ) if old > new => Some("the old image has a larger xz dictionary".to_owned()),
        _ => None,
    }
}

/// The EROFS image to keep units of.
///
/// # Errors
/// It does not exist, or cannot be one.
pub(super) fn erofs(job: &CopyJob<'_>, warn: &mut dyn FnMut(Error)) -> Result<Option<OldErofs>> {
    let old = open(job, "an EROFS image", |old| old.erofs().is_some(), warn)?;
    let image = old.as_ref().and_then(SourceTree::erofs);
    Ok(image.map(|image| OldErofs::new(Arc::clone(image))))
}

/// The btrfs image to keep extents of.
///
/// # Errors
/// It does not exist, or cannot be one.
pub(super) fn btrfs(job: &CopyJob<'_>, warn: &mut dyn FnMut(Error)) -> Result<Option<OldImage>> {
    let old = open(job, "a btrfs image", |old| old.subvolume().is_some(), warn)?;
    Ok(old.map(|old| old_image(job, Arc::clone(old.tree()))))
}
