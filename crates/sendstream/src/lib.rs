#![doc = include_str!("../README.md")]
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
