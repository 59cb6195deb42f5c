//! The contents of a stream: sizes by command and algorithm, and changes.

use std::io::Read;

use codec::Algorithm;
use tree::{Progress, Result};

use crate::command::{Command, name};
use crate::encoded::compression;
use crate::raw::Version;
use crate::reader::StreamReader;
use crate::subvolume::SentSubvolume;

/// The most subvolumes that are listed.
const SUBVOLUMES_MAX: usize = 4096;

/// Commands of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandTotal {
    /// How many.
    pub commands: u64,
    /// Their bytes in the stream, with headers.
    pub bytes: u64,
}

/// Encoded data of one algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncodedTotal {
    /// How many encoded writes.
    pub extents: u64,
    /// Their data in the stream, in bytes.
    pub stored_bytes: u64,
    /// The bytes that files get from them.
    pub file_bytes: u64,
}

/// The changes that a stream makes to the files of a subvolume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// New files that are not directories.
    pub files_created: u64,
    /// New directories.
    pub directories_created: u64,
    /// Names that are removed from files.
    pub names_removed: u64,
    /// Directories that are removed.
    pub directories_removed: u64,
    /// Files and directories that get another name. Linux creates files under a temporary name:
    /// those are not counted.
    pub renamed: u64,
    /// Further names for files.
    pub links: u64,
    /// Files whose content changes. Linux changes one file after the other.
    pub files_written: u64,
    /// Bytes that are written to files, decoded.
    pub written_bytes: u64,
    /// Bytes that are shared with other files.
    pub cloned_bytes: u64,
    /// Bytes of holes that are punched.
    pub punched_bytes: u64,
    /// Bytes that changed, whose data was left out (`btrfs send --no-data`).
    pub updated_bytes: u64,
    /// Changes of size.
    pub truncated: u64,
    /// Changes of permissions, owners, file attributes and extended attributes.
    pub attributes: u64,
}

/// A subvolume of a stream, and its changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubvolumeChanges {
    /// The subvolume.
    pub subvolume: SentSubvolume,
    /// Its changes.
    pub changes: Changes,
}

/// The contents of the streams of an input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamInfo {
    /// The versions of the streams, each once, in order.
    pub versions: Vec<Version>,
    /// How many streams.
    pub streams: u64,
    /// All bytes.
    pub bytes: u64,
    /// Totals by number of the command, counted from 0 for `subvol`: see
    /// [`StreamInfo::by_command`].
    totals: [CommandTotal; 26],
    /// Totals of encoded data by Linux's number of the algorithm.
    encoded: [EncodedTotal; 8],
    /// Plain data, in bytes.
    pub plain_bytes: u64,
    /// The first subvolumes, at most 4096.
    pub subvolumes: Vec<SubvolumeChanges>,
    /// How many subvolumes there are.
    pub subvolume_count: u64,
}

impl StreamInfo {
    /// The names of the commands that occur, with totals, in the order of their numbers.
    pub fn by_command(&self) -> impl Iterator<Item = (&'static str, CommandTotal)> {
        let totals = (1..).zip(&self.totals);
        totals
            .filter(|(_, total)| total.commands > 0)
            .filter_map(|(number, total)| Some((name(number)?, *total)))
    }

    /// The algorithms of encoded data that occur, with totals.
    pub fn by_algorithm(&self) -> impl Iterator<Item = (Algorithm, EncodedTotal)> {
        let totals = (0..).zip(&self.encoded);
        totals
            .filter(|(_, total)| total.extents > 0)
            .filter_map(|(number, total)| Some((crate::algorithm(number)?, *total)))
    }

    /// How many commands there are.
    pub fn commands(&self) -> u64 {
        self.totals.iter().map(|total| total.commands).sum()
    }

    /// Reads all streams of `input`, without decoding data.
    ///
    /// # Errors
    /// Those of [`StreamReader`].
    pub fn read<R: Read>(input: R, progress: &dyn Progress) -> Result<StreamInfo> {
        let mut info = StreamInfo::default();
        let mut reader = StreamReader::new(input);
        let mut reported = 0;
        let mut written = Written::default();
        while let Some(version) = reader.next_stream()? {
            info.streams += 1;
            if !info.versions.contains(&version) {
                info.versions.push(version);
            }
            while let Some(record) = reader.next_command()? {
                info.add(&record.command, record.bytes.len() as u64, &mut written);
                let end = record.end();
                if end - reported >= 1 << 20 {
                    progress.advance(0, end - reported);
                    reported = end;
                }
            }
        }
        info.bytes = reader.position();
        info.versions.sort_unstable();
        Ok(info)
    }

    fn add(&mut self, command: &Command<'_>, bytes: u64, written: &mut Written) {
        let total = usize::from(command.number()).checked_sub(1);
        if let Some(total) = total.and_then(|at| self.totals.get_mut(at)) {
            total.commands += 1;
            total.bytes += bytes;
        }
        if let Some(subvolume) = SentSubvolume::started_by(command) {
            self.subvolume_count += 1;
            *written = Written::default();
            if self.subvolumes.len() < SUBVOLUMES_MAX {
                let changes = Changes::default();
                self.subvolumes
                    .push(SubvolumeChanges { subvolume, changes });
            }
            return;
        }
        match *command {
            Command::Write { data, .. } => self.plain_bytes += data.len() as u64,
            Command::EncodedWrite(write) => {
                let number = compression(write.compression).map_or(0, |it| it as usize);
                if let Some(total) = self.encoded.get_mut(number) {
                    total.extents += 1;
                    total.stored_bytes += write.data.len() as u64;
                    total.file_bytes += write.unencoded_file_len;
                }
            }
            _ => {}
        }
        // All subvolumes beyond those that are listed count as changes of nothing.
        let is_listed = self.subvolume_count == self.subvolumes.len() as u64;
        if let Some(last) = self.subvolumes.last_mut().filter(|_| is_listed) {
            last.changes.add(command, written);
        }
    }
}

/// The file that is written, and the one that was created last.
#[derive(Default)]
struct Written {
    path: Vec<u8>,
    is_written: bool,
    created: Vec<u8>,
}

impl Changes {
    fn add(&mut self, command: &Command<'_>, written: &mut Written) {
        let Some(path) = command.path() else { return };
        // Numbers of hostile streams are large.
        let add = |total: &mut u64, bytes: u64| *total = total.saturating_add(bytes);
        match *command {
            Command::Mkfile { .. }
            | Command::Mknod { .. }
            | Command::Mkfifo { .. }
            | Command::Mksock { .. }
            | Command::Symlink { .. } => self.files_created += 1,
            Command::Mkdir { .. } => self.directories_created += 1,
            Command::Unlink { .. } => self.names_removed += 1,
            Command::Rmdir { .. } => self.directories_removed += 1,
            Command::Rename { .. } if written.created == path => {}
            Command::Rename { .. } => self.renamed += 1,
            Command::Link { .. } => self.links += 1,
            Command::Write { data, .. } => add(&mut self.written_bytes, data.len() as u64),
            Command::EncodedWrite(it) => add(&mut self.written_bytes, it.unencoded_file_len),
            Command::Clone { clone_len, .. } => add(&mut self.cloned_bytes, clone_len),
            Command::Fallocate { size, .. } => add(&mut self.punched_bytes, size),
            Command::UpdateExtent { size, .. } => add(&mut self.updated_bytes, size),
            Command::Truncate { .. } => self.truncated += 1,
            Command::Chmod { .. }
            | Command::Chown { .. }
            | Command::Fileattr { .. }
            | Command::SetXattr { .. }
            | Command::RemoveXattr { .. }
            | Command::EnableVerity { .. } => self.attributes += 1,
            Command::Utimes { .. }
            | Command::End
            | Command::Subvol { .. }
            | Command::Snapshot { .. } => {}
        }
        match *command {
            Command::Mkfile { .. }
            | Command::Mkdir { .. }
            | Command::Mknod { .. }
            | Command::Mkfifo { .. }
            | Command::Mksock { .. }
            | Command::Symlink { .. } => {
                written.created.clear();
                written.created.extend_from_slice(path);
            }
            Command::Rename { .. } => written.created.clear(),
            _ => {}
        }
        let writes = matches!(
            command,
            Command::Write { .. }
                | Command::EncodedWrite(_)
                | Command::Clone { .. }
                | Command::Fallocate { .. }
                | Command::UpdateExtent { .. }
                | Command::Truncate { .. }
        );
        if writes && !(written.is_written && written.path == path) {
            self.files_written += 1;
            written.path.clear();
            written.path.extend_from_slice(path);
            written.is_written = true;
        }
    }
}
