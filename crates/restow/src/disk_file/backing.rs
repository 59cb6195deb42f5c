//! The file behind a disk file, which its header names.
//!
//! A disk file is somebody else's, and restow may run as root: a name in it leads to a regular file
//! in or below the directory of the disk file, or it is not followed.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use linux::OpenFlags;
use tree::{ReadAt, to_usize};

use super::format::DiskFormat;
use crate::error::{During, refuse};
use crate::{Error, Result, text};

/// The name and the format of a backing file, as a header has them.
pub(super) struct BackingName {
    pub(super) name: Vec<u8>,
    pub(super) format: Option<Vec<u8>>,
}

/// An open file of a chain.
pub(super) struct BackingFile {
    pub(super) file: Arc<dyn ReadAt>,
    pub(super) path: PathBuf,
    /// `None` for a raw disk.
    pub(super) format: Option<DiskFormat>,
}

impl BackingName {
    /// Opens the file that the user gave in place of the name.
    pub(super) fn open_given(&self, path: &Path) -> Result<BackingFile> {
        let file = File::open(path);
        let file = file.during(|| format!("open {}", text::of_host_path(path, "-")))?;
        self.recognise(file, path.to_owned())
    }

    /// Opens the file that is named in the file at `above`.
    pub(super) fn open_named(&self, above: &Path) -> Result<BackingFile> {
        let shown = text::of_name(&self.name);
        let way = "--backing FILE gives it";
        if above == Path::new("-") {
            refuse!("its backing file {shown} has no known directory: {way}");
        }
        let mut names = self.name.split(|&byte| byte == b'/');
        let leads_out = names.any(|name| name == b"..") || self.name.starts_with(b"/");
        // `nbd:host:port`, `json:{...}`: QEMU takes all up to a colon for a protocol.
        let has_protocol = self
            .name
            .split(|&byte| byte == b'/')
            .next()
            .unwrap_or_default();
        if leads_out || has_protocol.contains(&b':') || self.name.is_empty() {
            refuse!("its backing file {shown} is not in or below its directory: {way}");
        }
        let parent = above.parent().unwrap_or(above);
        let parent = if parent.as_os_str().is_empty() {
            Path::new(".")
        } else {
            parent
        };
        let open = || -> Result<File> {
            let dir = linux::open_dir(parent)?;
            // A pipe without a writer would wait for one.
            let flags = OpenFlags::RDONLY | OpenFlags::NONBLOCK;
            match linux::open_beneath(dir.as_fd(), &self.name, flags, 0) {
                Err(error) if linux::is_symlink_error(&error) => {
                    refuse!("a symbolic link, which is not followed: {way}")
                }
                opened => Ok(File::from(opened?)),
            }
        };
        let file = open().during(|| format!("open its backing file {shown}"))?;
        if !file.metadata()?.is_file() {
            refuse!("its backing file {shown} is not a regular file: {way}");
        }
        let path = parent.join(std::ffi::OsStr::from_bytes(&self.name));
        self.recognise(file, path)
    }

    /// Finds the format: the one that the header names, else one that the content shows. The
    /// content of a raw disk is up to the machine that wrote it, so it is not looked at, and a
    /// disk is raw only if the header says so.
    fn recognise(&self, file: File, path: PathBuf) -> Result<BackingFile> {
        let file: Arc<dyn ReadAt> = Arc::new(file);
        let named = self.format.as_deref();
        let format = if named == Some(b"raw") {
            None
        } else {
            let mut start = vec![0; to_usize(file.size()?).min(DiskFormat::MAGIC_BYTES)];
            file.read_exact_at(&mut start, 0)?;
            Some(format_of(&start, named).map_err(|why| {
                let name = text::of_host_path(&path, "-");
                Error::refused(format!("its backing file {name}: {why}"))
            })?)
        };
        Ok(BackingFile { file, path, format })
    }
}

/// The format of a file that begins like this, of which its user says this.
fn format_of(start: &[u8], named: Option<&[u8]>) -> Result<DiskFormat, String> {
    let found = DiskFormat::of(start);
    let Some(named) = named else {
        return found.ok_or_else(|| {
            "neither a known disk file, nor named as a raw disk by the header; \
             `qemu-img rebase -u -F raw` writes that"
                .to_owned()
        });
    };
    let mut all = DiskFormat::ALL.iter();
    let expected = all.find(|(_, _, name, _)| *name == named);
    match expected {
        Some((format, ..)) if found == Some(*format) => Ok(*format),
        Some((.., noun)) => Err(format!("not {noun}, as the header says")),
        None => Err(format!(
            "its format {} is not one that restow reads",
            text::of_name(named)
        )),
    }
}
