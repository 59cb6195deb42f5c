//! Every size that the interface states is enough, wherever the memory begins, and a byte less is
//! refused.

use crate::encode::mixture;
use crate::encode_stream::trained;
use zstd::{
    Compressor, DECOMPRESS_WORKSPACE_SIZE, DecodeOptions, Decoder, DecoderDictionary, Dictionary,
    Encoder, EncoderDictionary, Error, Finish, Params, PieceDecoder, Status, compress,
    compress_bound, compress_with_dictionary, decompress, dictionary_workspace_size,
    stream_workspace_size, workspace_size, workspace_size_up_to,
};

/// Gives memory of `size` bytes and of one less, from every remainder of a cache line on.
#[track_caller]
fn exact<T>(
    name: &str,
    room: &mut Vec<u8>,
    size: usize,
    mut call: impl FnMut(&mut [u8]) -> Result<T, Error>,
) {
    room.clear();
    room.resize(size + 64, 0x5a);
    for from in [0, 1, 32, 63] {
        let less = call(&mut room[from..from + size - 1]).err();
        assert_eq!(less, Some(Error::WorkspaceTooSmall), "{name}, from {from}");
        let enough = call(&mut room[from..from + size]).err();
        assert_eq!(enough, None, "{name}, from {from}");
    }
}

#[test]
fn every_byte_less_is_refused_by_the_encoder() {
    let room = &mut Vec::new();
    let formatted = trained();
    let raw = mixture(3, 5000);
    for level in [-3, 1, 3, 6, 12, 16] {
        for size in [0, 5000] {
            let content = &mixture(9, size);
            let dst = &mut vec![0; compress_bound(size)][..];
            let params = &Params::for_level(level, Some(size as u64)).with_window_log_max(15);
            exact("compress", room, workspace_size(params), |workspace| {
                compress(dst, content, params, workspace)
            });
            exact("Compressor", room, workspace_size(params), |workspace| {
                Compressor::new(workspace).compress(dst, content, params)
            });
            exact(
                "Encoder",
                room,
                stream_workspace_size(params),
                |workspace| Encoder::new(params, workspace).map(|_| ()),
            );
            exact(
                "Encoder at its place",
                room,
                stream_workspace_size(params),
                |workspace| Encoder::place(&mut None, params, workspace).map(|_| ()),
            );
            exact(
                "EncoderDictionary",
                room,
                EncoderDictionary::size(params),
                |memory| {
                    let dictionary = Dictionary::new(&formatted).unwrap();
                    EncoderDictionary::new(dictionary, params, memory).map(|_| ())
                },
            );
            for bytes in [&formatted, &raw] {
                let dictionary = Dictionary::new(bytes).unwrap();
                let need = dictionary_workspace_size(params, bytes.len(), size);
                exact("compress_with_dictionary", room, need, |workspace| {
                    compress_with_dictionary(dst, content, params, &dictionary, workspace)
                });
                let mut memory = vec![0; EncoderDictionary::size(params)];
                let prepared = EncoderDictionary::new(dictionary, params, &mut memory).unwrap();
                let need = dictionary_workspace_size(params, prepared.content_size(), size);
                exact("compress_with_prepared", room, need, |workspace| {
                    Compressor::new(workspace).compress_with_prepared(dst, content, &prepared)
                });
            }
        }
    }
    // The largest of many, of which one needs all.
    let largest = workspace_size_up_to(4, Some(5000));
    let levels = || (-1..=4).filter(|level| *level != 0);
    let needs = levels().map(|level| workspace_size(&Params::for_level(level, Some(5000))));
    assert!(needs.max() <= Some(largest));
}

#[test]
fn every_byte_less_is_refused_by_the_decoder() {
    let room = &mut Vec::new();
    let formatted = trained();
    // Five times the letter z.
    let frame = [0x28, 0xB5, 0x2F, 0xFD, 0x20, 5, 0x2B, 0, 0, b'z'];
    let dst = &mut [0; 5];
    let once = DECOMPRESS_WORKSPACE_SIZE;
    exact("decompress", room, once, |workspace| {
        decompress(dst, &frame, workspace)
    });
    exact("decompress_extent", room, once, |workspace| {
        DecodeOptions::new().decompress_extent(dst, &frame, workspace)
    });
    exact("PieceDecoder", room, once, |workspace| {
        PieceDecoder::new(DecodeOptions::new(), workspace).map(|_| ())
    });
    exact(
        "DecoderDictionary",
        room,
        DecoderDictionary::SIZE,
        |memory| {
            let dictionary = Dictionary::new(&formatted).unwrap();
            DecoderDictionary::new(dictionary, memory).map(|_| ())
        },
    );
    let smallest = Decoder::workspace_size(0).unwrap();
    exact("Decoder", room, smallest, |workspace| {
        Decoder::new(DecodeOptions::new(), workspace).map(|_| ())
    });
    // A window that does not fit has an error of its own: found when the frame begins.
    for log in [10, 12, 16, 17, 18, 20] {
        let window = 1 << log;
        let frame = [0x28, 0xB5, 0x2F, 0xFD, 0, (log - 10) << 3, 0x2B, 0, 0, b'z'];
        let size = Decoder::workspace_size(window).unwrap();
        for (size, expected) in [(size, None), (size - 1, Some(Error::WindowTooLarge))] {
            if window == 1024 && expected.is_some() {
                continue;
            }
            let mut workspace = vec![0; size];
            let mut decoder = Decoder::new(DecodeOptions::new(), &mut workspace).unwrap();
            let result = decoder.step(&frame, dst).err();
            assert_eq!(result, expected, "a window of 2^{log}");
        }
    }
}

#[test]
fn coders_at_their_place_are_those_that_are_returned() {
    let content = mixture(7, 20_000);
    for level in [1, 5, 13, 17] {
        let params = Params::for_level(level, Some(20_000));
        let mut memory = vec![0x5a; stream_workspace_size(&params)];
        let encode = |encoder: &mut Encoder<'_, &mut [u8]>| {
            let mut frame = vec![0; compress_bound(content.len())];
            let done = encoder.step(&content, &mut frame, Finish::Frame);
            frame.truncate(done.expect("a frame").written);
            frame
        };
        let made = encode(&mut Encoder::new(&params, &mut memory).expect("enough memory"));
        let mut place = None;
        let encoder = Encoder::place(&mut place, &params, &mut memory).expect("enough memory");
        let frame = encode(encoder);
        assert_eq!(frame, made, "level {level}");
        // What was there is gone, and so is its claim to the memory.
        let short = Encoder::place(&mut place, &params, &mut []).err();
        assert_eq!(short, Some(Error::WorkspaceTooSmall));
        assert!(place.is_none());

        let window = 1 << params.window_log;
        let mut memory = vec![0x5a; Decoder::workspace_size(window).expect("a size")];
        let mut place = None;
        let decoder = Decoder::place(&mut place, DecodeOptions::new(), &mut memory);
        let mut back = vec![0; content.len()];
        let done = decoder.expect("enough memory").step(&frame, &mut back);
        assert_eq!(done.map(|done| done.status), Ok(Status::Done));
        assert_eq!(back, content);
        let short = Decoder::place(&mut place, DecodeOptions::new(), &mut []).err();
        assert_eq!(short, Some(Error::WorkspaceTooSmall));
        assert!(place.is_none());
    }
}
