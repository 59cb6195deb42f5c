//! The new file: a file that gets its name at the end, or a device whose beginning is written last.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use linux::OpenFlags;
use tree::{Error, Output, OutputKind, OutputTarget, ReadAt, Result, Sha256, to_u64, to_usize};

use crate::PatchError;
use crate::format::{HEAD_BYTES, Header};

/// Bytes that are read back at a time.
const READ_BYTES: usize = 256 << 10;

/// The ending of the name of a file that a later run goes on with.
const PARTIAL: &[u8] = b".restow-partial";

/// The file or block device to which a patch is applied.
pub struct Destination {
    output: Output,
    /// The path of a device, and its first bytes, which are written last.
    device: Option<(PathBuf, Mutex<Vec<u8>>)>,
    resumes: bool,
}

impl Destination {
    /// Writes to an output of any kind but a device, which has to be readable.
    pub fn of(output: Output) -> Destination {
        Destination {
            output,
            device: None,
            resumes: false,
        }
    }

    /// Opens the path `to`, as [`Output::create`] does. A pipe is refused.
    ///
    /// With `resume`, bytes that an earlier run has written are kept as far as they are right: the
    /// run writes to `.NAME.restow-partial` beside a file that is made, which stays if the run is
    /// stopped.
    ///
    /// # Errors
    /// Those of [`Output::create`]; a pipe; a partial file that another process writes.
    pub fn open(to: &Path, overwrite: bool, resume: bool) -> Result<Destination> {
        let there = std::fs::metadata(to).map(|there| there.file_type());
        let is_file = there.as_ref().map_or(true, std::fs::FileType::is_file);
        if is_file && resume {
            return Ok(Destination {
                output: Output::to(PartialFile::open(to, overwrite)?),
                device: None,
                resumes: true,
            });
        }
        let is_device = there.is_ok_and(|there| there.is_block_device());
        let output = Output::create(to, overwrite)?;
        if output.kind() == OutputKind::Stream {
            return Err(Error::InvalidInput(
                "a patch is applied to a file or block device, since it is read back",
            ));
        }
        Ok(Destination {
            output,
            device: is_device.then(|| (to.to_owned(), Mutex::new(vec![0; HEAD_BYTES]))),
            resumes: resume,
        })
    }

    /// Whether bytes may be there already.
    pub(crate) fn resumes(&self) -> bool {
        self.resumes
    }

    /// Whether its content is destroyed before the new one is complete.
    pub(crate) fn is_device(&self) -> bool {
        self.device.is_some()
    }

    /// Prepares for content of this length: a device is no image from now on.
    pub(crate) fn begin(&mut self, bytes: u64) -> Result<(), PatchError> {
        let Some((path, _)) = &self.device else {
            return Ok(());
        };
        let found = self.output.size().map_err(new_io)?;
        if found < bytes {
            let needed = bytes;
            return Err(PatchError::TooSmall { found, needed });
        }
        let zeros = vec![0; HEAD_BYTES.min(to_usize(found))];
        self.output.write_all_at(&zeros, 0).map_err(new_io)?;
        let reopened = Output::discarding();
        let first = std::mem::replace(&mut self.output, reopened);
        first.commit().map_err(PatchError::New)?;
        self.output = Output::create(path, true).map_err(PatchError::New)?;
        Ok(())
    }

    pub(crate) fn write(&self, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
        if let Some((_, head)) = &self.device
            && at < to_u64(HEAD_BYTES)
        {
            let mut head = lock(head);
            let from = to_usize(at);
            let len = bytes.len().min(HEAD_BYTES - from);
            head[from..from + len].copy_from_slice(&bytes[..len]);
            bytes = &bytes[len..];
            at += to_u64(len);
        }
        if bytes.is_empty() {
            return Ok(());
        }
        self.output.write_all_at(bytes, at)
    }

    /// Begins to bring written bytes to the medium.
    pub(crate) fn begin_sync(&self, at: u64, bytes: u64) {
        self.output.begin_sync(at, bytes);
    }

    /// Whether zeros need not be written to a file that ends before them.
    pub(crate) fn skips_zeros(&self) -> bool {
        self.device.is_none()
    }

    /// Drops the bytes of an earlier run from this place on.
    pub(crate) fn cut(&self, at: u64) -> io::Result<()> {
        self.output.set_len(at)
    }

    /// Reads bytes of an earlier run, or of this one.
    pub(crate) fn read(&self, mut buffer: &mut [u8], mut at: u64) -> io::Result<()> {
        if let Some((_, head)) = &self.device
            && at < to_u64(HEAD_BYTES)
        {
            let head = lock(head);
            let from = to_usize(at);
            let len = buffer.len().min(HEAD_BYTES - from);
            let (first, rest) = buffer.split_at_mut(len);
            first.copy_from_slice(&head[from..from + len]);
            buffer = rest;
            at += to_u64(len);
        }
        if buffer.is_empty() {
            return Ok(());
        }
        self.output.read_exact_at(buffer, at)
    }

    /// Makes the result appear. A device is read back before its first bytes are written.
    pub(crate) fn commit(self, header: &Header) -> Result<(), PatchError> {
        let Some((path, head)) = &self.device else {
            self.output.set_len(header.new_bytes).map_err(new_io)?;
            return self.output.commit().map_err(PatchError::New);
        };
        let head = lock(head);
        let head = &head[..HEAD_BYTES.min(to_usize(header.new_bytes))];
        self.output.commit().map_err(PatchError::New)?;
        let device = File::open(path).map_err(new_io)?;
        let mut digest = Sha256::new();
        digest.update(head);
        let mut buffer = vec![0; READ_BYTES];
        let mut at = to_u64(head.len());
        while at < header.new_bytes {
            let len = READ_BYTES.min(to_usize(header.new_bytes - at));
            ReadAt::read_exact_at(&device, &mut buffer[..len], at).map_err(new_io)?;
            digest.update(&buffer[..len]);
            at += to_u64(len);
        }
        if digest.finish() != header.new_sha256 {
            return Err(PatchError::ReadBack);
        }
        let output = Output::create(path, true).map_err(PatchError::New)?;
        output.write_all_at(head, 0).map_err(new_io)?;
        output.commit().map_err(PatchError::New)?;
        let mut written = vec![0; head.len()];
        ReadAt::read_exact_at(&device, &mut written, 0).map_err(new_io)?;
        if written == head {
            Ok(())
        } else {
            Err(PatchError::ReadBack)
        }
    }
}

fn lock(head: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    head.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn new_io(error: io::Error) -> PatchError {
    PatchError::New(error.into())
}

/// Whether two paths lead to one file, or to one block device: no patch is applied in place.
pub fn is_same(first: &Path, second: &Path) -> bool {
    let identity = |path: &Path| {
        let file = std::fs::metadata(path).ok()?;
        let is_device = file.file_type().is_block_device();
        Some(if is_device {
            (None, file.rdev())
        } else {
            (Some(file.dev()), file.ino())
        })
    };
    identity(first).is_some_and(|it| Some(it) == identity(second))
}

/// A file that a later run goes on with if this one is stopped.
#[derive(Debug)]
struct PartialFile {
    file: File,
    dir: Arc<OwnedFd>,
    partial: Vec<u8>,
    name: Vec<u8>,
    overwrite: bool,
}

impl PartialFile {
    fn open(to: &Path, overwrite: bool) -> Result<PartialFile> {
        let no_name = Error::InvalidInput("the new file has no name");
        let (parent, name) = linux::split_path(to).ok_or(no_name)?;
        if !overwrite && std::fs::symlink_metadata(to).is_ok() {
            return Err(Error::Io(io::ErrorKind::AlreadyExists.into()));
        }
        let partial = [b".", name, PARTIAL].concat();
        let path = parent.join(OsString::from_vec(partial.clone()));
        let follow = OpenFlags::NOFOLLOW.bits();
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let flags = i32::from_ne_bytes(follow.to_ne_bytes());
        let file = options.custom_flags(flags).open(&path)?;
        if !file.metadata()?.is_file() {
            return Err(Error::InvalidInput(
                "its partial file is not a regular file",
            ));
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::Io(io::ErrorKind::ResourceBusy.into()));
            }
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        Ok(PartialFile {
            file,
            dir: Arc::new(linux::open_dir(parent)?),
            partial,
            name: name.to_vec(),
            overwrite,
        })
    }
}

impl ReadAt for PartialFile {
    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        ReadAt::read_exact_at(&self.file, buffer, at)
    }

    fn size(&self) -> io::Result<u64> {
        ReadAt::size(&self.file)
    }
}

impl OutputTarget for PartialFile {
    fn kind(&self) -> OutputKind {
        OutputKind::File
    }

    fn append(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, at)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    fn begin_sync(&self, at: u64, len: u64) {
        _ = linux::begin_writing(&self.file, at, len);
    }

    fn reader(&self) -> io::Result<Arc<dyn ReadAt>> {
        Ok(Arc::new(self.file.try_clone()?))
    }

    fn finish(self: Box<Self>) -> Result<()> {
        linux::sync(&self.file)?;
        let rename = if self.overwrite {
            linux::rename_at
        } else {
            linux::rename_new_at
        };
        rename(&self.dir, &self.partial, &self.dir, &self.name)?;
        Ok(linux::sync(&*self.dir)?)
    }
}
