//! btrfs send streams, versions 1 to 3 (`btrfs send`, `btrfs receive`).
//!
//! A stream is a sequence of [`Command`]s that build a subvolume from nothing, or from a snapshot
//! of its parent. A full stream begins with [`Command::Subvol`], an incremental one with
//! [`Command::Snapshot`].
//!
//! - [`StreamReader`] reads commands one at a time, from anything that is `Read`. It returns only
//!   commands that are right in themselves; names and data are borrowed from its buffer.
//! - [`StreamWriter`] writes commands as Linux does, to anything that is `Write`. [`Command::emit`]
//!   appends one to a vector.
//! - [`EncodedWrite::decode`] returns the bytes that an encoded write puts into its file.
//!
//! ```
//! use sendstream::{Command, StreamReader, StreamWriter, Version};
//!
//! let mut writer = StreamWriter::new(Vec::new(), Version::V2);
//! writer.header()?;
//! writer.command(&Command::Subvol { path: b"s", uuid: [7; 16], ctransid: 9 })?;
//! writer.command(&Command::Mkfile { path: b"o257-9-0", ino: 257 })?;
//! writer.command(&Command::Rename { path: b"o257-9-0", path_to: b"hello" })?;
//! writer.command(&Command::Write { path: b"hello", file_offset: 0, data: b"world" })?;
//! writer.command(&Command::End)?;
//! let stream = writer.into_inner();
//!
//! let mut reader = StreamReader::new(&stream[..]);
//! let mut written = 0;
//! while let Some(_version) = reader.next_stream()? {
//!     while let Some(record) = reader.next_command()? {
//!         written += record.command.data().map_or(0, <[u8]>::len);
//!     }
//! }
//! assert_eq!(written, 5);
//! # Ok::<(), tree::Error>(())
//! ```
#![forbid(unsafe_code)]

mod apply;
mod attributes;
mod command;
mod convert;
mod dump;
mod encoded;
mod info;
pub mod json;
mod path;
mod raw;
mod reader;
mod receive;
mod replay;
mod restart;
mod send;
mod subvolume;
mod value;
mod verify;
mod writer;

pub use command::{Command, device, rdev};
pub use convert::{ConvertOptions, Converted, Recode, convert};
pub use dump::Dump;
pub use encoded::{ENCODED_BYTES_MAX, EncodedWrite, algorithm, compression};
pub use info::{Changes, CommandTotal, EncodedTotal, StreamInfo, SubvolumeChanges};
pub use raw::Version;
pub use reader::{COMMAND_BYTES_MAX, CommandRecord, StreamReader};
pub use receive::{
    Event, InDirectory, OtherTransaction, ParentState, ReceiveOptions, Received, ReceivedDirectory,
    receive,
};
pub use replay::{Replay, SentTree};
pub use restart::{Continuous, without_restarts};
pub use send::{
    KnownSubvolume, SendData, SendOptions, SendSummary, StoredFiles, send, send_changes,
};
pub use subvolume::SentSubvolume;
pub use value::Value;
pub use verify::{Verified, VerifyOptions, verify};
pub use writer::StreamWriter;
