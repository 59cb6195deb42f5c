//! Send streams: arbitrary commands under right checksums, read, verified, converted and printed.
//!
//! The input is a version, settings, and commands: number, length, payload. So what is changed
//! reaches the parser, which arbitrary bytes hardly do. Asserts: no panic; a command that was read
//! is written as the same bytes, if its attributes are in Linux's order; JSON lines build the same
//! stream; what verifies converts to any form, verifies again, and has as many other commands.
//!
//! `cargo +nightly fuzz run sendstream`
#![cfg_attr(not(test), no_main)]

use codec::Settings;
use libfuzzer_sys::fuzz_target;
use sendstream::{
    ConvertOptions, Recode, StreamReader, VerifyOptions, Version, convert, json, verify,
};
use tree::{NoProgress, Parallel, Result};

/// The checksum, bit by bit.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            sum >> 1 ^ if sum & 1 == 1 { 0x82f6_3b78 } else { 0 }
        })
    })
}

/// The stream that the input describes.
fn stream(version: u8, mut input: &[u8]) -> Vec<u8> {
    let mut stream = b"btrfs-stream\0".to_vec();
    stream.extend(u32::from(version % 4).to_le_bytes());
    while let Some((&[command, low, high], rest)) = input.split_first_chunk() {
        let len = usize::from(u16::from_le_bytes([low, high])).min(rest.len());
        let (payload, rest) = rest.split_at(len);
        input = rest;
        let start = stream.len();
        stream.extend((len as u32).to_le_bytes());
        stream.extend([command % 28, 0, 0, 0, 0, 0]);
        stream.extend(payload);
        let sum = checksum(&stream[start..]);
        stream[start + 6..start + 10].copy_from_slice(&sum.to_le_bytes());
    }
    stream
}

/// JSON lines of the stream, as far as it can be read, and the number of commands without data.
fn read(stream: &[u8]) -> (String, usize, Result<()>) {
    let mut reader = StreamReader::new(stream).command_bytes_max(1 << 20);
    let (mut lines, mut others) = (String::new(), 0);
    let mut read = || {
        while let Some(version) = reader.next_stream()? {
            lines += &(json::header(version, 0) + "\n");
            while let Some(record) = reader.next_command()? {
                lines += &(json::command(&record, true) + "\n");
                others += usize::from(record.command.data().is_none());
                let again = record.command.to_bytes(record.version)?;
                assert!(again.len() <= record.bytes.len() + 16);
            }
        }
        Ok(())
    };
    let result = read();
    (lines, others, result)
}

fuzz_target!(|data: &[u8]| {
    let Some((&[version, settings], input)) = data.split_first_chunk() else {
        return;
    };
    let stream = match settings & 1 {
        0 => stream(version, input),
        // The bytes themselves.
        _ => input.to_vec(),
    };
    let (lines, others, result) = read(&stream);
    let options = VerifyOptions::default().data(true);
    let verified = verify(&stream[..], options, Parallel::new(1), &NoProgress);
    if result.is_err() {
        assert!(verified.is_err());
        return;
    }
    let mut again = Vec::new();
    json::build(lines.as_bytes(), &mut again).expect("it was read");
    assert!(again == stream);
    let recode = match settings >> 1 & 3 {
        0 => Recode::Keep,
        1 => Recode::Decode,
        2 => Recode::Encode(Settings::Lzo),
        _ => Recode::Encode(Settings::Zstd { level: 1 }),
    };
    let options = ConvertOptions::default()
        .version(Version::parse(u32::from(settings >> 3 & 3)))
        .recode(recode)
        .drops_fileattr(true)
        .drops_verity(true)
        .trusts_holes(true)
        .zeros_bytes_max(1 << 20);
    let mut converted = Vec::new();
    let parallel = Parallel::new(1);
    let done = convert(&stream[..], &mut converted, &options, parallel, &NoProgress);
    let (Ok(done), Ok(_)) = (done, verified) else {
        return;
    };
    let verify_options = VerifyOptions::default().data(true);
    verify(&converted[..], verify_options, parallel, &NoProgress).expect("it was right before");
    if done.zeros_bytes == 0 && done.fileattrs_dropped == 0 && done.verity_dropped == 0 {
        assert_eq!(read(&converted).1, others);
    }
});
