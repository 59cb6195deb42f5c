//! Verification of images and archives.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use codec::Wrapper;
use tree::{
    CheckOptions, Corrupt, DataCheck, FileKind, FileSystem, Finding, Parallel, Progress, ReadAt,
    Seekable,
};

use crate::container::verified;
use crate::error::{During, refuse};
use crate::{Container, Input, OpenOptions, Result, text};

/// The scope of a check of an archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArchiveCheck {
    /// Errors found.
    pub findings: u64,
    /// Names in the tree that it holds.
    pub names: u64,
    /// Bytes of the archive, without the compression of the whole.
    pub bytes: u64,
}

/// Verifies a tar archive, or one of cpio: the checksums and the content of all headers, the paths,
/// the attributes, and the end marker; of a compressed one, that all of it decompresses and matches
/// its checksums, and that a seek table fits its frames. File contents have no checksums of their
/// own.
///
/// # Errors
/// It cannot be read.
pub fn check_archive(
    input: Input,
    wrapper: Option<Wrapper>,
    options: &OpenOptions,
    report: &mut dyn FnMut(Finding),
) -> Result<ArchiveCheck> {
    let mut options = options.clone();
    options.skip_damaged = true;
    let mut summary = ArchiveCheck::default();
    let mut report = |finding: Finding| {
        summary.findings += 1;
        report(finding);
    };
    if let (Some(bytes), Some(Wrapper::Zstd)) = (input.seekable(), wrapper) {
        check_frames(Arc::clone(bytes), &mut report);
    }
    let opened = input.open_tar(wrapper, &options)?;
    let tar = opened.tar;
    if let Some(misfit) = opened.misfit {
        report(tree::Error::Corrupt(misfit).into());
    }
    if matches!(opened.garbage, Some(Wrapper::Gzip | Wrapper::Lz4)) {
        let what = "bytes behind the end of the compressed data";
        report(tree::Error::from(io::Error::new(io::ErrorKind::InvalidData, what)).into());
    }
    for fault in tar.faults() {
        report(copied(fault).into());
    }
    // One finding for a missing end, wherever it is missed first.
    if let Some(error) = opened.damage {
        report(tree::Error::from(error).into());
    } else if let Some(cut) = tar.cut() {
        report(copied(cut).into());
    } else if let Some(at) = tar.notes().no_end_at {
        let what = "archive has no end marker: it may have been cut off between two members";
        report(tree::Error::Corrupt(Corrupt { what, at, got: at }).into());
    }
    let names = check_names(&*tar, &mut |error| report(error.into()))?;
    summary.names = names;
    summary.bytes = tar.archive_bytes();
    Ok(summary)
}

/// Reads all directories and attributes of an archive or a container image; the number of names.
pub(crate) fn check_names(
    tree: &dyn FileSystem,
    report: &mut dyn FnMut(tree::Error),
) -> Result<u64> {
    let mut names = 0;
    let mut directories = vec![(tree.root(), Vec::new())];
    // In a damaged image, directories can contain themselves.
    let mut seen = HashSet::from([tree.root()]);
    while let Some((dir, path)) = directories.pop() {
        for entry in tree.read_dir(dir)? {
            names += 1;
            let path = if path.is_empty() {
                entry.name.to_vec()
            } else {
                [&path[..], b"/", &entry.name].concat()
            };
            if let Err(error) = tree.xattrs(entry.ino) {
                report(error.in_file("read", &path));
            }
            if entry.kind == FileKind::Directory && seen.insert(entry.ino) {
                directories.push((entry.ino, path));
            }
        }
    }
    Ok(names)
}

/// The same error, as far as it concerns an archive.
pub(crate) fn copied(error: &tree::Error) -> tree::Error {
    match error {
        tree::Error::File { verb, path, error } => copied(error).in_file(verb, path),
        tree::Error::Corrupt(corrupt) => tree::Error::Corrupt(*corrupt),
        tree::Error::Unsupported(what) => tree::Error::Unsupported(what),
        tree::Error::Limit(what) => tree::Error::Limit(what),
        error => io::Error::other(error.to_string()).into(),
    }
}

/// Decodes all frames that a seek table lists.
fn check_frames(bytes: Arc<dyn ReadAt>, report: &mut dyn FnMut(Finding)) {
    // Other errors are those of opening the archive, which comes next.
    let Ok(Some(seekable)) = Seekable::open(bytes) else {
        return;
    };
    for start in seekable.frame_starts() {
        if let Err(error) = seekable.read_exact_at(&mut [0], start) {
            report(tree::Error::from(error).into());
        }
    }
}

/// Verifies a SquashFS, btrfs or EROFS image, all metadata, and all data decoded, or a tar archive
/// as [`check_archive`] does. Returns the number of errors, each of which `report` gets.
///
/// # Errors
/// It is of another kind, or cannot be read.
pub fn check(
    image: impl AsRef<Path>,
    progress: &dyn Progress,
    report: &mut dyn FnMut(Finding),
) -> Result<u64> {
    let path = image.as_ref();
    let data = DataCheck::Decode;
    let (options, parallel) = (CheckOptions::EVERYTHING.data(data), Parallel::available());
    let mut open = || -> Result<u64> {
        Ok(match Container::open(path, &OpenOptions::default())? {
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
            Container::Erofs(image) => {
                let erofs = image.open_erofs(&OpenOptions::default())?;
                erofs.check(options, parallel, progress, report)?.findings
            }
            Container::Tar(input, wrapper) => {
                check_archive(input, wrapper, &OpenOptions::default(), report)?.findings
            }
            Container::Cpio(input) => {
                check_archive(input, None, &OpenOptions::default(), report)?.findings
            }
            other => refuse!("{}, not an image", other.noun()),
        })
    };
    open().during(|| format!("check {}", text::of_host_path(path, "standard input")))
}

/// Verifies all blocks of an image, and its hash tree; the number of blocks of the image.
///
/// # Errors
/// [`Corrupt`] for the first block that differs from its hash; there is no hash tree, or the image
/// cannot be read.
pub fn verify_image(
    image: &Path,
    options: &OpenOptions,
    parallel: Parallel,
    progress: &dyn Progress,
) -> Result<u64> {
    let Some(root) = &options.verity else {
        refuse!("no root hash");
    };
    let mut input = Input::open_with(image, &options.remote)?;
    input.open_disk_file(options)?;
    let verified = verified(&input, options.image_at, root)?;
    Ok(verified.verify(parallel, progress)?)
}
