//! Dictionaries that are made ready once: frames are the same as with the dictionary itself.

use crate::encode::{Random, mixture};
use crate::encode_stream::{check, trained};
use testkit::cases;
use zstd::{
    DECOMPRESS_WORKSPACE_SIZE, DecodeOptions, Decoder, DecoderDictionary, Dictionary, Encoder,
    EncoderDictionary, Error, Finish, Params, Status, compress_bound, compress_with_dictionary,
    stream_workspace_size,
};

/// Raw content of which small tables and windows hold only the end, a few bytes, none.
fn dictionaries() -> Vec<Vec<u8>> {
    vec![
        trained(),
        mixture(1003, 10_000),
        mixture(1004, 400_000),
        mixture(1005, 9),
        vec![],
    ]
}

#[test]
fn frames_are_those_of_the_dictionary_itself() {
    let mut random = Random(11);
    let dictionaries = dictionaries();
    for case in 0..cases(60) {
        let bytes = &dictionaries[case % dictionaries.len()];
        let dictionary = Dictionary::new(bytes).unwrap();
        let level = [-5, 1, 2, 3, 4, 5, 7, 9, 11, 12, 13, 16, 19, 22][random.below(14)];
        let size = random.below(if case % 10 == 0 { 300_000 } else { 4000 });
        let mut params = Params::for_level_with_dictionary(level, Some(size as u64), bytes.len());
        params.checksum = random.below(2) == 0;
        if random.below(4) == 0 {
            params = params.with_window_log_max(10 + random.below(8) as u8);
        }
        let mut memory = vec![0x5a; EncoderDictionary::size(&params)];
        let prepared = EncoderDictionary::new(dictionary, &params, &mut memory).unwrap();
        let mut workspace = vec![0x3c; stream_workspace_size(&params)];
        let mut encoder = Encoder::new(&params, &mut workspace).unwrap();
        encoder.set_prepared(&prepared).unwrap();
        let mut direct_workspace = vec![0x77; stream_workspace_size(&params)];
        let mut direct = Encoder::new(&params, &mut direct_workspace).unwrap();
        direct.set_dictionary(Some(dictionary)).unwrap();
        let mut other = vec![0xc3; stream_workspace_size(&params)];
        let mut frame = vec![0; compress_bound(size) + 200];
        let mut expected = frame.clone();
        // Without a dictionary, a stream has less to look at than a call has.
        let is_call = !bytes.is_empty() || size <= 1 << params.window_log;
        for round in 0..4 {
            // One frame is left before it is finished, one follows no dictionary.
            let content = mixture(1000 + random.below(400) as u64, size);
            let name = format!("case {case}, round {round}, level {level}, size {size}");
            encoder.reset(Some(size as u64));
            if round == 1 {
                encoder
                    .step(&content[..size / 2], &mut frame, Finish::Nothing)
                    .unwrap();
                continue;
            }
            let done = encoder.step(&content, &mut frame, Finish::Frame).unwrap();
            assert_eq!((done.read, done.held), (size, 0), "{name}");
            direct.reset(Some(size as u64));
            let wanted = direct
                .step(&content, &mut expected, Finish::Frame)
                .unwrap()
                .written;
            assert!(frame[..done.written] == expected[..wanted], "{name}");
            if is_call {
                let (to, memory) = (&mut expected, &mut other);
                let n = compress_with_dictionary(to, &content, &params, &dictionary, memory);
                assert!(frame[..done.written] == expected[..n.unwrap()], "{name}");
            }
            check(&name, &frame[..done.written], &content, bytes);
        }
        encoder.set_dictionary(None).unwrap();
        encoder.reset(Some(size as u64));
        let content = mixture(1, size);
        let done = encoder.step(&content, &mut frame, Finish::Frame).unwrap();
        check("without", &frame[..done.written], &content, &[]);
    }
}

#[test]
fn frames_are_decoded_as_with_the_dictionary_itself() {
    let mut random = Random(12);
    let mut workspace = vec![0xA5; DECOMPRESS_WORKSPACE_SIZE];
    let mut stream = vec![0xA5; Decoder::workspace_size(1 << 19).unwrap()];
    for bytes in dictionaries() {
        let dictionary = Dictionary::new(&bytes).unwrap();
        let mut memory = vec![0x5a; DecoderDictionary::SIZE];
        let prepared = DecoderDictionary::new(dictionary, &mut memory).unwrap();
        let options = DecodeOptions::new().prepared(&prepared);
        let mut c = zstd_safe::CCtx::create();
        for _ in 0..cases(20) {
            let content = mixture(1000 + random.below(400) as u64, random.below(5000));
            let mut frame = vec![0; compress_bound(content.len())];
            let n = c
                .compress_using_dict(
                    &mut frame[..],
                    &content,
                    &bytes,
                    1 + random.below(19) as i32,
                )
                .unwrap();
            let frame = &frame[..n];
            let mut back = vec![0; content.len()];
            assert_eq!(
                options.decompress(&mut back, frame, &mut workspace),
                Ok(content.len())
            );
            assert_eq!(back, content);
            // A frame without a dictionary in between has tables of its own.
            let plain = [0x28, 0xB5, 0x2F, 0xFD, 0x20, 5, 0x2B, 0, 0, b'z'];
            let mut five = [0; 5];
            assert_eq!(zstd::decompress(&mut five, &plain, &mut workspace), Ok(5));
            let mut decoder = Decoder::new(options, &mut stream).unwrap();
            back.fill(0);
            let done = decoder.step(frame, &mut back).unwrap();
            assert_eq!((done.written, done.status), (content.len(), Status::Done));
            assert_eq!(back, content);
        }
    }
}

#[test]
fn what_is_wrong_with_it_is_said_when_it_is_made() {
    let good = trained();
    let mut workspace = vec![0; DECOMPRESS_WORKSPACE_SIZE];
    let mut memory = vec![0; DecoderDictionary::SIZE];
    let dictionary = Dictionary::new(&good).unwrap();
    let result = DecoderDictionary::new(dictionary, &mut memory[1..]);
    assert_eq!(result.err(), Some(Error::WorkspaceTooSmall));
    let params = Params::for_level_with_dictionary(3, Some(1000), good.len());
    let mut room = vec![0; EncoderDictionary::size(&params)];
    let short = &mut room[..EncoderDictionary::size(&params) - 64];
    let result = EncoderDictionary::new(dictionary, &params, short);
    assert_eq!(result.err(), Some(Error::WorkspaceTooSmall));

    // Magic number, id, and no tables.
    let mut bad = good[..8].to_vec();
    bad.extend([0xFF; 40]);
    let bad = Dictionary::new(&bad).unwrap();
    let result = EncoderDictionary::new(bad, &params, &mut room);
    assert_eq!(result.err(), Some(Error::DictionaryCorrupted));
    let result = DecoderDictionary::new(bad, &mut memory);
    assert_eq!(result.err(), Some(Error::DictionaryCorrupted));

    // Tables of another size.
    let mut room = vec![0; EncoderDictionary::size(&params)];
    let ready = EncoderDictionary::new(dictionary, &params, &mut room).unwrap();
    let others = Params::for_level(9, None);
    let mut other_room = vec![0; stream_workspace_size(&others)];
    let mut encoder = Encoder::new(&others, &mut other_room).unwrap();
    let result = encoder.set_prepared(&ready);
    assert_eq!(result, Err(Error::ParameterOutOfBound));

    // A frame that names another.
    let mut memory = vec![0; DecoderDictionary::SIZE];
    let prepared = DecoderDictionary::new(dictionary, &mut memory).unwrap();
    let mut other = good.clone();
    other[4] ^= 1;
    let mut frame = [0; 300];
    let mut room = vec![0; stream_workspace_size(&params)];
    let other = Dictionary::new(&other).unwrap();
    let n = compress_with_dictionary(&mut frame, &mixture(1, 100), &params, &other, &mut room);
    let options = DecodeOptions::new().prepared(&prepared);
    assert_eq!(
        options.decompress(&mut [0; 100], &frame[..n.unwrap()], &mut workspace),
        Err(Error::DictionaryWrong)
    );
}
