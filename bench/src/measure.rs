//! Rounds, ratios, spreads.

use std::time::{Duration, Instant};

/// One peer's turn at the first `units` units of the work: does it, verifies the output, and says
/// how long the work alone took.
pub(crate) type Turn<'a> = Box<dyn FnMut(usize) -> Result<Duration, String> + 'a>;

/// The times of one row: `rounds[r][p]` is the time of peer `p` in round `r`.
#[derive(Clone, Debug)]
pub(crate) struct Rounds {
    pub(crate) times: Vec<Vec<Duration>>,
    /// Units of work in a round.
    pub(crate) units: usize,
}

/// Most rounds: more do not change a median.
const ROUNDS_MAX: usize = 41;

/// Lets each peer take its turn, round by round, for about `seconds`, or less. There are at least
/// five rounds: slow work is cut to fewer units than `units_max` for that. The order of the peers
/// turns around after every round.
pub(crate) fn rounds(turns: &mut [Turn], units_max: usize, seconds: f64) -> Result<Rounds, String> {
    // Not timed: warms up, and shows how much work fits into a round.
    let start = Instant::now();
    let first = units_max.min(4);
    for turn in turns.iter_mut() {
        turn(first)?;
    }
    let unit = start.elapsed().as_secs_f64() / first as f64;
    let units = ((seconds / 6.0 / unit) as usize).clamp(1, units_max);

    let mut times = Vec::new();
    let start = Instant::now();
    while times.len() < 5 || (times.len() < ROUNDS_MAX && start.elapsed().as_secs_f64() < seconds) {
        let mut round = vec![Duration::ZERO; turns.len()];
        for peer in order(times.len(), turns.len()) {
            round[peer] = turns[peer](units)?;
        }
        times.push(round);
    }
    Ok(Rounds { times, units })
}

/// The order of a round: each peer once, reversed in every other round.
pub(crate) fn order(round: usize, count: usize) -> impl Iterator<Item = usize> {
    let backwards = round % 2 == 1;
    (0..count).map(move |turn| if backwards { count - 1 - turn } else { turn })
}

/// Lets the last peer work alone for `seconds`, for a profiler.
pub(crate) fn profile(turns: &mut [Turn], units: usize, seconds: f64) -> Result<Rounds, String> {
    let peers = turns.len();
    let turn = turns.last_mut().ok_or("no peer")?;
    let start = Instant::now();
    let mut times = Vec::new();
    while times.is_empty() || start.elapsed().as_secs_f64() < seconds {
        times.push(vec![turn(units)?; peers]);
    }
    Ok(Rounds { times, units })
}

/// Holds this thread on one CPU: the given one, or the last that it may use.
pub(crate) fn pin(cpu: Option<usize>) -> Result<(), String> {
    linux::pin_thread(cpu)
        .map(drop)
        .map_err(|error| format!("stay on one CPU: {error}"))
}

/// A median, and the tenth and the ninetieth percentile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        let at = |part: f64| values[((values.len() - 1) as f64 * part).round() as usize];
        let (low, high) = (at(0.1), at(0.9));
        let median = median(&values).unwrap_or(f64::NAN);
        Self { low, median, high }
    }
}

impl Rounds {
    /// Speed of `peer` divided by that of the first peer, round by round; more than 1 is faster.
    pub(crate) fn speed(&self, peer: usize) -> Spread {
        let ratio = |round: &Vec<Duration>| round[0].as_secs_f64() / round[peer].as_secs_f64();
        Spread::of(self.times.iter().map(ratio).collect())
    }

    /// Time of `peer` divided by that of the first one: the inverse of its speed.
    pub(crate) fn time(&self, peer: usize) -> Spread {
        let Spread { low, median, high } = self.speed(peer);
        let [low, median, high] = [high, median, low].map(|speed| 1.0 / speed);
        Spread { low, median, high }
    }

    /// The median time of a round.
    pub(crate) fn median(&self, peer: usize) -> f64 {
        let times = self.times.iter().map(|round| round[peer].as_secs_f64());
        Spread::of(times.collect()).median
    }
}

/// The median.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        count if count % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

/// The geometric mean.
pub(crate) fn geometric_mean(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut count) = (0.0, 0);
    for value in values {
        sum += value.ln();
        count += 1;
    }
    (sum / f64::from(count.max(1))).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_taken_within_its_round() {
        let ms = Duration::from_millis;
        // The machine slows down tenfold in the middle: the ratio does not notice.
        let times = vec![vec![ms(2), ms(1)], vec![ms(20), ms(10)], vec![ms(4), ms(2)]];
        let speed = Rounds { times, units: 1 }.speed(1);
        assert_eq!((speed.low, speed.median, speed.high), (2.0, 2.0, 2.0));
    }

    #[test]
    fn the_mean_of_a_ratio_and_its_inverse_is_one() {
        assert!((geometric_mean([4.0, 0.25].into_iter()) - 1.0).abs() < 1e-12);
    }
}
