//! A part of a stream, cut, changed or too long, as `send --resume-from` continues it.
//!
//! Asserts: a part that begins the stream is completed to it, byte for byte, in place or in another
//! file; any other part is refused, and stays as it is.
//!
//! `cargo +nightly fuzz run resume`
#![cfg_attr(not(test), no_main)]

use std::fs;
use std::io::Write;

use libfuzzer_sys::fuzz_target;
use restow::ResumedOutput;
use restow_fuzz::streams;
use testkit::TempDir;
use tree::Output;

fuzz_target!(|data: &[u8]| {
    let Some((&[cut, change, piece], rest)) = data.split_first_chunk() else {
        return;
    };
    let stream = streams(rest).concat();
    let mut part = stream[..stream.len() * usize::from(cut) / 255].to_vec();
    match change {
        0..16 => part.extend(b"more"),
        16..64 if !part.is_empty() => {
            let at = part.len() * usize::from(change) / 64;
            part[at] ^= 1;
        }
        _ => {}
    }
    let dir = TempDir::new();
    let (from, other) = (dir.join("part"), dir.join("rest"));
    fs::write(&from, &part).unwrap();
    let to = if piece < 128 { &from } else { &other };
    let create = || Output::create(&other, false).map_err(restow::Error::from);
    let done = ResumedOutput::rest(&from, to, create).and_then(|mut output| {
        for piece in stream.chunks(usize::from(piece) + 1) {
            output.write_all(piece)?;
        }
        output.finish()
    });
    match done {
        Ok(there) => {
            assert_eq!(there, part.len() as u64);
            assert!(stream.starts_with(&part));
            let written = fs::read(to).unwrap();
            let before = if to == &from { 0 } else { part.len() };
            assert_eq!(written, stream[before..]);
        }
        Err(_) => {
            assert!(!stream.starts_with(&part));
            assert_eq!(fs::read(&from).unwrap(), part);
        }
    }
});
