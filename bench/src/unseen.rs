//! Generated corpora of kinds that no table has, in two halves as those of `bench/corpora.md`:
//! parameters are chosen with the tuning half only, claims show the reporting half.
//!
//! A generator never changes: a figure names its corpus only.

use crate::generate::{LEN, Random, word};

type Generate = fn(&mut Random, &mut Vec<u8>);

/// Noise, members of an archive, a heap, sorted symbols, bitcode, time zones.
const TUNING: &[(&str, Generate)] = &[
    ("un-noise", noise),
    ("un-members", members),
    ("un-heap", heap),
    ("un-symbols", symbols),
    ("un-bitcode", bitcode),
    ("un-zones", zones),
];

/// Numbers, base64, 3D geometry, debugging information, medical images, a dictionary, residuals,
/// noise with repeats.
const REPORTING: &[(&str, Generate)] = &[
    ("un-numbers", numbers),
    ("un-base64", base64),
    ("un-geometry", geometry),
    ("un-dwarf", dwarf),
    ("un-medical", medical),
    ("un-dictionary", dictionary),
    ("un-residuals", residuals),
    ("un-repeats", repeats),
];

/// The corpora of a half by its name in the options, `unseen-tuning` or `unseen-reporting`.
pub(crate) fn half(name: &str) -> Option<impl Iterator<Item = (&'static str, Vec<u8>)>> {
    let half = match name {
        "unseen-tuning" => TUNING,
        "unseen-reporting" => REPORTING,
        _ => return None,
    };
    Some(half.iter().zip(0_u64..).map(|(&(name, generate), i)| {
        let mut random = Random(0xC0DE_0000 + 64 * i + name.len() as u64);
        let mut bytes = Vec::with_capacity(LEN + 8192);
        while bytes.len() < LEN {
            generate(&mut random, &mut bytes);
        }
        bytes.truncate(LEN);
        (name, bytes)
    }))
}

/// Encrypted data.
fn noise(random: &mut Random, out: &mut Vec<u8>) {
    out.extend_from_slice(&random.next().to_le_bytes());
}

/// Members of a zip archive: headers with similar names between compressed content.
fn members(random: &mut Random, out: &mut Vec<u8>) {
    out.extend_from_slice(b"PK\x03\x04\x14\0\0\0\x08\0");
    out.extend_from_slice(&(random.next() as u32).to_le_bytes());
    out.extend_from_slice(b"META-INF/classes/");
    word(random.skewed(512), out);
    out.extend_from_slice(b".class");
    for _ in 0..32 + random.skewed(1024) {
        noise(random, out);
    }
}

/// Measurements: doubles of which one byte in eight is foreseeable.
fn numbers(random: &mut Random, out: &mut Vec<u8>) {
    let fraction = random.next() >> 12;
    let exponent = 1023 + random.skewed(8) as u64;
    out.extend_from_slice(&(exponent << 52 | fraction).to_le_bytes());
}

/// Encrypted data in letters, as in a mail.
fn base64(random: &mut Random, out: &mut Vec<u8>) {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    out.extend((0..76).map(|_| LETTERS[random.below(64)]));
    out.extend_from_slice(b"\r\n");
}

/// Objects with headers, pointers to one another, small numbers, and strings.
fn heap(random: &mut Random, out: &mut Vec<u8>) {
    let words = 2 + random.skewed(16) as u64;
    out.extend_from_slice(&((words * 16) | 1).to_le_bytes());
    for _ in 0..words {
        let value = match random.below(8) {
            0..3 => 0,
            3..5 => {
                0x5555_5600_0000
                    + (out.len() - random.skewed(1 << 14).min(out.len())) as u64 / 16 * 16
            }
            5 => 0x7FFF_F7A0_0000 + 64 * random.skewed(64) as u64,
            6 => random.skewed(1 << 12) as u64,
            _ => random.next() >> (8 * random.below(8)),
        };
        out.extend_from_slice(&value.to_le_bytes());
    }
    if random.below(4) == 0 {
        word(random.skewed(4096), out);
        out.resize(out.len().next_multiple_of(16), 0);
    }
}

/// Vertices on a surface with their normals, and triangles.
fn geometry(random: &mut Random, out: &mut Vec<u8>) {
    let first = out.len() as u32 / 32;
    let (mut x, mut y) = (random.below(512) as f32, random.below(512) as f32);
    for _ in 0..64 {
        x += random.below(256) as f32 / 64.0;
        y += random.below(256) as f32 / 256.0 - 0.5;
        let normal = random.below(4096) as f32 / 4096.0;
        for part in [x, y, x * y / 512.0, normal, 1.0 - normal, 0.0] {
            out.extend_from_slice(&part.to_le_bytes());
        }
    }
    for i in first..first + 62 {
        for corner in [i, i + 1, i + 2 + random.below(2) as u32] {
            out.extend_from_slice(&corner.to_le_bytes());
        }
    }
}

/// Addresses and names in their order, as in `/proc/kallsyms`.
fn symbols(random: &mut Random, out: &mut Vec<u8>) {
    let index = out.len() as u64;
    let mut line = Vec::new();
    word(index as usize / 4096, &mut line);
    line.push(b'_');
    for _ in 0..1 + random.below(3) {
        word(random.skewed(1024), &mut line);
        line.push(b'_');
    }
    line.pop();
    let kind = [b't', b't', b't', b'T', b'd', b'r'][random.below(6)];
    let at = 0xFFFF_FFFF_8100_0000 + index * 16 + random.below(4) as u64 * 16;
    out.extend_from_slice(format!("{at:016x} {} ", char::from(kind)).as_bytes());
    if random.below(4) == 0 {
        out.extend_from_slice(b"__pfx_");
    }
    out.extend_from_slice(&line);
    out.push(b'\n');
}

/// Records of a few shapes, packed by bits as in LLVM's bitcode.
fn bitcode(random: &mut Random, out: &mut Vec<u8>) {
    const SHAPES: [&[u32]; 5] = [
        &[4, 6, 6],
        &[4, 6, 8, 1],
        &[4, 12, 6, 6],
        &[4, 6, 4, 4, 6],
        &[4, 20, 3],
    ];
    let (mut bits, mut n) = (0_u128, 0);
    while n < 96 {
        let shape = random.skewed(SHAPES.len());
        bits |= (shape as u128) << n;
        for width in SHAPES[shape] {
            bits |= (random.skewed(1 << width) as u128) << n;
            n += width;
        }
    }
    out.extend_from_slice(&bits.to_le_bytes()[..n.min(128) as usize / 8]);
}

/// Entries of DWARF: abbreviations, offsets of strings, lines, references to types.
fn dwarf(random: &mut Random, out: &mut Vec<u8>) {
    let at = out.len() as u32;
    for i in 0..1 + random.skewed(12) as u32 {
        out.push([4, 5, 13, 52][random.skewed(4)]);
        out.extend_from_slice(&(at / 3 + 14 * i + random.skewed(32) as u32).to_le_bytes());
        out.push(1 + random.skewed(4) as u8);
        out.extend_from_slice(&(at as u16 / 16 + i as u16).to_le_bytes());
        out.extend_from_slice(&(random.skewed(1 << 14) as u32 * 11).to_le_bytes());
        if random.below(3) == 0 {
            out.extend_from_slice(&[2, 0x91, random.skewed(128) as u8]);
        }
    }
    out.push(0);
}

/// Files of `tzfile(5)`: transitions of regular years, and the types after them.
fn zones(random: &mut Random, out: &mut Vec<u8>) {
    let years = 20 + random.below(100) as i64;
    out.extend_from_slice(b"TZif2");
    out.resize(out.len() + 34, 0);
    out.extend_from_slice(&[years as u8 * 2, 0, 0, 0, 6]);
    let (shift, zone) = (
        random.below(14) as i64 * 86_400,
        random.below(24) as i64 * 3_600,
    );
    for year in -years / 2..years / 2 {
        for month in [3, 10] {
            let days = year * 1461 / 4 + month * 30 + 4 - (year * 5 / 4).rem_euclid(7);
            out.extend_from_slice(&(days * 86_400 + shift + zone).to_be_bytes());
        }
    }
    out.extend((0..2 * years).map(|i| 4 + (i & 1) as u8));
    out.extend_from_slice(&(zone as i32).to_be_bytes());
    word(random.below(600), out);
    out.extend_from_slice(b",M3.5.0,M10.5.0/3\n");
}

/// Slices of 12 bits in words of 16: smooth, with noise, in a frame of air.
fn medical(random: &mut Random, out: &mut Vec<u8>) {
    let row = (out.len() / 1024) as i32 % 512 - 256;
    for column in -256..256_i32 {
        let tissue = 200 * 200 - column * column - row * row;
        let value = if tissue < 0 {
            random.below(4) as i32
        } else {
            900 + tissue / 64
                + (column / 32 * 37) % 90
                + random.below(24) as i32
                + random.below(24) as i32
        };
        out.extend_from_slice(&(value as u16).to_le_bytes());
    }
}

/// Headwords in their order, with classes and explanations.
fn dictionary(random: &mut Random, out: &mut Vec<u8>) {
    word(out.len() / 512, out);
    word(out.len() / 32 % 64, out);
    out.extend_from_slice([b" n. " as &[u8], b" v.t. ", b" adj. "][random.skewed(3)]);
    for _ in 0..3 + random.below(8) {
        word(random.skewed(16384), out);
        out.push(b' ');
    }
    out.push(b'\n');
}

/// The residuals of predicted sound: small numbers with a sign, without matches.
fn residuals(random: &mut Random, out: &mut Vec<u8>) {
    let bits = random.next();
    let size = 12 * (bits >> 1 | 1 << 9).trailing_zeros() as u8 + random.below(12) as u8;
    out.push(if bits & 1 == 0 {
        size
    } else {
        size.wrapping_neg()
    });
}

/// Encrypted data of which a part in a hundred was there before.
fn repeats(random: &mut Random, out: &mut Vec<u8>) {
    for _ in 0..512 {
        noise(random, out);
    }
    let from = out.len() - 64 - random.below(out.len().min(1 << 16) - 64);
    out.extend_from_within(from..from + 41);
}

#[cfg(test)]
mod tests {
    use super::half;

    /// Figures of one commit can be compared with those of another.
    #[test]
    fn generators_never_change() {
        let digest = |name| {
            half(name)
                .unwrap()
                .fold(0, |sum, (_, bytes)| sum ^ xxhash::xxh64(&bytes, 0))
        };
        assert_eq!(digest("unseen-tuning"), 13_497_450_411_500_871_855);
        assert_eq!(digest("unseen-reporting"), 12_884_179_398_134_873_402);
    }
}
