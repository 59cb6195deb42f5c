//! Verification of container images.

use std::collections::HashMap;

use oci::KnownLayers;
use tree::tar::TarOptions;
use tree::{Error, Finding, Limits};

use crate::check::{check_names, copied};
use crate::container_image::{is_selected, open_layout};
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

/// Verifies the images of a layout, or the one that the address names: manifests and
/// configurations; lengths and digests of all blobs, also those of the layers before compression;
/// and the headers, paths and attributes of the merged tree.
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
    let mut report = |error: Error| {
        findings += 1;
        report(error.into());
    };
    let known = KnownLayers::default();
    let mut checked = HashMap::new();
    let how = TarOptions {
        skip_damaged: true,
        ..TarOptions::default()
    };
    let selected = layout.images().iter().filter(|it| is_selected(it, address));
    for listed in selected {
        summary.images += 1;
        let image = match layout.image(listed) {
            Ok(image) => image,
            Err(error) => {
                report(error);
                continue;
            }
        };
        let mut is_sound = true;
        for layer in &image.layers {
            if !layer.is_tar() {
                return Err(Error::Unsupported("a layer that is no tar archive").into());
            }
            // A damaged layer is named once, but no tree is read from it.
            is_sound &= *checked
                .entry((layer.digest, layer.diff_id))
                .or_insert_with(|| {
                    summary.layers += 1;
                    let checked = layout.check_layer(layer);
                    summary.bytes += *checked.as_ref().unwrap_or(&0);
                    checked.map_err(&mut report).is_ok()
                });
        }
        if !is_sound {
            continue;
        }
        let (spool_dir, limits) = (&options.spool_dir, Limits::default());
        match layout.open_tree(&image, Some(&known), spool_dir, limits, how) {
            Err(error) => report(error),
            Ok(tar) => {
                for fault in tar.faults().iter().chain(tar.cut()) {
                    report(copied(fault));
                }
                summary.names += check_names(&tar, &mut report)?;
            }
        }
    }
    if summary.images == 0 {
        refuse!("the layout has no such image");
    }
    summary.findings = findings;
    Ok(summary)
}
