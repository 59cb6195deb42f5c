//! When the last part is encoded, if threads take one part after another.

/// The threads that encode.
#[derive(Clone, Copy)]
pub(crate) struct Workers {
    pub(crate) threads: usize,
    /// The most parts that are taken before the first of them is written.
    pub(crate) in_flight: usize,
    /// Processors, on which other threads run, too.
    pub(crate) processors: usize,
}

/// What two other threads do while parts are encoded, in seconds.
#[derive(Clone, Copy)]
pub(crate) struct Beside {
    /// One sends the content through a pipe and the other cuts it: as long as that takes alone. 0
    /// if the threads that encode read their parts themselves.
    pub(crate) piped: f64,
    /// The latter writes the results.
    pub(crate) written: f64,
}

/// Seconds until all parts, which take this many seconds each, are encoded and written to the cache
/// of a file.
///
/// A thread that has no part left waits: of seven long parts, two threads take as long as of eight.
///
/// Results are written in order, so within noise that is stored as it is, all threads wait for one
/// part that compresses.
pub(crate) fn worked_seconds(workers: Workers, parts: &[f64], beside: Beside) -> f64 {
    let Workers {
        threads, in_flight, ..
    } = workers;
    let processors = workers.processors.max(1) as f64;
    let encode: f64 = parts.iter().sum();
    // Both ends of the pipe are busy, if there are processors for both.
    let others = beside.piped * processors.min(2.0) + beside.written;
    // With more threads than processors, each part takes longer because the others run, too.
    let work = encode * (processors / threads as f64).min(1.0) + others;
    let alone = (encode / threads as f64).max(f64::MIN_POSITIVE);
    let slower = (work / processors / alone).max(1.0);
    let each = beside.piped / parts.len().max(1) as f64;
    let mut free = vec![0.0_f64; threads];
    // When a part and all before it are done.
    let mut done: Vec<f64> = Vec::with_capacity(parts.len());
    for (number, part) in parts.iter().enumerate() {
        let arrived = (number + 1) as f64 * each;
        let waited = number.checked_sub(in_flight).map_or(0.0, |it| done[it]);
        let first = free.iter_mut().min_by(|a, b| a.total_cmp(b));
        if let Some(first) = first {
            *first = first.max(arrived).max(waited) + part * slower;
            done.push(first.max(done.last().copied().unwrap_or(0.0)));
        }
    }
    let last = free.into_iter().fold(work / processors, f64::max);
    last.max(beside.piped + beside.written)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: Beside = Beside {
        piped: 0.0,
        written: 0.0,
    };

    fn seconds(threads: usize, parts: &[f64], beside: Beside) -> f64 {
        let workers = Workers {
            threads,
            in_flight: 4 * threads,
            processors: 2,
        };
        let seconds = worked_seconds(workers, parts, beside);
        (seconds * 1000.0).round() / 1000.0
    }

    #[test]
    fn a_thread_without_a_part_waits() {
        assert_eq!(seconds(2, &[1.0; 8], ALONE), 4.0);
        assert_eq!(seconds(2, &[1.0; 7], ALONE), 4.0);
        // A short last part is done beside a long one.
        assert_eq!(seconds(2, &[1.0, 1.0, 1.0, 0.5], ALONE), 2.0);
        assert_eq!(seconds(1, &[1.0; 7], ALONE), 7.0);
        // Four threads, tried on two processors: each part took twice as long as it works.
        assert_eq!(seconds(4, &[2.0; 8], ALONE), 4.0);
    }

    #[test]
    fn threads_wait_for_a_long_part() {
        // The other thread takes seven parts meanwhile.
        let mut parts = [0.01; 101];
        parts[0] = 1.0;
        assert_eq!(seconds(2, &parts, ALONE), 1.47);
    }

    #[test]
    fn what_is_done_beside_takes_processors() {
        let written = Beside {
            written: 2.0,
            ..ALONE
        };
        assert_eq!(seconds(2, &[0.01; 800], written), 5.0);
        // One processor is free.
        assert_eq!(seconds(1, &[0.01; 800], written), 8.0);
        let piped = Beside {
            piped: 10.0,
            ..ALONE
        };
        // The last part is there after ten seconds, and both processors are busy until then.
        assert!(seconds(2, &[0.1; 10], piped) > 10.5);
        assert_eq!(seconds(2, &[], piped), 10.0);
    }
}
