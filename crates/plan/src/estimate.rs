//! From drawn parts to all parts: ratio estimators in strata, with their error bars.

use crate::population::{Drawn, Unit};

/// Drawn parts in one stratum: enough for a ratio that is not one part's own, and few enough to be
/// of one kind. The spread is also estimated in strata that are three times as large: four parts
/// can be alike by chance.
const STRATUM_UNITS: [usize; 2] = [4, 12];
/// Bars are longer than the drawn parts say: the spread of few parts is mostly estimated too small
/// where a few of all are far from the others.
const MARGIN: f64 = 1.25;
/// What drawn parts that are all alike leave uncertain of the others.
const UNSEEN: f64 = 0.001;
/// Of `n` parts that are drawn, 95 of 100 samples have all kinds but those of `3 / n` of the parts.
const UNSEEN_PARTS: f64 = 3.0;
/// Student's distribution for 1 to 10 degrees of freedom: this many standard errors to each side
/// hold 95 of 100 results.
const STUDENT: [f64; 10] = [12.71, 4.31, 3.19, 2.78, 2.58, 2.45, 2.37, 2.31, 2.27, 2.23];

/// The same for any degrees of freedom; those between two numbers count as the lower.
fn student(freedom: f64) -> f64 {
    let last = STUDENT.len() as f64;
    if freedom < last {
        STUDENT[(freedom as usize).saturating_sub(1)]
    } else {
        1.96 + 2.72 / freedom
    }
}

/// The parts of a population in groups of similar ones, each with drawn parts.
struct Strata {
    /// By part: its stratum.
    of: Vec<u32>,
    count: usize,
}

impl Strata {
    /// Divides parts, listed in `order` so that neighbours are similar, into runs that each have at
    /// least `stratum_units` drawn parts that are not certain, as far as there are that many.
    fn new(order: &[usize], chances: &[f64], stratum_units: usize) -> Strata {
        let is_one = |unit: usize| chances[unit] > 0.0 && chances[unit] < 1.0;
        let drawn = order.iter().filter(|&&unit| is_one(unit)).count();
        let count = (drawn / stratum_units).max(1);
        let mut of = vec![0; chances.len()];
        let mut seen = 0;
        for &unit in order {
            of[unit] = (seen * count / drawn.max(1)).min(count - 1) as u32;
            seen += usize::from(is_one(unit));
        }
        Strata { of, count }
    }
}

/// What is drawn, and the strata of all parts.
pub(crate) struct Design {
    /// By part: its chance; 0 if it was not drawn.
    chances: Vec<f64>,
    /// The parts that were drawn.
    drawn: Vec<usize>,
    /// How far a quantity of the parts that are like no drawn one is off, in parts of it.
    unlike: f64,
    /// By size.
    strata: [Strata; 2],
}

impl Design {
    /// A design for parts that were drawn from those in `order`, some or all of `units`, where
    /// neighbours are similar. A quantity of those that are like no drawn one is `unlike` off, in
    /// parts of it.
    pub(crate) fn new(units: usize, order: &[usize], drawn: Drawn, unlike: f64) -> Design {
        let mut chances = vec![0.0; units];
        for (&unit, chance) in drawn.units.iter().zip(drawn.chances) {
            chances[unit] = chance;
        }
        Design {
            strata: STRATUM_UNITS.map(|units| Strata::new(order, &chances, units)),
            drawn: drawn.units,
            unlike,
            chances,
        }
    }

    /// The parts that were drawn, in the order that they were drawn from.
    pub(crate) fn drawn(&self) -> &[usize] {
        &self.drawn
    }

    /// The chance of a part; 0 if it was not drawn.
    pub(crate) fn chance(&self, unit: usize) -> f64 {
        self.chances[unit]
    }

    /// How many parts a drawn one stands for, itself among them; 1 for one that was not drawn.
    pub(crate) fn weight(&self, unit: usize) -> f64 {
        match self.chances[unit] {
            0.0 => 1.0,
            chance => 1.0 / chance,
        }
    }

    /// Estimates a quantity that is known for the drawn parts (`values`, in their order) from one
    /// that is known for all parts; 0 for those that do not count.
    pub(crate) fn estimate(&self, known: &[f64], values: &[f64]) -> Estimate {
        let [(ratios, bar), (_, other)] =
            [0, 1].map(|size| self.fit(&self.strata[size], known, values));
        let of = |unit: usize| ratios[self.strata[0].of[unit] as usize] * known[unit];
        let others = (0..known.len()).filter(|&unit| self.chances[unit] == 0.0);
        let others: f64 = others.map(of).sum();
        let mut all: Vec<f64> = (0..known.len()).map(of).collect();
        for (&unit, &value) in self.drawn.iter().zip(values) {
            all[unit] = value;
        }
        let uncertain = self.drawn.iter().filter(|&&it| self.chances[it] < 1.0);
        let unseen = UNSEEN_PARTS / uncertain.count().max(3) as f64;
        Estimate {
            total: values.iter().sum::<f64>() + others,
            error: (MARGIN * bar.max(other)).max((UNSEEN + self.unlike * unseen) * others),
            all,
        }
    }

    /// By stratum, how a quantity relates to the known one, and half of the error bar of its total:
    /// the spread of the drawn parts around the ratio. A part stands for those like it that were
    /// not drawn, 1 / chance - 1 of them; one that is certain, for no other.
    fn fit(&self, strata: &Strata, known: &[f64], values: &[f64]) -> (Vec<f64>, f64) {
        #[derive(Clone, Copy, Default)]
        struct Sums {
            /// Of the parts that were not drawn.
            others: f64,
            /// Weighted, of the drawn ones.
            known: f64,
            value: f64,
            squares: f64,
            count: f64,
        }
        let mut sums = vec![Sums::default(); strata.count];
        for (unit, known) in known.iter().enumerate() {
            if self.chances[unit] == 0.0 {
                sums[strata.of[unit] as usize].others += known;
            }
        }
        for (&unit, value) in self.drawn.iter().zip(values) {
            let weight = 1.0 / self.chances[unit] - 1.0;
            let sums = &mut sums[strata.of[unit] as usize];
            sums.known += weight * known[unit];
            sums.value += weight * value;
        }
        let [value, whole] = sums
            .iter()
            .fold([0.0; 2], |[a, b], sums| [a + sums.value, b + sums.known]);
        let usual = if whole > 0.0 { value / whole } else { 1.0 };
        let ratio = |sums: &Sums| {
            if sums.known > 0.0 {
                sums.value / sums.known
            } else {
                usual
            }
        };
        let ratios: Vec<f64> = sums.iter().map(ratio).collect();
        for (&unit, value) in self.drawn.iter().zip(values) {
            let (stratum, chance) = (strata.of[unit] as usize, self.chances[unit]);
            if chance < 1.0 {
                let off = value - ratios[stratum] * known[unit];
                sums[stratum].squares += (1.0 - chance) / (chance * chance) * off * off;
                sums[stratum].count += 1.0;
            }
        }
        let (mut variance, mut parts) = (0.0, 0.0);
        for sums in sums.iter().filter(|sums| sums.count > 1.0) {
            let stretch = if sums.known > 0.0 {
                (sums.others / sums.known).max(1.0)
            } else {
                1.0
            };
            let freedom = sums.count - 1.0;
            let of_stratum = sums.squares * sums.count / freedom * stretch * stretch;
            variance += of_stratum;
            parts += of_stratum * of_stratum / freedom;
        }
        // Degrees of freedom by Satterthwaite: few, if few strata have most of the spread.
        let bar = if variance > 0.0 {
            student(variance * variance / parts) * variance.sqrt()
        } else {
            0.0
        };
        (ratios, bar)
    }
}

/// A quantity estimated for all parts.
pub(crate) struct Estimate {
    /// By part: measured or estimated.
    pub(crate) all: Vec<f64>,
    /// Half of the error bar of the total: 95 of 100 results are within it. 0 if all is measured.
    pub(crate) error: f64,
    /// The total.
    pub(crate) total: f64,
}

impl Estimate {
    /// A quantity that is known for all parts.
    pub(crate) fn exact(all: Vec<f64>) -> Estimate {
        Estimate {
            total: all.iter().sum(),
            error: 0.0,
            all,
        }
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
    /// The length of a part, between one quantum and its length without compression.
    pub(crate) fn round(&mut self, unit: Unit, estimate: f64) -> u32 {
        if estimate <= 0.0 {
            return 0;
        }
        let carry = &mut self.carry[usize::from(unit.quantum > 1)];
        let quantum = f64::from(unit.quantum);
        let whole = f64::from(unit.plain);
        let wanted = estimate + *carry;
        let rounded = ((wanted / quantum).round() * quantum).clamp(quantum, whole);
        *carry = wanted - rounded;
        rounded as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_keeps_the_sum() {
        let mut rounding = Rounding::default();
        let unit = Unit {
            quantum: 4096,
            ..Unit::of_len(131_072)
        };
        let sum: u64 = (0..1000)
            .map(|_| u64::from(rounding.round(unit, 50_000.3)))
            .sum();
        assert!(sum.abs_diff(50_000_300) < 4096);
        assert_eq!(rounding.round(unit, 0.0), 0);
        assert_eq!(rounding.round(unit, 1e9), 131_072);
    }
}
