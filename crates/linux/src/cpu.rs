//! Which CPU a thread runs on.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;

/// Holds the calling thread on one CPU, so that measurements do not move: on `cpu`, or on the last one that the
/// thread may use. Returns the CPU.
///
/// # Errors
///
/// `EINVAL` when the thread may not use that CPU.
pub fn pin_thread(cpu: Option<usize>) -> io::Result<usize> {
    let allowed = sched_getaffinity(None)?;
    let last = || (0..CpuSet::MAX_CPU).rev().find(|cpu| allowed.is_set(*cpu));
    let cpu = cpu.or_else(last).filter(|cpu| *cpu < CpuSet::MAX_CPU);
    let cpu = cpu.ok_or(io::ErrorKind::InvalidInput)?;
    let mut only = CpuSet::new();
    only.set(cpu);
    sched_setaffinity(None, &only)?;
    Ok(cpu)
}
