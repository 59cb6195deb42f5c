//! What is changed within a frame: refused, and the frame goes on as it began.

use crate::encode::{Random, mixture};
use crate::encode_stream::{check, trained};
use testkit::cases;
use zstd::{
    DECOMPRESS_WORKSPACE_SIZE, DecodeOptions, Decoder, Dictionary, Encoder, EncoderDictionary,
    Error, Finish, Params, PieceDecoder, Status, compress_bound, compress_with_dictionary,
    stream_workspace_size,
};

/// With `Finish::Block`, with input that is held back, and with a step that only begins the frame.
#[test]
fn set_dictionary_within_an_unfinished_frame() {
    let (raw, formatted) = (mixture(1, 3000), trained());
    let content = mixture(1002, 5000);
    let params = Params::for_level_with_dictionary(5, None, formatted.len());
    let mut memory = vec![0; EncoderDictionary::size(&params)];
    let dictionary = Dictionary::new(&formatted).unwrap();
    let prepared = EncoderDictionary::new(dictionary, &params, &mut memory).unwrap();
    let mut workspace = vec![0x21; stream_workspace_size(&params)];
    let mut encoder = Encoder::new(&params, &mut workspace).unwrap();
    for (taken, finish) in [
        (0, Finish::Nothing),
        (0, Finish::Block),
        (2000, Finish::Nothing),
        (2000, Finish::Block),
    ] {
        encoder.set_dictionary(Some(Dictionary::raw(&raw))).unwrap();
        encoder.reset(None);
        let mut frame = vec![0; compress_bound(content.len())];
        let begun = encoder.step(&content[..taken], &mut frame, finish).unwrap();
        assert_eq!(encoder.set_dictionary(None), Err(Error::StageWrong));
        assert_eq!(
            encoder.set_dictionary(Some(dictionary)),
            Err(Error::StageWrong)
        );
        assert_eq!(encoder.set_prepared(&prepared), Err(Error::StageWrong));
        let out = &mut frame[begun.written..];
        let ended = encoder.step(&content[taken..], out, Finish::Frame).unwrap();
        let size = begun.written + ended.written;
        check("the frame as it began", &frame[..size], &content, &raw);
        // At its end the next frame's can be set.
        encoder.set_prepared(&prepared).unwrap();
        encoder.reset(None);
        let done = encoder.step(&content, &mut frame, Finish::Frame).unwrap();
        check("the next one", &frame[..done.written], &content, &formatted);
    }
    // Within a series of blocks, and after an error.
    encoder.reset(None);
    encoder.compress_block(&mut [0; 5000], &content).unwrap();
    assert_eq!(encoder.set_dictionary(None), Err(Error::StageWrong));
    encoder.reset(Some(1));
    encoder.step(&content, &mut [], Finish::Frame).unwrap_err();
    assert_eq!(encoder.set_prepared(&prepared), Err(Error::StageWrong));
    encoder.reset(None);
    encoder.set_dictionary(None).unwrap();
}

/// Whether the header tells the size can change between frames, and is what a new encoder makes of
/// it.
#[test]
fn set_content_size_between_frames() {
    let content = mixture(5, 3000);
    let mut params = Params::for_level(3, None);
    let mut workspace = vec![0x21; stream_workspace_size(&params)];
    let mut others = workspace.clone();
    let mut encoder = Encoder::new(&params, &mut workspace).unwrap();
    for is_told in [true, false, false, true] {
        params.content_size = is_told;
        let mut frames = [vec![0; 4000], vec![0; 4000]];
        encoder.reset(Some(3000));
        encoder.set_content_size(is_told).unwrap();
        let begun = encoder.step(&content[..100], &mut [], Finish::Nothing);
        assert_eq!(begun.unwrap().read, 100);
        assert_eq!(encoder.set_content_size(!is_told), Err(Error::StageWrong));
        let done = encoder.step(&content[100..], &mut frames[0], Finish::Frame);
        let mut other = Encoder::new(&params, &mut others).unwrap();
        other.reset(Some(3000));
        let wanted = other.step(&content, &mut frames[1], Finish::Frame);
        assert_eq!(done.unwrap().written, wanted.unwrap().written);
        assert!(frames[0] == frames[1]);
        let size = zstd::content_size(&frames[0]).unwrap();
        assert_eq!(size, is_told.then_some(3000));
    }
}

/// Every frame that is completed is what a new encoder makes of it, whatever was tried before and
/// within it: other dictionaries, frames and series of blocks that are left, copies.
#[test]
fn frames_do_not_depend_on_what_was_tried() {
    let mut random = Random(71);
    let dictionaries = [trained(), mixture(1003, 60_000), mixture(1004, 300)];
    for case in 0..cases(28) {
        let level = [-5, 1, 2, 3, 4, 5, 7, 9, 11, 12, 13, 16, 19, 22][case % 14];
        let mut params = Params::for_level(level, Some(20_000)).with_window_log_max(14);
        params.checksum = case % 3 == 0;
        let mut memories = dictionaries
            .each_ref()
            .map(|_| vec![0x5a; EncoderDictionary::size(&params)]);
        let mut prepared = Vec::new();
        for (bytes, memory) in dictionaries.iter().zip(&mut memories) {
            let dictionary = Dictionary::new(bytes).unwrap();
            prepared.push(EncoderDictionary::new(dictionary, &params, memory).unwrap());
        }
        let size = stream_workspace_size(&params);
        let (mut first, mut second) = (vec![0x3c; size], vec![0x4d; size]);
        let mut encoder = Encoder::new(&params, &mut first).unwrap();
        let mut spare = Encoder::new(&params, &mut second).unwrap();
        let mut other = vec![0xc3; size];
        let mut current = None;
        for round in 0..12 {
            let name = format!("case {case}, round {round}, level {level}");
            if random.below(3) > 0 {
                let at = random.below(4);
                current = (at < 3).then_some(at);
                match current {
                    Some(at) if random.below(2) == 0 => encoder.set_prepared(&prepared[at]),
                    at => encoder.set_dictionary(at.map(|at| prepared[at].dictionary())),
                }
                .unwrap();
            }
            let content = mixture(1000 + random.below(400) as u64, random.below(40_000));
            let pledged = (random.below(2) == 0).then_some(content.len() as u64);
            encoder.reset(pledged);
            let mut frame = vec![0; compress_bound(content.len()) + 100];
            let middle = random.below(content.len());
            match random.below(6) {
                0 => {
                    let left = &content[..middle];
                    encoder.step(left, &mut frame, Finish::Nothing).unwrap();
                    encoder.reset(None);
                    continue;
                }
                1 => {
                    let block = &content[..middle.min(encoder.block_size_max())];
                    encoder.compress_block(&mut frame, block).unwrap();
                    encoder.reset(None);
                    continue;
                }
                _ => {}
            }
            let begun = encoder
                .step(&content[..middle], &mut frame, Finish::Nothing)
                .unwrap();
            let refused = match random.below(2) {
                0 => encoder.set_prepared(&prepared[random.below(3)]),
                _ => encoder.set_dictionary(None),
            };
            assert_eq!(refused, Err(Error::StageWrong), "{name}");
            if random.below(3) == 0 {
                spare.copy_from(&encoder).unwrap();
                core::mem::swap(&mut spare, &mut encoder);
            }
            let rest = &content[begun.read..];
            let ended = encoder
                .step(rest, &mut frame[begun.written..], Finish::Frame)
                .unwrap();
            assert_eq!((ended.read, ended.held), (rest.len(), 0), "{name}");
            frame.truncate(begun.written + ended.written);

            let mut expected = vec![0; frame.len() + 100];
            let mut fresh = Encoder::new(&params, &mut other).unwrap();
            let dictionary = current.map(|at| prepared[at].dictionary());
            fresh.set_dictionary(dictionary).unwrap();
            fresh.reset(pledged);
            let first = fresh
                .step(&content[..middle], &mut expected, Finish::Nothing)
                .unwrap();
            let out = &mut expected[first.written..];
            let last = fresh.step(&content[middle..], out, Finish::Frame).unwrap();
            expected.truncate(first.written + last.written);
            assert!(frame == expected, "{name}");
            let bytes = current.map_or(&[][..], |at| &dictionaries[at]);
            check(&name, &frame, &content, bytes);
        }
    }
}

/// The size that is pledged belongs to the frame that the reset begins.
#[test]
fn a_pledge_ends_with_its_frame() {
    let params = Params::for_level(3, None).with_window_log_max(15);
    let mut memory = vec![0; stream_workspace_size(&params)];
    let mut encoder = Encoder::new(&params, &mut memory).unwrap();
    let content = mixture(5, 50_000);
    let mut frame = vec![0; 60_000];
    encoder.reset(Some(40_000));
    encoder
        .step(&content[..40_000], &mut frame, Finish::Block)
        .unwrap();
    encoder.reset(None);
    let done = encoder.step(&content, &mut frame, Finish::Frame).unwrap();
    check("no pledge", &frame[..done.written], &content, &[]);
}

#[test]
fn options_of_a_decoder_within_an_unfinished_frame() {
    let dictionaries = [mixture(1, 3000), mixture(2, 3000)];
    let content = mixture(1, 4000);
    let params = Params::for_level(3, None);
    let mut room = vec![0; stream_workspace_size(&params)];
    let frames = dictionaries.each_ref().map(|bytes| {
        let mut frame = vec![0; 5000];
        let dictionary = Dictionary::raw(bytes);
        let n = compress_with_dictionary(&mut frame, &content, &params, &dictionary, &mut room);
        frame.truncate(n.unwrap());
        frame
    });
    let options = dictionaries
        .each_ref()
        .map(|bytes| DecodeOptions::new().dictionary(Dictionary::raw(bytes)));
    let mut workspace = vec![0; Decoder::workspace_size(1 << 22).unwrap()];
    let mut decoder = Decoder::new(options[0], &mut workspace).unwrap();
    let [first, second] = &frames;
    for at in [1, 5, 20, first.len() - 1] {
        let mut back = vec![0; 4000];
        let begun = decoder.step(&first[..at], &mut back).unwrap();
        assert_eq!(decoder.set_options(options[1]), Err(Error::StageWrong));
        let rest = &mut back[begun.written..];
        let ended = decoder.step(&first[begun.read..], rest).unwrap();
        assert_eq!(ended.status, Status::Done);
        assert!(back == content, "the frame as it began, {at}");
        // Left in the middle, and begun again with another dictionary.
        decoder.step(&first[..at], &mut back).unwrap();
        decoder.reset();
        decoder.set_options(options[1]).unwrap();
        let done = decoder.step(second, &mut back).unwrap();
        assert_eq!((done.status, done.written), (Status::Done, 4000));
        assert!(back == content, "another one, {at}");
        decoder.set_options(options[0]).unwrap();
    }

    // A reset of the other decoder takes its options, wherever it is.
    let mut workspace = vec![0; DECOMPRESS_WORKSPACE_SIZE];
    let mut decoder = PieceDecoder::new(options[0], &mut workspace).unwrap();
    for pieces in 0..8 {
        let mut pieces_left: usize = pieces;
        for (frame, options) in frames.iter().zip(options) {
            decoder.reset(options);
            let (mut rest, mut back, mut at) = (&frame[..], vec![0; 4000], 0);
            while decoder.wanted() > 0 {
                if pieces_left == 1 {
                    break;
                }
                pieces_left = pieces_left.saturating_sub(1);
                let (piece, after) = rest.split_at(decoder.wanted());
                at += decoder.decode(piece, &mut back, at).unwrap();
                rest = after;
            }
            assert!(pieces_left == 1 || back == content, "{pieces} pieces");
            pieces_left = 0;
        }
    }
}
