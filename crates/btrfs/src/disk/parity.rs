//! The parities of RAID6, from which any two stripes of a row can be rebuilt.
//!
//! The first is the sum (exclusive or) of the row's stripes of data. In the second, stripe `n`
//! counts 2^n times, in the field of 256 elements with the polynomial x^8 + x^4 + x^3 + x^2 + 1:
//! H. P. Anvin, "The mathematics of RAID-6".

/// As many stripes of data have different weights in the second parity.
pub(super) const DATA_MAX: usize = 255;

/// How often each parity counts in the sum of stripes that is a lost stripe of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Weights {
    first: u8,
    second: u8,
}

impl Weights {
    /// From the first parity and all other stripes of data.
    pub(super) const FIRST: Weights = Weights {
        first: 1,
        second: 0,
    };

    /// From the second parity for the stripe `lost`, without another stripe of data if one is lost,
    /// which takes the first parity. `None` if there are too many stripes to tell them apart.
    pub(super) fn second(lost: usize, other: Option<usize>) -> Option<Weights> {
        if lost.max(other.unwrap_or(0)) >= DATA_MAX {
            return None;
        }
        let other = other.map_or(0, weight);
        let second = inverse(weight(lost) ^ other);
        Some(Weights {
            first: product(other, second),
            second,
        })
    }

    /// How often the stripe at a place in the row counts; behind the stripes of data there are the
    /// parities.
    pub(super) fn of(self, place: usize, data: usize) -> u8 {
        match place.checked_sub(data) {
            None => self.first ^ product(self.second, weight(place)),
            Some(0) => self.first,
            Some(_) => self.second,
        }
    }
}

/// Adds a stripe, as often as it counts.
pub(super) fn add(sum: &mut [u8], stripe: &[u8], times: u8) {
    let mut products = [0_u8; 256];
    for (product_of, byte) in products.iter_mut().zip(0..=255) {
        *product_of = product(byte, times);
    }
    for (sum, byte) in sum.iter_mut().zip(stripe) {
        *sum ^= products
            .get(usize::from(*byte))
            .copied()
            .unwrap_or_default();
    }
}

fn product(mut one: u8, mut other: u8) -> u8 {
    let mut sum = 0;
    while other != 0 {
        if other & 1 != 0 {
            sum ^= one;
        }
        let carry = if one & 0x80 != 0 { 0x1d } else { 0 };
        one = (one << 1) ^ carry;
        other >>= 1;
    }
    sum
}

/// 2^place.
fn weight(place: usize) -> u8 {
    (0..place % 255).fold(1, |power, _| product(power, 2))
}

/// The inverse of an element other than 0, which is its power of 254.
fn inverse(element: u8) -> u8 {
    (0..254).fold(1, |power, _| product(power, element))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_has_an_inverse_and_every_stripe_a_weight() {
        for element in 1..=255 {
            assert_eq!(product(element, inverse(element)), 1, "{element}");
        }
        let mut weights: Vec<u8> = (0..DATA_MAX).map(weight).collect();
        weights.sort_unstable();
        weights.dedup();
        assert_eq!(weights.len(), DATA_MAX);
        assert_eq!(Weights::second(DATA_MAX, None), None);
        assert_eq!(Weights::second(0, Some(DATA_MAX)), None);
    }

    #[test]
    fn any_two_stripes_are_rebuilt() {
        const DATA: usize = 5;
        let mut row: Vec<Vec<u8>> = (0..DATA)
            .map(|place| {
                (0..64)
                    .map(|at| (at * 37 + place * 101 + 5) as u8)
                    .collect()
            })
            .collect();
        let (mut first, mut second) = (vec![0; 64], vec![0; 64]);
        for (place, stripe) in row.iter().enumerate() {
            add(&mut first, stripe, 1);
            add(&mut second, stripe, weight(place));
        }
        row.extend([first, second]);
        let rebuilt = |weights: Weights, without: &[usize]| {
            let mut sum = vec![0; 64];
            for (place, stripe) in row.iter().enumerate() {
                if !without.contains(&place) {
                    add(&mut sum, stripe, weights.of(place, DATA));
                }
            }
            sum
        };
        for (lost, expected) in row.iter().enumerate().take(DATA) {
            assert_eq!(rebuilt(Weights::FIRST, &[lost, DATA + 1]), *expected);
            let second = Weights::second(lost, None).unwrap();
            assert_eq!(rebuilt(second, &[lost, DATA]), *expected);
            for other in (0..DATA).filter(|other| *other != lost) {
                let both = Weights::second(lost, Some(other)).unwrap();
                assert_eq!(rebuilt(both, &[lost, other]), *expected);
            }
        }
    }
}
