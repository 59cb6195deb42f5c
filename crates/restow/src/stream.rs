//! Send streams as they are: their commands, described, verified, converted, dumped and built.

pub use ::sendstream::{
    Changes, CommandRecord, ConvertOptions, Converted, Dump, Event, Received, Recode,
    SentSubvolume, StreamInfo, StreamReader, Value, Verified, VerifyOptions, convert, json, verify,
};
