//! The directory that is being built, and how it starts.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use codec::Decoder;
use linux::{OpenFlags, Timestamp};
use tree::extract::Unrestored;
use tree::temporary::Temporary;
use tree::{Result, WrittenExtent};

use super::super::copied::copy_directory;
use super::super::files::OpenFiles;
use super::super::times::{Times, Touched};
use crate::subvolume::SentSubvolume;

/// The most files that are remembered because they are not as the stream says until the end.
pub(super) const PENDING_MAX: usize = 1 << 20;
/// The most sources of clones that are held open.
pub(super) const SOURCES_MAX: usize = 128;
/// Cleared by Linux when a file is written or gets another owner.
pub(super) const CAPABILITY: &[u8] = b"security.capability";

/// The summary of a [`ReceivedDirectory`], besides the commands.
#[derive(Debug, Default)]
pub struct InDirectory {
    /// Properties that could not be restored.
    pub unrestored: Unrestored,
    /// Files with fs-verity in the stream, which the directory does not have.
    pub verity_files: u64,
    /// Clones that share their bytes with the source.
    pub shared_clones: u64,
    /// Clones whose bytes were copied, because the file system cannot share them.
    pub copied_clones: u64,
    /// How many bytes these are.
    pub copied_bytes: u64,
}

/// A directory under a temporary name, to which a stream is applied.
pub struct ReceivedDirectory {
    pub(super) target: Arc<OwnedFd>,
    pub(super) temporary: Temporary,
    /// Where new files are made.
    pub(super) nursery: Arc<OwnedFd>,
    pub(super) _nursery: Temporary,
    pub(super) files: OpenFiles,
    pub(super) file: Option<OpenFile>,
    pub(super) sent: SentSubvolume,
    pub(super) owners: bool,
    pub(super) process_owner: (u32, u32),
    /// Whether encoded extents may be written as they are.
    pub(super) writes_encoded: bool,
    pub(super) touched: Touched,
    pub(super) sources: HashMap<[u8; 16], Rc<OwnedFd>>,
    /// Modes of files that can be changed until the end, by inode number.
    pub(super) modes: HashMap<u64, u32>,
    /// Files that stand for devices which could not be made, by inode number.
    pub(super) no_devices: HashSet<u64>,
    /// The last file that got an owner, and whether it really has it.
    pub(super) owned: (Vec<u8>, bool),
    /// Whether all files have had their owners so far.
    pub(super) is_owner_right: bool,
    /// Whether files can have capabilities.
    pub(super) has_capabilities: bool,
    pub(super) decoder: Decoder,
    pub(super) decoded: Vec<u8>,
    pub(super) done: InDirectory,
}

/// The file that was written last.
pub(super) struct OpenFile {
    pub(super) path: Vec<u8>,
    pub(super) file: File,
    pub(super) times: Times,
    /// The value of [`CAPABILITY`].
    pub(super) capability: Option<Vec<u8>>,
    /// Whether writing to it has changed both.
    pub(super) is_dirty: bool,
    /// Extents that were written as they are encoded, and not yet read back.
    pub(super) written: Vec<WrittenExtent>,
}

impl OpenFile {
    pub(super) fn read_back(&mut self) -> Result<()> {
        let mut stored = Vec::new();
        let mut written = self.written.drain(..);
        written.try_for_each(|it| it.read_back(&self.file, &mut stored))
    }
}

impl ReceivedDirectory {
    /// Starts with an empty directory in `target`, which is open. `owners` says to set the owners
    /// of files, `decompresses` to write all data decompressed.
    ///
    /// With the parent of an incremental stream, it starts with a copy of that, from which files
    /// can also be cloned.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn start(
        sent: SentSubvolume,
        target: &Arc<OwnedFd>,
        owners: bool,
        decompresses: bool,
        parent: Option<OwnedFd>,
    ) -> Result<ReceivedDirectory> {
        let (nursery_name, nursery) = private_dir(target, &sent.name)?;
        let (temporary, empty) = private_dir(target, &sent.name)?;
        // As `Replay` shows a root about which the stream says nothing.
        linux::set_mode(&empty, 0o755)?;
        linux::set_times(&empty, None, Timestamp::default())?;
        let unrestored = match &parent {
            Some(parent) => copy_directory(parent, &empty, owners)?,
            None => Unrestored::default(),
        };
        let mut sources = HashMap::new();
        if let Some(((uuid, _), parent)) = sent.parent.zip(parent) {
            sources.insert(uuid, Rc::new(parent));
        }
        let has_capabilities = sent.parent.is_some();
        let writes_encoded = !decompresses && linux::is_btrfs(&nursery).unwrap_or(false);
        Ok(ReceivedDirectory {
            target: Arc::clone(target),
            temporary,
            nursery: Arc::new(nursery),
            _nursery: nursery_name,
            files: OpenFiles::new(empty),
            file: None,
            sent,
            owners,
            process_owner: linux::process_owner(),
            writes_encoded,
            touched: Touched::default(),
            sources,
            modes: HashMap::new(),
            no_devices: HashSet::new(),
            owned: (Vec::new(), true),
            is_owner_right: true,
            has_capabilities,
            decoder: Decoder::new(),
            decoded: Vec::new(),
            done: InDirectory {
                unrestored,
                ..InDirectory::default()
            },
        })
    }

    /// Whether clones from the subvolume of this UUID can be made.
    pub fn knows(&self, uuid: [u8; 16]) -> bool {
        uuid == self.sent.uuid || self.sources.contains_key(&uuid)
    }

    /// Makes an open directory known as the subvolume of this UUID, from which files are cloned.
    pub fn know(&mut self, uuid: [u8; 16], dir: OwnedFd) {
        if self.sources.len() >= SOURCES_MAX {
            self.sources.clear();
        }
        self.sources.insert(uuid, Rc::new(dir));
    }
}

/// A new directory under a temporary name that only this user can enter, and whose files inherit
/// nothing from those above.
fn private_dir(target: &Arc<OwnedFd>, name: &[u8]) -> Result<(Temporary, OwnedFd)> {
    let (temporary, dir) = Temporary::create(target, name, |target, name| {
        linux::make_dir_at(target, name, 0o700)?;
        let flags = OpenFlags::RDONLY | OpenFlags::DIRECTORY;
        linux::open_at(target, name, flags, 0)
    })?;
    let (uid, gid) = linux::process_owner();
    linux::set_owner(&dir, uid, gid)?;
    linux::remove_xattr(&dir, b"system.posix_acl_default")?;
    linux::remove_xattr(&dir, b"system.posix_acl_access")?;
    linux::set_mode(&dir, 0o700)?;
    Ok((temporary, dir))
}
