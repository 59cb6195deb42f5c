//! Streams, dictionaries and bare blocks that we make, decoded by the C library.

use crate::encode::{Random, hard, mixture, uuencoded};
use testkit::cases;
use zstd::{
    Dictionary, EncodeProgress, Encoder, Error, Finish, LEVEL_MAX, Params, compress_bound,
    compress_with_dictionary, stream_workspace_size,
};

/// Encodes `content` in pieces whose sizes `size` gives.
fn encode_in_pieces(
    encoder: &mut Encoder<'_, &mut [u8]>,
    content: &[u8],
    mut size: impl FnMut() -> usize,
    mut flush: impl FnMut() -> bool,
) -> Vec<u8> {
    let mut frame = Vec::new();
    let mut at = 0;
    let mut idle = 0;
    loop {
        let piece = &content[at..content.len().min(at + size())];
        let finish = if at + piece.len() == content.len() {
            Finish::Frame
        } else if flush() {
            Finish::Block
        } else {
            Finish::Nothing
        };
        let mut output = vec![0; size()];
        let EncodeProgress {
            read,
            written,
            held,
            ..
        } = encoder.step(piece, &mut output, finish).unwrap();
        at += read;
        frame.extend_from_slice(&output[..written]);
        if finish == Finish::Frame && read == piece.len() && held == 0 {
            return frame;
        }
        idle = if read + written == 0 { idle + 1 } else { 0 };
        assert!(idle < 100, "no progress");
    }
}

#[track_caller]
pub(crate) fn check(name: &str, frame: &[u8], content: &[u8], dictionary: &[u8]) {
    let mut back = vec![0; content.len()];
    let mut decoder = zstd_safe::DCtx::create();
    match decoder.decompress_using_dict(&mut back[..], frame, dictionary) {
        Ok(n) => assert!(
            n == content.len() && back == content,
            "{name}: content differs"
        ),
        Err(code) => panic!("{name}: {}", zstd_safe::get_error_name(code)),
    }
}

#[test]
fn a_stream_does_not_depend_on_its_pieces() {
    let mut random = Random(17);
    for level in [-5, 1, 3, 5, 9, 13] {
        for size in [0, 1, 5000, 131_072, 131_073, 700_000] {
            let content = mixture(size as u64 + 1, size);
            let params = Params::for_level(level, None).with_window_log_max(17);
            let mut workspace = vec![0x77; stream_workspace_size(&params)];
            let mut encoder = Encoder::new(&params, &mut workspace).unwrap();
            let whole = encode_in_pieces(&mut encoder, &content, || 1 << 20, || false);
            check(
                &format!("level {level}, size {size}"),
                &whole,
                &content,
                &[],
            );
            let most = if size > 10_000 { 9000 } else { 50 };
            encoder.reset(None);
            let pieces =
                encode_in_pieces(&mut encoder, &content, || 1 + random.below(most), || false);
            check(
                &format!("level {level}, size {size}, pieces"),
                &pieces,
                &content,
                &[],
            );
            // Only the header may differ: a whole frame at once tells its size.
            let pledged = Some(size as u64);
            encoder.reset(pledged);
            let a = encode_in_pieces(&mut encoder, &content, || 1 + random.below(most), || false);
            encoder.reset(pledged);
            let b = encode_in_pieces(&mut encoder, &content, || 4096, || false);
            assert_eq!(a, b, "level {level}, size {size}");
            check(
                &format!("level {level}, size {size}, pledged"),
                &a,
                &content,
                &[],
            );
        }
    }
}

/// Nothing that is learnt from a frame is kept for the next.
#[test]
fn a_frame_does_not_depend_on_the_one_before() {
    const SIZE: usize = 20_000;
    let mut contents: Vec<Vec<u8>> = hard(SIZE).into_iter().map(|(_, content)| content).collect();
    contents.push(uuencoded(SIZE));
    for level in (-7..=LEVEL_MAX).filter(|level| *level != 0) {
        let params = Params::for_level(level, Some(SIZE as u64));
        let [mut fresh, mut used] = [0x77, 0xa5].map(|b| vec![b; stream_workspace_size(&params)]);
        let mut reused = Encoder::new(&params, &mut used).unwrap();
        for (i, content) in contents.iter().enumerate() {
            let mut encoder = Encoder::new(&params, &mut fresh).unwrap();
            let frame = encode_in_pieces(&mut encoder, content, || 4096, || false);
            for time in 0..2 {
                reused.reset(None);
                let again = encode_in_pieces(&mut reused, content, || 4096, || false);
                assert!(again == frame, "level {level}, content {i}, {time}");
            }
        }
    }
}

#[test]
fn what_was_flushed_can_be_decoded() {
    let mut random = Random(23);
    for level in [-1, 1, 4, 6] {
        let content = mixture(9, 400_000);
        let mut params = Params::for_level(level, None).with_window_log_max(15);
        params.checksum = true;
        let mut workspace = vec![0; stream_workspace_size(&params)];
        let mut encoder = Encoder::new(&params, &mut workspace).unwrap();
        let mut decoder = zstd_safe::DCtx::create();
        let mut back = vec![0; content.len() + 1];
        let (mut at, mut got) = (0, 0);
        while at < content.len() {
            let piece = &content[at..content.len().min(at + 1 + random.below(40_000))];
            let mut output = vec![0; compress_bound(piece.len()) + 200_000];
            let mut input_at = 0;
            let mut written = 0;
            loop {
                let progress = encoder
                    .step(&piece[input_at..], &mut output[written..], Finish::Block)
                    .unwrap();
                input_at += progress.read;
                written += progress.written;
                if progress.held == 0 && input_at == piece.len() {
                    break;
                }
            }
            at += piece.len();
            let mut input = zstd_safe::InBuffer::around(&output[..written]);
            while input.pos() < written {
                let mut out = zstd_safe::OutBuffer::around_pos(&mut back[..], got);
                decoder.decompress_stream(&mut out, &mut input).unwrap();
                got = out.pos();
            }
            assert_eq!(got, at, "level {level}");
        }
        assert_eq!(back[..got], content);
    }
}

#[test]
fn the_header_waits() {
    let params = Params::for_level(1, None);
    let mut workspace = vec![0; stream_workspace_size(&params)];
    let mut encoder = Encoder::new(&params, &mut workspace).unwrap();
    let mut output = [0; 100];
    let progress = encoder
        .step(b"Hello world", &mut output, Finish::Nothing)
        .unwrap();
    assert_eq!((progress.read, progress.written, progress.held), (11, 0, 0));
    let progress = encoder.step(&[], &mut output, Finish::Block).unwrap();
    assert!(progress.written > 11 && progress.held == 0);
}

#[test]
fn the_pledge_is_kept() {
    let params = Params::for_level(3, Some(100));
    let mut workspace = vec![0; stream_workspace_size(&params)];
    let mut encoder = Encoder::new(&params, &mut workspace).unwrap();
    let mut output = [0; 300];
    for (pledged, given) in [(100, 99), (100, 101), (0, 1), (1, 0)] {
        encoder.reset(Some(pledged));
        let result = encoder.step(&[7; 200][..given], &mut output, Finish::Frame);
        assert_eq!(result, Err(Error::SrcSizeWrong));
        // And again, until the reset.
        assert_eq!(
            encoder.step(&[], &mut output, Finish::Nothing),
            Err(Error::SrcSizeWrong)
        );
    }
    encoder.reset(Some(100));
    let progress = encoder.step(&[7; 100], &mut output, Finish::Frame).unwrap();
    check("pledged", &output[..progress.written], &[7; 100], &[]);
}

/// A formatted dictionary of texts like those of [`mixture`].
pub(crate) fn trained() -> Vec<u8> {
    let samples: Vec<Vec<u8>> = (0..200).map(|i| mixture(i + 1000, 2000)).collect();
    let sizes: Vec<usize> = samples.iter().map(Vec::len).collect();
    let mut dictionary = vec![0; 8000];
    let n = zstd_safe::train_from_buffer(&mut dictionary[..], &samples.concat(), &sizes).unwrap();
    dictionary.truncate(n);
    dictionary
}

#[test]
fn dictionaries_raw_and_formatted() {
    let formatted = trained();
    let raw = mixture(1003, 10_000);
    let mut random = Random(5);
    for case in 0..cases(150) {
        let size = random.below(if case % 20 == 0 { 300_000 } else { 3000 });
        let content = mixture(1000 + random.below(400) as u64, size);
        let level = [-5, 1, 2, 3, 5, 7, 9, 12, 13, 16, 19, 22][random.below(12)];
        for bytes in [&formatted, &raw] {
            let dictionary = Dictionary::new(bytes).unwrap();
            let mut params =
                Params::for_level_with_dictionary(level, Some(size as u64), bytes.len());
            params.content_size = random.below(2) == 0;
            if random.below(4) == 0 {
                params = params.with_window_log_max(10 + random.below(8) as u8);
            }
            let mut workspace = vec![0x3c; stream_workspace_size(&params)];
            let mut frame = vec![0; compress_bound(size) + 200];
            let n = compress_with_dictionary(
                &mut frame,
                &content,
                &params,
                &dictionary,
                &mut workspace,
            )
            .unwrap();
            let name = format!("case {case}, level {level}, size {size}, {params:?}");
            check(&name, &frame[..n], &content, bytes);
        }
    }
}

/// What a first pass has seen behind the change must not count before it.
#[test]
fn a_change_in_a_long_repeat_is_seen() {
    let before = mixture(77, 2000);
    for level in 1..=LEVEL_MAX {
        for at in [0, 1, 100, 595, 1500, 1999] {
            let mut content = before.clone();
            content[at] ^= 0x55;
            let params = Params::for_level_with_dictionary(level, Some(2000), 2000);
            let mut workspace = vec![0x3c; stream_workspace_size(&params)];
            let mut frame = vec![0; compress_bound(2000) + 200];
            let dictionary = Dictionary::raw(&before);
            let n = compress_with_dictionary(
                &mut frame,
                &content,
                &params,
                &dictionary,
                &mut workspace,
            )
            .unwrap();
            let name = format!("level {level}, change at {at}");
            check(&name, &frame[..n], &content, &before);
        }
    }
    // Blocks that end early, and long matches in those behind them.
    let mut random = Random(31);
    for level in [13, 15, 16, 17, 19, 22] {
        for window_log in [17, 18, 19] {
            let mut content = mixture(7, 90_000);
            for i in 0..200_000 {
                let byte = content[i];
                content.push(byte ^ u8::from(random.below(700) == 0));
            }
            let params = Params::for_level(level, None).with_window_log_max(window_log);
            let mut workspace = vec![0x3c; stream_workspace_size(&params)];
            let mut encoder = Encoder::new(&params, &mut workspace).unwrap();
            encoder.reset(None);
            let mut frame = vec![0; compress_bound(content.len())];
            let done = encoder.step(&content, &mut frame, Finish::Frame).unwrap();
            let name = format!("level {level}, window of 2^{window_log}");
            check(&name, &frame[..done.written], &content, &[]);
        }
    }
}

#[test]
fn eleven_bytes_are_worth_a_dictionary() {
    let raw = b"Hello world".repeat(1000);
    for content_size in [false, true] {
        for level in 1..=12 {
            let mut params = Params::for_level_with_dictionary(level, Some(11), raw.len());
            params.content_size = content_size;
            let mut workspace = vec![0; stream_workspace_size(&params)];
            let mut frame = [0; 100];
            let dictionary = Dictionary::raw(&raw);
            let n = compress_with_dictionary(
                &mut frame,
                b"Hello world",
                &params,
                &dictionary,
                &mut workspace,
            )
            .unwrap();
            check("hello", &frame[..n], b"Hello world", &raw);
            let mut back = [0; 20];
            assert!(
                zstd_safe::decompress(&mut back[..], &frame[..n]).is_err(),
                "level {level} does not need its dictionary"
            );
        }
    }
}

#[test]
fn a_broken_dictionary_is_refused() {
    let good = trained();
    let params = Params::for_level(1, Some(100));
    let mut workspace = vec![0; stream_workspace_size(&params)];
    for length in 9..good.len().min(400) {
        let Ok(dictionary) = Dictionary::new(&good[..length]) else {
            continue;
        };
        let mut frame = [0; 300];
        // Whatever it answers, it does not panic.
        let _ =
            compress_with_dictionary(&mut frame, &[1; 100], &params, &dictionary, &mut workspace);
    }
    let mut random = Random(3);
    for _ in 0..cases(2000) {
        let mut bad = good.clone();
        for _ in 0..1 + random.below(4) {
            let at = 8 + random.below(200);
            bad[at] = random.next() as u8;
        }
        let dictionary = Dictionary::new(&bad).unwrap();
        let mut frame = [0; 300];
        let content = mixture(1001, 100);
        let result =
            compress_with_dictionary(&mut frame, &content, &params, &dictionary, &mut workspace);
        if let Err(e) = result {
            assert_eq!(e, Error::DictionaryCorrupted);
        }
    }
}
