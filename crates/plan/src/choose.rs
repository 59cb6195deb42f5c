//! Which candidates are worth a look, and which one to take.

use crate::predict::CandidateRow;

/// What a copy may cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Seconds that it may take.
    pub seconds_max: Option<f64>,
    /// Bytes that the result may have.
    pub bytes_max: Option<f64>,
    /// Bytes a second that one thread must decode.
    pub read_rate: Option<f64>,
    /// Bytes of memory that a reader may need.
    pub memory_max: Option<u64>,
    /// Bytes a second of a link that the result is sent over, to be unpacked behind it.
    pub link_rate: Option<f64>,
}

/// What is made as small as the limits allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// The size.
    Size,
    /// The time of the copy.
    Time,
    /// The time to send the result and to unpack it.
    Transfer,
    /// Size, the time of the copy, and time and memory of a reader, weighed.
    Balance,
}

/// Why a candidate was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is the best of those that keep the limits.
    Best,
    /// No candidate keeps the limits; this one is nearest to them.
    Nearest,
}

/// The chosen candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Its row.
    pub row: usize,
    /// What it is best in.
    pub goal: Goal,
    /// Whether it keeps the limits.
    pub reason: Reason,
}

/// How much smaller a result must be, in parts of its size, for twice the time to copy it or to
/// read it: it is written once, and read often.
const PER_TIME: f64 = 0.05;
/// The same for twice the memory of a reader.
const PER_MEMORY: f64 = 0.01;

/// The rows than which no other is both smaller and faster, from the fastest to the smallest.
pub fn front(rows: &[CandidateRow]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by(|&a, &b| {
        let (a, b) = (&rows[a], &rows[b]);
        let by_time = a.seconds.value.total_cmp(&b.seconds.value);
        by_time.then(a.bytes.value.total_cmp(&b.bytes.value))
    });
    let mut smallest = f64::INFINITY;
    order.retain(|&row| {
        let bytes = rows[row].bytes.value;
        let is_smaller = bytes < smallest;
        smallest = smallest.min(bytes);
        is_smaller
    });
    order
}

/// What a step from one row to another changes: parts of the size that are saved, and how many
/// times the time it takes.
pub fn marginal(from: &CandidateRow, to: &CandidateRow) -> (f64, f64) {
    (
        1.0 - to.bytes.value / from.bytes.value,
        to.seconds.value / from.seconds.value,
    )
}

/// Chooses a row; `None` if there are none. Of a predicted time or size, the whole error bar must
/// keep a limit.
pub fn choose(rows: &[CandidateRow], limits: &Limits) -> Option<Choice> {
    let goal = match limits {
        Limits {
            link_rate: Some(_), ..
        } => Goal::Transfer,
        Limits {
            seconds_max: Some(_),
            ..
        } => Goal::Size,
        Limits {
            bytes_max: Some(_), ..
        } => Goal::Time,
        _ => Goal::Balance,
    };
    let excess = |row: usize| excess(&rows[row], limits);
    let kept: Vec<usize> = (0..rows.len()).filter(|&row| excess(row) <= 0.0).collect();
    let value = |row: &usize| match goal {
        Goal::Size => rows[*row].bytes.value,
        Goal::Time => rows[*row].seconds.value,
        Goal::Balance => weighed(&rows[*row]),
        Goal::Transfer => transfer_seconds(&rows[*row], limits.link_rate.unwrap_or(1.0)),
    };
    let best = (kept.iter().copied()).min_by(|a, b| value(a).total_cmp(&value(b)));
    let (row, reason) = match best {
        Some(row) => (row, Reason::Best),
        None => {
            let all = 0..rows.len();
            let nearest = all.min_by(|&a, &b| excess(a).total_cmp(&excess(b)));
            (nearest?, Reason::Nearest)
        }
    };
    Some(Choice { row, goal, reason })
}

/// Seconds to send a result and to unpack it with one thread.
pub fn transfer_seconds(row: &CandidateRow, link_rate: f64) -> f64 {
    row.bytes.value / link_rate + row.decode_seconds
}

/// By how much a row exceeds the limit that it exceeds most, in parts of it; at most 0 if it keeps
/// them all.
fn excess(row: &CandidateRow, limits: &Limits) -> f64 {
    let over = |value: f64, max: f64| value / max - 1.0;
    let time = limits
        .seconds_max
        .map(|max| over(row.seconds.value + row.seconds.error, max));
    let size = limits
        .bytes_max
        .map(|max| over(row.bytes.value + row.bytes.error, max));
    let rate = limits
        .read_rate
        .map(|min| over(min, row.decode_rate().unwrap_or(f64::INFINITY)));
    let memory = limits
        .memory_max
        .map(|max| over(row.memory_bytes as f64, max as f64));
    let all = [time, size, rate, memory].into_iter().flatten();
    all.fold(f64::NEG_INFINITY, f64::max)
}

/// A row's size, enlarged by [`PER_TIME`] and [`PER_MEMORY`] for each doubling, as a logarithm.
fn weighed(row: &CandidateRow) -> f64 {
    let doubling = |part: f64, value: f64| value.max(1e-9).log2() * -(1.0 - part).ln();
    row.bytes.value.max(1.0).ln()
        + doubling(PER_TIME, row.seconds.value)
        + doubling(PER_TIME, row.read_seconds)
        + doubling(PER_MEMORY, row.memory_bytes as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Candidate, Container, Range, Sampled};

    fn row(bytes: f64, seconds: f64, decode_seconds: f64) -> CandidateRow {
        let range = |value| Range {
            value,
            error: value / 100.0,
        };
        CandidateRow {
            candidate: Candidate::usual(Container::Btrfs)[0].clone(),
            content_bytes: 1000.0,
            bytes: range(bytes),
            seconds: range(seconds),
            encode_seconds: seconds,
            decode_seconds,
            read_seconds: decode_seconds + bytes / 1000.0,
            memory_bytes: (100.0 * decode_seconds) as u64,
            sampled: Sampled::default(),
        }
    }

    fn rows() -> Vec<CandidateRow> {
        vec![
            row(900.0, 1.0, 0.1),
            row(700.0, 2.0, 1.0),
            row(710.0, 3.0, 0.5), // dominated
            row(600.0, 4.0, 2.0),
            row(599.0, 64.0, 2.0),
            row(500.0, 100.0, 9.0),
        ]
    }

    #[test]
    fn the_front_leaves_out_what_is_slower_and_larger() {
        assert_eq!(front(&rows()), [0, 1, 3, 4, 5]);
        let (saved, times) = marginal(&rows()[0], &rows()[1]);
        assert!((saved - 2.0 / 9.0).abs() < 1e-9 && times == 2.0);
    }

    #[test]
    fn limits_are_kept_with_their_error_bars() {
        let of = |limits: Limits| {
            let choice = choose(&rows(), &limits).unwrap();
            (choice.row, choice.goal, choice.reason)
        };
        let usual = Limits::default();
        assert_eq!(of(usual), (3, Goal::Balance, Reason::Best));
        let seconds = |seconds| Limits {
            seconds_max: Some(seconds),
            ..usual
        };
        assert_eq!(of(seconds(101.1)), (5, Goal::Size, Reason::Best));
        assert_eq!(of(seconds(100.9)), (4, Goal::Size, Reason::Best));
        assert_eq!(of(seconds(0.5)), (0, Goal::Size, Reason::Nearest));
        let bytes = |bytes| Limits {
            bytes_max: Some(bytes),
            ..usual
        };
        assert_eq!(of(bytes(710.0)), (1, Goal::Time, Reason::Best));
        assert_eq!(of(bytes(701.0)), (3, Goal::Time, Reason::Best));
        assert_eq!(of(bytes(10.0)), (5, Goal::Time, Reason::Nearest));
        let read = Limits {
            read_rate: Some(900.0),
            ..usual
        };
        assert_eq!(of(read), (1, Goal::Balance, Reason::Best));
        let memory = Limits {
            memory_max: Some(200),
            ..usual
        };
        assert_eq!(of(memory), (3, Goal::Balance, Reason::Best));
        let link = |rate| Limits {
            link_rate: Some(rate),
            ..usual
        };
        assert_eq!(of(link(1000.0)), (0, Goal::Transfer, Reason::Best));
        assert_eq!(of(link(10.0)), (5, Goal::Transfer, Reason::Best));
        assert!(choose(&[], &usual).is_none());
    }

    /// A tree of npm: xz:6 in blocks of 1 MiB is 6.6 % smaller than zstd:15, as fast to write, and
    /// is read nine times as slowly.
    #[test]
    fn reading_counts() {
        let of_rate = |bytes: f64, rate: f64| row(bytes, 8.0, 1000.0 / rate);
        let rows = [of_rate(220.0, 1148.0), of_rate(220.0 * 0.934, 127.0)];
        let choice = choose(&rows, &Limits::default()).unwrap();
        assert_eq!((choice.row, choice.goal), (0, Goal::Balance));
        // What is as fast to read is taken for less.
        let rows = [of_rate(220.0, 1148.0), of_rate(220.0 * 0.934, 1100.0)];
        assert_eq!(choose(&rows, &Limits::default()).unwrap().row, 1);
    }
}
