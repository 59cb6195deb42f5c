//! Round trips, and a slow decoder that is the definition.

use crate::{Random, pack, pack_at, unpack};
use testkit::cases;

/// The format's description, one byte at a time. `None` for whatever breaks it.
pub(crate) fn naive(src: &[u8], limit: usize) -> Option<Vec<u8>> {
    let mut src = src.iter().map(|&byte| usize::from(byte));
    let mut out: Vec<u8> = Vec::new();
    fn long(src: &mut impl Iterator<Item = usize>, bits: usize) -> Option<usize> {
        let mut len = bits;
        loop {
            match src.next()? {
                0 => len += 255,
                last => return Some(len + last),
            }
        }
    }
    let mut state = 0;
    let mut pending = None;
    match src.next()? {
        first @ 18.. => {
            for _ in 0..first - 17 {
                out.push(src.next()? as u8);
            }
            state = (first - 17).min(4);
            if out.len() > limit {
                return None;
            }
        }
        first => pending = Some(first),
    }
    loop {
        let first = match pending.take() {
            Some(first) => first,
            None => src.next()?,
        };
        let (len, distance, spare) = match first {
            0..16 if state == 0 => {
                let len = 3 + if first == 0 {
                    long(&mut src, 15)?
                } else {
                    first
                };
                for _ in 0..len {
                    out.push(src.next()? as u8);
                }
                state = 4;
                if out.len() > limit {
                    return None;
                }
                continue;
            }
            0..16 if state == 4 => (3, (src.next()? << 2) + (first >> 2) + 2049, first & 3),
            0..16 => (2, (src.next()? << 2) + (first >> 2) + 1, first & 3),
            16..64 => {
                let bits = if first < 32 { 7 } else { 31 };
                let len = 2 + if first & bits == 0 {
                    long(&mut src, bits)?
                } else {
                    first & bits
                };
                let word = src.next()? + (src.next()? << 8);
                let distance = (word >> 2)
                    + if first < 32 {
                        16_384 + ((first & 8) << 11)
                    } else {
                        1
                    };
                if first < 32 && distance == 16_384 {
                    return (len == 3 && word == 0 && src.next().is_none()).then_some(out);
                }
                (len, distance, word & 3)
            }
            64.. => (
                (first >> 5) + 1,
                (src.next()? << 3) + ((first >> 2) & 7) + 1,
                first & 3,
            ),
        };
        if out.len() + len > limit {
            return None;
        }
        for _ in 0..len {
            out.push(*out.get(out.len().checked_sub(distance)?)?);
        }
        for _ in 0..spare {
            out.push(src.next()? as u8);
        }
        state = spare;
        if out.len() > limit {
            return None;
        }
    }
}

#[test]
fn content_survives() {
    let mut random = Random(0x1234_5678_9abc_def1);
    for case in 0..cases(1500) {
        let content = random.content(match case % 50 {
            _ if cfg!(miri) => 1000,
            0 => 300_000,
            _ => 9000,
        });
        for level in [1, 2 + case as u8 % 8] {
            let packed = pack_at(level, &content);
            assert!(
                packed.len() <= lzo::compressed_len_max(content.len()),
                "case {case}, level {level}"
            );
            assert_eq!(
                unpack(&packed, content.len()).as_deref(),
                Ok(&content[..]),
                "case {case}, level {level}"
            );
            assert_eq!(
                naive(&packed, content.len()).as_deref(),
                Some(&content[..]),
                "case {case}, level {level}"
            );
        }
    }
}

#[test]
fn short_contents_of_every_length() {
    for len in 0..if cfg!(miri) { 40 } else { 600 } {
        for step in [0u32, 1, 7, 2_654_435_761] {
            let content: Vec<u8> = (0..len as u32)
                .map(|n| (n.wrapping_mul(step) >> 16) as u8)
                .collect();
            for level in [1, 9] {
                let packed = pack_at(level, &content);
                assert_eq!(
                    unpack(&packed, len).as_deref(),
                    Ok(&content[..]),
                    "{len} bytes, step {step}, level {level}"
                );
            }
        }
    }
}

/// With less room than it needs, the encoder gives `None` and never a cut stream.
#[test]
fn destinations_of_every_size() {
    let mut random = Random(99);
    for _ in 0..cases(40) {
        let content = random.content(if cfg!(miri) { 100 } else { 700 });
        let packed = pack(&content);
        let mut workspace = lzo::Workspace::new();
        for room in 0..packed.len() + 3 {
            let mut dst = vec![0; room];
            match lzo::compress(&mut dst, &content, &mut workspace) {
                Some(len) => {
                    assert!(room >= packed.len());
                    assert_eq!(dst[..len], packed);
                }
                None => assert!(
                    room < packed.len() + 2,
                    "{room} suffices for {}",
                    packed.len()
                ),
            }
        }
    }
}

/// Damaged streams: the decoder and its definition agree on which are whole, and on their content.
#[test]
fn damaged_streams_are_judged_alike() {
    let mut random = Random(4242);
    let mut still_whole = 0;
    let count = cases(20_000);
    for case in 0..count {
        let mut packed = pack(&random.content(300));
        for _ in 0..1 + random.below(3) {
            let at = random.below(packed.len());
            match random.below(3) {
                0 => packed[at] = random.below(256) as u8,
                1 => packed[at] ^= 1 << random.below(8),
                _ => {
                    packed.remove(at);
                    packed.push(0);
                }
            }
        }
        let limit = random.below(2000);
        let got = unpack(&packed, limit);
        assert_eq!(
            got.clone().ok(),
            naive(&packed, limit),
            "case {case}: {packed:?}"
        );
        still_whole += usize::from(got.is_ok());
    }
    assert!(
        still_whole >= count / 200,
        "the damage must not always be fatal: {still_whole}"
    );
}

/// Twenty bytes, zeros, and the same bytes `distance` later.
fn repeated(distance: usize, len: usize) -> Vec<u8> {
    let bytes: Vec<u8> = (0..len as u8).map(|i| 0x40 + 7 * i).collect();
    let zeros = vec![0; distance - len];
    let tail: Vec<u8> = (0..40_u8).map(|i| i.wrapping_mul(11) | 1).collect();
    [&[1], &*bytes, &*zeros, &*bytes, &*tail].concat()
}

/// The length of what a match at a distance is encoded to, beside that of the rest, which is the
/// same for neighbours.
fn packed_len(distance: usize, len: usize) -> usize {
    let content = repeated(distance, len);
    let packed = pack(&content);
    let back = unpack(&packed, content.len());
    assert_eq!(back.as_ref(), Ok(&content), "distance {distance}");
    packed.len()
}

#[test]
fn each_kind_of_match_reaches_as_far_as_the_format_lets_it() {
    // Short ones of two bytes, long ones of three, of four.
    assert_eq!(packed_len(2049, 8), packed_len(2048, 8) + 1);
    assert_eq!(packed_len(16385, 20), packed_len(16384, 20) + 1);
    // No match: twenty literals more in the run that follows.
    assert_eq!(packed_len(49152, 20), packed_len(49151, 20) + 16);
}

#[test]
fn longest_streams_have_the_length_that_is_documented() {
    for (len, max) in [
        (0, 16),
        (254, 270),
        (255, 272),
        (1000, 1019),
        (65536, 65809),
    ] {
        assert_eq!(lzo::compressed_len_max(len), max);
    }
}
