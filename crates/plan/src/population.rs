//! All parts of a tree's content, and samples of them.

use std::collections::HashMap;

use tree::{FileId, Inventory};

/// Kinds of files that have rows of their own: those with the most content; the others are one
/// kind.
const KINDS_MAX: usize = 24;

/// A part of the content that is encoded by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    /// The length of its content in bytes, at least 1.
    pub(crate) len: u32,
    /// Parts of one kind are expected to be similar.
    pub(crate) kind: u16,
    /// Stored lengths are multiples of this.
    pub(crate) quantum: u32,
}

/// Numbers the kinds of files: by the extensions with the most content, and by whether a file is
/// small.
pub(crate) struct Kinds {
    of_extension: HashMap<Vec<u8>, u16>,
}

impl Kinds {
    /// The kinds of the files in an inventory.
    pub(crate) fn of(inventory: &Inventory<'_>) -> Kinds {
        let mut bytes: HashMap<Vec<u8>, u64> = HashMap::new();
        for file in inventory.files() {
            let name = inventory.name(inventory.first_name(file));
            *bytes.entry(extension(&name)).or_default() += inventory.size(file);
        }
        let mut largest: Vec<(u64, Vec<u8>)> =
            bytes.into_iter().map(|(name, len)| (len, name)).collect();
        largest.sort_unstable_by(|a, b| b.cmp(a));
        let names = largest.into_iter().take(KINDS_MAX).map(|(_, name)| name);
        Kinds {
            of_extension: names.zip(1..).collect(),
        }
    }

    /// The kind of a part of this file.
    pub(crate) fn kind(&self, inventory: &Inventory<'_>, file: FileId) -> u16 {
        let name = inventory.name(inventory.first_name(file));
        let known = self.of_extension.get(&extension(&name));
        known.copied().unwrap_or(0)
    }
}

/// The extension of a name, in small letters; of versioned libraries such as `libc.so.6`, `so`.
/// Names without one have an empty extension.
fn extension(name: &[u8]) -> Vec<u8> {
    let mut parts = name.rsplit(|&byte| byte == b'.').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            break;
        }
        if !part.iter().all(u8::is_ascii_digit) && part.len() <= 8 {
            return part.to_ascii_lowercase();
        }
    }
    Vec::new()
}

/// Chooses parts from `among`, in this order, so that each byte has the same chance: one part every
/// `bytes_max`-th of the total, beginning at a place that `seed` gives. All of them if they have no
/// more bytes than that.
pub(crate) fn systematic(units: &[Unit], among: &[usize], bytes_max: u64, seed: u64) -> Vec<usize> {
    let total: u64 = among.iter().map(|&unit| u64::from(units[unit].len)).sum();
    if total <= bytes_max {
        return among.to_vec();
    }
    let mean = total / among.len() as u64;
    let count = (bytes_max / mean.max(1)).max(1);
    // Positions in 64.64 fixed point would be exact; a step of whole bytes is near enough.
    let step = (total / count).max(1);
    let mut wanted = mixed(seed) % step;
    let (mut chosen, mut end) = (Vec::new(), 0);
    for &unit in among {
        end += u64::from(units[unit].len);
        if wanted < end {
            chosen.push(unit);
            wanted += (end - wanted).div_ceil(step) * step;
        }
    }
    chosen
}

/// Spreads a seed over 64 bits (the finalizer of SplitMix64).
fn mixed(seed: u64) -> u64 {
    let mut x = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(lens: impl Iterator<Item = u32>) -> Vec<Unit> {
        let unit = |len| Unit {
            len,
            kind: 0,
            quantum: 1,
        };
        lens.map(unit).collect()
    }

    #[test]
    fn every_byte_has_the_same_chance() {
        let units = units((0..1000).map(|n| 1 + n % 97 * 50));
        let all: Vec<usize> = (0..units.len()).collect();
        let total: u64 = units.iter().map(|unit| u64::from(unit.len)).sum();
        let mut times = vec![0u32; units.len()];
        for seed in 0..2000 {
            let chosen = systematic(&units, &all, total / 20, seed);
            assert!(chosen.is_sorted_by(|a, b| a < b));
            assert_eq!(chosen, systematic(&units, &all, total / 20, seed));
            assert!((45..=55).contains(&chosen.len()), "{}", chosen.len());
            chosen.iter().for_each(|&unit| times[unit] += 1);
        }
        // A part is chosen as often as its length says: 2000 times 50 of 1000 for the mean length.
        let mean = total as f64 / 1000.0;
        let long: u32 = (0..1000).filter(|n| n % 97 == 96).map(|n| times[n]).sum();
        let expected = 10.0 * 100.0 * f64::from(units[96].len) / mean;
        assert!(
            (f64::from(long) / expected - 1.0).abs() < 0.15,
            "{long} {expected}"
        );
        assert_eq!(systematic(&units, &all, total, 7), all);
    }

    #[test]
    fn extensions_are_found() {
        for (name, known) in [
            ("a.C", "c"),
            ("libc.so.6", "so"),
            ("libm-2.36.so", "so"),
            ("Makefile", ""),
            (".config", "config"),
            ("x.1", ""),
            ("a.averylongextension", ""),
        ] {
            assert_eq!(extension(name.as_bytes()), known.as_bytes(), "{name}");
        }
    }
}
