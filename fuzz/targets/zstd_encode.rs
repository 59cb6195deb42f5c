//! Arbitrary content at an arbitrary level.
//!
//! Asserts: the frame decodes to the content, by us and by C; a dirty workspace and the safe twin make the same frame; it is no
//! longer than `compress_bound`; a destination that is one byte too short is an error and nothing is written past it.
//!
//! The first byte is the level, the second what is done to the content.
#![no_main]

use libfuzzer_sys::fuzz_target;
use zstd::{DECOMPRESS_WORKSPACE_SIZE, Error, Params, compress_bound, workspace_size};

fuzz_target!(|data: &[u8]| {
    let [level, how, content @ ..] = data else {
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

    let mut short = vec![0xEE; len + 16];
    let result = zstd::compress(&mut short[..len - 1], &content, &params, &mut dirty);
    assert_eq!(result, Err(Error::DstSizeTooSmall));
    assert!(
        short[len - 1..].iter().all(|byte| *byte == 0xEE),
        "written past the destination"
    );

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
});
