//! Whether a destination can be written.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use restow::{Address, Format, ImageDestination};
use tree::OutputPath;
use tree::extract::Existing;

use super::args::Copy;
use crate::text;

/// The entries of a directory are counted up to this number.
const COUNT_MAX: u64 = 100_000;

/// Fails early, before the source is read, if the destination cannot be written. The output checks
/// again when it appears.
///
/// # Errors
/// It exists and may not be replaced, its directory does not exist, or it is a terminal.
pub(crate) fn refuse_before_reading(
    sources: &[PathBuf],
    args: &Copy,
    format: Format,
) -> Result<()> {
    let place = format
        .is_container_image()
        .then(|| ImageDestination::of(&args.dst));
    let place = place.transpose()?;
    let dst = place.as_ref().map_or(&*args.dst, |place| &place.path);
    refuse_place(sources, args, format, dst)?;
    let mut devices = args.btrfs.add_device.iter();
    devices.try_for_each(|device| refuse_place(sources, args, format, device))
}

fn refuse_place(sources: &[PathBuf], args: &Copy, format: Format, dst: &Path) -> Result<()> {
    let overwrite = args.overwrite;
    if Address::is_written_object(dst) {
        return Ok(());
    }
    if dst == Path::new("-") {
        if io::stdout().is_terminal() {
            bail!("standard output is a terminal; name a file, or pipe it into a program");
        }
        return Ok(());
    }
    if matches!(OutputPath::of(dst), Ok(OutputPath::Open(_))) {
        return Ok(());
    }
    let name = text::of_host_path(dst, "-");
    let there = match fs::symlink_metadata(dst) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let parent = dst.parent().filter(|parent| !parent.as_os_str().is_empty());
            if let Some(parent) = parent.filter(|parent| !parent.is_dir()) {
                bail!(
                    "directory {} does not exist",
                    text::of_host_path(parent, "-")
                );
            }
            return Ok(());
        }
        Err(error) => return Err(error).with_context(|| format!("write {name}")),
        Ok(there) => there.file_type(),
    };
    let target = fs::metadata(dst).map(|target| target.file_type());
    let is_stream = target.is_ok_and(|target| target.is_char_device() || target.is_fifo());
    // These are renamed to it, and not written into it.
    let is_entry = matches!(format, Format::Dir | Format::File);
    if format == Format::Dir && dst.is_dir() {
        return refuse_directory(sources, dst, args.directory.existing(overwrite));
    }
    if format == Format::Oci {
        if !dst.is_dir() {
            bail!("{name} is not a directory, as a layout of container images is");
        }
        return Ok(());
    }
    if dst.is_dir() {
        bail!("{name} is a directory, and {} is a file", format.noun());
    }
    if format == Format::Dir && (args.directory.merge || args.directory.replace) {
        bail!("{name} is not a directory");
    }
    if !format.is_sequential() && is_stream || is_entry && !there.is_file() && !there.is_symlink() {
        bail!("{name} is not a regular file, and is not replaced");
    }
    let may_write = overwrite || (format.is_sequential() && is_stream);
    if !may_write {
        bail!("{name} already exists; --overwrite replaces it");
    }
    Ok(())
}

/// Refuses an existing directory, unless it is empty or the options decide about it.
fn refuse_directory(sources: &[PathBuf], dst: &Path, existing: Existing) -> Result<()> {
    match existing {
        Existing::Merge(_) | Existing::MergeThroughLinks(_) => Ok(()),
        Existing::ReplaceDirectory => {
            refuse_home(dst)?;
            let name = text::of_host_path(dst, "-");
            // Replacing a directory removes everything in it.
            let dst = dst.canonicalize();
            for source in sources {
                if let (Ok(dst), Ok(src)) = (&dst, source.canonicalize())
                    && src.starts_with(dst)
                {
                    let source = text::of_host_path(source, "-");
                    bail!("source {source} is inside {name}, which would be replaced");
                }
            }
            Ok(())
        }
        Existing::Refuse | Existing::ReplaceFile => match is_there(dst) {
            Some(reason) => bail!("{reason}"),
            None => Ok(()),
        },
    }
}

/// The entries of a directory and the options that apply to it, in words; `None` if it is empty.
pub(crate) fn is_there(dir: &Path) -> Option<String> {
    let count = entry_count(dir);
    let count = match count {
        0 => return None,
        COUNT_MAX => format!("at least {COUNT_MAX} entries"),
        1 => "1 entry".to_owned(),
        count => format!("{count} entries"),
    };
    let name = text::of_host_path(dir, "-");
    Some(format!(
        "{name} holds {count}; --merge puts the tree into it, --replace deletes its contents"
    ))
}

/// The number of entries in a directory and everything below it, up to [`COUNT_MAX`]. What cannot
/// be read is not counted.
fn entry_count(dir: &Path) -> u64 {
    let mut count = 0;
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        let Ok(entries) = fs::read_dir(&dir) else {
            continue;
        };
        for entry in entries.flatten() {
            count += 1;
            if count == COUNT_MAX {
                return count;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(entry.path());
            }
        }
    }
    count
}

/// Refuses to delete a home directory: that of the user, or of anybody in `/etc/passwd`; or a
/// directory with one in it.
fn refuse_home(dst: &Path) -> Result<()> {
    let users = fs::read("/etc/passwd").unwrap_or_default();
    let lines = users.split(|&byte| byte == b'\n');
    let homes = lines.filter_map(|line| line.split(|&byte| byte == b':').nth(5));
    let homes = homes.map(|home| OsStr::from_bytes(home).to_owned());
    let own = std::env::var_os("HOME").filter(|home| !home.is_empty());
    let Ok(dst) = dst.canonicalize() else {
        return Ok(());
    };
    for home in homes.chain(own) {
        if fs::canonicalize(&home).is_ok_and(|home| home.starts_with(&dst)) {
            let (name, home) = (
                text::of_host_path(&dst, "-"),
                text::of_name(home.as_bytes()),
            );
            bail!("{name} is or contains the home directory {home}, and is not replaced");
        }
    }
    Ok(())
}
