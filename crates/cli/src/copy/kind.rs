//! The format of a destination.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Result, bail};
use clap::ValueEnum;
use codec::Wrapper;

use crate::text;

/// The format of a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// A directory
    Dir,
    /// One regular file, with its mode and times: SRC itself, or PATH in it
    File,
    /// A tar archive (PAX)
    Tar,
    /// A tar archive, compressed with gzip
    #[value(name = "tar.gz", alias = "tgz")]
    TarGz,
    /// A tar archive, compressed with xz
    #[value(name = "tar.xz", alias = "txz")]
    TarXz,
    /// A tar archive, compressed with zstd
    #[value(name = "tar.zst", alias = "tzst")]
    TarZst,
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
            Kind::File if is_stdout => bail!("`restow cat` prints a file to standard output"),
            Kind::Dir if is_stdout => bail!("a directory cannot be written to standard output"),
            Kind::Squashfs | Kind::Btrfs if is_stdout => {
                let noun = kind.noun();
                bail!("{noun} is not written sequentially and cannot go to standard output")
            }
            kind => Ok(kind),
        }
    }

    /// The compression of the whole.
    pub(crate) fn wrapper(self) -> Option<Wrapper> {
        match self {
            Kind::TarGz => Some(Wrapper::Gzip),
            Kind::TarXz => Some(Wrapper::Xz),
            Kind::TarZst => Some(Wrapper::Zstd),
            Kind::Dir | Kind::File | Kind::Tar | Kind::Squashfs | Kind::Btrfs | Kind::Stream => {
                None
            }
        }
    }

    /// Whether it is written from its beginning to its end, so that it can go into a pipe.
    pub(crate) fn is_sequential(self) -> bool {
        !matches!(self, Kind::Dir | Kind::File | Kind::Squashfs | Kind::Btrfs)
    }

    /// What it is called, with an article.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            Kind::Dir => "a directory",
            Kind::File => "a file",
            Kind::Tar | Kind::TarGz | Kind::TarXz | Kind::TarZst => "a tar archive",
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
            b"tgz" => Kind::TarGz,
            b"txz" => Kind::TarXz,
            b"tzst" => Kind::TarZst,
            b"gz" if is_tar(path) => Kind::TarGz,
            b"xz" if is_tar(path) => Kind::TarXz,
            b"zst" if is_tar(path) => Kind::TarZst,
            b"bz2" | b"tbz2" | b"lz4" | b"lz" => bail!(
                "restow compresses archives with gzip, xz or zstd; for others, write to `-` and pipe it into a compressor"
            ),
            b"zip" | b"7z" | b"rar" | b"cpio" | b"iso" | b"img" | b"ext4" | b"erofs" => bail!(
                "restow cannot write the format that this name suggests; choose a format with --to"
            ),
            _ if fs::metadata(path).is_ok_and(|there| !there.is_dir()) => {
                let name = text::of_host_path(path, "-");
                bail!("{name} is not a directory; choose a format with --to")
            }
            ending if is_of_directory(ending) || path.is_dir() => Kind::Dir,
            ending => {
                let (name, ending) = (text::of_host_path(path, "-"), text::of_name(ending));
                let likely = likely(ending.as_bytes());
                bail!(
                    "{name}: unknown ending `.{ending}`; choose a format with --to, such as {likely}"
                )
            }
        },
    )
}

/// Whether the name without its last ending is that of a tar archive.
fn is_tar(path: &Path) -> bool {
    let stem = path.file_stem().map(Path::new);
    let ending = stem.and_then(Path::extension);
    ending.is_some_and(|ending| ending.eq_ignore_ascii_case("tar"))
}

/// Whether names of directories have this ending: none, the last part of a version, or `.d`.
fn is_of_directory(ending: &[u8]) -> bool {
    let is_version = ending.first().is_none_or(u8::is_ascii_digit);
    is_version || matches!(ending, b"d" | b"dir")
}

/// The options for the formats that an unknown ending may mean.
fn likely(ending: &[u8]) -> &'static str {
    match ending {
        b"gz" | b"xz" | b"zst" => "`--to tar.gz`, `--to tar.xz` or `--to tar.zst`",
        _ if ending.starts_with(b"sq") => "`--to squashfs`",
        b"raw" | b"disk" | b"vhd" | b"vhdx" | b"vmdk" | b"qcow2" | b"dd" | b"bin" => {
            "`--to btrfs` (a raw image) or `--to squashfs`"
        }
        _ => "`--to dir`, `--to squashfs` or, for one file, `--to file`",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_which_format_or_it_is_refused() {
        for (name, kind) in [
            ("a.tar", Kind::Tar),
            ("a.tar.gz", Kind::TarGz),
            ("a.tgz", Kind::TarGz),
            ("a.TAR.XZ", Kind::TarXz),
            ("a.tar.zst", Kind::TarZst),
            ("a.SQFS", Kind::Squashfs),
            ("a.btrfs", Kind::Btrfs),
            ("a.stream", Kind::Stream),
            ("restored", Kind::Dir),
            (".config", Kind::Dir),
            ("linux-6.18", Kind::Dir),
            ("conf.d", Kind::Dir),
            ("a.sqsh/", Kind::Dir),
        ] {
            assert_eq!(Kind::of(Path::new(name), None).unwrap(), kind, "{name}");
        }
        for (name, words) in [
            (
                "x.sqsh",
                "x.sqsh: unknown ending `.sqsh`; choose a format with --to, such as `--to squashfs`",
            ),
            (
                "x.raw",
                "such as `--to btrfs` (a raw image) or `--to squashfs`",
            ),
            ("x.disk", "such as `--to btrfs`"),
            ("x.vhd", "such as `--to btrfs`"),
            ("x.txt", "or, for one file, `--to file`"),
            ("x.gz", "such as `--to tar.gz`"),
            (
                "x.tar.bz2",
                "restow compresses archives with gzip, xz or zstd",
            ),
            ("x.zip", "restow cannot write the format"),
        ] {
            let error = Kind::of(Path::new(name), None).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
            assert_eq!(
                Kind::of(Path::new(name), Some(Kind::Dir)).unwrap(),
                Kind::Dir
            );
        }
    }
}
