//! All parts of a tree's content, and samples of them.

use std::collections::HashMap;

use tree::{FileId, Inventory};

/// Kinds of files that have rows of their own: those with the most content; the others are one
/// kind.
const KINDS_MAX: usize = 24;

/// Parts that are drawn at least, however long they are: the spread of fewer says little of the
/// others.
const PARTS_MIN: f64 = 12.0;
/// Parts of up to this length are cheap: more of them are drawn at least.
const CHEAP_BYTES: f64 = 1_048_576.0;
/// Parts that are drawn at least of those that are not taken for certain.
const UNCERTAIN_MIN: f64 = 4.0;

/// A part of the content that is encoded by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    /// The length of its content in bytes, at least 1.
    pub(crate) len: u32,
    /// Its stored length without compression, unless it is a hole.
    pub(crate) plain: u32,
    /// How it is stored: parts of two classes are not compared.
    pub(crate) class: u8,
    /// Parts of one kind are expected to be similar.
    pub(crate) kind: u16,
    /// Stored lengths are multiples of this.
    pub(crate) quantum: u32,
}

#[cfg(test)]
impl Unit {
    /// A part of this length, like all others.
    pub(crate) fn of_len(len: u32) -> Unit {
        Unit {
            len,
            plain: len,
            class: 0,
            kind: 0,
            quantum: 1,
        }
    }
}

/// Numbers the kinds of files: by the extensions with the most content.
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

/// Parts that were drawn, in the order of those that they were drawn from.
pub(crate) struct Drawn {
    pub(crate) units: Vec<usize>,
    /// The chance of each to be drawn.
    pub(crate) chances: Vec<f64>,
}

/// Draws parts from `among`, about `bytes_max` of content: in this order, the one at a byte of each
/// stretch of equal length, which `seed` chooses. So each byte has the same chance; a part that
/// stands for `weight` parts counts as often. Parts that are longer than a stretch are taken for
/// certain. `parts` at least, or fewer long ones. All, if they have no more bytes than that.
pub(crate) fn draw(
    units: &[Unit],
    among: &[usize],
    weight: &dyn Fn(usize) -> f64,
    bytes_max: u64,
    parts: f64,
    seed: u64,
) -> Drawn {
    let content = |unit: usize| f64::from(units[unit].len);
    let len = |unit: usize| weight(unit) * content(unit);
    let bytes: f64 = among.iter().map(|&unit| content(unit)).sum();
    let total: f64 = among.iter().map(|&unit| len(unit)).sum();
    let squares: f64 = among.iter().map(|&unit| len(unit) * content(unit)).sum();
    let longest = among.iter().map(|&unit| content(unit)).fold(1.0, f64::max);
    // A byte that is drawn brings the whole part, of this length on average.
    let count = (bytes_max as f64 / (squares / total.max(1.0)).max(1.0)).floor();
    let count = count.max((parts * CHEAP_BYTES / longest).clamp(PARTS_MIN, parts));
    if bytes <= bytes_max as f64 || count >= among.len() as f64 {
        return Drawn {
            units: among.to_vec(),
            chances: vec![1.0; among.len()],
        };
    }
    let mut step = f64::INFINITY;
    loop {
        let certain = among.iter().filter(|&&unit| len(unit) >= step);
        let (certain, bytes) = certain.fold((0.0, 0.0), |(n, sum), &it| (n + 1.0, sum + len(it)));
        let shorter = (total - bytes) / (count - certain).max(UNCERTAIN_MIN);
        if shorter >= step || bytes >= total {
            break;
        }
        step = shorter;
    }
    let place = |stretch: u64| {
        let random = mixed(mixed(seed).wrapping_add(stretch)) >> 11;
        (stretch as f64 + random as f64 / (1_u64 << 53) as f64) * step
    };
    let mut drawn = Drawn {
        units: Vec::new(),
        chances: Vec::new(),
    };
    let mut end = 0.0;
    for &unit in among {
        if len(unit) >= step {
            drawn.units.push(unit);
            drawn.chances.push(1.0);
            continue;
        }
        let start = end;
        end += len(unit);
        let (mut is_drawn, mut missed) = (false, 1.0);
        for stretch in (start / step) as u64..=(end / step) as u64 {
            let from = (stretch as f64 * step).max(start);
            let to = ((stretch + 1) as f64 * step).min(end);
            missed *= 1.0 - (to - from) / step;
            is_drawn |= (start..end).contains(&place(stretch));
        }
        if is_drawn {
            drawn.units.push(unit);
            drawn.chances.push(1.0 - missed);
        }
    }
    drawn
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
        lens.map(Unit::of_len).collect()
    }

    #[test]
    fn every_byte_has_the_same_chance() {
        let units = units((0..1000).map(|n| 1 + n % 97 * 50));
        let all: Vec<usize> = (0..units.len()).collect();
        let total: u64 = units.iter().map(|unit| u64::from(unit.len)).sum();
        let mut times = vec![0u32; units.len()];
        let (mut shortest, mut longest, mut sum) = (f64::INFINITY, 0.0, 0.0);
        for seed in 0..2000 {
            let drawn = draw(&units, &all, &|_| 1.0, total / 20, 24.0, seed);
            assert!(drawn.units.is_sorted_by(|a, b| a < b));
            assert_eq!(
                drawn.units,
                draw(&units, &all, &|_| 1.0, total / 20, 24.0, seed).units
            );
            let bytes: u64 = drawn.units.iter().map(|&it| u64::from(units[it].len)).sum();
            assert!(
                bytes.abs_diff(total / 20) < total / 80,
                "{bytes} of {total}"
            );
            for (&unit, chance) in drawn.units.iter().zip(drawn.chances) {
                times[unit] += 1;
                let of_byte = chance / f64::from(units[unit].len);
                shortest = f64::min(shortest, of_byte);
                longest = f64::max(longest, of_byte);
                sum += 1.0 / chance / 2000.0;
            }
        }
        // Only a part that reaches over the end of a stretch has a smaller chance: not twice.
        assert!(longest / shortest < 1.05, "{shortest} {longest}");
        // What is drawn stands for all parts.
        assert!((sum / 1000.0 - 1.0).abs() < 0.05, "{sum}");
        let long: u32 = (0..1000).filter(|n| n % 97 == 96).map(|n| times[n]).sum();
        let half: u32 = (0..1000).filter(|n| n % 97 == 48).map(|n| times[n]).sum();
        let ratio = f64::from(long) / f64::from(half);
        assert!((ratio / 2.0 - 1.0).abs() < 0.15, "{long} {half}");
        assert_eq!(draw(&units, &all, &|_| 1.0, total, 24.0, 7).units, all);
    }

    /// A part of nearly all bytes is certain, and the others are drawn beside it.
    #[test]
    fn long_parts_are_certain_and_others_are_drawn_as_well() {
        let units = units((0..500).map(|n| if n % 50 == 7 { 1 << 20 } else { 2000 }));
        let all: Vec<usize> = (0..units.len()).collect();
        let drawn = draw(&units, &all, &|_| 1.0, 4 << 20, 24.0, 5);
        let certain = drawn
            .chances
            .iter()
            .filter(|&&chance| chance == 1.0)
            .count();
        assert_eq!(certain, 10);
        assert!(drawn.units.len() >= 14, "{}", drawn.units.len());
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
