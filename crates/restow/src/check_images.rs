//! Verification of container images.

use std::collections::{HashMap, HashSet};

use oci::{KnownLayers, Platform};
use tree::tar::TarOptions;
use tree::{Error, Finding};

use crate::check::{check_names, copied};
use crate::container_image::{MergedLayers, is_selected, open_layout};
use crate::error::refuse;
use crate::{Address, OpenOptions, Result};

/// The scope of a check of container images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImagesCheck {
    /// Errors found.
    pub findings: u64,
    /// Images.
    pub images: u64,
    /// Layers, each counted once.
    pub layers: u64,
    /// Bytes of their archives, without compression.
    pub bytes: u64,
    /// Names in the merged trees.
    pub names: u64,
}

/// Verifies the images of a layout, or those that the address and the platform name: manifests and
/// configurations; lengths and digests of all blobs, also those of the layers before compression;
/// layers that are images of file systems, all of them; and the headers, paths and attributes of
/// the merged tree.
///
/// # Errors
/// The layout or its index cannot be read, there is no such image, or a layer is of a type that is
/// not read.
pub fn check_images(
    address: &Address,
    options: &OpenOptions,
    report: &mut dyn FnMut(Finding),
) -> Result<ImagesCheck> {
    let Some(layout) = open_layout(address, options)? else {
        refuse!("no container image");
    };
    let mut summary = ImagesCheck::default();
    let mut findings = 0;
    let mut report = |finding: Finding| {
        findings += 1;
        report(finding);
    };
    let known = KnownLayers::default();
    let mut checked = HashMap::new();
    let how = TarOptions {
        skip_damaged: true,
        ..TarOptions::default()
    };
    let mut checked_trees = HashSet::new();
    let is_for = |platform: &Option<Platform>| match (&options.platform, platform) {
        (Some(wanted), platform) => platform.as_ref().is_some_and(|it| it.is(wanted)),
        (None, _) => true,
    };
    let images = layout.images().iter();
    let selected = images.filter(|it| is_selected(it, address) && is_for(&it.platform));
    for listed in selected {
        summary.images += 1;
        let image = match layout.image(listed) {
            Ok(image) => image,
            Err(error) => {
                report(error.into());
                continue;
            }
        };
        let mut is_sound = true;
        for layer in &image.layers {
            // A damaged layer is named once, but no tree is read from it.
            let key = (layer.digest, layer.diff_id);
            if let Some(was_sound) = checked.get(&key) {
                is_sound &= was_sound;
                continue;
            }
            summary.layers += 1;
            let found = layout.check_layer(layer);
            checked.insert(key, found.is_ok());
            match found {
                Ok(bytes) => summary.bytes += bytes,
                Err(error) => {
                    is_sound = false;
                    report(fault(error)?);
                }
            }
        }
        if !is_sound {
            continue;
        }
        let merged = MergedLayers::open(&layout, &image, Some(&known), &options.spool_dir, how);
        let merged = match merged {
            Err(error) => {
                report(fault(error)?);
                continue;
            }
            Ok(merged) => merged,
        };
        if let Some(tar) = &merged.archives {
            for fault in tar.faults().iter().chain(tar.cut()) {
                report(copied(fault).into());
            }
        }
        for (path, layer) in &merged.images {
            if checked_trees.insert(path.clone()) {
                layer.check(&mut |finding| {
                    let file = finding.file.clone().or_else(|| Some(path.clone().into()));
                    report(Finding { file, ..finding });
                })?;
            }
        }
        let names = check_names(&*merged.tree()?, &mut |error| report(error.into()))?;
        summary.names += names;
    }
    if summary.images == 0 {
        refuse!("the layout has no such image");
    }
    summary.findings = findings;
    Ok(summary)
}

/// The finding that an error is, unless it says that a layer is not read.
fn fault(error: Error) -> Result<Finding> {
    let is_unread = |error: &Error| matches!(error, Error::Unsupported(_));
    match &error {
        Error::File { error: inner, .. } if is_unread(inner) => Err(error.into()),
        error_of_all if is_unread(error_of_all) => Err(error.into()),
        _ => Ok(error.into()),
    }
}
