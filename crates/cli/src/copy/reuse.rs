//! The image that `--reuse` names.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use codec::Settings;
use restow::{Address, ImageAt, SourceTree, is_same_file};
use squashfs::{Compressor, Squashfs};
use tree::{FileSystem, ImageSummary, OldImage};

use super::args::Copy;
use crate::message::{self, tell};
use crate::options::open_options;
use crate::text;

/// The image to keep data of, if there is one that is not damaged beyond use.
///
/// # Errors
/// It does not exist, is in another format than `noun` says, or would be overwritten while it is read.
fn open(
    args: &Copy,
    noun: &str,
    is_ours: impl Fn(&SourceTree) -> bool,
) -> Result<Option<SourceTree>> {
    let Some(path) = &args.image.reuse else {
        return Ok(None);
    };
    let name = text::of_host_path(path, "standard input");
    let address = Address::of(path)?;
    fs::metadata(&address.path).with_context(|| format!("open {name}"))?;
    let is_device = fs::metadata(&args.dst).is_ok_and(|dst| dst.file_type().is_block_device());
    if is_device && is_same_file(&address.path, &args.dst) {
        bail!("{name} is the block device that is written, and cannot be reused at the same time");
    }
    let open = |image_at| {
        let mut options = open_options();
        options.top_level = true;
        options.image_at = image_at;
        SourceTree::open(&address, &options)
    };
    let at = Some(args.squashfs.offset).filter(|&at| at > 0);
    let opened = open(None).or_else(|error| match at {
        Some(at) => open(Some(ImageAt::Byte(at))),
        None => Err(error),
    });
    match opened {
        Ok(source) if is_ours(&source) => Ok(Some(source)),
        Ok(_) => bail!("--reuse {name}: must be {noun}, as the destination is"),
        Err(error) => {
            let why = message::of_error(&error.into());
            tell(&format!("nothing is reused: {why}"));
            Ok(None)
        }
    }
}

fn old_image(args: &Copy, tree: Arc<dyn FileSystem>) -> OldImage {
    OldImage {
        tree,
        trust_mtime: args.image.trust_mtime,
    }
}

/// The SquashFS image to keep blocks of.
///
/// # Errors
/// It does not exist, or cannot be one.
pub(crate) fn squashfs(args: &Copy, settings: Option<Settings>) -> Result<Option<OldImage>> {
    let old = open(args, "a SquashFS image", |old| old.squashfs().is_some())?;
    let Some(image) = old.as_ref().and_then(SourceTree::squashfs) else {
        return Ok(None);
    };
    if let Some(why) = why_not(image, settings, args.squashfs.block_size) {
        tell(&format!("nothing is reused: {why}"));
        return Ok(None);
    }
    Ok(Some(old_image(args, Arc::<Squashfs>::clone(image))))
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

/// The btrfs image to keep extents of.
///
/// # Errors
/// It does not exist, or cannot be one.
pub(crate) fn btrfs(args: &Copy) -> Result<Option<OldImage>> {
    let old = open(args, "a btrfs image", |old| old.subvolume().is_some())?;
    Ok(old.map(|old| old_image(args, Arc::clone(old.tree()))))
}

/// What was kept, in words; nothing without an old image.
pub(crate) fn note(path: Option<&Path>, image: &ImageSummary) -> Option<String> {
    let name = text::of_host_path(path?, "standard input");
    if image.old_differs {
        return Some(format!(
            "nothing was reused: {name} was not made with the same settings by this version"
        ));
    }
    let (reused, encoded) = (image.reused, image.encoded);
    Some(format!(
        "{} reused from {name}, {encoded} encoded",
        text::count(reused, "block")
    ))
}
