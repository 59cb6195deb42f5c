//! Every level of the kernels against the safe twin, on this processor.

use std::string::String;
use std::vec;
use std::vec::Vec;

use super::*;
use crate::arch::{TWIN, Twin};
use crate::frame::Frame;
use crate::{Params, compress, compress_bound, huffman, literals};

const LEVELS: [Twin; 3] = [Twin::Safe, Twin::Plain, Twin::Fastest];

/// Larger inputs take Miri too long.
const LARGEST: usize = if cfg!(miri) { 512 } else { 1 << 20 };

fn random(mut seed: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    }
}

/// Words of a small vocabulary, runs, and noise in between; the same for the same seed.
fn mixture(seed: u64, len: usize) -> Vec<u8> {
    let mut next = random(seed);
    let mut content = vec![];
    while content.len() < len {
        match next(10) {
            0 => content.extend((0..next(40)).map(|_| next(256) as u8)),
            1 => {
                let byte = next(256) as u8;
                content.extend((0..next(300)).map(|_| byte));
            }
            2 => {
                let period = 1 + next(24) as usize;
                let from = content.len().saturating_sub(period);
                for index in 0..next(200) as usize {
                    content.push(content.get(from + index).copied().unwrap_or(7));
                }
            }
            _ => {
                let word = next(500) * next(500);
                let len = 2 + word % 9;
                content.extend((0..len).map(|at| b'a' + ((word >> at) % 19) as u8));
            }
        }
    }
    content.truncate(len);
    content
}

/// Letters, common ones and rare ones: literals whose codes come in pairs. In three of four parts
/// the codes are longer, so that the four streams are not done at the same time.
fn letters(seed: u64, len: usize) -> Vec<u8> {
    let mut next = random(seed);
    (0..len)
        .map(|at| {
            let alphabet = [3, 40, 30, 40][at * 4 / len];
            b'A' + (next(alphabet) * next(4) / 4) as u8
        })
        .collect()
}

fn frame_of(content: &[u8], params: &Params) -> Vec<u8> {
    let mut workspace = vec![0; crate::workspace_size(params)];
    let mut frame = vec![0; compress_bound(content.len())];
    let size = compress(&mut frame, content, params, &mut workspace).unwrap();
    frame.truncate(size);
    frame
}

/// All at once.
fn at_once(
    twin: Twin,
    options: &DecodeOptions<'_>,
    frame: &[u8],
    room: usize,
) -> (Result<usize, Error>, Vec<u8>) {
    let mut workspace = vec![0; DECOMPRESS_WORKSPACE_SIZE];
    let mut dst = vec![0xee; room];
    TWIN.set(twin);
    let result = options.decompress(&mut dst, frame, &mut workspace);
    TWIN.set(Twin::Fastest);
    let written = result.unwrap_or(room);
    assert!(dst[written..].iter().all(|&byte| byte == 0xee));
    (result, dst)
}

/// As a stream of pieces of `step` bytes, with memory for windows of `window` bytes.
fn in_pieces(
    twin: Twin,
    options: &DecodeOptions<'_>,
    frame: &[u8],
    step: usize,
    window: u64,
) -> Result<Vec<u8>, Error> {
    let mut workspace = vec![0; Decoder::workspace_size(window).unwrap()];
    let mut decoder = Decoder::new(*options, &mut workspace)?;
    let mut content = vec![];
    let mut piece = vec![0; step];
    let mut at = 0;
    TWIN.set(twin);
    let result = loop {
        let end = frame.len().min(at + step);
        let progress = match decoder.step(&frame[at..end], &mut piece) {
            Ok(progress) => progress,
            Err(error) => break Err(error),
        };
        at += progress.read;
        content.extend(&piece[..progress.written]);
        match progress.status {
            Status::Done if at == frame.len() => break Ok(()),
            Status::Input { .. } if at == frame.len() => break Err(Error::SrcSizeWrong),
            _ => {}
        }
    };
    TWIN.set(Twin::Fastest);
    result.map(|()| content)
}

/// The expected content of the vectors is read from the table in their README.
#[test]
fn vectors_at_every_level() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata");
    let read = |name: &str| std::fs::read(std::format!("{folder}/{name}")).unwrap();
    let table = String::from_utf8(read("README.md")).unwrap();
    let (mut good, mut bad) = (0, 0);
    for line in table.lines().filter(|line| line.starts_with("| `")) {
        let mut cells = line.split(" | ");
        let name = cells.next().unwrap().trim_matches(['|', ' ', '`']);
        let result = cells.next().unwrap();
        let expected = result
            .split_once(" bytes, ")
            .map(|(len, hash)| {
                let hash = u64::from_str_radix(hash.trim_matches('`'), 16).unwrap();
                (len.parse::<usize>().unwrap(), hash)
            })
            .ok_or(result);
        let frame = read(name);
        if frame.len() > LARGEST || expected.is_ok_and(|(len, _)| len > LARGEST) {
            continue;
        }
        let dictionary = ["dictionary-raw.bin", "dictionary-formatted.bin"]
            .into_iter()
            .find(|file| line.contains(&std::format!("Dictionary: `{file}`")))
            .map(read);
        let mut options = DecodeOptions::new().magicless(name.contains("magicless"));
        if let Some(dictionary) = &dictionary {
            options = options.dictionary(Dictionary::new(dictionary).unwrap());
        }
        let room = expected.map_or(LARGEST.max(4 << 10), |(len, _)| len + 40);
        let window = if cfg!(miri) { 1 << 12 } else { 1 << 24 };
        for twin in LEVELS {
            let (once, dst) = at_once(twin, &options, &frame, room);
            let once = once
                .map(|len| (len, xxhash::xxh64(&dst[..len], 0)))
                .map_err(Error::as_str);
            // Miri is given little room, too, and a destination that is too small is reported
            // before a fault that comes later.
            if !(cfg!(miri) && expected.is_err() && once == Err(Error::DstSizeTooSmall.as_str())) {
                assert_eq!(once, expected, "{name} at once, {twin:?}");
            }
            let stream = in_pieces(twin, &options, &frame, 7, window)
                .map(|content| (content.len(), xxhash::xxh64(&content, 0)));
            match stream {
                // Miri is given little memory.
                Err(Error::WindowTooLarge) if cfg!(miri) => {}
                // A stream may meet another of several faults first.
                stream => assert_eq!(stream.ok(), expected.ok(), "{name} in pieces, {twin:?}"),
            }
        }
        match expected {
            Ok(_) => good += 1,
            Err(_) => bad += 1,
        }
    }
    assert!(good >= 50 && bad >= 50, "{good} good, {bad} bad vectors");
}

#[test]
fn levels_agree() {
    let lens: &[usize] = if cfg!(miri) {
        &[100, 3_000]
    } else {
        &[100, 5_000, 70_000, 131_072, 300_000]
    };
    let faults = if cfg!(miri) { 2 } else { 40 };
    let options = DecodeOptions::new();
    for (seed, &len) in lens.iter().enumerate() {
        let content = mixture(seed as u64, len);
        for level in [-5, 1, 3, 6, 9] {
            if cfg!(miri) && level != 1 {
                continue;
            }
            let frame = frame_of(&content, &Params::for_level(level, Some(len as u64)));
            for twin in LEVELS {
                let (result, dst) = at_once(twin, &options, &frame, len);
                assert_eq!(result, Ok(len), "{twin:?}, level {level}, {len} bytes");
                assert!(dst == content, "{twin:?}, level {level}, {len} bytes");
            }
            // Broken frames give the same error, or the same content.
            for step in 0..faults {
                let at = frame.len() * step / faults;
                let mut broken = frame.clone();
                broken[at] ^= 1 << (step % 8);
                let (safe, safe_dst) = at_once(Twin::Safe, &options, &broken, len + 40);
                for twin in [Twin::Plain, Twin::Fastest] {
                    let (result, dst) = at_once(twin, &options, &broken, len + 40);
                    assert_eq!(result, safe, "{twin:?}, level {level}, {len} bytes, {at}");
                    assert!(result.is_err() || dst == safe_dst);
                }
            }
        }
    }
}

/// The window's memory begins again many times while the content goes on.
#[test]
fn levels_agree_on_small_windows() {
    let len = if cfg!(miri) { 5_000 } else { 300_000 };
    let content = mixture(9, len);
    for (level, window_log) in [(1, 10), (6, 12), (3, 15), (9, 17)] {
        if cfg!(miri) && window_log != 10 {
            continue;
        }
        let mut params = Params::for_level(level, None).with_window_log_max(window_log);
        params.content_size = false;
        let frame = frame_of(&content, &params);
        for twin in LEVELS {
            for step in [13, 4096] {
                let got = in_pieces(twin, &DecodeOptions::new(), &frame, step, 1 << window_log);
                assert!(
                    got.as_ref() == Ok(&content),
                    "{twin:?}, window 2^{window_log}, pieces of {step}"
                );
            }
        }
    }
}

#[test]
fn levels_agree_on_codes_in_pairs() {
    let len = if cfg!(miri) { 2_000 } else { 100_000 };
    let content = letters(3, len);
    let frame = frame_of(&content, &Params::for_level(1, Some(len as u64)));
    let Ok(Frame::Zstd(header)) = Frame::parse(&frame) else {
        panic!("that is no frame")
    };
    let section = literals::LiteralsHeader::parse(&frame[header.size + 3..], 1 << 17).unwrap();
    assert!(
        huffman::pairs_are_worth_it(section.stored, section.content),
        "{section:?}"
    );
    let options = DecodeOptions::new();
    for twin in LEVELS {
        let (result, dst) = at_once(twin, &options, &frame, len);
        assert_eq!(result, Ok(len), "{twin:?}");
        assert!(dst == content, "{twin:?}");
    }
    for fault in 0..if cfg!(miri) { 2 } else { 300 } {
        let at = header.size + 3 + fault * (frame.len() - header.size - 3) / 300;
        let mut broken = frame.clone();
        broken[at] ^= 1 << (fault % 8);
        let (safe, safe_dst) = at_once(Twin::Safe, &options, &broken, len + 40);
        for twin in [Twin::Plain, Twin::Fastest] {
            let (result, dst) = at_once(twin, &options, &broken, len + 40);
            assert_eq!(result, safe, "{twin:?}, {at}");
            assert!(result.is_err() || dst == safe_dst);
        }
    }
}

/// A compressed block without header: these raw literals, and `count` sequences of one code for all
/// (which say no more bits than an offset's), with these bits after the codes.
fn block_of(
    literals: &[u8],
    count: usize,
    codes: [u8; 3],
    mut next: impl FnMut() -> u8,
) -> Vec<u8> {
    let size = literals.len() as u32;
    let mut block = (size << 4 | 3 << 2).to_le_bytes()[..3].to_vec();
    block.extend(literals);
    block.extend([128 + (count >> 8) as u8, count as u8, 0b0101_0100]);
    block.extend(codes);
    let bits = count * usize::from(codes[1]);
    block.extend((0..bits / 8).map(|_| next()));
    let mark = 1 << (bits % 8);
    block.push(next() & (mark - 1) | mark);
    block
}

/// Offsets have 32 bits, content sizes more: a corrupt offset is refused regardless of the amount
/// of content before it, and the rest is copied from its position. Few of the zeros before it are
/// touched.
#[cfg(target_pointer_width = "64")]
#[test]
fn levels_agree_behind_four_gib() {
    let far: usize = if cfg!(miri) { 1 << 16 } else { 1 << 32 };
    let mut output = vec![0; far + (1 << 18)];
    let mut next = random(5);
    let mut workspace = vec![0; DECOMPRESS_WORKSPACE_SIZE];
    let (mut good, mut bad) = (0, 0);
    for case in 0..if cfg!(miri) { 8 } else { 600 } {
        let at = [far - 3, far - 2, far - 1, far, far + 1, far + 70_000][case % 6];
        // Enough for the fast loop to read most of them.
        let count = 200 + next(1000) as usize;
        let codes = match case % 4 {
            // Repeat offsets without literals: the latest one less, sooner or later 0.
            0 | 1 => [0, 1, next(32) as u8],
            // Far ones.
            2 => [0, 31, next(32) as u8],
            _ => [next(16) as u8, next(32) as u8, next(32) as u8],
        };
        let literals = mixture(case as u64, 20 + usize::from(codes[0]) * count);
        let ones = case % 3 == 0;
        let bits = || {
            if ones && codes[1] > 1 {
                0xff
            } else {
                next(256) as u8
            }
        };
        let block = block_of(&literals, count, codes, bits);
        let mut decode = |twin: Twin| {
            let mut decoder = PieceDecoder::new(DecodeOptions::new(), &mut workspace).unwrap();
            decoder.insert_block(at).unwrap();
            output[at - 40..].fill(0);
            output[at - 40..at].copy_from_slice(&[7; 40]);
            TWIN.set(twin);
            let result = decoder.decode_block(&block, &mut output, at);
            TWIN.set(Twin::Fastest);
            let content = &output[at..at + result.unwrap_or(0)];
            (result, xxhash::xxh64(content, 0))
        };
        let expected = decode(Twin::Safe);
        for twin in [Twin::Plain, Twin::Fastest] {
            assert_eq!(decode(twin), expected, "case {case}, {codes:?}, {twin:?}");
        }
        match expected.0 {
            Ok(_) => good += 1,
            Err(_) => bad += 1,
        }
    }
    assert!(
        cfg!(miri) || good >= 100 && bad >= 100,
        "{good} good, {bad} bad"
    );
}

/// The documented behaviour at the end of an extent.
#[test]
fn extents_end_with_the_block_after_them() {
    // Two stored blocks of four bytes, and a third one that is cut off.
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0];
    for content in [b"abcd", b"efgh"] {
        frame.extend([4 << 3, 0, 0]);
        frame.extend(content);
    }
    let whole = frame.len();
    let mut workspace = vec![0; DECOMPRESS_WORKSPACE_SIZE];
    let mut extent = |frame: &[u8], room: usize| {
        let mut dst = vec![0; room];
        let options = DecodeOptions::new();
        let decoded = options.decompress_extent(&mut dst, frame, &mut workspace)?;
        assert_eq!(dst, b"abcdefgh"[..room]);
        Ok((decoded.written, decoded.more))
    };
    for room in [0, 3, 4, 7] {
        assert_eq!(extent(&frame, room), Ok((room, true)));
    }
    assert_eq!(extent(&frame, 8), Err(Error::SrcSizeWrong));
    assert_eq!(extent(&frame[..whole - 1], 3), Ok((3, true)));
    assert_eq!(extent(&frame[..whole - 1], 4), Err(Error::SrcSizeWrong));
}
