//! Arbitrary bytes as a file that is compressed as a whole, and as a block of each outside codec.
//!
//! Asserts: no panic; a stream in small pieces gives the same as in large ones; a writer that fails
//! ends the work; a block decodes to the same content again with the same decoder, and in a
//! destination of exactly its length (of LZ4, only if its last match is not too near to its end).
//!
//! `cargo +nightly fuzz run wrapper fuzz/corpus/wrapper fuzz/seeds/wrapper`
#![cfg_attr(not(test), no_main)]

use std::io::{self, Read, Write};

use codec::{Algorithm, Decoder, Decompressed, Wrapper};
use libfuzzer_sys::fuzz_target;

/// More than a block of SquashFS of the usual size.
const BLOCK_BYTES: usize = 150_000;
/// A small stream can hold any amount of zeros.
const CONTENT_BYTES_MAX: usize = 4 << 20;

/// Keeps what is written, up to a length.
#[derive(Default, PartialEq)]
struct Kept(Vec<u8>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > CONTENT_BYTES_MAX {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Gives a few bytes at a time, and sometimes is interrupted.
struct Pieces<'a>(&'a [u8], usize);

impl Read for Pieces<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.1 += 1;
        if self.1.is_multiple_of(5) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let len = (1 + self.1 % 7).min(buf.len()).min(self.0.len());
        let (now, later) = self.0.split_at(len);
        buf[..len].copy_from_slice(now);
        self.0 = later;
        Ok(len)
    }
}

fn stream(wrapper: Wrapper, data: &[u8]) {
    let (mut whole, mut pieces) = (Kept::default(), Kept::default());
    let first = wrapper.decompress(&mut &*data, &mut whole);
    let second = wrapper.decompress(&mut Pieces(data, 0), &mut pieces);
    let words = |result: &io::Result<Decompressed>| match result {
        Ok(done) => Ok(*done),
        Err(error) => Err(error.kind()),
    };
    assert_eq!(
        words(&first),
        words(&second),
        "{first:?}, in pieces {second:?}"
    );
    if let Ok(done) = first {
        assert_eq!(done.bytes, whole.0.len() as u64);
        assert!(whole == pieces);
    }
}

fn block(decoder: &mut Decoder, algorithm: Algorithm, data: &[u8]) {
    let mut content = vec![0xee; BLOCK_BYTES];
    let Ok(len) = decoder.decompress(algorithm, &mut content, data) else {
        return;
    };
    if len == 0 {
        return; // liblzma cannot tell a destination without room from one that is too short.
    }
    let mut exact = vec![0; len];
    let again = decoder.decompress(algorithm, &mut exact, data).ok();
    // A block of LZ4 ends with literals. liblz4 notices that only where the destination ends, too.
    if again.is_none() && algorithm == Algorithm::Lz4 {
        return;
    }
    assert_eq!(again, Some(len));
    assert_eq!(exact, content[..len]);
    let short = decoder.decompress(algorithm, &mut exact[..len - 1], data);
    assert!(short.is_err(), "{algorithm:?} in a byte less");
}

fuzz_target!(|data: &[u8]| {
    // Streams of zstd have a target of their own, and here a window of 128 MiB for each input.
    match Wrapper::of(data) {
        None | Some(Wrapper::Zstd) => {}
        Some(wrapper) => stream(wrapper, data),
    }
    let mut decoder = Decoder::new();
    for algorithm in [
        Algorithm::Zlib,
        Algorithm::Lz4,
        Algorithm::Xz,
        Algorithm::Lzma,
    ] {
        block(&mut decoder, algorithm, data);
    }
});
