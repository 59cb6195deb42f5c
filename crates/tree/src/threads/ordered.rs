//! The ordered parallel map: many threads work, and the calling thread takes the results in job
//! order.
//!
//! Threads are started nowhere else. The outcome does not depend on the number of threads: the sink
//! sees the same results in the same order, and the error returned is that of the first job in
//! order that failed.

use std::any::Any;
use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// The number of threads, and the number of jobs in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parallel {
    threads: NonZeroUsize,
    in_flight: NonZeroUsize,
    /// 0: as the standard library has it.
    stack_bytes: usize,
}

impl Parallel {
    /// `threads` workers; each has one job running and three that wait or are done. 0 means 1.
    pub fn new(threads: usize) -> Parallel {
        let threads = NonZeroUsize::new(threads).unwrap_or(NonZeroUsize::MIN);
        Parallel {
            threads,
            in_flight: threads.saturating_mul(NonZeroUsize::MIN.saturating_add(3)),
            stack_bytes: 0,
        }
    }

    /// Sets the size of the stack of each thread, where memory is short.
    pub fn stack_bytes(self, stack_bytes: usize) -> Parallel {
        Parallel {
            stack_bytes,
            ..self
        }
    }

    /// Limits the jobs taken from the iterator whose results the sink has not processed yet. 0
    /// means 1.
    pub fn in_flight(self, in_flight: usize) -> Parallel {
        Parallel {
            in_flight: NonZeroUsize::new(in_flight).unwrap_or(NonZeroUsize::MIN),
            ..self
        }
    }

    /// As many threads as are available to this process.
    pub fn available() -> Parallel {
        Parallel::new(thread::available_parallelism().map_or(1, NonZeroUsize::get))
    }

    /// The number of threads.
    pub fn threads(&self) -> usize {
        self.threads.get()
    }

    /// The maximum number of jobs in flight.
    pub fn jobs_max(&self) -> usize {
        self.in_flight.get()
    }
}

/// Runs `work` on every job, on several threads, and passes the results to `sink` on this thread in
/// the order of `jobs`.
///
/// `workspace` creates the state that each thread keeps between jobs, such as a compressor's
/// memory. Jobs are taken from the iterator on this thread, never more than the in-flight limit
/// ahead of the sink; this bounds memory use. With one thread, everything runs on this one.
///
/// # Errors
/// The first error of `work` or `sink`, in job order; no later result reaches the sink. A job
/// source that can fail yields its error as a job.
///
/// # Panics
/// With the payload of the first job in order whose work panicked. All threads have ended by then.
pub fn ordered<J, W, D, E>(
    parallel: Parallel,
    jobs: impl Iterator<Item = J>,
    workspace: impl Fn() -> W + Sync,
    work: impl Fn(&mut W, J) -> Result<D, E> + Sync,
    sink: impl FnMut(D) -> Result<(), E>,
) -> Result<(), E>
where
    J: Send,
    D: Send,
    E: Send,
{
    let mut jobs = jobs.fuse();
    ordered_on_demand(parallel, || jobs.next(), workspace, work, sink)
}

/// Like [`ordered`], for jobs that follow from results: after `next` returned `None`, it is called
/// again when the sink has taken further results. The work ends when it returns `None` and no job
/// is in flight.
///
/// # Errors
/// As for [`ordered`].
///
/// # Panics
/// As for [`ordered`].
pub fn ordered_on_demand<J, W, D, E>(
    parallel: Parallel,
    mut next: impl FnMut() -> Option<J>,
    workspace: impl Fn() -> W + Sync,
    work: impl Fn(&mut W, J) -> Result<D, E> + Sync,
    mut sink: impl FnMut(D) -> Result<(), E>,
) -> Result<(), E>
where
    J: Send,
    D: Send,
    E: Send,
{
    if parallel.threads.get() == 1 {
        return in_line(next, workspace, work, sink);
    }
    let room = Room::new(parallel);
    thread::scope(|scope| {
        // However this closure ends, even by a panic in the sink, the workers stop and the scope
        // can end.
        let _closing = Closing(&room);
        let mut spawned = 0;
        for _ in 0..parallel.threads.get() {
            let mut worker = thread::Builder::new().name("worker".into());
            if parallel.stack_bytes > 0 {
                worker = worker.stack_size(parallel.stack_bytes);
            }
            let run = || room.work(&workspace, &work);
            spawned += usize::from(worker.spawn_scoped(scope, run).is_ok());
        }
        if spawned == 0 {
            return in_line(&mut next, &workspace, &work, sink);
        }
        let mut early: VecDeque<Option<JobOutcome<D, E>>> = VecDeque::new();
        let (mut sent, mut done) = (0u64, 0u64);
        loop {
            while sent - done < parallel.in_flight.get() as u64 {
                let Some(job) = next() else { break };
                room.send(sent, job);
                early.push_back(None);
                sent += 1;
            }
            if done == sent {
                return Ok(());
            }
            for (seq, outcome) in room.receive() {
                // A job in flight always has a place here.
                early[(seq - done) as usize] = Some(outcome);
            }
            while let Some(Some(_)) = early.front() {
                match early.pop_front().flatten() {
                    Some(JobOutcome::Done(result)) => sink(result?)?,
                    Some(JobOutcome::Panicked(payload)) => resume_unwind(payload),
                    None => {}
                }
                done += 1;
            }
        }
    })
}

fn in_line<J, W, D, E>(
    mut next: impl FnMut() -> Option<J>,
    workspace: impl Fn() -> W,
    work: impl Fn(&mut W, J) -> Result<D, E>,
    mut sink: impl FnMut(D) -> Result<(), E>,
) -> Result<(), E> {
    let mut state = workspace();
    while let Some(job) = next() {
        sink(work(&mut state, job)?)?;
    }
    Ok(())
}

/// The outcome of a job.
enum JobOutcome<D, E> {
    Done(Result<D, E>),
    Panicked(Box<dyn Any + Send>),
}

/// The state shared between the calling thread and the workers.
struct Room<J, D, E> {
    inside: Mutex<Inside<J, D, E>>,
    /// The calling thread sleeps until no more than this many jobs are waiting. It then takes
    /// several results at once, and does not displace a worker for each of them.
    low: usize,
    /// Signalled when there is a job and a worker waits for one, and at the end.
    to_do: Condvar,
    /// Signalled when there are results and more jobs are needed.
    done: Condvar,
}

struct Inside<J, D, E> {
    jobs: VecDeque<(u64, J)>,
    results: Vec<(u64, JobOutcome<D, E>)>,
    /// Workers that are waiting for a job.
    idle: usize,
    closed: bool,
}

impl<J, D, E> Inside<J, D, E> {
    /// Whether the calling thread is needed: there are results, and few jobs are left.
    fn runs_low(&self, low: usize) -> bool {
        !self.results.is_empty() && self.jobs.len() <= low
    }
}

impl<J, D, E> Room<J, D, E> {
    fn new(parallel: Parallel) -> Self {
        Room {
            inside: Mutex::new(Inside {
                jobs: VecDeque::new(),
                results: Vec::new(),
                idle: 0,
                closed: false,
            }),
            low: parallel.jobs_max().saturating_sub(parallel.threads()) / 2,
            to_do: Condvar::new(),
            done: Condvar::new(),
        }
    }

    /// No caller's code runs under the lock, so even a poisoned one guards consistent data.
    fn lock(&self) -> MutexGuard<'_, Inside<J, D, E>> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, seq: u64, job: J) {
        let mut inside = self.lock();
        inside.jobs.push_back((seq, job));
        let has_idle = inside.idle > 0;
        drop(inside);
        if has_idle {
            self.to_do.notify_one();
        }
    }

    /// Waits until jobs are needed and there are results, then takes all results.
    fn receive(&self) -> Vec<(u64, JobOutcome<D, E>)> {
        let mut inside = self.lock();
        while !inside.runs_low(self.low) {
            inside = self
                .done
                .wait(inside)
                .unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::take(&mut inside.results)
    }

    /// The worker loop: takes a job, runs it and hands in the result, until the room is closed.
    fn work<W>(&self, workspace: impl Fn() -> W, work: impl Fn(&mut W, J) -> Result<D, E>) {
        let mut state = None;
        while let Some((seq, job)) = self.next_job() {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                work(state.get_or_insert_with(&workspace), job)
            }));
            let outcome = match outcome {
                Ok(result) => JobOutcome::Done(result),
                Err(payload) => {
                    state = None; // it may be half changed
                    JobOutcome::Panicked(payload)
                }
            };
            let mut inside = self.lock();
            inside.results.push((seq, outcome));
            let runs_low = inside.runs_low(self.low);
            drop(inside);
            if runs_low {
                self.done.notify_one();
            }
        }
    }

    fn next_job(&self) -> Option<(u64, J)> {
        let mut inside = self.lock();
        loop {
            if inside.closed {
                return None;
            }
            if let Some(job) = inside.jobs.pop_front() {
                return Some(job);
            }
            inside.idle += 1;
            inside = self
                .to_do
                .wait(inside)
                .unwrap_or_else(PoisonError::into_inner);
            inside.idle -= 1;
        }
    }
}

/// Closes the room on drop: workers finish their current job and end.
struct Closing<'a, J, D, E>(&'a Room<J, D, E>);

impl<J, D, E> Drop for Closing<'_, J, D, E> {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.to_do.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    const THREADS: [usize; 4] = [1, 2, 3, 8];

    /// Work of uneven length, so that results arrive out of order.
    fn uneven(job: u64) -> u64 {
        let rounds = if job.is_multiple_of(7) { 20_000 } else { 10 };
        (0..rounds).fold(job, |x, _| {
            std::hint::black_box(x.wrapping_mul(0x9E37_79B9))
        })
    }

    #[test]
    fn results_come_in_the_order_of_the_jobs() {
        let expected: Vec<u64> = (0..1000).map(uneven).collect();
        for threads in THREADS {
            let mut got = Vec::new();
            let all = ordered(
                Parallel::new(threads),
                0..1000u64,
                || (),
                |(), job| Ok::<_, ()>(uneven(job)),
                |x| {
                    got.push(x);
                    Ok(())
                },
            );
            assert_eq!(all, Ok(()));
            assert_eq!(got, expected, "{threads} threads");
        }
    }

    #[test]
    fn no_more_jobs_are_in_flight_than_allowed() {
        for threads in THREADS {
            for limit in [1, 2, 5, 64] {
                let (pulled, sunk) = (AtomicUsize::new(0), AtomicUsize::new(0));
                let most = AtomicUsize::new(0);
                let jobs = (0..500u64).inspect(|_| {
                    let out = pulled.fetch_add(1, SeqCst) + 1 - sunk.load(SeqCst);
                    most.fetch_max(out, SeqCst);
                });
                let all = ordered(
                    Parallel::new(threads).in_flight(limit),
                    jobs,
                    || (),
                    |(), job| Ok::<_, ()>(uneven(job)),
                    |_| {
                        sunk.fetch_add(1, SeqCst);
                        Ok(())
                    },
                );
                assert_eq!(all, Ok(()));
                assert_eq!(sunk.load(SeqCst), 500);
                let allowed = if threads == 1 { 1 } else { limit };
                assert!(most.load(SeqCst) <= allowed, "{threads} threads, {limit}");
            }
        }
    }

    #[test]
    fn the_first_error_in_order_wins_and_nothing_after_it_is_sunk() {
        for threads in THREADS {
            for _ in 0..20 {
                let mut got = Vec::new();
                let all = ordered(
                    Parallel::new(threads),
                    0..100u64,
                    || (),
                    |(), job| {
                        uneven(job);
                        if job == 42 || job == 43 {
                            Err(job)
                        } else {
                            Ok(job)
                        }
                    },
                    |x| {
                        got.push(x);
                        Ok(())
                    },
                );
                assert_eq!(all, Err(42));
                assert_eq!(got, (0..42).collect::<Vec<_>>(), "{threads} threads");
            }
        }
    }

    #[test]
    fn an_error_of_the_sink_ends_it() {
        for threads in THREADS {
            let mut got = 0;
            let all = ordered(
                Parallel::new(threads),
                0..,
                || (),
                |(), job: u64| Ok(uneven(job)),
                |_| {
                    got += 1;
                    if got == 10 { Err("full") } else { Ok(()) }
                },
            );
            assert_eq!((all, got), (Err("full"), 10), "{threads} threads");
        }
    }

    #[test]
    fn a_panic_of_a_worker_reaches_the_caller_in_its_turn() {
        for threads in THREADS {
            let mut got = Vec::new();
            let caught = catch_unwind(AssertUnwindSafe(|| {
                ordered(
                    Parallel::new(threads),
                    0..100u64,
                    || (),
                    |(), job| {
                        if job == 30 {
                            std::panic::panic_any(job);
                        }
                        Ok::<_, ()>(job)
                    },
                    |x| {
                        got.push(x);
                        Ok(())
                    },
                )
            }));
            let payload = caught.unwrap_err();
            assert_eq!(payload.downcast_ref::<u64>(), Some(&30));
            assert_eq!(got, (0..30).collect::<Vec<_>>(), "{threads} threads");
        }
    }

    #[test]
    fn panics_of_the_sink_and_of_the_jobs_do_not_hang() {
        for threads in THREADS {
            let by_sink = catch_unwind(AssertUnwindSafe(|| {
                ordered(
                    Parallel::new(threads),
                    0..100u64,
                    || (),
                    |(), job| Ok::<_, ()>(job),
                    |x| if x == 5 { panic!("sink") } else { Ok(()) },
                )
            }));
            assert!(by_sink.is_err());
            let by_jobs = catch_unwind(AssertUnwindSafe(|| {
                ordered(
                    Parallel::new(threads),
                    (0..100u64).inspect(|&x| assert!(x < 50)),
                    || (),
                    |(), job| Ok::<_, ()>(job),
                    |_| Ok(()),
                )
            }));
            assert!(by_jobs.is_err());
        }
    }

    #[test]
    fn each_thread_keeps_its_own_state() {
        for threads in THREADS {
            let made = AtomicUsize::new(0);
            let mut sum = 0;
            let all = ordered(
                Parallel::new(threads),
                0..1000u64,
                || {
                    made.fetch_add(1, SeqCst);
                    Vec::new()
                },
                |kept: &mut Vec<u64>, job| {
                    kept.clear();
                    kept.extend([job; 3]);
                    Ok::<u64, ()>(kept.iter().sum())
                },
                |x| {
                    sum += x;
                    Ok(())
                },
            );
            assert_eq!((all, sum), (Ok(()), 3 * 499_500));
            assert!(made.load(SeqCst) <= threads, "{threads} threads");
        }
    }

    #[test]
    fn jobs_can_follow_from_results() {
        use std::cell::RefCell;
        for threads in THREADS {
            // Each job below 100 leads to two more, which are not known before.
            let (to_do, mut got) = (RefCell::new(VecDeque::from([1u64])), Vec::new());
            let all = ordered_on_demand(
                Parallel::new(threads),
                || to_do.borrow_mut().pop_front(),
                || (),
                |(), job| Ok::<_, ()>((job, uneven(job))),
                |(job, result)| {
                    got.push(job);
                    assert_eq!(result, uneven(job));
                    if job < 100 {
                        to_do.borrow_mut().extend([2 * job, 2 * job + 1]);
                    }
                    Ok(())
                },
            );
            assert_eq!(all, Ok(()));
            assert_eq!(got, (1..200).collect::<Vec<_>>(), "{threads} threads");
        }
    }

    #[test]
    fn no_jobs_is_fine() {
        let jobs = std::iter::empty::<()>();
        let all = ordered(
            Parallel::new(4),
            jobs,
            || (),
            |(), ()| Ok::<_, ()>(()),
            |()| Ok(()),
        );
        assert_eq!(all, Ok(()));
    }
}
