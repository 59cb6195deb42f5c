//! Arbitrary bytes, decoded in every way.
//!
//! Asserts: no panic; nothing written beyond the reported length; the safe twin gives the same as
//! the fast code; a stream in pieces gives the same as one shot, and so does a dictionary that was
//! prepared; extents and ranges give the content's parts, and say whether it goes on; a destination
//! that is one byte too short is exactly that error; what we accept, C accepts with the same
//! content; what C accepts and we refuse, the slow decoder after the RFC refuses for one of the
//! reasons in `docs/formats/zstd.md`.
//!
//! What has no magic number is tried without, and what is corrupt alone is tried with a dictionary.
//!
//! `cargo +nightly fuzz run zstd_decode fuzz/corpus/zstd_decode crates/zstd/testdata`
#![cfg_attr(not(test), no_main)]

use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;
use zstd::{
    DECOMPRESS_WORKSPACE_SIZE, DecodeOptions, Decoder, DecoderDictionary, Dictionary, Error, Status,
};
use zstd_safe::{DParameter, FrameFormat, ResetDirective};

#[allow(
    dead_code,
    unused_imports,
    reason = "the tests of the crate use all of it"
)]
#[path = "../../crates/zstd/tests/it/assemble/mod.rs"]
mod assemble;
#[path = "../../crates/zstd/tests/it/reference.rs"]
mod reference;

use reference::Fault;

/// More than the largest block.
const CAPACITY: usize = 150_000;
const WINDOW_MAX: u64 = 1 << 20;
const UNTOUCHED: u8 = 0xEE;
static DICTIONARY: &[u8] = include_bytes!("../../crates/zstd/testdata/dictionary-formatted.bin");

struct Workspaces {
    fast: Vec<u8>,
    safe: Vec<u8>,
    stream: Vec<u8>,
    c: zstd_safe::DCtx<'static>,
}

thread_local! {
    /// Never cleared: every input finds what the last one left.
    static WORKSPACES: RefCell<Workspaces> = RefCell::new(Workspaces {
        fast: vec![0xA5; DECOMPRESS_WORKSPACE_SIZE],
        safe: vec![0x5A; zstd_portable::DECOMPRESS_WORKSPACE_SIZE],
        stream: vec![0xA5; Decoder::workspace_size(WINDOW_MAX).expect("1 MiB can be had")],
        c: zstd_safe::DCtx::create(),
    });
}

/// How an input is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum As {
    Frames,
    Magicless,
    WithDictionary,
}

fuzz_target!(|data: &[u8]| {
    WORKSPACES.with_borrow_mut(|workspaces| match workspaces.check(data, As::Frames) {
        Err(Error::PrefixUnknown) => _ = workspaces.check(data, As::Magicless),
        Err(Error::Corruption | Error::DictionaryWrong) => {
            _ = workspaces.check(data, As::WithDictionary);
        }
        _ => {}
    });
});

fn options(how: As) -> DecodeOptions<'static> {
    let options = DecodeOptions::new();
    match how {
        As::Frames => options,
        As::Magicless => options.magicless(true),
        As::WithDictionary => {
            options.dictionary(Dictionary::new(DICTIONARY).expect("a dictionary"))
        }
    }
}

fn twin_options(how: As) -> zstd_portable::DecodeOptions<'static> {
    use zstd_portable::{DecodeOptions, Dictionary};
    let options = DecodeOptions::new();
    match how {
        As::Frames => options,
        As::Magicless => options.magicless(true),
        As::WithDictionary => {
            options.dictionary(Dictionary::new(DICTIONARY).expect("a dictionary"))
        }
    }
}

fn is_untouched(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == UNTOUCHED)
}

impl Workspaces {
    fn check(&mut self, data: &[u8], how: As) -> Result<usize, Error> {
        let options = options(how);
        let mut dst = vec![UNTOUCHED; CAPACITY];
        let result = options.decompress(&mut dst, data, &mut self.fast);
        if let Ok(len) = result {
            assert!(is_untouched(&dst[len..]), "written beyond the end");
        }

        if how == As::WithDictionary {
            self.check_prepared(data, &dst, result);
        }

        let mut twin = vec![UNTOUCHED; CAPACITY];
        let twin_result = twin_options(how).decompress(&mut twin, data, &mut self.safe);
        match (result, twin_result) {
            (Ok(len), Ok(twin_len)) => {
                assert_eq!(dst[..len], twin[..twin_len], "the twins' contents");
            }
            (Err(error), Err(twin_error)) => assert_eq!(error.as_str(), twin_error.as_str()),
            (fast, safe) => panic!("the twins' verdicts: {fast:?}, {safe:?}"),
        }

        let streamed = in_pieces(data, options, &mut self.stream);
        match (result, &streamed) {
            (Ok(len), Ok(content)) => assert_eq!(dst[..len], content[..], "the stream's content"),
            (Ok(_), Err(error)) => {
                assert_eq!(*error, Error::WindowTooLarge, "the stream's verdict");
            }
            (Err(Error::DstSizeTooSmall), _) | (Err(_), Err(_)) => {}
            (Err(error), Ok(_)) => panic!("the stream accepts what one shot calls {error:?}"),
        }

        let by_c = self.through_c(data, how);
        match (result, by_c) {
            (Ok(len), by_c) => assert_eq!(by_c.as_deref(), Ok(&dst[..len]), "C's content"),
            (Err(error), Ok(_)) if how == As::Frames => match reference::decode(data, CAPACITY) {
                Err(Fault::Broken | Fault::NoRoom) | Ok(_) => panic!("only we say {error:?}"),
                Err(_) => {}
            },
            _ => {}
        }

        if let Ok(len) = result {
            self.check_parts(data, options, &dst[..len]);
        }
        result
    }

    /// That a dictionary whose tables were made before gives the same.
    fn check_prepared(&mut self, data: &[u8], expected: &[u8], result: Result<usize, Error>) {
        let dictionary = Dictionary::new(DICTIONARY).expect("a dictionary");
        let mut memory = [0xA5; DecoderDictionary::SIZE];
        let prepared = DecoderDictionary::new(dictionary, &mut memory);
        let prepared = prepared.expect("a dictionary");
        let mut dst = vec![UNTOUCHED; CAPACITY];
        let options = DecodeOptions::new().prepared(&prepared);
        let again = options.decompress(&mut dst, data, &mut self.fast);
        assert_eq!(again, result, "the prepared dictionary's verdict");
        if let Ok(len) = result {
            assert_eq!(dst[..len], expected[..len], "the prepared content");
        }
    }

    /// Parts of a content that is known.
    fn check_parts(&mut self, data: &[u8], options: DecodeOptions, content: &[u8]) {
        let len = content.len();
        if len > 0 {
            let mut short = vec![UNTOUCHED; len - 1];
            let result = options.decompress(&mut short, data, &mut self.fast);
            assert_eq!(result, Err(Error::DstSizeTooSmall), "a byte too short");
            let mut exact = vec![UNTOUCHED; len];
            let result = options.decompress(&mut exact, data, &mut self.fast);
            assert_eq!(result, Ok(len), "into exact room");
            assert_eq!(exact, content, "into exact room");
        }
        // As much of the first frame as wanted.
        let mut all_is_first = false;
        for wanted in [len, len / 3, 0] {
            let mut part = vec![UNTOUCHED; wanted];
            let Ok(decoded) = options.decompress_extent(&mut part, data, &mut self.fast) else {
                // Skippable frames alone are no extent.
                assert_eq!(len, 0, "an extent of an accepted frame");
                continue;
            };
            assert!(decoded.read <= data.len() && decoded.written <= wanted);
            // The first frame has all of the content: then it is known where it ends.
            all_is_first |= decoded.written == len;
            if all_is_first {
                assert_eq!(decoded.more, wanted < len, "whether the extent goes on");
            }
            let (part, rest) = part.split_at(decoded.written);
            assert_eq!(part, &content[..part.len()], "the extent's content");
            assert!(is_untouched(rest), "written beyond the end");
        }
        // From the middle of it.
        let start = len / 2;
        let mut part = vec![UNTOUCHED; len / 3 + 1];
        let mut decoder = Decoder::new(options, &mut self.stream).expect("it is large enough");
        if let Ok(decoded) = decoder.decompress_range(start as u64, &mut part, data) {
            let (part, rest) = part.split_at(decoded.written);
            assert_eq!(
                part,
                &content[start..start + part.len()],
                "the range's content"
            );
            assert!(is_untouched(rest), "written beyond the end");
        }
    }

    fn through_c(&mut self, data: &[u8], how: As) -> Result<Vec<u8>, &'static str> {
        let c = &mut self.c;
        let name = zstd_safe::get_error_name;
        c.reset(ResetDirective::SessionAndParameters)
            .map_err(name)?;
        match how {
            As::Frames => {}
            As::Magicless => {
                let format = DParameter::Format(FrameFormat::Magicless);
                c.set_parameter(format).map_err(name)?;
            }
            As::WithDictionary => _ = c.load_dictionary(DICTIONARY).map_err(name)?,
        }
        let mut dst = vec![0; CAPACITY];
        let len = c.decompress(&mut dst[..], data).map_err(name)?;
        dst.truncate(len);
        Ok(dst)
    }
}

/// The content by a stream whose pieces follow from the input.
fn in_pieces(data: &[u8], options: DecodeOptions, workspace: &mut [u8]) -> Result<Vec<u8>, Error> {
    let mut state = xxhash::xxh64(data, 1);
    let mut size = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as usize % [2, 5, 100, 5000, 1 << 18][(state >> 60) as usize % 5]
    };
    let mut decoder = Decoder::new(options, workspace)?;
    let mut dst = vec![UNTOUCHED; CAPACITY];
    let (mut read, mut written, mut between_frames) = (0, 0, true);
    loop {
        let end = data.len().min(read + size());
        let room = dst.len().min(written + size());
        let progress = match decoder.step(&data[read..end], &mut dst[written..room]) {
            Ok(progress) => progress,
            Err(error) => {
                assert_eq!(decoder.step(data, &mut []), Err(error), "an error stays");
                return Err(error);
            }
        };
        assert!(progress.read <= end - read && progress.written <= room - written);
        read += progress.read;
        written += progress.written;
        assert!(is_untouched(&dst[written..room]), "written beyond the end");
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
