//! The format of a destination.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Result, bail};
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
    /// A btrfs send stream
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
            Kind::Dir if is_stdout => bail!("a directory cannot be written to standard output"),
            Kind::Squashfs | Kind::Btrfs if is_stdout => {
                let noun = kind.noun();
                bail!("{noun} is not written sequentially and cannot go to standard output")
            }
            Kind::Dir | Kind::Tar | Kind::Squashfs | Kind::Btrfs | Kind::Stream => Ok(kind),
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
