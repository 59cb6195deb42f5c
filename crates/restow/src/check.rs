//! Verification of images.

use std::path::Path;

use tree::{CheckOptions, DataCheck, Finding, Parallel, Progress};

use crate::error::{During, refuse};
use crate::{Container, OpenOptions, Result, text};

/// Verifies a SquashFS or btrfs image: all metadata, and all data decoded. Returns the number of
/// errors, each of which `report` gets.
///
/// # Errors
/// It is not an image, or cannot be read.
pub fn check(
    image: impl AsRef<Path>,
    progress: &dyn Progress,
    report: &mut dyn FnMut(Finding),
) -> Result<u64> {
    let path = image.as_ref();
    let data = DataCheck::Decode;
    let (options, parallel) = (CheckOptions { data }, Parallel::available());
    let mut open = || -> Result<u64> {
        Ok(match Container::open(path, None)? {
            Container::Btrfs(image) => {
                let btrfs = image.open_btrfs(&OpenOptions::default())?;
                btrfs.check(options, parallel, progress, report)?.findings
            }
            Container::Squashfs(image) => {
                let squashfs = image.open_squashfs()?;
                squashfs
                    .check(options, parallel, progress, report)?
                    .findings
            }
            other => refuse!("{}, not an image", other.noun()),
        })
    };
    open().during(|| format!("check {}", text::of_host_path(path, "standard input")))
}
