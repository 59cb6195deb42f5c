//! This process: the owner of new files, and the CPU of its threads.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The user and group that own new files of this process.
pub fn process_owner() -> (u32, u32) {
    (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    )
}

/// Pins the calling thread to one CPU, so that measurements are stable: to `cpu`, or to the last
/// one that the thread may use. Returns the CPU.
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
