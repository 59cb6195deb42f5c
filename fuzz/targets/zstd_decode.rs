//! Arbitrary bytes, decoded in every way.
//!
//! Asserts: no panic; nothing written beyond the reported length; the safe twin gives the same as the fast code; a stream in
//! pieces gives the same as one shot; an extent gives the first frame; what we accept, C accepts with the same content.
//! (C accepts some frames that we refuse: `docs/formats/zstd.md`.)
//!
//! `cargo +nightly fuzz run zstd_decode fuzz/corpus/zstd_decode crates/zstd/testdata`
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;
use zstd::{DECOMPRESS_WORKSPACE_SIZE, DecodeOptions, Decoder, Error, Status};

const CAPACITY: usize = 300_000;
const WINDOW_MAX: u64 = 1 << 20;
const UNTOUCHED: u8 = 0xEE;

thread_local! {
    /// Never cleared: every input finds what the last one left.
    static WORKSPACES: RefCell<[Vec<u8>; 3]> = RefCell::new([
        vec![0xA5; DECOMPRESS_WORKSPACE_SIZE],
        vec![0x5A; zstd_portable::DECOMPRESS_WORKSPACE_SIZE],
        vec![0xA5; Decoder::workspace_size(WINDOW_MAX).expect("1 MiB can be had")],
    ]);
    static C: RefCell<zstd_safe::DCtx<'static>> = RefCell::new(zstd_safe::DCtx::create());
}

fuzz_target!(|data: &[u8]| {
    WORKSPACES.with_borrow_mut(|[fast, safe, stream]| {
        let mut dst = vec![UNTOUCHED; CAPACITY];
        let result = zstd::decompress(&mut dst, data, fast);
        if let Ok(len) = result {
            assert!(
                dst[len..].iter().all(|byte| *byte == UNTOUCHED),
                "written beyond the end"
            );
        }

        let mut twin = vec![UNTOUCHED; CAPACITY];
        let twin_result = zstd_portable::decompress(&mut twin, data, safe);
        match (result, twin_result) {
            (Ok(len), Ok(twin_len)) => {
                assert_eq!(dst[..len], twin[..twin_len], "the twins' contents")
            }
            (Err(error), Err(twin_error)) => assert_eq!(error.as_str(), twin_error.as_str()),
            (fast, safe) => panic!("the twins' verdicts: {fast:?}, {safe:?}"),
        }

        let streamed = in_pieces(data, stream);
        match (result, &streamed) {
            (Ok(len), Ok(content)) => assert_eq!(dst[..len], content[..], "the stream's content"),
            (Ok(_), Err(error)) => {
                assert_eq!(*error, Error::WindowTooLarge, "the stream's verdict")
            }
            (Err(Error::DstSizeTooSmall), _) | (Err(_), Err(_)) => {}
            (Err(error), Ok(_)) => panic!("the stream accepts what one shot calls {error:?}"),
        }

        if let Ok(len) = result {
            let content = C.with_borrow_mut(|c| {
                let mut dst = vec![0; CAPACITY];
                let len = c
                    .decompress(&mut dst[..], data)
                    .map_err(zstd_safe::get_error_name);
                len.map(|len| dst[..len].to_vec())
            });
            assert_eq!(content.as_deref(), Ok(&dst[..len]), "C's verdict");

            // As much of the first frame as wanted.
            for wanted in [0, len / 3, len] {
                let mut part = vec![UNTOUCHED; wanted];
                let Ok(decoded) = DecodeOptions::new().decompress_extent(&mut part, data, fast)
                else {
                    // Skippable frames alone are no extent.
                    assert_eq!(len, 0, "an extent of an accepted frame");
                    continue;
                };
                assert!(decoded.read <= data.len() && decoded.written <= wanted);
                assert_eq!(
                    part[..decoded.written],
                    dst[..decoded.written],
                    "the extent's content"
                );
            }
        }
    });
});

/// The content by a stream whose pieces follow from the input.
fn in_pieces(data: &[u8], workspace: &mut [u8]) -> Result<Vec<u8>, Error> {
    let mut state = xxhash::xxh64(data, 1);
    let mut size = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as usize % [2, 5, 100, 5000, 1 << 18][(state >> 60) as usize % 5]
    };
    let mut decoder = Decoder::new(DecodeOptions::new(), workspace)?;
    let mut dst = vec![UNTOUCHED; CAPACITY];
    let (mut read, mut written, mut between_frames) = (0, 0, true);
    loop {
        let end = data.len().min(read + size());
        let room = dst.len().min(written + size());
        let progress = decoder.step(&data[read..end], &mut dst[written..room])?;
        assert!(progress.read <= end - read && progress.written <= room - written);
        read += progress.read;
        written += progress.written;
        assert!(
            dst[written..room].iter().all(|byte| *byte == UNTOUCHED),
            "written beyond the end"
        );
        between_frames = progress.status == Status::Done || between_frames && progress.read == 0;
        if read == data.len() && (between_frames || progress.status != Status::Output) {
            break;
        }
        if written == dst.len() && progress.status == Status::Output {
            return Err(Error::DstSizeTooSmall);
        }
    }
    dst.truncate(written);
    if between_frames {
        Ok(dst)
    } else {
        Err(Error::SrcSizeWrong)
    }
}
