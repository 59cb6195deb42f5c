//! Writing a stream.

use std::io::Write;

use tree::Result;

use crate::command::Command;
use crate::raw::{Version, stream_header};

/// Writes a send stream, byte for byte as Linux does.
///
/// ```
/// use sendstream::{Command, StreamWriter, Version};
///
/// let mut writer = StreamWriter::new(Vec::new(), Version::V1);
/// writer.header()?;
/// writer.command(&Command::Subvol { path: b"s", uuid: [7; 16], ctransid: 9 })?;
/// writer.command(&Command::End)?;
/// assert_eq!(writer.position(), writer.into_inner().len() as u64);
/// # Ok::<(), tree::Error>(())
/// ```
///
/// The caller decides about the header and the end, because `btrfs send -e` leaves them out between
/// subvolumes. Each command is one call of `write_all`.
pub struct StreamWriter<W> {
    output: W,
    version: Version,
    command: Vec<u8>,
    at: u64,
}

impl<W: Write> StreamWriter<W> {
    /// Writes streams of this version to `output`. Nothing is written yet.
    pub fn new(output: W, version: Version) -> Self {
        StreamWriter {
            output,
            version,
            command: Vec::new(),
            at: 0,
        }
    }

    /// The version of the streams.
    pub fn version(&self) -> Version {
        self.version
    }

    /// How many bytes were written.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// Starts a stream.
    ///
    /// # Errors
    /// The output's error.
    pub fn header(&mut self) -> Result<()> {
        self.copy(&stream_header(self.version))
    }

    /// Writes a command.
    ///
    /// # Errors
    /// Those of [`Command::emit`], and the error of the output.
    pub fn command(&mut self, command: &Command<'_>) -> Result<()> {
        self.command.clear();
        command.emit(self.version, &mut self.command)?;
        self.output.write_all(&self.command)?;
        self.at += self.command.len() as u64;
        Ok(())
    }

    /// Writes whole commands as they are:
    /// [`CommandRecord::bytes`](crate::CommandRecord::bytes) of a stream of the same version, or
    /// those that [`Command::emit`] made.
    ///
    /// # Errors
    /// The output's error.
    pub fn copy(&mut self, commands: &[u8]) -> Result<()> {
        self.output.write_all(commands)?;
        self.at += commands.len() as u64;
        Ok(())
    }

    /// The output.
    pub fn output(&self) -> &W {
        &self.output
    }

    /// Ends writing and returns the output. The caller has written [`Command::End`].
    pub fn into_inner(self) -> W {
        self.output
    }
}
