//! SIGINT, SIGTERM and SIGHUP: unfinished output is removed, then the process ends.

use std::io;
use std::sync::{Mutex, PoisonError};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tree::temporary;

use crate::bar;

/// The action in place of ending the process at once.
static ON_SIGNAL: Mutex<Option<Box<dyn FnOnce() + Send>>> = Mutex::new(None);

/// Lets a signal call `stop`, which ends the process.
pub(crate) fn on_signal(stop: impl FnOnce() + Send + 'static) {
    let mut on_signal = ON_SIGNAL.lock().unwrap_or_else(PoisonError::into_inner);
    *on_signal = Some(Box::new(stop));
}

/// Starts a thread that waits for a signal and then ends the process.
///
/// The exit code is 128 plus the number of the signal, as in shells: 130 for Ctrl-C, 143 for
/// SIGTERM, 129 for a closed terminal. Signals that were ignored when the process started, such as
/// SIGHUP under `nohup`, stay ignored.
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
            bar::clear();
            let stop = (ON_SIGNAL.lock().unwrap_or_else(PoisonError::into_inner)).take();
            if let Some(stop) = stop {
                stop();
            }
            std::process::exit(128 + signal);
        }
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(wait)?;
    Ok(())
}

/// The ignored signals, one bit each, as the kernel reports them.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|line| u64::from_str_radix(line.trim(), 16).ok())
        .unwrap_or(0)
}
