//! A dictionary whose Huffman table has codes of 12 bits: the C library takes it to encode and to
//! decode, and so do we.

use crate::assemble::{BlockType, Header, Huffman, Literals, block};
use crate::doors::{DOORS, Input};
use crate::encode_stream::{check, trained};
use testkit::Rng;
use zstd::{
    Compressor, Dictionary, Encoder, EncoderDictionary, Finish, Frame, Params, compress_bound,
    compress_with_dictionary, stream_workspace_size,
};
use zstd_safe::{CCtx, CParameter};

/// A trained dictionary with another Huffman table, of all bytes.
fn dictionary() -> (Vec<u8>, Huffman) {
    let trained = trained();
    let (head, rest) = trained.split_at(8);
    let table = match rest[0] {
        header @ 128.. => 1 + (usize::from(header) - 127).div_ceil(2),
        header => 1 + usize::from(header),
    };
    let mut frequencies = [1; 256];
    for letter in LETTERS {
        frequencies[usize::from(letter)] = 2000;
    }
    let huffman = Huffman::for_symbols(&frequencies, 12);
    let description = huffman.describe();
    let bytes = [head, &description[..], &rest[table..]].concat();
    (bytes, huffman)
}

/// What content is made of: of bytes far apart, so that a description of their codes is long.
const LETTERS: [u8; 30] = {
    let mut letters = [0; 30];
    let mut at = 0;
    while at < 30 {
        letters[at] = 8 * at as u8 + 3;
        at += 1;
    }
    letters
};

/// Letters, and now and then some of those before.
fn text(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut text: Vec<u8> = Vec::new();
    while text.len() < len {
        if text.len() > 20 && rng.chance(60) {
            let from = rng.index(text.len() - 8);
            text.extend_from_within(from..from + 8);
        } else {
            text.push(LETTERS[rng.index(30)]);
        }
    }
    text.truncate(len);
    text
}

/// How the first block's literals are stored.
fn literals_of(frame: &[u8]) -> Option<u8> {
    let Ok(Frame::Zstd(header)) = Frame::parse(frame) else {
        panic!("that is no frame")
    };
    let block = &frame[header.size..];
    (block[0] >> 1 & 3 == 2).then(|| block[3] & 3)
}

#[test]
fn a_dictionary_with_a_huffman_table_of_12_bits() {
    const TREELESS: u8 = 3;
    let rng = &mut Rng::new(3);
    let mut c = CCtx::create();
    let (bytes, _) = dictionary();
    {
        let mut treeless = 0;
        for case in 0..32_u64 {
            let content = text(rng, [30, 200, 600, 1300][case as usize % 4]);
            // By C, through every door.
            c.set_parameter(CParameter::CompressionLevel(1 + rng.below(7) as i32))
                .unwrap();
            c.load_dictionary(&bytes).unwrap();
            let mut frame = vec![0; 2 * content.len() + 100];
            let n = c.compress2(&mut frame[..], &content).unwrap();
            frame.truncate(n);
            treeless += usize::from(literals_of(&frame) == Some(TREELESS));
            for (door, decode) in DOORS {
                let input = Input {
                    dictionary: Some(&bytes),
                    ..Input::new(&frame, content.len() + rng.index(40))
                };
                let got = decode(&input);
                assert!(got.as_ref() == Ok(&content), "{case}, {door}");
                // Less room than content, and damage: no door may do more than refuse.
                let mut damaged = frame.clone();
                let at = rng.index(damaged.len());
                damaged[at] ^= 1 << rng.below(8);
                let _ = decode(&Input {
                    bytes: &damaged,
                    capacity: rng.index(content.len() + 1),
                    ..input
                });
            }
            // By us, for C.
            let params = Params::for_level_with_dictionary(3, Some(3000), bytes.len());
            let dictionary = Dictionary::new(&bytes).unwrap();
            let mut workspace = vec![0x3c; stream_workspace_size(&params)];
            let mut frame = vec![0; compress_bound(content.len())];
            let n = compress_with_dictionary(
                &mut frame,
                &content,
                &params,
                &dictionary,
                &mut workspace,
            );
            frame.truncate(n.unwrap());
            check("at once", &frame, &content, &bytes);
            let mut memory = vec![0x5a; EncoderDictionary::size(&params)];
            let prepared = EncoderDictionary::new(dictionary, &params, &mut memory).unwrap();
            assert!(prepared.has_entropy());
            let mut again = vec![0; compress_bound(content.len())];
            let n = Compressor::new(&mut workspace)
                .compress_with_prepared(&mut again, &content, &prepared)
                .unwrap();
            assert!(frame == again[..n], "{case}");
            let mut encoder = Encoder::new(&params, &mut workspace).unwrap();
            encoder.set_prepared(&prepared).unwrap();
            encoder.reset(Some(content.len() as u64));
            let done = encoder.step(&content, &mut again, Finish::Frame).unwrap();
            assert!(frame == again[..done.written], "{case}");
        }
        assert!(treeless > 3, "{treeless} without a table");
    }
}

/// One stream and four, of every size format, through every door and by C; with all symbols, so
/// that the longest codes are among them.
#[test]
fn blocks_with_codes_of_12_bits() {
    let (bytes, huffman) = dictionary();
    let rng = &mut Rng::new(4);
    for case in 0..32 {
        let format = (case % 4) as u8;
        let len = [400, 500, 5000, 60_000][case % 4] + rng.index(100);
        let content: Vec<u8> = match case / 4 % 2 {
            0 => text(rng, len),
            _ => rng.bytes(len).iter().map(|byte| byte & 0x7f).collect(),
        };
        let literals = Literals::Treeless {
            format,
            huffman: huffman.clone(),
            bytes: content.clone(),
        };
        let body = [literals.bytes(), vec![0]].concat();
        let last = block(true, BlockType::Compressed, body.len(), &body);
        let frame = [Header::window(7).bytes(), last].concat();
        check("by hand", &frame, &content, &bytes);
        for (door, decode) in DOORS {
            for capacity in [content.len(), content.len() + 70] {
                let got = decode(&Input {
                    dictionary: Some(&bytes),
                    ..Input::new(&frame, capacity)
                });
                assert!(got.as_ref() == Ok(&content), "{case}, {door}");
            }
        }
    }
}
