//! Receiving send streams into images, directories and a mounted btrfs.

mod directory;
mod image;
mod needed;
mod record;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sendstream::{Command, Event, Received, StreamReader, Version};
use tree::{Error, Parallel, Progress, ReadAt, SequentialReader, Time, setters};

pub use self::directory::{DirectoryReceived, receive_into_directory};
pub use self::image::{ImageReceived, ImageReceiver};
use crate::error::{During, refuse};
use crate::{Address, Input, Result, text};

/// Options for receiving. One that does not apply to the target has no effect, or is refused.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReceiveOptions {
    /// Options for a mounted btrfs, of which the parent, decompression and the end of the stream
    /// also apply to directories, and the parent to images.
    pub stream: sendstream::ReceiveOptions,
    /// Directories: restore owners and groups.
    pub owners: bool,
    /// Images: decompress the data of the stream to verify it.
    pub verify: bool,
    /// Images: the time of the receive, which the new subvolumes get.
    pub time: Time,
    /// Images: the directory for an unnamed file with a stream from a pipe.
    pub spool_dir: PathBuf,
    /// Threads.
    pub parallel: Parallel,
}

impl ReceiveOptions {
    /// The defaults: everything is restored and verified.
    pub fn new(parallel: Parallel) -> ReceiveOptions {
        ReceiveOptions {
            stream: sendstream::ReceiveOptions::default(),
            owners: true,
            verify: true,
            time: Time::default(),
            spool_dir: "/var/tmp".into(),
            parallel,
        }
    }
}

setters!(ReceiveOptions {
    stream: sendstream::ReceiveOptions,
    owners: bool,
    verify: bool,
    time: Time,
    spool_dir: impl Into<PathBuf>,
    parallel: Parallel,
});

/// A step of receiving.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReceiveEvent<'a> {
    /// A subvolume starts, a command comes next or fails.
    Stream(&'a Event<'a>),
    /// A subvolume has become a directory.
    Directory(&'a DirectoryReceived),
}

/// A property that the received subvolumes lack. [`fmt::Display`] gives it in words.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReceiveLoss {
    /// Files of a subvolume whose fs-verity is not enabled.
    Verity {
        /// The name of the subvolume, or the path of the directory, in words.
        subvolume: String,
        /// Number of files.
        files: u64,
    },
    /// An extended attribute that does not fit in a tree block.
    Xattr {
        /// The path of the file in the image.
        path: Vec<u8>,
        /// The name of the attribute.
        name: Vec<u8>,
    },
}

impl fmt::Display for ReceiveLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReceiveLoss::Verity { subvolume, files } => {
                let files = text::count(*files, "file");
                write!(f, "{subvolume}: fs-verity of {files} not enabled")
            }
            ReceiveLoss::Xattr { path, name } => {
                let (path, name) = (text::of_path(path), text::of_name(name));
                write!(
                    f,
                    "{path}: extended attribute {name} not copied: it does not fit in a tree block"
                )
            }
        }
    }
}

/// The form that received subvolumes get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveTarget {
    /// Subvolumes of a mounted btrfs.
    MountedBtrfs,
    /// Directories of any file system.
    Directory,
    /// Subvolumes of a btrfs image that is not mounted.
    Image,
}

impl ReceiveTarget {
    /// The natural form for a path: a file holds an image, a directory on btrfs subvolumes.
    ///
    /// # Errors
    /// The path cannot be opened, or only root can make subvolumes there.
    pub fn of(path: &Path) -> Result<ReceiveTarget> {
        Address::refuse_remote_destination(path)?;
        let address = Address::of(path)?;
        address.refuse_container_image()?;
        if std::fs::metadata(&address.path).is_ok_and(|it| !it.is_dir()) {
            return Ok(ReceiveTarget::Image);
        }
        let name = text::of_host_path(path, "-");
        let open = || format!("open {name}");
        let opened = linux::open_dir(path).during(open)?;
        if !linux::is_btrfs(&opened).during(open)? {
            return Ok(ReceiveTarget::Directory);
        }
        match linux::subvolume(&opened, 5) {
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => refuse!(
                "{name} is on btrfs, where subvolumes can be received only by root; `--to directory` makes directories"
            ),
            _ => Ok(ReceiveTarget::MountedBtrfs),
        }
    }
}

/// Receives subvolumes into a directory of a mounted btrfs, which needs root. A subvolume gets its
/// name and its received UUID when everything is on the disk.
///
/// # Errors
/// The stream is damaged, its parent is missing, or a subvolume cannot be built. Subvolumes that
/// were complete before exist.
pub fn receive_into_btrfs(
    input: Input,
    dir: &Path,
    options: &ReceiveOptions,
    progress: &dyn Progress,
    on_event: &mut dyn FnMut(&ReceiveEvent<'_>),
) -> Result<Received> {
    if let Some(bytes) = input.seekable() {
        refuse_verity(bytes, options.stream.stops_at_end)
            .during(|| format!("read {}", input.name()))?;
    }
    let mut on_stream_event = |event: &Event<'_>| on_event(&ReceiveEvent::Stream(event));
    let reader = input.into_reader();
    let received =
        sendstream::receive(reader, dir, &options.stream, progress, &mut on_stream_event);
    received.during(|| format!("receive into {}", text::of_host_path(dir, "-")))
}

/// Refuses a stream with fs-verity before anything is written. One from a pipe is refused at the
/// first such command.
fn refuse_verity(stream: &Arc<dyn ReadAt>, stops_at_end: bool) -> tree::Result<()> {
    let mut reader = StreamReader::new(SequentialReader::new(Arc::clone(stream)));
    // Damage is reported when it is reached.
    while let Ok(Some(Version::V3)) = reader.next_stream() {
        while let Ok(Some(record)) = reader.next_command() {
            if matches!(record.command, Command::EnableVerity { .. }) {
                let error = Error::Unsupported("enabling fs-verity");
                return Err(error.in_part("command", record.number));
            }
        }
        if stops_at_end {
            break;
        }
    }
    Ok(())
}
