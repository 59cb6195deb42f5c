//! Corpora that every clone can make: the same bytes on every machine, from nothing but this file.
//!
//! They stand in for real data where none is at hand and carry the exact sizes in
//! `bench/sizes.csv`. Do not change a generator without need: all sizes change with it.

/// Bytes of each corpus: 16 blocks of 128 KiB.
pub(crate) const LEN: usize = 2 << 20;

/// All generated corpora: their names and bytes.
pub(crate) fn corpora() -> [(&'static str, Vec<u8>); 4] {
    [
        ("gen-text", text as fn(&mut Random, &mut Vec<u8>)),
        ("gen-code", code),
        ("gen-records", records),
        ("gen-machine", machine),
    ]
    .map(|(name, generate)| {
        let mut random = Random(0x5EED_0000 + name.len() as u64);
        let mut bytes = Vec::with_capacity(LEN + 4096);
        while bytes.len() < LEN {
            generate(&mut random, &mut bytes);
        }
        bytes.truncate(LEN);
        (name, bytes)
    })
}

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Small numbers often, large ones seldom: near a Zipf distribution over `bound`.
    pub(crate) fn skewed(&mut self, bound: usize) -> usize {
        let bits = self.below(bound.ilog2() as usize + 1) as u32;
        self.below(1 << (bits + 1)) % bound
    }
}

/// The word of this rank in a made-up language: short ones are frequent.
pub(crate) fn word(rank: usize, out: &mut Vec<u8>) {
    const CONSONANTS: &[u8] = b"tnshrdlcmwfgpbvk";
    const VOWELS: &[u8] = b"eaoiu";
    let mut random = Random(rank as u64 * 77);
    for _ in 0..1 + (rank + 1).ilog2() as usize / 3 {
        out.push(CONSONANTS[random.skewed(CONSONANTS.len())]);
        out.push(VOWELS[random.below(VOWELS.len())]);
        if random.below(2) == 0 {
            out.push(CONSONANTS[random.below(CONSONANTS.len())]);
        }
    }
}

/// Prose: sentences of words, some phrases repeated.
fn text(random: &mut Random, out: &mut Vec<u8>) {
    let start = out.len();
    for _ in 0..4 + random.below(14) {
        word(random.skewed(8192), out);
        out.push(b' ');
    }
    out[start] = out[start].to_ascii_uppercase();
    out.pop();
    out.extend_from_slice(if random.below(6) == 0 { b".\n" } else { b". " });
    if random.below(5) == 0 && start > 2_000 {
        let from = start - 60 - random.below(1900);
        out.extend_from_within(from..from + 8 + random.below(32));
    }
}

/// Source code: indented lines from few templates with many names.
fn code(random: &mut Random, out: &mut Vec<u8>) {
    let indent = 1 + random.skewed(4);
    out.resize(out.len() + indent, b'\t');
    let mut name = |out: &mut Vec<u8>| {
        word(random.skewed(2048), out);
        out.push(b'_');
        word(random.skewed(256), out);
        random.below(7)
    };
    match name(out) {
        0 => {
            out.extend_from_slice(b" = ");
            name(out);
            out.extend_from_slice(b"->");
            name(out);
            out.extend_from_slice(b";\n");
        }
        1 => {
            out.extend_from_slice(b"(");
            name(out);
            out.extend_from_slice(b", &");
            name(out);
            out.extend_from_slice(b");\n");
        }
        2 => {
            out.extend_from_slice(b" = kmalloc(sizeof(*");
            name(out);
            out.extend_from_slice(b"), GFP_KERNEL);\n\tif (!");
            name(out);
            out.extend_from_slice(b")\n\t\treturn -ENOMEM;\n");
        }
        3 => out.extend_from_slice(b"++;\n\t}\n\n"),
        4 => {
            out.extend_from_slice(b":\n\tif (unlikely(");
            name(out);
            out.extend_from_slice(b" < 0)) {\n");
        }
        _ => {
            out.extend_from_slice(b" |= ");
            name(out);
            out.extend_from_slice(b";\n");
        }
    }
}

/// Fixed-size records: counters, small fields, a few random bytes.
fn records(random: &mut Random, out: &mut Vec<u8>) {
    let index = (out.len() / 40) as u64;
    out.extend_from_slice(&(0x0000_7F00_0000_0000 + index * 48).to_le_bytes());
    out.extend_from_slice(&(random.skewed(1 << 16) as u32).to_le_bytes());
    out.extend_from_slice(&(random.skewed(64) as u16).to_le_bytes());
    out.extend_from_slice(&[0, 0, 1 << random.below(4), 0]);
    out.extend_from_slice(&(1_600_000_000 + index / 3).to_le_bytes());
    out.extend_from_slice(&(random.next() as u32 & 0x00FF_FFFF).to_le_bytes());
    out.extend_from_slice(&[0; 10]);
}

/// Machine code of sorts: few opcodes, skewed operands, displacements, tables, now and then noise.
fn machine(random: &mut Random, out: &mut Vec<u8>) {
    const OPCODES: [&[u8]; 10] = [
        b"\x48\x89",
        b"\x48\x8B",
        b"\xE8",
        b"\x0F\x84",
        b"\x48\x83\xC4",
        b"\xC3\x66\x0F\x1F\x44\x00\x00",
        b"\x55\x48\x89\xE5",
        b"\x31\xC0",
        b"\x8B\x45",
        b"\x4C\x8D\x25",
    ];
    match random.below(40) {
        0 => {
            for _ in 0..random.below(64) {
                out.extend_from_slice(&random.next().to_le_bytes());
            }
        }
        1 => {
            let base = random.next() as u32 & 0x00FF_F000;
            for entry in 0..random.below(48) as u32 {
                out.extend_from_slice(&(base + entry * 16 + random.below(9) as u32).to_le_bytes());
            }
        }
        2..6 if out.len() > 70_000 => {
            let reach = 1 << (7 + random.below(10));
            let from = out.len() - 1 - random.below(reach);
            let len = random.below(90).min(out.len() - from);
            out.extend_from_within(from..from + len);
        }
        _ => {
            out.extend_from_slice(OPCODES[random.skewed(OPCODES.len())]);
            out.push(0xC0 | random.skewed(64) as u8);
            if random.below(3) == 0 {
                out.extend_from_slice(&(random.skewed(1 << 20) as i32 - 4096).to_le_bytes());
            }
        }
    }
}
