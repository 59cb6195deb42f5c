//! Every strategy on inputs that are small enough for Miri, which alone detects a read or a write
//! of the pointer kernels outside of its slice.

use std::vec;
use std::vec::Vec;

use super::finder::FinderState;
use crate::{
    Compressor, DECOMPRESS_WORKSPACE_SIZE, DecodeOptions, Dictionary, DoubleFast, Encoder,
    EncoderDictionary, Fast, Finish, LazyDivided, Params, Strategy, Workspace, compress_bound,
    stream_workspace_size, workspace_size,
};

/// One of each strategy, where there is little time.
const ONE_OF_EACH: &[i32] = &[-1, 1, 3, 4, 5, 9, 11, 13, 16];

const LEVELS: &[i32] = if cfg!(miri) {
    ONE_OF_EACH
} else {
    &[
        -3, -1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22,
    ]
};

/// Words, runs, noise, and parts that come again; the same for the same seed.
fn structured(mut seed: u64, len: usize) -> Vec<u8> {
    let mut next = |below: u64| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let mut content = Vec::new();
    while content.len() < len {
        match next(12) {
            0 => content.extend((0..next(60)).map(|_| next(256) as u8)),
            1 => content.resize(content.len() + next(90) as usize, next(256) as u8),
            2..=4 if content.len() > 10 => {
                let offset = 1 + next(content.len() as u64 - 1) as usize;
                for _ in 0..3 + next(50) {
                    content.push(content[content.len() - offset]);
                }
            }
            word => content.extend_from_slice(
                [&b"static "[..], b"inode", b"\treturn ", b"->next;\n"][word as usize & 3],
            ),
        }
    }
    content.truncate(len);
    content
}

/// Blocks and tables that Miri has time for.
fn small(level: i32) -> Params {
    let mut params = Params::for_level(level, Some(16 << 10)).with_window_log_max(10);
    params.content_size = false;
    params.checksum = level % 2 == 0;
    params
}

/// [`LEVELS`], and chains beside rows, which no level has for so little content, and in their
/// place.
fn strategies() -> Vec<Params> {
    let mut cases: Vec<Params> = LEVELS.iter().copied().map(small).collect();
    let params = small(11);
    let Strategy::LazyDivided(divided) = params.strategy else {
        panic!("level 11 divides blocks");
    };
    let strategy = Strategy::LazyDivided(LazyDivided {
        chain_log: Some(10),
        ..divided
    });
    cases.push(Params { strategy, ..params });
    // Where there are vectors, levels have rows in their place. Fewer links than positions, too.
    for (level, chain_log) in [(5, 10), (6, 12), (10, 10), (11, 10)] {
        let mut params = small(level);
        let (Strategy::Lazy(lazy) | Strategy::LazyDivided(LazyDivided { lazy, .. })) =
            &mut params.strategy
        else {
            panic!("level {level} is lazy");
        };
        lazy.chain_log = Some(chain_log);
        cases.push(params);
    }
    cases
}

#[track_caller]
fn check(frame: &[u8], content: &[u8], dictionary: &[u8], params: &Params) {
    let mut workspace = Workspace::<DECOMPRESS_WORKSPACE_SIZE>::new();
    let mut back = vec![0; content.len()];
    let read = DecodeOptions::new()
        .dictionary(Dictionary::new(dictionary).unwrap())
        .decompress(&mut back, frame, &mut workspace);
    assert!(read == Ok(content.len()) && back == content, "{params:?}");
}

/// Several blocks with windows that slide, and one block that is a frame; tables as they are found,
/// and a destination that is just large enough and one that is not.
#[test]
fn small_frames_of_every_strategy() {
    let (long, short) = if cfg!(miri) {
        (1_100, 300)
    } else {
        (20_000, 900)
    };
    let content = structured(1, long);
    let mut cases = strategies();
    for min_match in if cfg!(miri) { 7..=7 } else { 4..=7 } {
        let params = small(1);
        let Strategy::Fast(fast) = params.strategy else {
            panic!("level 1 is fast");
        };
        let min_match = Some(min_match);
        let double = DoubleFast {
            long_hash_log: fast.hash_log,
            short_hash_log: fast.hash_log,
            min_match,
        };
        let fast = Fast { min_match, ..fast };
        for strategy in [Strategy::Fast(fast), Strategy::DoubleFast(double)] {
            cases.push(Params { strategy, ..params });
        }
    }
    for (case, params) in cases.iter().enumerate() {
        let single = Params {
            content_size: true,
            ..*params
        };
        let parts = [
            (&content[..], params),
            (&content[case..case + short], &single),
        ];
        for (content, params) in parts {
            // The initial bytes and the alignment of a workspace must not matter.
            let mut memory = vec![0; workspace_size(params) + 1];
            let mut frame = vec![0; compress_bound(content.len())];
            let size = Compressor::new(&mut memory[..])
                .compress(&mut frame, content, params)
                .unwrap();
            frame.truncate(size);
            check(&frame, content, &[], params);
            memory.fill(0xa5);
            let mut compressor = Compressor::new(&mut memory[1..]);
            let mut again = vec![0; size];
            assert_eq!(
                compressor.compress(&mut again[..size - 1], content, params),
                Err(crate::Error::DstSizeTooSmall)
            );
            assert_eq!(compressor.compress(&mut again, content, params), Ok(size));
            assert!(again == frame, "{params:?}");
        }
    }
}

/// A destination of the frame's length does, at every level: for text, few letters, records, noise
/// and runs.
#[test]
#[cfg_attr(miri, ignore = "takes hours")]
fn a_destination_of_the_frames_length_does() {
    let mut frame = vec![0; compress_bound(5_000)];
    for &level in LEVELS {
        let mut memory = vec![0; 4 << 20];
        let mut compressor = Compressor::new(&mut memory);
        for seed in 0..30_u64 {
            let size = 1 + (seed * seed * 37 % 700 + seed) as usize;
            let words = structured(seed, 5_000);
            let few = words.iter().map(|byte| b"etaoinsh"[usize::from(byte & 7)]);
            let records = words.iter().enumerate().map(|(i, byte)| match i % 8 {
                0..3 => 0x40,
                3 => (i / 80) as u8,
                4 => byte & 15,
                _ => 7 * (byte & 1),
            });
            let noise = words.iter().scan(seed as u32, |state, byte| {
                *state = state.wrapping_mul(0x19660d).wrapping_add(0x3c6ef35f);
                Some((*state >> 24) as u8 & if *byte == 0 { 3 } else { 0x7f })
            });
            // Many lengths of matches, and little else.
            let runs = words.chunks(2).flat_map(|pair| {
                let length = 3 + usize::from(pair[1]) * usize::from(pair[1]) / 300;
                core::iter::repeat_n(0, length).chain([pair[0] | 1])
            });
            let contents: [Vec<u8>; 5] = [
                runs.take(5_000).collect(),
                words.clone(),
                few.collect(),
                records.collect(),
                noise.collect(),
            ];
            for content in contents {
                for size in [size, 7 * size] {
                    let content = &content[..size.min(5_000)];
                    let mut params = Params::for_level(level, Some(content.len() as u64));
                    params.checksum = seed % 2 == 0;
                    let size = compressor.compress(&mut frame, content, &params).unwrap();
                    let mut exact = vec![0; size];
                    let written = compressor.compress(&mut exact, content, &params);
                    assert_eq!(written, Ok(size), "{params:?}, {content:?}");
                    assert!(exact == frame[..size], "{params:?}, {content:?}");
                }
            }
        }
    }
}

/// The frame in which indexes are lowered, in each of its blocks, is that of a fresh compressor: of
/// windows that slide, of content that is sorted, and after a dictionary.
#[test]
#[cfg_attr(miri, ignore = "takes hours")]
fn lowered_indexes_change_no_frame() {
    let content = structured(4, 200_000);
    let dictionary = structured(4, 30_000);
    let dictionary = Dictionary::new(&dictionary).unwrap();
    let chained = Params::for_level(12, Some(100_000)).with_window_log_max(15);
    // The safe twin of the searches lowers nothing itself.
    let levels = if cfg!(feature = "arch") {
        LEVELS
    } else {
        ONE_OF_EACH
    };
    let cases = levels.iter().flat_map(|&level| {
        let slides = Params::for_level(level, None).with_window_log_max(15);
        let one_window = Params::for_level(level, Some(200_000));
        [(slides, 100_000), (one_window, 200_000)]
    });
    let mut linked = Params::for_level(8, Some(100_000)).with_window_log_max(15);
    if let Strategy::Lazy(lazy) = &mut linked.strategy {
        lazy.chain_log = Some(15);
    }
    for (params, size) in cases.chain([(chained, 100_000), (linked, 100_000)]) {
        let content = &content[..size];
        let needed = crate::dictionary_workspace_size(&params, 30_000, size);
        for dictionary in [None, Some(dictionary)] {
            let encode = |compressor: &mut Compressor<&mut [u8]>| {
                let mut frame = vec![0; compress_bound(size)];
                let written = match &dictionary {
                    None => compressor.compress(&mut frame, content, &params),
                    Some(dictionary) => compressor
                        .compress_with_dictionary(&mut frame, content, &params, dictionary),
                };
                frame.truncate(written.unwrap());
                frame
            };
            let mut memory = vec![0; needed];
            let mut compressor = Compressor::new(&mut memory);
            let fresh = encode(&mut compressor);
            let index_max = FinderState::new(&params).index_max();
            // In the first block, in a later one, and in the second of two that are sorted
            // together.
            for before in [12_345, 60_000, 150_000] {
                // Not below what the last frame has used.
                let Some(index) = index_max.checked_sub(before).filter(|i| *i > 400_000) else {
                    continue;
                };
                let mut memory = vec![0; needed];
                let mut compressor = Compressor::new(&mut memory);
                encode(&mut compressor);
                compressor.skip_to(index);
                assert!(encode(&mut compressor) == fresh, "{params:?} at {before}");
                assert!(
                    encode(&mut compressor) == fresh,
                    "after {params:?} at {before}"
                );
            }
        }
    }
}

/// Pieces with a history, which other tables are for than a frame of one block.
#[test]
fn small_streams_of_every_strategy() {
    let content = structured(2, if cfg!(miri) { 1_500 } else { 20_000 });
    let dictionary = structured(3, 300);
    for params in strategies() {
        let raw = Dictionary::new(&dictionary).unwrap();
        let mut memory = vec![0; EncoderDictionary::size(&params)];
        let prepared = EncoderDictionary::new(raw, &params, &mut memory).unwrap();
        let mut frames = [vec![], vec![]];
        for (made_ready, frame) in frames.iter_mut().enumerate() {
            let mut workspace = vec![0x5a; stream_workspace_size(&params)];
            let mut encoder = Encoder::new(&params, &mut workspace).unwrap();
            if made_ready == 1 {
                encoder.set_prepared(&prepared).unwrap();
            } else {
                encoder.set_dictionary(Some(raw)).unwrap();
            }
            let mut output = vec![0; compress_bound(content.len())];
            let pieces = content.chunks(700);
            let last = pieces.len() - 1;
            for (i, piece) in pieces.enumerate() {
                let finish = match i {
                    _ if i == last => Finish::Frame,
                    0 => Finish::Block,
                    _ => Finish::Nothing,
                };
                let progress = encoder.step(piece, &mut output, finish).unwrap();
                assert_eq!((progress.read, progress.held), (piece.len(), 0));
                frame.extend_from_slice(&output[..progress.written]);
            }
        }
        check(&frames[0], &content, &dictionary, &params);
        assert!(frames[0] == frames[1], "{params:?}");
    }
}
