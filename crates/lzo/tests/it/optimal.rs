//! The slow encoder: how short its streams are, and each form of its instructions up to its limits.

use crate::property::naive;
use crate::{Random, pack_at, unpack};
use testkit::cases;

/// The length of the shortest stream, by trying every match at every position. Slow, and without
/// the step from one to two bytes for the length of a run: contents are shorter than that.
fn shortest(content: &[u8]) -> usize {
    const NEVER: usize = usize::MAX / 2;
    let len = content.len();
    // By position, the least price behind a match, and with each number of literals since.
    let mut prices = vec![[NEVER; 240]; len + 1];
    prices[0][0] = 0;
    let mut has_match = vec![false; len + 1];
    for at in 0..=len {
        let here = prices[at];
        for (literals, &price) in here.iter().enumerate().filter(|(_, price)| **price < NEVER) {
            if at < len && literals + 1 < 240 {
                let is_first = !has_match[at - literals] && at == literals;
                let more = match literals {
                    0 if is_first => 2,
                    _ if is_first => 1,
                    3 => 2,
                    18 => 2,
                    _ => 1,
                };
                let next = &mut prices[at + 1][literals + 1];
                *next = (*next).min(price + more);
            }
            for distance in 1..=at {
                let pairs = content[at..].iter().zip(&content[at - distance..]);
                let longest = pairs.take_while(|(a, b)| a == b).count();
                for match_len in 2..=longest {
                    let Some(bytes) = price_of(distance, match_len, literals) else {
                        continue;
                    };
                    has_match[at + match_len] = true;
                    let next = &mut prices[at + match_len][0];
                    *next = (*next).min(price + bytes);
                }
            }
        }
    }
    prices[len].iter().min().unwrap() + 3
}

/// The bytes of a match, if there is such an instruction.
fn price_of(distance: usize, len: usize, literals: usize) -> Option<usize> {
    let long = |bits: usize| {
        if len - 2 <= bits {
            3
        } else {
            4 + (len - 2 - bits - 1) / 255
        }
    };
    match (distance, len) {
        (..=1024, 2) if (1..=3).contains(&literals) => Some(2),
        (_, 2) => None,
        (2049..=3072, 3) if literals > 3 => Some(2),
        (..=2048, ..=8) => Some(2),
        (..=16384, _) => Some(long(31)),
        (..=49151, _) => Some(long(7)),
        _ => None,
    }
}

#[test]
fn short_contents_are_as_short_as_they_can_be() {
    let mut random = Random(0x0123_4567_89ab_cdef);
    let (mut ours, mut least, mut equal) = (0, 0, 0);
    let count = cases(60);
    for case in 0..count {
        let content = random.content(220);
        let (packed, shortest) = (pack_at(9, &content).len(), shortest(&content));
        assert!(packed >= shortest, "case {case}: {packed} of {shortest}");
        ours += packed;
        least += shortest;
        equal += usize::from(packed == shortest);
    }
    // The search in a chain ends, and hashes collide.
    assert!(ours * 1000 <= least * 1004, "{ours} of {least}");
    assert!(equal * 100 >= count * 90, "{equal} of {count}");
}

/// Bytes without repetition, but for a few by chance.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random(seed);
    (0..len).map(|_| random.below(256) as u8).collect()
}

/// How many bytes a match saves: behind a match and literals, `len` bytes return from a distance,
/// and a match follows. The median of several contents: where hashes collide, a match is not found.
fn gain(distance: usize, len: usize, literals: usize) -> isize {
    let mut gains =
        [1, 2, 3, 4, 5].map(|seed| gain_in(noise(seed, 60_000), distance, len, literals));
    gains.sort_unstable();
    gains[2]
}

fn gain_in(mut content: Vec<u8>, distance: usize, len: usize, literals: usize) -> isize {
    let at = 55_000;
    let from = at - distance;
    let begin = at - literals - 40;
    content.copy_within(30_000..30_040, begin);
    content.copy_within(40_000..40_040, at + len);
    let without = pack_at(9, &content).len();
    content.copy_within(from..from + len, at);
    let packed = pack_at(9, &content);
    assert!(unpack(&packed, content.len()).as_ref() == Ok(&content));
    assert!(naive(&packed, content.len()).as_ref() == Some(&content));
    without as isize - packed.len() as isize
}

#[test]
fn each_form_is_used_up_to_its_limits() {
    // Literals cost one byte more starting at 4, two more starting at 19; up to three after a match
    // cost nothing.
    for (distance, len, literals, bytes) in [
        // Two bytes after 1 to 3 literals, for which two bytes suffice.
        (1024, 2, 3, 5 + 1 - 3 - 2),
        (1025, 2, 3, 0),
        (1024, 2, 1, 0),
        (1024, 2, 4, 0),
        // Three bytes after more.
        (2048, 3, 4, 1),
        (2049, 3, 4, 1),
        (3072, 3, 4, 1),
        (3073, 3, 4, 0),
        // Matches in two bytes, in three, and with a byte of length.
        (2048, 3, 0, 3 - 2),
        (2049, 3, 0, 0),
        (2048, 8, 0, 8 + 1 - 2),
        (2048, 9, 0, 9 + 1 - 3),
        (2049, 8, 0, 8 + 1 - 3),
        (2048, 33, 0, 33 + 2 - 3),
        (2048, 34, 0, 34 + 2 - 4),
        (16_384, 33, 0, 33 + 2 - 3),
        (16_384, 34, 0, 34 + 2 - 4),
        (16_385, 9, 0, 9 + 1 - 3),
        (16_385, 10, 0, 10 + 1 - 4),
        (32_768, 9, 0, 9 + 1 - 3),
        (49_151, 9, 0, 9 + 1 - 3),
        (49_151, 255, 0, 255 + 2 - 4),
        (49_152, 40, 0, 0),
        // So long that it is used without any search for another way: 282 literals cost three bytes
        // more.
        (2048, 288, 0, 288 + 3 - 4),
        (2048, 289, 0, 289 + 3 - 5),
        (49_151, 264, 0, 264 + 2 - 4),
        (49_151, 265, 0, 265 + 2 - 5),
    ] {
        let got = gain(distance, len, literals);
        assert_eq!(
            got, bytes,
            "{len} bytes, {distance} back, {literals} literals"
        );
    }
}

/// What the encoder must not do when no match is found: the longest streams are those of noise.
#[test]
fn noise_has_at_most_the_documented_length() {
    for len in [
        0, 1, 3, 4, 17, 18, 238, 239, 273, 274, 4096, 16_384, 16_385, 200_000,
    ] {
        let content = noise(7, len);
        for level in [2, 9] {
            let packed = pack_at(level, &content);
            assert!(packed.len() <= lzo::compressed_len_max(len), "{len}");
            assert!(unpack(&packed, len).as_ref() == Ok(&content), "{len}");
        }
    }
}

/// Long matches end chunks, in any place of a chunk and of their own.
#[test]
fn runs_and_long_matches_of_every_length() {
    for len in (240..300).chain(16_370..16_400).chain([70_000, 1 << 20]) {
        let content = [&b"ab"[..], &vec![7; len], b"cdefgh"].concat();
        let packed = pack_at(8, &content);
        assert!(
            unpack(&packed, content.len()).as_ref() == Ok(&content),
            "{len}"
        );
        // First byte and literals, the match, a run and the end.
        let longest = 4 + 5 + (len / 255) + 7 + 3;
        assert!(packed.len() <= longest, "{len}: {}", packed.len());
    }
}

/// The streams depend on nothing but input and level.
#[test]
fn a_used_workspace_changes_nothing() {
    let mut random = Random(31);
    let mut used = Box::new(lzo::OptimalWorkspace::new());
    for _ in 0..cases(60) {
        let content = random.content(150_000);
        let mut packed = vec![0; lzo::compressed_len_max(content.len())];
        let len = lzo::compress_optimal(&mut packed, &content, 7, &mut used).unwrap();
        assert!(packed[..len] == pack_at(7, &content));
    }
}

#[test]
fn destinations_of_every_size() {
    let mut random = Random(17);
    let mut workspace = Box::new(lzo::OptimalWorkspace::new());
    for _ in 0..cases(40) {
        let content = random.content(700);
        let packed = pack_at(9, &content);
        for room in 0..packed.len() + 3 {
            let mut dst = vec![0; room];
            let len = lzo::compress_optimal(&mut dst, &content, 9, &mut workspace);
            if room < packed.len() {
                assert_eq!(len, None);
            } else {
                assert_eq!(len, Some(packed.len()));
                assert!(dst[..packed.len()] == packed);
            }
        }
    }
}

#[test]
fn the_workspace_has_the_size_that_is_documented() {
    assert_eq!(size_of::<lzo::OptimalWorkspace>(), 362 << 10);
}

/// Levels that do not exist count as the nearest.
#[test]
fn levels_end_at_nine() {
    let content = Random(5).content(100_000);
    assert!(pack_at(0, &content) == pack_at(2, &content));
    assert!(pack_at(200, &content) == pack_at(9, &content));
}

/// The lengths of all levels, from 2 to 9.
#[test]
fn sizes() {
    let mut random = Random(0x512e);
    let mut sizes = [0; 8];
    for _ in 0..20 {
        let content = random.content(200_000);
        for (level, size) in (2..=9).zip(&mut sizes) {
            *size += pack_at(level, &content).len();
        }
    }
    let expected = [42901, 41553, 40420, 39920, 39705, 39536, 38102, 37401];
    assert_eq!(sizes, expected);
}
