//! The bytes that hold a container.

use std::fs::{File, Metadata};
use std::io::{self, Cursor, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use codec::Wrapper;
use tree::tar::{Tar, TarOptions};
use tree::{Corrupt, Limits, ReadAt, Seekable, SequentialReader};

use crate::disk_file::{DiskFile, DiskFormat};
use crate::error::{During, refuse};
use crate::object::{self, RemoteOptions};
use crate::{Error, OpenOptions, Result, text};

/// The bytes that hold a container: a file, a block device, a pipe, or memory.
pub struct Input {
    bytes: InputBytes,
    metadata: Option<Metadata>,
    path: PathBuf,
    disk: Option<Arc<DiskFile>>,
}

enum InputBytes {
    Seekable(Arc<dyn ReadAt>),
    /// From a pipe: to be read once, from its beginning to its end.
    Sequential(Box<dyn Read + Send>),
}

impl Input {
    /// As [`Input::open`], with options for objects.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open_with(path: &Path, options: &RemoteOptions) -> io::Result<Input> {
        match open_object(path, options)? {
            Some(input) => Ok(Input {
                path: path.to_owned(),
                ..input
            }),
            None => Input::open_file(path),
        }
    }

    /// Opens a file, block device or pipe; `-` is standard input. Where they are built in,
    /// `https:`, `s3:`, `gs:` and `az:` are objects, read without credentials.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(path: &Path) -> io::Result<Input> {
        Input::open_with(path, &RemoteOptions::default())
    }

    fn open_file(path: &Path) -> io::Result<Input> {
        let mut file = if path == Path::new("-") {
            File::from(io::stdin().as_fd().try_clone_to_owned()?)
        } else {
            File::open(path)?
        };
        let metadata = file.metadata()?;
        let kind = metadata.file_type();
        // A file that someone else has read in part is a stream.
        let is_at_start = kind.is_file() && io::Seek::stream_position(&mut file)? == 0;
        let bytes = if is_at_start || kind.is_block_device() {
            InputBytes::Seekable(Arc::new(file))
        } else {
            InputBytes::Sequential(Box::new(file))
        };
        Ok(Input {
            bytes,
            metadata: Some(metadata),
            path: path.to_owned(),
            disk: None,
        })
    }

    /// Reads standard input like a pipe also if it is a file: it then stands behind the bytes read.
    ///
    /// # Errors
    /// The system's error.
    pub fn in_sequence(mut self) -> io::Result<Input> {
        if self.path == Path::new("-") && self.metadata.is_some() {
            let stdin = File::from(io::stdin().as_fd().try_clone_to_owned()?);
            self.bytes = InputBytes::Sequential(Box::new(stdin));
        }
        Ok(self)
    }

    /// Bytes that can be read at any place, such as a `Vec<u8>`.
    pub fn of(bytes: impl ReadAt + 'static) -> Input {
        Input::nameless(InputBytes::Seekable(Arc::new(bytes)))
    }

    /// Bytes that can be read only once. Images are refused; archives and send streams are stored
    /// in a file first.
    pub fn of_stream(stream: impl Read + Send + 'static) -> Input {
        Input::nameless(InputBytes::Sequential(Box::new(stream)))
    }

    fn nameless(bytes: InputBytes) -> Input {
        Input {
            bytes,
            metadata: None,
            path: "-".into(),
            disk: None,
        }
    }

    /// The same file with other bytes.
    pub(crate) fn with_bytes(self, bytes: Arc<dyn ReadAt>) -> Input {
        Input {
            bytes: InputBytes::Seekable(bytes),
            ..self
        }
    }

    /// The path that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The input in words.
    pub fn name(&self) -> String {
        text::of_host_path(&self.path, "standard input")
    }

    /// Where bytes come from that can be read only once.
    pub(crate) fn origin(&self) -> &'static str {
        if object::is_remote(self.path.as_os_str().as_bytes()) {
            "a server that ignores ranges"
        } else {
            "a pipe"
        }
    }

    /// The metadata of a file of this machine.
    pub fn metadata(&self) -> Option<&Metadata> {
        self.metadata.as_ref()
    }

    /// Device and inode of a file of this machine: equal for two inputs that hold the same bytes.
    pub fn identity(&self) -> Option<(u64, u64)> {
        self.metadata().map(|file| (file.dev(), file.ino()))
    }

    /// The bytes, unless they can be read only once.
    pub(crate) fn seekable(&self) -> Option<&Arc<dyn ReadAt>> {
        match &self.bytes {
            InputBytes::Seekable(bytes) => Some(bytes),
            InputBytes::Sequential(_) => None,
        }
    }

    /// The disk that [`Input::open_disk_file`] found.
    pub fn disk_file(&self) -> Option<&Arc<DiskFile>> {
        self.disk.as_ref()
    }

    /// Reads the disk in place of the file, if that is a disk file of a virtual machine.
    /// [`Container::of`](crate::Container::of) does that, too.
    ///
    /// # Errors
    /// It is one that cannot be read.
    pub fn open_disk_file(&mut self, options: &OpenOptions) -> Result<()> {
        if self.disk.is_some() {
            return Ok(());
        }
        let start = self.start(DiskFormat::MAGIC_BYTES)?;
        let Some(format) = DiskFormat::of(&start) else {
            return Ok(());
        };
        let Some(file) = self.seekable() else {
            refuse!(
                "{} from {}; save it to a file first",
                format.noun(),
                self.origin()
            );
        };
        let disk = Arc::new(DiskFile::open(format, file, &self.path, options)?);
        self.bytes = InputBytes::Seekable(Arc::<DiskFile>::clone(&disk));
        self.disk = Some(disk);
        Ok(())
    }

    /// At most `max` bytes from the beginning. They can be read again.
    pub(crate) fn start(&mut self, max: usize) -> io::Result<Vec<u8>> {
        let mut start = Vec::new();
        match &mut self.bytes {
            InputBytes::Seekable(bytes) => {
                start.resize(bytes.size()?.min(max as u64) as usize, 0);
                bytes.read_exact_at(&mut start, 0)?;
            }
            InputBytes::Sequential(stream) => {
                stream.by_ref().take(max as u64).read_to_end(&mut start)?;
                let rest = std::mem::replace(stream, Box::new(io::empty()));
                *stream = Box::new(Cursor::new(start.clone()).chain(rest));
            }
        }
        Ok(start)
    }

    /// All bytes, to read at any place. Those of a pipe are stored in an unnamed file in
    /// `spool_dir` first.
    ///
    /// # Errors
    /// They cannot be read, or the file cannot be written.
    pub fn into_bytes(self, spool_dir: &Path) -> Result<Arc<dyn ReadAt>> {
        match self.bytes {
            InputBytes::Seekable(bytes) => Ok(bytes),
            InputBytes::Sequential(mut stream) => {
                let copy = |mut out: &mut dyn io::Write| io::copy(&mut stream, &mut out);
                Ok(Arc::new(tree::spool(copy, spool_dir)?))
            }
        }
    }

    /// Reads it from its beginning to its end.
    pub fn into_reader(self) -> Box<dyn Read + Send> {
        match self.bytes {
            InputBytes::Seekable(bytes) => Box::new(SequentialReader::new(bytes)),
            InputBytes::Sequential(stream) => stream,
        }
    }

    /// Reads it as a tar archive, after decompression if it is compressed as a whole. With
    /// `skip_damaged`, an archive whose decompression fails is read as far as that comes.
    pub(crate) fn open_tar(
        self,
        wrapper: Option<Wrapper>,
        options: &OpenOptions,
    ) -> Result<OpenedTar> {
        let Some(wrapper) = wrapper else {
            let bytes = self.into_bytes(&options.spool_dir)?;
            return OpenedTar::of(Box::new(bytes), options);
        };
        let mut misfit = None;
        if let InputBytes::Seekable(bytes) = &self.bytes
            && wrapper == Wrapper::Zstd
        {
            match Seekable::open(Arc::clone(bytes)) {
                Ok(Some(seekable)) => match OpenedTar::of(Box::new(seekable), options) {
                    // The archive may be right, and the lengths in the table wrong.
                    Err(error) if is_of_content(&error) => {
                        let whole = self.unpack_tar(wrapper, options);
                        return whole.map_or(Err(error), |whole| {
                            Ok(OpenedTar {
                                misfit: Some(WRONG_CONTENT),
                                ..whole
                            })
                        });
                    }
                    opened => return opened,
                },
                // Of concatenated archives, each has its own table.
                Err(tree::Error::Corrupt(_)) if options.ignore_zeros => {}
                Err(tree::Error::Corrupt(corrupt)) => misfit = Some(corrupt),
                not_seekable => _ = not_seekable?,
            }
        }
        Ok(OpenedTar {
            misfit,
            ..self.unpack_tar(wrapper, options)?
        })
    }

    /// Decompresses all of it into an unnamed file, and reads that.
    fn unpack_tar(self, wrapper: Wrapper, options: &OpenOptions) -> Result<OpenedTar> {
        let mut stream = self.into_reader();
        let (mut damage, mut has_garbage) = (None, false);
        let unpack = |out: &mut dyn io::Write| match wrapper.decompress(&mut stream, out) {
            Err(error) if options.skip_damaged && is_damage(&error) => {
                damage = Some(error);
                Ok(0)
            }
            unpacked => unpacked.map(|unpacked| {
                has_garbage = unpacked.has_garbage;
                unpacked.bytes
            }),
        };
        let spooled = tree::spool(unpack, &options.spool_dir);
        let spooled = spooled.during(|| format!("decompress it with {}", wrapper.name()))?;
        Ok(OpenedTar {
            damage,
            garbage: has_garbage.then_some(wrapper),
            ..OpenedTar::of(Box::new(spooled), options)?
        })
    }
}

/// The bytes of a further device: of a file, or of the disk in a disk file.
pub(crate) fn device_bytes(device: &Path, options: &OpenOptions) -> Result<Arc<dyn ReadAt>> {
    let mut input = Input::open_with(device, &options.remote)?;
    input.open_disk_file(&OpenOptions::default())?;
    match input.seekable() {
        Some(bytes) => Ok(Arc::clone(bytes)),
        None => refuse!("neither a file nor a block device"),
    }
}

/// Why a seek table is not used that fits its file.
const WRONG_CONTENT: Corrupt = Corrupt {
    what: "zstd seek table does not fit the content of its frames",
    at: 0,
    got: 0,
};

/// A tar archive, and how its decompression went.
pub(crate) struct OpenedTar {
    pub(crate) tar: Arc<Tar>,
    /// Why it was not decompressed to its end.
    pub(crate) damage: Option<io::Error>,
    /// Why its seek table was not used.
    pub(crate) misfit: Option<Corrupt>,
    /// The format behind whose end other bytes follow.
    pub(crate) garbage: Option<Wrapper>,
}

impl OpenedTar {
    fn of(archive: Box<dyn ReadAt>, options: &OpenOptions) -> Result<OpenedTar> {
        let how = TarOptions {
            ignore_zeros: options.ignore_zeros,
            skip_damaged: options.skip_damaged,
            implied: options.implied_dirs,
        };
        let mut start = vec![0; archive.size()?.min(512) as usize];
        archive.read_exact_at(&mut start, 0)?;
        let opened = if Tar::recognises_cpio(&start) && !Tar::recognises(&start) {
            let spool_dir = &options.spool_dir;
            Tar::open_cpio(Arc::from(archive), Limits::default(), how, spool_dir)
        } else {
            Tar::open_with(archive, Limits::default(), how)
        };
        let tar = opened.map_err(|error| match error {
            error @ tree::Error::Corrupt(_) => Error::UnreadableFile {
                operation: "read its members".to_owned(),
                error,
            },
            error => error.into(),
        })?;
        Ok(OpenedTar::whole(Arc::new(tar)))
    }

    /// An archive that was read to its end.
    pub(crate) fn whole(tar: Arc<Tar>) -> OpenedTar {
        OpenedTar {
            tar,
            damage: None,
            misfit: None,
            garbage: None,
        }
    }
}

/// Whether the content of an archive is to blame for an error.
fn is_of_content(error: &Error) -> bool {
    match error {
        Error::UnreadableFile { .. } => true,
        Error::Tree(tree::Error::Io(error)) => is_damage(error),
        _ => false,
    }
}

/// Whether compressed bytes are to blame for an error, not the file that holds them.
fn is_damage(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    matches!(error.kind(), InvalidData | InvalidInput | UnexpectedEof)
}

/// Opens the object that a path is the address of.
#[cfg(feature = "remote")]
fn open_object(path: &Path, options: &RemoteOptions) -> io::Result<Option<Input>> {
    let Some(address) = path
        .to_str()
        .filter(|path| object::is_remote(path.as_bytes()))
    else {
        return Ok(None);
    };
    Ok(Some(match remote::open(address, options)? {
        remote::Opened::File(file) => Input::of(*file),
        remote::Opened::Stream(stream) => Input::of_stream(stream),
        _ => return Ok(None),
    }))
}

/// This build reads no objects.
#[cfg(not(feature = "remote"))]
fn open_object(_: &Path, _: &RemoteOptions) -> io::Result<Option<Input>> {
    Ok(None)
}
