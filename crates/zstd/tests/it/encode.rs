//! Frames that we make, decoded by the C library.

use testkit::cases;
use zstd::{Compressor, LEVEL_MAX, LEVEL_MIN, Params, compress_bound, workspace_size};

/// Numbers that look random, the same every time.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((self.next() >> 33) % bound.max(1) as u64) as usize
    }
}

/// Words of a small vocabulary, copies from before, noise and runs, `size` bytes of them.
pub(crate) fn mixture(seed: u64, size: usize) -> Vec<u8> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9) | 1);
    let mut data: Vec<u8> = Vec::with_capacity(size + 64);
    let words = [
        "inode",
        "struct ",
        "\n\t",
        "return ",
        "0x",
        "(void)",
        "static int ",
        "block",
        ";\n",
    ];
    while data.len() < size {
        match random.below(8) {
            0..=3 => data.extend_from_slice(words[random.below(words.len())].as_bytes()),
            4 | 5 if !data.is_empty() => {
                let from = random.below(data.len());
                let length = 3 + random.below(40);
                for i in from..from + length {
                    data.push(data[i]);
                }
            }
            6 => {
                for _ in 0..random.below(20) {
                    data.push(random.next() as u8);
                }
            }
            _ => {
                let byte = random.next() as u8;
                data.extend(core::iter::repeat_n(byte, random.below(60)));
            }
        }
    }
    data.truncate(size);
    data
}

/// Content that is hard in some way, by name.
pub(crate) fn hard(size: usize) -> Vec<(String, Vec<u8>)> {
    let mut random = Random(7);
    let noise: Vec<u8> = (0..size).map(|_| random.next() as u8).collect();
    let mut rare = vec![b' '; size];
    for (i, byte) in rare.iter_mut().enumerate() {
        *byte = b"etaoin shrdlu"[(noise[i] as usize) % 13];
    }
    if let Some(byte) = rare.get_mut(size / 2) {
        *byte = 0xff;
    }
    let mut runs = Vec::new();
    while runs.len() < size {
        let byte = random.next() as u8;
        runs.extend(core::iter::repeat_n(byte, 1 + random.below(5000)));
    }
    runs.truncate(size);
    let mut all = vec![
        ("zeros".into(), vec![0; size]),
        ("noise".into(), noise.clone()),
        ("rare".into(), rare),
        ("runs".into(), runs),
        (
            "each byte once".into(),
            (0..size.min(256)).map(|i| i as u8).collect(),
        ),
        ("mixture".into(), mixture(size as u64, size)),
        ("few symbols".into(), noise.iter().map(|b| b & 3).collect()),
    ];
    let skewed = noise
        .iter()
        .map(|b| b.leading_zeros() as u8 ^ (b & 1))
        .collect();
    all.push(("skewed".into(), skewed));
    all
}

#[track_caller]
fn check(name: &str, frame: &[u8], content: &[u8]) {
    let mut back = vec![0; content.len()];
    match zstd_safe::decompress(&mut back[..], frame) {
        Ok(n) => assert!(
            n == content.len() && back == content,
            "{name}: content differs"
        ),
        Err(code) => panic!("{name}: {}", zstd_safe::get_error_name(code)),
    }
}

#[track_caller]
fn round_trip(name: &str, content: &[u8], params: &Params, workspace: &mut Vec<u8>) -> Vec<u8> {
    let need = workspace_size(params);
    if workspace.len() < need {
        workspace.resize(need, 0xa5);
    }
    let mut frame = vec![0; compress_bound(content.len())];
    let n = Compressor::new(&mut workspace[..need])
        .compress(&mut frame, content, params)
        .unwrap_or_else(|e| panic!("{name}: {e}"));
    frame.truncate(n);
    check(name, &frame, content);
    frame
}

#[test]
fn c_decodes_all_small_lengths() {
    let data = mixture(3, 2000);
    let mut workspace = Vec::new();
    for level in [-7, 1, 3, 5, 7, 9, 12, 15, 19] {
        for length in 0..=2000 {
            let params = Params::for_level(level, Some(length as u64));
            let name = format!("level {level}, length {length}");
            round_trip(&name, &data[..length], &params, &mut workspace);
        }
    }
}

#[test]
fn c_decodes_hard_content_at_every_level() {
    let mut workspace = Vec::new();
    for size in [255, 1024, 16384, 16385, 131_072, 131_073, 300_000] {
        for (kind, content) in hard(size) {
            for level in LEVEL_MIN..=LEVEL_MAX {
                if size > 20_000 && level % 3 == 2 || level > 12 && size > 140_000 {
                    continue;
                }
                let params = Params::for_level(level, Some(content.len() as u64));
                let name = format!("level {level}, {kind}, size {size}");
                round_trip(&name, &content, &params, &mut workspace);
            }
        }
    }
}

#[test]
fn c_decodes_every_period() {
    let mut workspace = Vec::new();
    let mut random = Random(99);
    for period in 1..=600 {
        let unit: Vec<u8> = (0..period).map(|_| random.next() as u8).collect();
        let content: Vec<u8> = unit.iter().copied().cycle().take(3000 + period).collect();
        for level in [-3, 1, 3, 6, 9, 13] {
            let params = Params::for_level(level, Some(content.len() as u64));
            round_trip(
                &format!("period {period}, level {level}"),
                &content,
                &params,
                &mut workspace,
            );
        }
    }
}

/// Lines of uuencode: letters that take six bits each, and a short match between lines, which saves
/// next to nothing.
pub(crate) fn uuencoded(size: usize) -> Vec<u8> {
    let mut random = Random(11);
    let mut lines = Vec::new();
    while lines.len() < size {
        lines.push(b'M');
        lines.extend((0..60).map(|_| b' ' + (random.next() >> 16) as u8 % 64));
        lines.push(b'\n');
    }
    lines.truncate(size);
    lines
}

/// Most positions of what hardly compresses are passed without a look: repeats of it are found
/// nevertheless.
#[test]
fn repeats_in_noise_are_found() {
    let mut workspace = Vec::new();
    let mut random = Random(7);
    let noise: Vec<u8> = (0..120_000).map(|_| random.next() as u8).collect();
    for (kind, bits) in [(noise, 8.0), (uuencoded(120_000), 6.1)] {
        for (size, gap, length) in [(14_000, 1800, 100), (110_000, 5000, 300)] {
            let (first, rest) = kind[..size].split_at(size / 2);
            let mut content = first.to_vec();
            for (i, piece) in rest.chunks(gap).enumerate() {
                content.extend(piece);
                content.extend(&first[977 * i..][..length]);
            }
            // Up to 50 bytes of each repeat may be lost.
            let repeats = rest.len().div_ceil(gap);
            let bound = ((size + 50 * repeats) as f64 * bits / 8.0) as usize;
            for level in [13, 15, 16, 19] {
                let params = Params::for_level(level, Some(content.len() as u64));
                let name = format!("level {level}, {size} bytes of {bits} bits");
                let frame = round_trip(&name, &content, &params, &mut workspace);
                assert!(frame.len() < bound, "{name}: {} of {bound}", frame.len());
            }
        }
    }
}

#[test]
fn header_flags_in_all_combinations() {
    let mut workspace = Vec::new();
    for size in [0, 1, 255, 256, 257, 65_791, 65_792, 66_000] {
        let content = mixture(5, size);
        for flags in 0..4 {
            let mut params = Params::for_level(1, Some(size as u64));
            params.content_size = flags & 1 != 0;
            params.checksum = flags & 2 != 0;
            round_trip(
                &format!("size {size}, flags {flags}"),
                &content,
                &params,
                &mut workspace,
            );
        }
    }
}

#[test]
fn a_frame_does_not_depend_on_what_was_in_the_workspace() {
    for level in [-5, 1, 3, 5, 8, 13] {
        let params = Params::for_level(level, Some(131_072));
        let mut workspace = vec![0; workspace_size(&params)];
        let content = mixture(11, 131_072);
        let mut fresh = vec![0; compress_bound(content.len())];
        let n = zstd::compress(&mut fresh, &content, &params, &mut workspace).unwrap();
        fresh.truncate(n);
        // Garbage, and other alignments.
        let mut random = Random(level.unsigned_abs().into());
        for shift in [0, 1, 63] {
            let mut dirty: Vec<u8> = (0..workspace.len() + shift)
                .map(|_| random.next() as u8)
                .collect();
            let mut again = vec![0; fresh.len()];
            let n = zstd::compress(&mut again, &content, &params, &mut dirty[shift..]).unwrap();
            assert_eq!(again[..n], fresh[..], "level {level}");
        }
        // Other frames before, of other sizes and levels.
        let mut compressor = Compressor::new(&mut workspace);
        for seed in 0..6 {
            let mut frame = vec![0; compress_bound(content.len())];
            let other = mixture(seed, 1 + random.below(100_000));
            let small = Params::for_level(level, Some(other.len() as u64));
            let params = if seed % 2 == 0 { &params } else { &small };
            compressor.compress(&mut frame, &other, params).unwrap();
        }
        let mut again = vec![0; fresh.len()];
        let n = compressor.compress(&mut again, &content, &params).unwrap();
        assert_eq!(again[..n], fresh[..], "level {level}, after other frames");
    }
}

#[test]
fn a_small_destination_is_refused_and_never_overrun() {
    for level in [-5, 1, 3, 5, 13] {
        let content = mixture(21, 6000);
        let params = Params::for_level(level, Some(6000));
        let mut workspace = vec![0; workspace_size(&params)];
        let frame = round_trip("whole", &content, &params, &mut workspace);
        let mut buffer = vec![0; frame.len() + 64];
        for capacity in 0..frame.len() + 32 {
            buffer.fill(0x5c);
            let result = zstd::compress(&mut buffer[..capacity], &content, &params, &mut workspace);
            assert!(
                buffer[capacity..].iter().all(|b| *b == 0x5c),
                "level {level}, {capacity}"
            );
            match result {
                Ok(n) => check("fits", &buffer[..n], &content),
                Err(e) => {
                    assert_eq!(e, zstd::Error::DstSizeTooSmall);
                    assert!(capacity < frame.len(), "level {level}: {capacity} would do");
                }
            }
        }
    }
}

/// What was seen before it was coded to be too large would have been so.
#[test]
fn a_frame_is_refused_only_where_it_does_not_fit() {
    let mut random = Random(0x0e2b_1600);
    for case in 0..cases(300) {
        let size = 1 + random.below(if case % 50 == 0 { 200_000 } else { 4000 });
        let mut content = mixture(random.next(), size);
        if case % 3 == 0 {
            // Few matches, and literals that are just worth a table.
            let bits = 5 + random.below(4);
            let skew = random.next() as u8;
            content.fill_with(|| {
                let byte = (random.next() as u8) >> (8 - bits);
                if random.below(8) == 0 { skew } else { byte }
            });
        }
        if case % 3 == 1 {
            // Hardly anything but offsets.
            let words = mixture(random.next(), 2000);
            for place in content.chunks_mut(6) {
                place.copy_from_slice(&words[random.below(1900)..][..place.len()]);
            }
        }
        let level = LEVEL_MIN + random.below((LEVEL_MAX - LEVEL_MIN + 1) as usize) as i32;
        let params = Params::for_level(level, Some(size as u64));
        let mut workspace = vec![0; workspace_size(&params)];
        let mut compressor = Compressor::new(&mut workspace);
        let mut frame = vec![0; compress_bound(size)];
        let whole = compressor.compress(&mut frame, &content, &params).unwrap();
        // After these, only the frame's length and a byte less.
        let (near, parts) = match case {
            300.. => (1, 0),
            _ if size > 4000 => (5, 16),
            _ => (40, 16),
        };
        let mut buffer = vec![0; frame.len()];
        for capacity in (whole.saturating_sub(near)..whole + near)
            .chain((1..parts).map(|part| size * part / 16))
            .filter(|capacity| *capacity <= frame.len())
        {
            let got = compressor.compress(&mut buffer[..capacity], &content, &params);
            let name = format!("case {case}, level {level}, {size} to {whole} bytes, {capacity}");
            if capacity < whole {
                assert_eq!(got, Err(zstd::Error::DstSizeTooSmall), "{name}");
            } else {
                assert_eq!(got, Ok(whole), "{name}");
                assert!(buffer[..whole] == frame[..whole], "{name}");
            }
        }
    }
}

/// Also where indexes are lowered, at 3 GiB of content. The cases are MiB: most of them zeros,
/// which take little time.
#[test]
fn a_reused_compressor_makes_the_frames_of_a_fresh_one() {
    const SIZE: usize = 256 << 10;
    const NEAR_LIMIT: u64 = (3 << 30) - (8 << 20);
    let contents: Vec<Vec<u8>> = (0..3).map(|seed| mixture(seed, SIZE)).collect();
    let mut workspace = Vec::new();
    for level in [1, 3, 5, 12, 17, 19] {
        let params = Params::for_level(level, Some(SIZE as u64));
        let fresh: Vec<Vec<u8>> = (contents.iter())
            .map(|content| round_trip("fresh", content, &params, &mut workspace))
            .collect();
        let mut memory = vec![0; workspace_size(&params)];
        let mut compressor = Compressor::new(&mut memory);
        let mut frame = vec![0; compress_bound(SIZE)];
        for number in 0..4 * cases(16) {
            let before = number * SIZE as u64;
            if number % 32 != 0 && before < NEAR_LIMIT {
                compressor
                    .compress(&mut frame, &[0; SIZE], &params)
                    .unwrap();
                continue;
            }
            let which = (number / 32 + number) as usize % contents.len();
            let size = compressor.compress(&mut frame, &contents[which], &params);
            assert!(
                frame[..size.unwrap()] == fresh[which],
                "level {level}, after {before} bytes"
            );
        }
    }
}

/// As in a table of inodes. Every byte value occurs among the literals, some seldom and some often;
/// a code with the fewest bits that can distinguish all of them would ignore that.
#[test]
fn records_that_differ_in_few_bytes_are_no_larger_than_those_of_c() {
    let mut content = Vec::new();
    for number in 0..256_u32 {
        content.extend_from_slice(b"\x02\x00\xa4\x01\0\0\0\0\x5c\xfe\x01\x6b");
        content.extend_from_slice(&(number + 1000).to_le_bytes());
        content.extend_from_slice(&[0; 8]);
        content.extend_from_slice(&(number * 64).to_le_bytes());
        content.extend_from_slice(&64_u32.to_le_bytes());
    }
    let mut workspace = Vec::new();
    for level in [1, 3, 5, 9, 12, 15, 19, 22] {
        let params = Params::for_level(level, Some(content.len() as u64));
        let ours = round_trip("records", &content, &params, &mut workspace).len();
        let mut frame = vec![0; compress_bound(content.len())];
        let theirs = zstd_safe::compress(&mut frame[..], &content, level).unwrap();
        assert!(ours <= theirs, "level {level}: {ours}, and C's {theirs}");
    }
}

/// A part of a block that is stored has matches of which a decoder learns nothing: what follows
/// must not name their offsets.
#[test]
fn a_stored_part_takes_its_offsets_along() {
    let mut random = Random(0x51ed);
    let mut content = Vec::new();
    while content.len() < 128 << 10 {
        let n = content.len();
        let noise = (32 << 10..96 << 10).contains(&n);
        if n > 2000 && n % if noise { 1500 } else { 300 } == 0 {
            content.extend_from_within(n - 1000..n - 984);
        }
        content.push(if noise {
            random.next() as u8
        } else {
            b'a' + random.below(16) as u8
        });
    }
    content.truncate(128 << 10);
    let mut workspace = Vec::new();
    for level in [3, 4, 5, 6, 7, 8, 9, 10] {
        let params = Params::for_level(level, Some(content.len() as u64));
        let frame = round_trip(&format!("level {level}"), &content, &params, &mut workspace);
        // The kinds of its blocks, behind a header of nine bytes.
        let (mut kinds, mut at) = (Vec::new(), 9);
        while at < frame.len() {
            let head = u32::from_le_bytes([frame[at], frame[at + 1], frame[at + 2], 0]);
            kinds.push(head >> 1 & 3);
            at += 3 + (head >> 3) as usize;
        }
        let stored = kinds.windows(2).any(|pair| pair == [0, 2]);
        assert!(stored, "level {level}: {kinds:?}");
    }
}

/// C and our decoder give the content back, and the frame is the same whatever the workspace held.
///
/// A million of them: `cargo xtask campaign zstd-small-inputs`.
#[test]
fn random_structured_inputs() {
    let mut workspace = Vec::new();
    #[cfg(feature = "decompress")]
    let mut decoding = zstd::Workspace::<{ zstd::DECOMPRESS_WORKSPACE_SIZE }>::new();
    let mut random = Random(0x1234_5678);
    for case in 0..cases(3000) {
        let size = random.below(if case % 50 == 0 { 200_000 } else { 3000 });
        let content = mixture(random.next(), size);
        let level = LEVEL_MIN + random.below((LEVEL_MAX - LEVEL_MIN + 1) as usize) as i32;
        let mut params = Params::for_level(level, (random.below(2) == 0).then_some(size as u64))
            .with_window_log_max(10 + random.below(9) as u8);
        params.content_size = random.below(2) == 0;
        params.checksum = random.below(2) == 0;
        let name = format!("case {case}, level {level}, size {size}, {params:?}");
        let frame = round_trip(&name, &content, &params, &mut workspace);
        // What the last frame left, and its mirror image.
        workspace[..workspace_size(&params)].reverse();
        let again = round_trip(&name, &content, &params, &mut workspace);
        assert!(again == frame, "{name}");
        #[cfg(feature = "decompress")]
        {
            let mut back = vec![0; size];
            let read = zstd::decompress(&mut back, &frame, &mut decoding);
            assert!(read == Ok(size) && back == content, "{name}");
        }
    }
}

#[test]
fn workspace_grows_with_level_and_size() {
    let sizes = [
        0,
        1,
        1000,
        16384,
        16385,
        131_072,
        131_073,
        262_144,
        262_145,
        1 << 20,
        1 << 30,
    ];
    for pair in sizes.windows(2) {
        for level in LEVEL_MIN..=LEVEL_MAX {
            let size = |level, size| zstd::workspace_size_up_to(level, Some(size));
            assert!(
                size(level, pair[0]) <= size(level, pair[1]),
                "level {level}, {pair:?}"
            );
            for size in pair {
                let params = Params::for_level(level, Some(*size));
                assert!(workspace_size(&params) <= zstd::workspace_size_up_to(level, Some(*size)));
            }
            if level < LEVEL_MAX && level != 0 && level + 1 != 0 {
                assert!(
                    size(level, pair[1]) <= size(level + 1, pair[1]),
                    "level {level}, {pair:?}"
                );
            }
        }
    }
}

/// The table of the crate's documentation.
#[test]
fn workspaces_are_as_large_as_documented() {
    let documented: [(i32, [usize; 3]); 12] = [
        (-5, [201, 249, 249]),
        (1, [313, 318, 254]),
        (2, [313, 318, 446]),
        (3, [446, 702, 958]),
        (4, [446, 870, 2238]),
        (6, [546, 1518, 2814]),
        (10, [553, 1525, 10_597]),
        (12, [1894, 1902, 10_974]),
        (15, [2039, 3575, 6647]),
        (16, [2039, 5623, 8695]),
        (19, [2042, 8357, 21_669]),
        (22, [2042, 8357, 21_669]),
    ];
    for (level, kib) in documented {
        let found = [128, 256, 1024].map(|size| {
            let params = Params::for_level(level, Some(size << 10));
            workspace_size(&params).div_ceil(1024)
        });
        assert_eq!(found, kib, "level {level}");
    }
}
