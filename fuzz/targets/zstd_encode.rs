//! Arbitrary content at an arbitrary level.
//!
//! Asserts: the frame decodes to the content, by us and by C; a dirty workspace and the safe twin
//! make the same frame; it is no longer than `compress_bound`; a destination that is too short is
//! an error and nothing is written past it. A stream in any pieces, with flushes between them or
//! without, after whatever was in the encoder before, after a dictionary or not, decodes to the
//! content by us and by C, and without flushes its bytes do not depend on the pieces.
//!
//! The first byte is the level, the second what is done to the content, the third what becomes of
//! the stream.
#![cfg_attr(not(test), no_main)]

use libfuzzer_sys::fuzz_target;
use zstd::{
    DECOMPRESS_WORKSPACE_SIZE, DecodeOptions, Dictionary, Encoder, Error, Finish, Params,
    compress_bound, stream_workspace_size, workspace_size,
};

fuzz_target!(|data: &[u8]| {
    let [level, how, streaming, content @ ..] = data else {
        return;
    };
    let level = i32::from(*level as i8) % 40;
    let mut content = content.to_vec();
    // Long inputs are slow to find by mutation: repeat what is there, with a change in between.
    for round in 0..how & 3 {
        let mut again = content.clone();
        let at = usize::from(*how) * 7 + usize::from(round);
        if let Some(byte) = again.get_mut(at) {
            *byte ^= 0x55;
        }
        content.extend(again);
    }
    let mut params = Params::for_level(level, Some(content.len() as u64));
    params.checksum = how & 4 != 0;
    params.content_size = how & 8 == 0;
    if how & 16 != 0 {
        params = params.with_window_log_max(10 + (how >> 5));
    }

    let mut clean = vec![0; workspace_size(&params)];
    let mut frame = vec![0xEE; compress_bound(content.len())];
    let len =
        zstd::compress(&mut frame, &content, &params, &mut clean).expect("the bound is enough");
    frame.truncate(len);

    let mut dirty = vec![0xA5; workspace_size(&params)];
    let mut again = vec![0; compress_bound(content.len())];
    let again_len =
        zstd::compress(&mut again, &content, &params, &mut dirty).expect("the bound is enough");
    assert_eq!(again[..again_len], frame[..], "a dirty workspace");

    let mut twin_params = zstd_portable::Params::for_level(level, Some(content.len() as u64));
    twin_params.checksum = params.checksum;
    twin_params.content_size = params.content_size;
    if how & 16 != 0 {
        twin_params = twin_params.with_window_log_max(10 + (how >> 5));
    }
    let twin_len = zstd_portable::compress(&mut again, &content, &twin_params, &mut dirty)
        .expect("the bound is enough");
    assert_eq!(again[..twin_len], frame[..], "the safe twin");

    for short in [len - 1, len * usize::from(*streaming) / 256] {
        let mut dst = vec![0xEE; len + 16];
        let result = zstd::compress(&mut dst[..short], &content, &params, &mut dirty);
        assert_eq!(result, Err(Error::DstSizeTooSmall));
        assert!(
            dst[short..].iter().all(|byte| *byte == 0xEE),
            "written past the destination"
        );
    }

    let mut decoded = vec![0; content.len()];
    let mut workspace = vec![0; DECOMPRESS_WORKSPACE_SIZE];
    assert_eq!(
        zstd::decompress(&mut decoded, &frame, &mut workspace),
        Ok(content.len())
    );
    assert_eq!(decoded, content, "our own decoder");
    decoded.fill(0);
    let c = zstd_safe::decompress(&mut decoded[..], &frame).map_err(zstd_safe::get_error_name);
    assert_eq!(c, Ok(content.len()));
    assert_eq!(decoded, content, "C's decoder");

    stream(&content, params, *streaming);
});

/// A stream of the content, or of its second half after a dictionary of the first.
fn stream(content: &[u8], params: Params, how: u8) {
    // C takes what begins with its magic number for a formatted dictionary.
    let raw = !content.starts_with(&0xEC30_A437_u32.to_le_bytes());
    let (dictionary, content) = if how & 1 == 0 || !raw {
        (&content[..0], content)
    } else {
        content.split_at(content.len() / 2)
    };
    let mut workspace = vec![0x5A; stream_workspace_size(&params)];
    let mut encoder = Encoder::new(&params, &mut workspace).expect("the size is right");
    encoder
        .set_dictionary((!dictionary.is_empty()).then(|| Dictionary::raw(dictionary)))
        .expect("no frame has begun");
    let pledged = (how & 2 == 0).then_some(content.len() as u64);
    let mut whole = Vec::new();
    pieces(
        &mut encoder,
        content,
        pledged,
        &mut || (usize::MAX, false),
        &mut whole,
    );
    decoded(&whole, content, dictionary);

    let mut state = xxhash::xxh64(content, how.into());
    let mut piece = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let most = [2, 5, 100, 5000, 1 << 18][(state >> 60) as usize % 5];
        (
            (state >> 33) as usize % most,
            how & 4 != 0 && state >> 58 & 3 == 0,
        )
    };
    let mut parts = Vec::new();
    pieces(&mut encoder, content, pledged, &mut piece, &mut parts);
    if how & 4 == 0 {
        assert_eq!(parts, whole, "the pieces show");
    }
    decoded(&parts, content, dictionary);
}

/// Encodes in pieces, each with its length and whether to flush after it.
fn pieces(
    encoder: &mut Encoder<'_, &mut [u8]>,
    content: &[u8],
    pledged: Option<u64>,
    next: &mut dyn FnMut() -> (usize, bool),
    frame: &mut Vec<u8>,
) {
    encoder.reset(pledged);
    let mut read = 0;
    let mut finish = Finish::Nothing;
    let mut idle = 0;
    loop {
        let (size, flush) = next();
        if finish != Finish::Frame && flush {
            finish = Finish::Block;
        }
        let mut end = read + size.min(content.len() - read);
        if finish == Finish::Frame || end == content.len() {
            // What was said to be the end stays the end.
            end = content.len();
            finish = Finish::Frame;
        }
        let room = next().0.min(1 << 18);
        let mut dst = vec![0xEE; room + 8];
        let progress = encoder
            .step(&content[read..end], &mut dst[..room], finish)
            .expect("nothing is wrong");
        assert!(progress.written <= room && dst[room..].iter().all(|byte| *byte == 0xEE));
        frame.extend_from_slice(&dst[..progress.written]);
        read += progress.read;
        if progress.held == 0 && read == end {
            if finish == Finish::Frame {
                return;
            }
            finish = Finish::Nothing;
        }
        idle = if progress.read + progress.written > 0 {
            0
        } else {
            idle + 1
        };
        assert!(idle < 1000, "no end");
    }
}

/// Decodes, by us and by C.
fn decoded(frame: &[u8], content: &[u8], dictionary: &[u8]) {
    let mut back = vec![0; content.len()];
    let mut workspace = vec![0; DECOMPRESS_WORKSPACE_SIZE];
    let n = DecodeOptions::new()
        .dictionary(Dictionary::raw(dictionary))
        .decompress(&mut back, frame, &mut workspace);
    assert_eq!(n, Ok(content.len()));
    assert_eq!(back, content, "our own decoder, the stream");
    back.fill(0);
    let n = zstd_safe::DCtx::create()
        .decompress_using_dict(&mut back[..], frame, dictionary)
        .map_err(zstd_safe::get_error_name);
    assert_eq!(n, Ok(content.len()));
    assert_eq!(back, content, "C's decoder, the stream");
}
