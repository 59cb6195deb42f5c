//! Blocks without a frame, copies of encoders, and dictionaries in one call.

use crate::encode::{Random, mixture};
use zstd::{
    Compressor, DECOMPRESS_WORKSPACE_SIZE, DecodeOptions, Decoder, Dictionary, Encoder,
    EncoderDictionary, Error, Finish, Params, PieceDecoder, PieceKind, compress_bound,
    compress_with_dictionary, dictionary_workspace_size, stream_workspace_size,
};

/// Our blocks, decoded by us, and with a frame put around them by the C library; what is not worth
/// compressing is stored.
#[test]
fn bare_blocks_and_stored_ones_between_them() {
    let mut random = Random(5);
    for level in [-3, 1, 3, 6, 12, 13, 19] {
        let mut content = mixture(3, 300_000);
        for byte in &mut content[60_000..160_000] {
            *byte = random.next() as u8;
        }
        let params = Params::for_level(level, None).with_window_log_max(19);
        let mut workspace = vec![0x77; stream_workspace_size(&params)];
        let mut encoder = Encoder::new(&params, &mut workspace).unwrap();
        let mut memory = vec![0x77; DECOMPRESS_WORKSPACE_SIZE];
        let mut decoder = PieceDecoder::new(DecodeOptions::new(), &mut memory).unwrap();
        let mut back = vec![0; content.len()];
        // No content size, a window of 2^19.
        let mut frame = vec![0x28, 0xB5, 0x2F, 0xFD, 0, 9 << 3];
        let header = |kind: usize, size: usize| ((kind << 1 | size << 3) as u32).to_le_bytes();
        let (mut at, mut stored) = (0, 0);
        while at < content.len() {
            let size = (1 + random.below(40_000))
                .min(content.len() - at)
                .min(encoder.block_size_max());
            let source = &content[at..at + size];
            let mut block = vec![0; compress_bound(size)];
            match encoder.compress_block(&mut block, source).unwrap() {
                Some(n) => {
                    assert!(n < size);
                    frame.extend_from_slice(&header(2, n)[..3]);
                    frame.extend_from_slice(&block[..n]);
                    assert_eq!(decoder.decode_block(&block[..n], &mut back, at), Ok(size));
                }
                None => {
                    back[at..at + size].copy_from_slice(source);
                    decoder.insert_block(size).unwrap();
                    frame.extend_from_slice(&header(0, size)[..3]);
                    frame.extend_from_slice(source);
                    stored += 1;
                }
            }
            at += size;
        }
        assert!(back == content, "level {level}");
        assert!(stored > 0, "level {level} stores nothing");
        frame.extend_from_slice(&[1, 0, 0]);
        crate::encode_stream::check("blocks", &frame, &content, &[]);
        // In the middle of blocks no frame begins.
        assert_eq!(decoder.next(), PieceKind::Block);
        assert_eq!(decoder.decode(&[], &mut back, 0), Err(Error::StageWrong));
        decoder.reset(DecodeOptions::new());
        assert_eq!(decoder.wanted(), 5);
        assert_eq!(
            decoder.decode_block(&[], &mut back, 0),
            Err(Error::SrcSizeWrong)
        );
    }
}

/// The blocks of a frame of the C library, taken out of it.
#[test]
fn blocks_of_the_c_library() {
    for level in [1, 5, 12, 19] {
        let content = mixture(9, 500_000);
        let mut frame = vec![0; compress_bound(content.len())];
        let n = zstd_safe::compress(&mut frame[..], &content, level).unwrap();
        let mut memory = vec![0x77; DECOMPRESS_WORKSPACE_SIZE];
        let mut frames = PieceDecoder::new(DecodeOptions::new(), &mut memory).unwrap();
        let mut memory = vec![0x78; DECOMPRESS_WORKSPACE_SIZE];
        let mut blocks = PieceDecoder::new(DecodeOptions::new(), &mut memory).unwrap();
        let (mut whole, mut bare) = (vec![0; content.len()], vec![0; content.len()]);
        let (mut rest, mut at) = (&frame[..n], 0);
        let mut kind = 0;
        while frames.wanted() > 0 {
            let (piece, after) = rest.split_at(frames.wanted());
            let next = frames.next();
            let written = frames.decode(piece, &mut whole, at).unwrap();
            match next {
                PieceKind::BlockHeader => kind = piece[0] >> 1 & 3,
                PieceKind::Block | PieceKind::LastBlock if kind == 2 => {
                    assert_eq!(blocks.decode_block(piece, &mut bare, at), Ok(written));
                }
                PieceKind::Block | PieceKind::LastBlock => {
                    bare[at..at + written].copy_from_slice(&whole[at..at + written]);
                    blocks.insert_block(written).unwrap();
                }
                _ => {}
            }
            at += written;
            rest = after;
        }
        assert!(rest.is_empty() && whole == content && bare == content);
        assert_eq!(frames.header().unwrap().content_size, Some(500_000));
    }
}

#[test]
fn a_copy_goes_on_as_the_original_does() {
    let content = mixture(2, 200_000);
    let before = mixture(4, 30_000);
    for level in [1, 3, 7, 12, 16] {
        let params = Params::for_level(level, None).with_window_log_max(17);
        let size = stream_workspace_size(&params);
        let mut memory = vec![0x11; size];
        let mut first = Encoder::new(&params, &mut memory).unwrap();
        first
            .set_dictionary(Some(Dictionary::raw(&before)))
            .unwrap();
        first.reset(None);
        let mut begun = vec![0; compress_bound(content.len())];
        let done = first
            .step(&content[..150_000], &mut begun, Finish::Block)
            .unwrap();
        // Of another alignment.
        let mut memory = vec![0x22; size + 1];
        let mut second = Encoder::new(&params, &mut memory[1..]).unwrap();
        second.copy_from(&first).unwrap();
        let mut ends = [vec![0; 100_000], vec![0; 100_000]];
        let n = first
            .step(&content[150_000..], &mut ends[0], Finish::Frame)
            .unwrap();
        assert_eq!(
            second.step(&content[150_000..], &mut ends[1], Finish::Frame),
            Ok(n)
        );
        assert!(ends[0] == ends[1]);
        begun.truncate(done.written);
        begun.extend_from_slice(&ends[1][..n.written]);
        crate::encode_stream::check("copy", &begun, &content, &before);
        let others = Params::for_level(level, None).with_window_log_max(16);
        let mut memory = vec![0; size];
        let mut other = Encoder::owning(&others, &mut memory[..]).unwrap();
        assert_eq!(other.copy_from(&first), Err(Error::ParameterOutOfBound));
    }
}

/// At every place of frames with every kind of block, in a workspace of another size.
#[test]
fn a_copy_of_a_decoder_goes_on_as_the_original_does() {
    let before = mixture(4, 5000);
    let mut content = mixture(2, 60_000);
    content.extend([7; 5000]);
    content.extend(testkit::Rng::new(1).bytes(3000));
    let mut params = Params::for_level(3, None).with_window_log_max(13);
    params.checksum = true;
    let mut workspace = vec![0; stream_workspace_size(&params)];
    let mut frame = vec![0; compress_bound(content.len())];
    let dictionary = Dictionary::raw(&before);
    let n = compress_with_dictionary(&mut frame, &content, &params, &dictionary, &mut workspace);
    frame.truncate(n.unwrap());
    // And a skippable frame.
    frame.splice(0..0, [0x50, 0x2A, 0x4D, 0x18, 3, 0, 0, 0, 1, 2, 3]);
    let options = DecodeOptions::new().dictionary(dictionary);
    let size = Decoder::workspace_size(1 << 13).unwrap();
    let mut rooms = [vec![0; size], vec![0xee; size + 1000]];
    let [room, other] = &mut rooms;
    let mut first = Decoder::new(options, room).unwrap();
    let mut second = Decoder::new(DecodeOptions::new(), other).unwrap();
    let mut small = vec![0; Decoder::workspace_size(1 << 10).unwrap()];
    let mut small = Decoder::new(options, &mut small).unwrap();
    let mut whole = Vec::new();
    let (mut at, mut refused) = (0, 0);
    while at < frame.len() {
        let mut out = [0; 777];
        let end = frame.len().min(at + 333);
        let progress = first.step(&frame[at..end], &mut out).unwrap();
        at += progress.read;
        whole.extend_from_slice(&out[..progress.written]);
        second.copy_from(&first).unwrap();
        refused += usize::from(small.copy_from(&first).is_err());
        let (mut rest, mut ending) = (at, whole.clone());
        while rest < frame.len() {
            let mut out = [0; 10_000];
            let progress = second.step(&frame[rest..], &mut out).unwrap();
            rest += progress.read;
            ending.extend_from_slice(&out[..progress.written]);
        }
        assert!(ending == content, "at {at}");
    }
    assert!(whole == content && refused > 0);

    let mut rooms = [(); 2].map(|()| vec![0x3d; DECOMPRESS_WORKSPACE_SIZE]);
    let [room, other] = &mut rooms;
    let mut first = PieceDecoder::new(options, room).unwrap();
    let mut second = PieceDecoder::new(DecodeOptions::new(), other).unwrap();
    let (mut rest, mut out, mut at) = (&frame[11..], vec![0; content.len()], 0);
    while first.wanted() > 0 {
        let (piece, after) = rest.split_at(first.wanted());
        at += first.decode(piece, &mut out, at).unwrap();
        rest = after;
        second.copy_from(&first);
        assert_eq!(
            (second.wanted(), second.next()),
            (first.wanted(), first.next())
        );
        core::mem::swap(&mut first, &mut second);
    }
    assert!(out == content);
}

/// The same frames as those of an encoder, in exactly the memory that is asked for.
#[test]
fn a_dictionary_in_one_call() {
    let raw = mixture(8, 100_000);
    let dictionary = Dictionary::raw(&raw);
    for level in [-2, 1, 3, 6, 12, 13, 19] {
        for window_log in [10, 15, 18] {
            for size in [0, 1, 300, 5000, 200_000] {
                let content = mixture(9, size);
                let params = Params::for_level_with_dictionary(level, None, raw.len())
                    .with_window_log_max(window_log);
                let need = dictionary_workspace_size(&params, raw.len(), size);
                assert!(need <= stream_workspace_size(&params));
                let mut workspace = vec![0x44; need];
                let mut compressor = Compressor::new(&mut workspace);
                let mut stream = vec![0x55; stream_workspace_size(&params)];
                let mut encoder = Encoder::new(&params, &mut stream).unwrap();
                encoder.set_dictionary(Some(dictionary)).unwrap();
                encoder.reset(Some(size as u64));
                let mut expected = vec![0; compress_bound(size)];
                let n = encoder
                    .step(&content, &mut expected, Finish::Frame)
                    .unwrap();
                expected.truncate(n.written);
                let mut frame = vec![0; compress_bound(size)];
                let mut memory = vec![0x66; EncoderDictionary::size(&params)];
                let prepared = EncoderDictionary::new(dictionary, &params, &mut memory).unwrap();
                for _ in 0..2 {
                    let n = compressor
                        .compress_with_dictionary(&mut frame, &content, &params, &dictionary)
                        .unwrap();
                    assert!(frame[..n] == expected, "level {level}, {size} bytes");
                    let n = compressor
                        .compress_with_prepared(&mut frame, &content, &prepared)
                        .unwrap();
                    assert!(
                        frame[..n] == expected,
                        "level {level}, {size} bytes, prepared"
                    );
                    // Without a dictionary in between.
                    let n = compressor.compress(&mut frame, &content, &params).unwrap();
                    crate::encode_stream::check("without", &frame[..n], &content, &[]);
                }
                assert_eq!(prepared.params(), &params);
                assert_eq!(prepared.dictionary().id(), 0);
                assert!(
                    prepared.content_size() <= raw.len() && !prepared.dictionary().has_entropy()
                );
                let mut short = vec![0; need - 64];
                let result = Compressor::new(&mut short).compress_with_dictionary(
                    &mut frame,
                    &content,
                    &params,
                    &dictionary,
                );
                assert_eq!(result, Err(Error::WorkspaceTooSmall));
            }
        }
    }
}
