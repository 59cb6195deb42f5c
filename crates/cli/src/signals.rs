//! Ctrl-C and its kin: what is unfinished goes, then the process ends.

use std::io;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tree::temporary;

/// Starts a thread that waits for a signal to end.
///
/// The exit code is 128 and the signal's number, as shells have it: 130 for Ctrl-C, 143 for SIGTERM, 129 for a closed
/// terminal. A signal that was ignored when the process began, as `nohup` does with SIGHUP, would come here all the same;
/// Linux tells which those are.
///
/// # Errors
/// The thread cannot be started.
pub(crate) fn watch() -> io::Result<()> {
    let ignored = ignored();
    let wanted = [SIGHUP, SIGINT, SIGTERM].into_iter();
    let wanted = wanted.filter(|signal| ignored & (1 << (signal - 1)) == 0);
    let mut signals = Signals::new(wanted)?;
    let wait = move || {
        if let Some(signal) = signals.forever().next() {
            temporary::remove_all();
            std::process::exit(128 + signal);
        }
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(wait)?;
    Ok(())
}

/// The signals that are ignored, a bit each.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|line| u64::from_str_radix(line.trim(), 16).ok())
        .unwrap_or(0)
}
