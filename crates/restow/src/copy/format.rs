//! The format of a destination.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use codec::Wrapper;
use tree::OutputPath;

use crate::address::{Address, ImageDestination, ImageStore};
use crate::error::refuse;
use crate::{Result, text};

/// The format of a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A directory.
    Dir,
    /// One regular file, with its mode and times.
    File,
    /// A tar archive (PAX).
    Tar,
    /// A tar archive, compressed with gzip.
    TarGz,
    /// A tar archive, compressed with xz.
    TarXz,
    /// A tar archive, compressed with zstd.
    TarZst,
    /// An archive of cpio (newc), as of an initramfs.
    Cpio,
    /// The same, compressed with zstd.
    CpioZst,
    /// A SquashFS image.
    Squashfs,
    /// A btrfs image.
    Btrfs,
    /// An EROFS image.
    Erofs,
    /// A btrfs send stream.
    Stream,
    /// A container image in an OCI layout, a directory.
    Oci,
    /// A container image in an archive of an OCI layout.
    OciArchive,
}

impl Format {
    /// The format of a destination: the one that was chosen, or the one that follows from its name.
    ///
    /// # Errors
    /// restow cannot write that format, or not to standard output.
    pub fn of(dst: &Path, chosen: Option<Format>) -> Result<Format> {
        let store = image_store(dst)?;
        let is_object = Address::is_written_object(dst);
        if store.is_none() && !is_object {
            Address::refuse_remote_destination(dst)?;
        }
        let format = match chosen.or(store) {
            Some(format) if store.is_none_or(|store| store == format) => format,
            Some(format) => {
                let name = text::of_host_path(dst, "-");
                refuse!(
                    "{name} is a container image, not {}; ./{name} is a file",
                    format.noun()
                )
            }
            None if is_stream(dst) => Format::Tar,
            None => format_of_name(dst)?,
        };
        if is_object {
            refuse_object(format, dst)?;
        }
        if format.is_container_image() {
            refuse_stream(format, &ImageDestination::of(dst)?.path)?;
        } else {
            refuse_stream(format, dst)?;
        }
        Ok(format)
    }

    /// The compression of the whole.
    pub fn wrapper(self) -> Option<Wrapper> {
        match self {
            Format::TarGz => Some(Wrapper::Gzip),
            Format::TarXz => Some(Wrapper::Xz),
            Format::TarZst | Format::CpioZst => Some(Wrapper::Zstd),
            Format::Dir
            | Format::File
            | Format::Tar
            | Format::Cpio
            | Format::Squashfs
            | Format::Btrfs
            | Format::Erofs
            | Format::Stream
            | Format::Oci
            | Format::OciArchive => None,
        }
    }

    /// Whether it is written from its beginning to its end, so that it can go into a pipe.
    pub fn is_sequential(self) -> bool {
        !matches!(
            self,
            Format::Dir
                | Format::File
                | Format::Squashfs
                | Format::Btrfs
                | Format::Erofs
                | Format::Oci
                | Format::OciArchive
        )
    }

    /// Its name, with an article.
    pub fn noun(self) -> &'static str {
        match self {
            Format::Dir => "a directory",
            Format::File => "a file",
            Format::Tar | Format::TarGz | Format::TarXz | Format::TarZst => "a tar archive",
            Format::Cpio | Format::CpioZst => "a cpio archive",
            Format::Squashfs => "a SquashFS image",
            Format::Btrfs => "a btrfs image",
            Format::Erofs => "an EROFS image",
            Format::Stream => "a btrfs send stream",
            Format::Oci | Format::OciArchive => "a container image",
        }
    }

    /// Whether `CopyOptions::epoch` limits the times of its files before they are written.
    pub(crate) fn has_limited_times(self) -> bool {
        self.is_container_image() || matches!(self, Format::Cpio | Format::CpioZst)
    }

    /// Whether it is a container image.
    pub fn is_container_image(self) -> bool {
        matches!(self, Format::Oci | Format::OciArchive)
    }
}

/// Whether a destination is standard output (`-`) or another open file of this process.
pub(super) fn is_stream(dst: &Path) -> bool {
    dst == Path::new("-") || matches!(OutputPath::of(dst), Ok(OutputPath::Open(_)))
}

/// Refuses an object in a format whose bytes change after they were written.
fn refuse_object(format: Format, dst: &Path) -> Result<()> {
    let name = text::of_host_path(dst, "-");
    match format {
        Format::Dir | Format::File => {
            refuse!(
                "{name} would be {}, and objects are archives, images and streams; choose a format with --to",
                format.noun()
            )
        }
        Format::Oci | Format::OciArchive => refuse!(
            "{} is not written in order and cannot go to {name}: write a file, and `aws s3 cp` copies it there",
            format.noun()
        ),
        _ => Ok(()),
    }
}

/// Refuses a destination on standard output that has to be written at any place.
fn refuse_stream(format: Format, dst: &Path) -> Result<()> {
    if format.is_sequential() || !is_stream(dst) {
        return Ok(());
    }
    let name = text::of_host_path(dst, "standard output");
    match format {
        Format::File => refuse!("`restow cat` prints a file to standard output"),
        Format::Dir => refuse!("a directory cannot be written to {name}"),
        Format::Squashfs | Format::Btrfs | Format::Erofs | Format::Oci | Format::OciArchive => {
            refuse!(
                "{} is not written sequentially and cannot go to {name}",
                format.noun()
            )
        }
        _ => Ok(()),
    }
}

/// The format that the word at the beginning of a destination says.
///
/// # Errors
/// It is one that restow does not write.
fn image_store(dst: &Path) -> Result<Option<Format>> {
    Ok(match ImageStore::of(dst.as_os_str().as_bytes()) {
        None => None,
        Some((ImageStore::OciDir, _)) => Some(Format::Oci),
        Some((ImageStore::OciArchive, _)) => Some(Format::OciArchive),
        Some((ImageStore::DockerArchive, _)) => {
            let name = text::of_host_path(dst, "-");
            refuse!(
                "restow does not write archives of `docker save`: write oci:DIR with --compress gzip, and `skopeo copy oci:DIR {name}` makes one"
            )
        }
    })
}

fn format_of_name(path: &Path) -> Result<Format> {
    // A trailing slash means a directory, even with an extension.
    if path.as_os_str().as_bytes().ends_with(b"/") {
        return Ok(Format::Dir);
    }
    let extension = path.extension().map(OsStr::to_ascii_lowercase);
    Ok(
        match extension.as_deref().map_or(&b""[..], OsStrExt::as_bytes) {
            b"tar" => Format::Tar,
            b"sqfs" | b"squashfs" | b"sfs" | b"snap" => Format::Squashfs,
            b"btrfs" => Format::Btrfs,
            b"erofs" => Format::Erofs,
            b"stream" | b"send" => Format::Stream,
            b"tgz" => Format::TarGz,
            b"txz" => Format::TarXz,
            b"tzst" => Format::TarZst,
            b"cpio" => Format::Cpio,
            b"zst" if is(path, "cpio") => Format::CpioZst,
            b"gz" | b"xz" | b"bz2" | b"lz4" | b"lzma" | b"lzo" if is(path, "cpio") => refuse!(
                "restow compresses cpio archives with zstd; for others, write to `-` with --to cpio and pipe it into a compressor"
            ),
            b"gz" if is(path, "tar") => Format::TarGz,
            b"xz" if is(path, "tar") => Format::TarXz,
            b"zst" if is(path, "tar") => Format::TarZst,
            b"bz2" | b"tbz2" | b"lz4" | b"lz" | b"lzma" | b"lzo" | b"z" => refuse!(
                "restow compresses archives with gzip, xz or zstd; for others, write to `-` and pipe it into a compressor"
            ),
            b"zip" | b"7z" | b"rar" | b"iso" | b"img" | b"ext4" => refuse!(
                "restow cannot write the format that this name suggests; choose a format with --to"
            ),
            _ if fs::metadata(path).is_ok_and(|there| !there.is_dir()) => {
                let name = text::of_host_path(path, "-");
                refuse!("{name} is not a directory; choose a format with --to")
            }
            ending if is_of_directory(ending) || path.is_dir() => Format::Dir,
            ending => {
                let (name, ending) = (text::of_host_path(path, "-"), text::of_name(ending));
                let likely = likely(ending.as_bytes());
                refuse!(
                    "{name}: unknown ending `.{ending}`; choose a format with --to, such as {likely}"
                )
            }
        },
    )
}

/// Whether the name without its last ending is that of an archive of this kind.
fn is(path: &Path, kind: &str) -> bool {
    let stem = path.file_stem().map(Path::new);
    let ending = stem.and_then(Path::extension);
    ending.is_some_and(|ending| ending.eq_ignore_ascii_case(kind))
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
            ("a.tar", Format::Tar),
            ("a.tar.gz", Format::TarGz),
            ("a.tgz", Format::TarGz),
            ("a.TAR.XZ", Format::TarXz),
            ("a.tar.zst", Format::TarZst),
            ("a.cpio", Format::Cpio),
            ("a.cpio.zst", Format::CpioZst),
            ("a.SQFS", Format::Squashfs),
            ("a.btrfs", Format::Btrfs),
            ("a.erofs", Format::Erofs),
            ("a.stream", Format::Stream),
            ("restored", Format::Dir),
            (".config", Format::Dir),
            ("linux-6.18", Format::Dir),
            ("conf.d", Format::Dir),
            ("a.sqsh/", Format::Dir),
            ("oci:a.tar", Format::Oci),
            ("oci-archive:a:b", Format::OciArchive),
        ] {
            assert_eq!(Format::of(Path::new(name), None).unwrap(), kind, "{name}");
        }
        let other = Format::of(Path::new("oci:a"), Some(Format::Tar)).unwrap_err();
        let words = "oci:a is a container image, not a tar archive; ./oci:a is a file";
        assert_eq!(other.to_string(), words);
        let docker = Format::of(Path::new("docker-archive:a"), None).unwrap_err();
        assert!(
            docker
                .to_string()
                .contains("`skopeo copy oci:DIR docker-archive:a`")
        );
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
            (
                "x.tar.lzo",
                "restow compresses archives with gzip, xz or zstd",
            ),
            ("x.tar.Z", "pipe it into a compressor"),
            ("x.zip", "restow cannot write the format"),
            ("x.cpio.gz", "restow compresses cpio archives with zstd"),
            ("x.cpio.lzo", "restow compresses cpio archives with zstd"),
        ] {
            let error = Format::of(Path::new(name), None).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
            assert_eq!(
                Format::of(Path::new(name), Some(Format::Dir)).unwrap(),
                Format::Dir
            );
        }
    }
}
