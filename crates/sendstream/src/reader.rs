//! Reading a stream, one command after the other.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use std::io::{ErrorKind, Read};
use std::ops::Range;

use tree::{Error, Result, to_u64, to_usize};

use crate::attributes::parse;
use crate::command::Command;
use crate::raw::{COMMAND_HEADER_BYTES, MAGIC, STREAM_HEADER_BYTES, Version, checksum};

/// The longest command that is read, unless [`StreamReader::command_bytes_max`] says otherwise.
/// Linux writes at most 147,456 bytes, but the format has no limit, and other programs can collect
/// more data in one command.
pub const COMMAND_BYTES_MAX: u32 = 16 << 20;
/// The size of the buffer at the beginning: several of Linux's longest commands, and little enough
/// for a cache.
const BUFFER_BYTES: usize = 512 << 10;

/// How far after a broken command a restarted stream is searched for: it can be interrupted several
/// times in a row.
const RESTART_BYTES_MAX: usize = 1 << 20;

/// Reads send streams from a file or pipe.
///
/// An input holds one or more streams, one after the other (`btrfs send A B`). A stream holds one
/// or more subvolumes, each started by [`Command::Subvol`] or [`Command::Snapshot`] (several with
/// `btrfs send -e A B`), and ends with [`Command::End`].
///
/// ```no_run
/// # fn main() -> tree::Result<()> {
/// let mut reader = sendstream::StreamReader::new(std::io::stdin().lock());
/// while let Some(_version) = reader.next_stream()? {
///     while let Some(record) = reader.next_command()? {
///         // `record.command` borrows from the reader until the next call.
///         let _ = record.command;
///     }
///     // Only here is the stream complete.
/// }
/// # Ok(())
/// # }
/// ```
///
/// Each command is verified against its checksum before it is parsed. Each command that is returned
/// is valid by itself: it exists in this version and has all its attributes, and its numbers, paths
/// and owners are possible (see [`Command::fault`]). Whether it fits the files that exist is for
/// the receiver to check. Memory is that of the longest command.
///
/// Errors in a command are [`Error::Part`] with the command's number, counted from 1 over the whole
/// input; the place of a [`Corrupt`](tree::Corrupt) is its byte in the input.
pub struct StreamReader<R> {
    input: R,
    buffer: Vec<u8>,
    /// Bytes read and not yet returned.
    unread: Range<usize>,
    /// The offset of the unread bytes in the input.
    at: u64,
    commands: u64,
    state: ReaderState,
    command_bytes_max: u32,
    checks_paths: bool,
    reads_ahead: bool,
    restart: Option<u64>,
    /// The bytes of the first command of the current stream, by which the stream is recognised when
    /// it starts again.
    first: Vec<u8>,
}

#[derive(Clone, Copy)]
enum ReaderState {
    /// Before the first stream.
    Start,
    /// In a stream.
    Inside(Inside),
    /// After the end of a stream.
    Ended,
    /// After an error.
    Failed,
}

/// The state of the current stream.
#[derive(Clone, Copy)]
struct Inside {
    version: Version,
    /// The offset of its header.
    at: u64,
    has_subvolume: bool,
    /// Whether something shows that it is of version 2 or later, or of version 1.
    is_labelled_right: bool,
    /// Whether there is data, and all of it began with its own length as in version 1.
    has_lengths: bool,
}

/// A command and where it was found.
#[derive(Clone, Copy, Debug)]
pub struct CommandRecord<'a> {
    /// The offset of its header in the input.
    pub at: u64,
    /// Its number in the input, counted from 1.
    pub number: u64,
    /// The version of its stream.
    pub version: Version,
    /// Its bytes, with its header, for [`StreamWriter::copy`](crate::StreamWriter::copy).
    pub bytes: &'a [u8],
    /// The command.
    pub command: Command<'a>,
}

impl CommandRecord<'_> {
    /// The offset of its data in the input, if it has any.
    pub fn data_at(&self) -> Option<u64> {
        let data = self.command.data()?;
        // The data is borrowed from the bytes.
        let skip = data
            .as_ptr()
            .addr()
            .saturating_sub(self.bytes.as_ptr().addr());
        Some(self.at.saturating_add(to_u64(skip)))
    }

    /// The offset of the first byte after it.
    pub fn end(&self) -> u64 {
        self.at.saturating_add(to_u64(self.bytes.len()))
    }
}

impl<R: Read> StreamReader<R> {
    /// Reads from `input`, which needs no buffer of its own.
    pub fn new(input: R) -> Self {
        StreamReader {
            input,
            buffer: Vec::new(),
            unread: 0..0,
            at: 0,
            commands: 0,
            state: ReaderState::Start,
            command_bytes_max: COMMAND_BYTES_MAX,
            checks_paths: true,
            reads_ahead: true,
            restart: None,
            first: Vec::new(),
        }
    }

    /// Refuses commands with a payload of more than this many bytes; [`COMMAND_BYTES_MAX`] unless
    /// set. Memory grows with received bytes, not with the length that a header claims.
    #[must_use]
    pub fn command_bytes_max(self, bytes: u32) -> Self {
        StreamReader {
            command_bytes_max: bytes,
            ..self
        }
    }

    /// Accepts any names, paths and owners: for programs that only print.
    #[must_use]
    pub fn any_paths(self) -> Self {
        StreamReader {
            checks_paths: false,
            ..self
        }
    }

    /// Reads no byte behind the command that is returned, so that after [`Command::End`] the next
    /// reader of the input gets the bytes that follow. An error can have read more.
    #[must_use]
    pub fn exactly(self) -> Self {
        StreamReader {
            reads_ahead: false,
            ..self
        }
    }

    /// The offset in the input up to which everything was returned.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// How many commands were returned.
    pub fn commands(&self) -> u64 {
        self.commands
    }

    /// Starts the next stream and returns its version, or `None` at the end of the input. The
    /// stream before must be finished: [`StreamReader::next_command`] returned `None`.
    ///
    /// # Errors
    /// The input is empty, has other bytes than a stream, or has a version that is not known.
    pub fn next_stream(&mut self) -> Result<Option<Version>> {
        let is_first = match self.state {
            ReaderState::Start => true,
            ReaderState::Ended => {
                self.first.clear();
                false
            }
            ReaderState::Inside(_) | ReaderState::Failed => {
                return Err(Error::InvalidInput(
                    "the send stream before was not read to its end",
                ));
            }
        };
        self.state = ReaderState::Failed;
        let at = self.at;
        let found = self.fill(STREAM_HEADER_BYTES)?;
        if found == 0 && !is_first {
            self.state = ReaderState::Ended;
            return Ok(None);
        }
        let wrong = |what, got| Err(Error::corrupt(what, at, got));
        let (header, _) = self.unread().split_at(found.min(STREAM_HEADER_BYTES));
        let Some(&first) = header.first() else {
            return wrong("send stream is empty", 0);
        };
        let is_magic = header.iter().zip(MAGIC).all(|(byte, magic)| byte == magic);
        if !is_magic {
            let first = first.into();
            return if is_first {
                wrong("not a btrfs send stream", first)
            } else {
                wrong("send stream is followed by other bytes", first)
            };
        }
        let Some(number) = header.last_chunk().filter(|_| found >= STREAM_HEADER_BYTES) else {
            return wrong("send stream's header is cut off", to_u64(found));
        };
        let number = u32::from_le_bytes(*number);
        let Some(version) = Version::parse(number) else {
            return wrong("send stream has an unknown version", number.into());
        };
        self.consume(STREAM_HEADER_BYTES);
        self.state = ReaderState::Inside(Inside {
            version,
            at,
            has_subvolume: false,
            is_labelled_right: version == Version::V1,
            has_lengths: false,
        });
        Ok(Some(version))
    }

    /// The next command of the current stream. The last one is [`Command::End`]; after it, the
    /// result is `None`.
    ///
    /// # Errors
    /// The stream ends without [`Command::End`], a command breaks the format, or the input cannot
    /// be read. The commands before are not a whole stream then.
    pub fn next_command(&mut self) -> Result<Option<CommandRecord<'_>>> {
        let ReaderState::Inside(inside) = self.state else {
            return match self.state {
                ReaderState::Ended => Ok(None),
                _ => Err(Error::InvalidInput("no send stream was started")),
            };
        };
        self.state = ReaderState::Failed;
        let number = self.commands.saturating_add(1);
        let in_command = |error: Error| error.in_part("command", number);
        let (command, bytes) = self.frame().map_err(in_command)?;
        let at = self.at;
        let start = self.unread.start;
        self.consume(bytes);
        self.commands = number;
        let (_, unread) = self.buffer.split_at(start);
        let (bytes, _) = unread.split_at(bytes);
        let (_, payload) = bytes.split_at(COMMAND_HEADER_BYTES);
        let parsed = parse(inside.version, command, payload, at);
        let command = parsed.map_err(in_command)?;
        let inside = inside.after(&command, at).map_err(in_command)?;
        if self.checks_paths
            && let Some(what) = command.fault()
        {
            let got = command.number().into();
            return Err(in_command(Error::corrupt(what, at, got)));
        }
        if self.first.is_empty() {
            self.first.extend_from_slice(bytes);
        }
        self.state = match command {
            Command::End => ReaderState::Ended,
            _ => ReaderState::Inside(inside),
        };
        Ok(Some(CommandRecord {
            at,
            number,
            version: inside.version,
            bytes,
            command,
        }))
    }

    /// Where a stream begins in the middle of the one that just failed: the offset of its header.
    ///
    /// This happens if `btrfs send` was stopped and continued, for example by a suspend: Linux then
    /// starts the stream from its beginning, and the file or pipe holds the first part twice.
    pub fn restart(&self) -> Option<u64> {
        self.restart
    }

    /// Continues with the stream at [`StreamReader::restart`], if there is one:
    /// [`StreamReader::next_stream`] reads its header.
    pub fn continue_at_restart(&mut self) -> bool {
        let Some(restart) = self.restart.take() else {
            return false;
        };
        // It lies in the unread bytes: `frame` consumes nothing when it fails.
        let skipped = to_usize(restart.saturating_sub(self.at));
        self.consume(skipped.min(self.unread.len()));
        self.state = ReaderState::Start;
        true
    }

    /// Ends reading and returns the input. Bytes read ahead are lost.
    pub fn into_inner(self) -> R {
        self.input
    }

    /// Reads all of the next command into the buffer, without consuming it, and verifies its
    /// checksum. Returns its number and its size with the header.
    fn frame(&mut self) -> Result<(u16, usize)> {
        let at = self.at;
        let wrong = |what, got| Error::corrupt(what, at, got);
        let found = self.fill(COMMAND_HEADER_BYTES)?;
        if found < COMMAND_HEADER_BYTES {
            let what = match found {
                0 => "send stream ends without an end command",
                _ => "send stream ends in the header of a command",
            };
            return Err(wrong(what, to_u64(found)));
        }
        let header = self.unread();
        let [a, b, c, d, e, f, g, h, i, j] = *header
            .first_chunk()
            .expect("`fill` found at least the header");
        let len = u32::from_le_bytes([a, b, c, d]);
        let command = u16::from_le_bytes([e, f]);
        let expected = u32::from_le_bytes([g, h, i, j]);
        if len > self.command_bytes_max {
            self.find_restart(COMMAND_HEADER_BYTES)?;
            return Err(wrong("command is longer than is allowed", len.into()));
        }
        let bytes = COMMAND_HEADER_BYTES.saturating_add(to_usize(len));
        let found = self.fill(bytes)?;
        if found < bytes {
            self.find_restart(bytes)?;
            return Err(wrong("send stream ends in a command", to_u64(found)));
        }
        let (_, after) = self.unread().split_at(COMMAND_HEADER_BYTES);
        let sum = checksum(len, command, after.split_at(to_usize(len)).0);
        if sum != expected {
            self.find_restart(bytes)?;
            return Err(wrong("command has the wrong checksum", expected.into()));
        }
        Ok((command, bytes))
    }

    /// Fails if the stream starts again inside the broken command, which has this size.
    fn find_restart(&mut self, bytes: usize) -> Result<()> {
        // Where a header may begin: it can be interrupted right after it, too.
        let (mut at, mut last) = (0_usize, bytes);
        while at <= last {
            let header_end = at.saturating_add(STREAM_HEADER_BYTES);
            let wanted = header_end.saturating_add(self.first.len());
            let found = self.fill(wanted)?;
            let Some(header) = self.unread().get(at..header_end) else {
                return Ok(());
            };
            let (magic, number) = header.split_at(MAGIC.len());
            let number = number.first_chunk().map_or(0, |it| u32::from_le_bytes(*it));
            if magic == MAGIC && Version::parse(number).is_some() {
                // Data can look like a header. What follows must be the first command.
                let after = self.unread().get(header_end..found.min(wanted));
                if self.first.starts_with(after.unwrap_or_default()) {
                    let restart = self.at.saturating_add(to_u64(at));
                    self.restart = Some(restart);
                    return Err(Error::corrupt(
                        "send stream starts again before its end: its sender was interrupted",
                        restart,
                        number.into(),
                    ));
                }
                last = (last.max(wanted)).min(bytes.saturating_add(RESTART_BYTES_MAX));
            }
            at = at.saturating_add(1);
        }
        Ok(())
    }

    fn unread(&self) -> &[u8] {
        self.buffer.get(self.unread.clone()).unwrap_or_default()
    }

    fn consume(&mut self, bytes: usize) {
        self.unread.start = self.unread.start.saturating_add(bytes);
        self.at = self.at.saturating_add(to_u64(bytes));
    }

    /// Reads until there are this many unread bytes, or the input ends. Returns how many there are,
    /// which can be more.
    fn fill(&mut self, bytes: usize) -> Result<usize> {
        if self.unread.len() >= bytes {
            return Ok(self.unread.len());
        }
        self.buffer.copy_within(self.unread.clone(), 0);
        self.unread = 0..self.unread.len();
        while self.unread.len() < bytes {
            if self.unread.end == self.buffer.len() {
                let most = bytes.saturating_add(BUFFER_BYTES);
                let larger = self
                    .buffer
                    .len()
                    .saturating_mul(2)
                    .clamp(BUFFER_BYTES, most);
                self.buffer.resize(larger, 0);
            }
            let (_, mut room) = self.buffer.split_at_mut(self.unread.end);
            if !self.reads_ahead {
                let wanted = bytes.saturating_sub(self.unread.len());
                room = room.split_at_mut(wanted.min(room.len())).0;
            }
            match self.input.read(room) {
                Ok(0) => break,
                Ok(read) => self.unread.end = self.unread.end.saturating_add(read),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.unread.len())
    }
}

impl Inside {
    /// The state after this command.
    fn after(mut self, command: &Command<'_>, at: u64) -> Result<Inside> {
        let got = command.number().into();
        if command.starts_subvolume() {
            self.has_subvolume = true;
        } else if !self.has_subvolume {
            let what = "command comes before the first subvolume";
            return Err(Error::corrupt(what, at, got));
        }
        if command.since() > Version::V1 {
            self.is_labelled_right = true;
        }
        match *command {
            Command::Utimes { otime: Some(_), .. } => self.is_labelled_right = true,
            Command::Write { data, .. } if !self.is_labelled_right => {
                self.has_lengths = begins_with_length(data);
                self.is_labelled_right = !self.has_lengths;
            }
            Command::End if self.has_lengths && !self.is_labelled_right => {
                return Err(Error::corrupt(
                    "data begins with its own length: a stream of version 1 with a changed header",
                    self.at.saturating_add(to_u64(MAGIC.len())),
                    self.version.number().into(),
                ));
            }
            _ => {}
        }
        Ok(self)
    }
}

/// Whether `data` begins with its own length, as in a stream of version 1 that is read as a later
/// one.
pub(crate) fn begins_with_length(data: &[u8]) -> bool {
    data.split_first_chunk()
        .is_some_and(|(len, rest)| usize::from(u16::from_le_bytes(*len)) == rest.len())
}
