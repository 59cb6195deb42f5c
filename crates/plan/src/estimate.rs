//! From measured parts to all parts: ratio estimators in strata, with their standard errors.

use crate::population::Unit;

/// Measured parts in one stratum: enough for a ratio that is not one part's own, and few enough to
/// be of one kind.
const STRATUM_UNITS: usize = 4;

/// The parts of a population in groups of similar ones, each with measured parts.
pub(crate) struct Strata {
    /// By part: its stratum.
    of: Vec<u32>,
    count: usize,
}

impl Strata {
    /// Divides parts, listed in `order` so that neighbours are similar, into runs that each have at
    /// least [`STRATUM_UNITS`] measured parts, as far as there are that many. `measured` is a
    /// subset in the same order.
    pub(crate) fn new(units: usize, order: &[usize], measured: &[usize]) -> Strata {
        let mut of = vec![0; units];
        let strata = (measured.len() / STRATUM_UNITS).max(1);
        let (mut next, mut seen) = (measured.iter().peekable(), 0);
        for &unit in order {
            of[unit] = (seen * strata / measured.len().max(1)).min(strata - 1) as u32;
            if next.next_if(|&&it| it == unit).is_some() {
                seen += 1;
            }
        }
        Strata { of, count: strata }
    }

    /// The stratum of a part.
    fn of(&self, unit: usize) -> usize {
        self.of[unit] as usize
    }
}

/// A quantity estimated for all parts.
pub(crate) struct Estimate {
    /// By stratum: how the quantity relates to the known one.
    ratios: Vec<f64>,
    /// The standard error of the total.
    pub(crate) error: f64,
    /// The total.
    pub(crate) total: f64,
}

impl Estimate {
    /// Estimates a quantity that is known for the measured parts (`values`, in their order) from
    /// one that is known for all parts, `known`. Parts are chosen in proportion to their lengths.
    pub(crate) fn new(
        strata: &Strata,
        units: &[Unit],
        known: &[f64],
        measured: &[usize],
        values: &[f64],
    ) -> Estimate {
        let mut sums = vec![[0.0f64; 2]; strata.count];
        let mut all = [0.0f64; 2];
        // A part of length n is chosen with a chance in proportion to n, so it stands for 1/n of
        // that length.
        let weight = |unit: usize| 1.0 / f64::from(units[unit].len);
        for (&unit, value) in measured.iter().zip(values) {
            let add = [value * weight(unit), known[unit] * weight(unit)];
            for (i, add) in add.into_iter().enumerate() {
                sums[strata.of(unit)][i] += add;
                all[i] += add;
            }
        }
        let usual = if all[1] > 0.0 { all[0] / all[1] } else { 1.0 };
        let ratios: Vec<f64> = (sums.iter())
            .map(|&[value, known]| if known > 0.0 { value / known } else { usual })
            .collect();
        let (mut total, mut unmeasured) = (values.iter().sum::<f64>(), vec![0.0; strata.count]);
        let mut is_measured = vec![false; units.len()];
        measured.iter().for_each(|&unit| is_measured[unit] = true);
        for unit in 0..units.len() {
            if !is_measured[unit] {
                let stratum = strata.of(unit);
                total += ratios[stratum] * known[unit];
                unmeasured[stratum] += known[unit];
            }
        }
        let error = Self::error(strata, units, known, measured, values, &ratios, &unmeasured);
        Estimate {
            ratios,
            error,
            total,
        }
    }

    /// The standard error: the spread of the measured parts around the ratio, for the share that
    /// was not measured.
    fn error(
        strata: &Strata,
        units: &[Unit],
        known: &[f64],
        measured: &[usize],
        values: &[f64],
        ratios: &[f64],
        unmeasured: &[f64],
    ) -> f64 {
        let mut spread = vec![(0u32, 0.0f64, 0.0f64); strata.count];
        for (&unit, value) in measured.iter().zip(values) {
            let stratum = strata.of(unit);
            let (count, known_sum, squares) = &mut spread[stratum];
            let len = f64::from(units[unit].len);
            let off = (value - ratios[stratum] * known[unit]) / len;
            *count += 1;
            *known_sum += known[unit] / len;
            *squares += off * off;
        }
        let variance = spread.iter().zip(unmeasured);
        let variance = variance.map(|(&(count, known, squares), unmeasured)| {
            let count = f64::from(count);
            if known <= 0.0 || count < 2.0 {
                return 0.0;
            }
            // The variance of a ratio of means, times the square of what the ratio is multiplied
            // with.
            let of_ratio = squares / (count - 1.0) * count / (known * known);
            of_ratio * unmeasured * unmeasured
        });
        variance.sum::<f64>().sqrt()
    }

    /// The estimate for a part that was not measured.
    pub(crate) fn of(&self, strata: &Strata, known: &[f64], unit: usize) -> f64 {
        self.ratios[strata.of(unit)] * known[unit]
    }
}

/// Rounds estimated lengths so that their sum stays what it was: what one part is rounded up, the
/// next are down.
#[derive(Default)]
pub(crate) struct Rounding {
    /// By quantum (1, or anything else): what was left over.
    carry: [f64; 2],
}

impl Rounding {
    /// The length of a part, between one quantum and its own length.
    pub(crate) fn round(&mut self, unit: Unit, estimate: f64) -> u32 {
        if estimate <= 0.0 {
            return 0;
        }
        let carry = &mut self.carry[usize::from(unit.quantum > 1)];
        let quantum = f64::from(unit.quantum);
        let whole = f64::from(unit.len.next_multiple_of(unit.quantum));
        let wanted = estimate + *carry;
        let rounded = ((wanted / quantum).round() * quantum).clamp(quantum, whole);
        *carry = (wanted - rounded).clamp(-whole, whole);
        rounded as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Rng;

    #[test]
    fn totals_are_within_their_errors_and_exact_if_all_is_measured() {
        let mut rng = Rng::new(3);
        let mut random = || rng.below(1 << 32) as f64 / f64::from(u32::MAX);
        let count = 4000;
        let units: Vec<Unit> = (0..count)
            .map(|n| Unit {
                len: 1000 + (n as u32 % 7) * 20_000,
                kind: 0,
                quantum: 1,
            })
            .collect();
        let known: Vec<f64> = units
            .iter()
            .map(|unit| f64::from(unit.len) * (0.1 + 0.9 * random()))
            .collect();
        let values: Vec<f64> = known
            .iter()
            .map(|known| known * (0.7 + 0.1 * random()))
            .collect();
        let truth: f64 = values.iter().sum();
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by(|&a, &b| {
            let ratio = |n: usize| known[n] / f64::from(units[n].len);
            ratio(a).total_cmp(&ratio(b))
        });
        let bytes: u64 = units.iter().map(|unit| u64::from(unit.len)).sum();
        let (mut within, mut errors, mut farthest) = (0, 0.0, 0.0);
        for seed in 0..200 {
            let measured = crate::population::systematic(&units, &order, bytes / 40, seed);
            let strata = Strata::new(count, &order, &measured);
            let of_measured: Vec<f64> = measured.iter().map(|&unit| values[unit]).collect();
            let estimate = Estimate::new(&strata, &units, &known, &measured, &of_measured);
            let off = (estimate.total - truth).abs() / estimate.error;
            farthest = f64::max(farthest, off);
            within += usize::from(off < 2.0);
            errors += estimate.error / truth / 200.0;
        }
        assert!(within >= 180, "{within} of 200 within two standard errors");
        assert!(farthest < 4.5, "{farthest} standard errors");
        assert!(errors < 0.01, "{errors}");
        let strata = Strata::new(count, &order, &order);
        let all: Vec<f64> = order.iter().map(|&unit| values[unit]).collect();
        let exact = Estimate::new(&strata, &units, &known, &order, &all);
        assert!((exact.total - truth).abs() < 1e-3 && exact.error == 0.0);
    }

    #[test]
    fn rounding_keeps_the_sum() {
        let mut rounding = Rounding::default();
        let unit = Unit {
            len: 131_072,
            kind: 0,
            quantum: 4096,
        };
        let sum: u64 = (0..1000)
            .map(|_| u64::from(rounding.round(unit, 50_000.3)))
            .sum();
        assert!(sum.abs_diff(50_000_300) < 4096);
        assert_eq!(rounding.round(unit, 0.0), 0);
        assert_eq!(rounding.round(unit, 1e9), 131_072);
    }
}
