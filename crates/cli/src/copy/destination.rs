//! The format of a destination, and whether it can be written.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use crate::text;

/// The format of a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// A directory
    Dir,
    /// A tar archive (PAX)
    Tar,
    /// A SquashFS image
    Squashfs,
    /// A btrfs image
    Btrfs,
    /// A btrfs send stream (not supported yet)
    Stream,
}

impl Kind {
    /// The format of a destination: the one that was chosen, or the one that follows from its name.
    ///
    /// # Errors
    /// restow cannot write that format, or not to standard output.
    pub(crate) fn of(dst: &Path, chosen: Option<Kind>) -> Result<Kind> {
        let is_stdout = dst == Path::new("-");
        let kind = match chosen {
            Some(kind) => kind,
            None if is_stdout => Kind::Tar,
            None => kind_of_name(dst)?,
        };
        match kind {
            Kind::Stream => bail!("restow cannot write btrfs send streams yet"),
            Kind::Dir if is_stdout => bail!("a directory cannot be written to standard output"),
            Kind::Squashfs | Kind::Btrfs if is_stdout => {
                let noun = kind.noun();
                bail!("{noun} is not written sequentially and cannot go to standard output")
            }
            Kind::Dir | Kind::Tar | Kind::Squashfs | Kind::Btrfs => Ok(kind),
        }
    }

    /// What it is called, with an article.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            Kind::Dir => "a directory",
            Kind::Tar => "a tar archive",
            Kind::Squashfs => "a SquashFS image",
            Kind::Btrfs => "a btrfs image",
            Kind::Stream => "a btrfs send stream",
        }
    }
}

/// Fails early, before the source is read, if the destination cannot be written. The output checks again when it appears.
///
/// # Errors
/// It exists and may not be replaced, its directory does not exist, or it is a terminal.
pub(crate) fn refuse_before_reading(
    src: &Path,
    dst: &Path,
    kind: Kind,
    overwrite: bool,
) -> Result<()> {
    if dst == Path::new("-") {
        if io::stdout().is_terminal() {
            bail!("standard output is a terminal; name a file, or pipe it into a program");
        }
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
        Err(error) => return Err(error).with_context(|| format!("read {name}")),
        Ok(there) => there.file_type(),
    };
    if kind != Kind::Dir && there.is_dir() {
        bail!("{name} is a directory, and {} is a file", kind.noun());
    }
    let is_empty = || fs::read_dir(dst).is_ok_and(|mut entries| entries.next().is_none());
    if kind == Kind::Dir && there.is_dir() && is_empty() {
        return Ok(());
    }
    let is_stream = there.is_char_device() || there.is_fifo();
    // Replacing a directory removes everything in it.
    if let (Kind::Dir, Ok(dst), Ok(src)) = (kind, dst.canonicalize(), src.canonicalize())
        && overwrite
        && src.starts_with(dst)
    {
        bail!("the source is inside {name}, which would be replaced");
    }
    let may_write = overwrite || (kind == Kind::Tar && is_stream);
    if !may_write {
        bail!("{name} already exists; --overwrite replaces it");
    }
    Ok(())
}

fn kind_of_name(path: &Path) -> Result<Kind> {
    // A trailing slash means a directory, whatever the extension.
    if path.as_os_str().as_bytes().ends_with(b"/") {
        return Ok(Kind::Dir);
    }
    let extension = path.extension().map(OsStr::to_ascii_lowercase);
    Ok(
        match extension.as_deref().map_or(&b""[..], OsStrExt::as_bytes) {
            b"tar" => Kind::Tar,
            b"sqfs" | b"squashfs" | b"sfs" | b"snap" => Kind::Squashfs,
            b"btrfs" => Kind::Btrfs,
            b"stream" | b"send" => Kind::Stream,
            b"gz" | b"tgz" | b"zst" | b"tzst" | b"xz" | b"txz" | b"bz2" | b"tbz2" | b"lz4" => {
                bail!(
                    "restow writes no compressed archives; write to `-` and pipe it into a compressor"
                )
            }
            b"zip" | b"7z" | b"rar" | b"cpio" | b"iso" | b"img" | b"ext4" | b"erofs" => bail!(
                "restow cannot write the format that this name suggests; choose a format with --to"
            ),
            _ if fs::metadata(path).is_ok_and(|there| !there.is_dir()) => {
                let name = text::of_host_path(path, "-");
                bail!("{name} is not a directory; choose a format with --to")
            }
            _ => Kind::Dir,
        },
    )
}
