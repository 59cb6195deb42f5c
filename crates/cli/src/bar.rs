//! The progress bar: on standard error, and only on a terminal.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tree::Progress;

/// The interval between redraws.
const REFRESH: Duration = Duration::from_millis(100);

/// Whether the user wants no bar.
static HIDDEN: AtomicBool = AtomicBool::new(false);

/// Shows no bar from now on, whatever the command.
pub(crate) fn hide_all() {
    HIDDEN.store(true, Ordering::Relaxed);
}

/// A progress bar, visible or not.
pub(crate) struct Bar {
    bar: Option<ProgressBar>,
    files: AtomicU64,
    written: AtomicU64,
}

impl Bar {
    /// A bar with a word for the activity; invisible if `quiet`, or if standard error is not a terminal.
    pub(crate) fn new(word: &'static str, quiet: bool) -> Bar {
        let hidden = quiet || HIDDEN.load(Ordering::Relaxed);
        let shown = !hidden && std::io::stderr().is_terminal();
        let bar = shown.then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
            bar.set_style(style(
                "{prefix} {spinner} {msg} {decimal_bytes} {decimal_bytes_per_sec}",
            ));
            bar.set_prefix(word);
            bar.enable_steady_tick(REFRESH);
            bar
        });
        Bar {
            bar,
            files: AtomicU64::new(0),
            written: AtomicU64::new(0),
        }
    }

    /// Whether anybody sees it.
    pub(crate) fn is_shown(&self) -> bool {
        self.bar.is_some()
    }

    /// Removes the bar from the screen.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Progress for Bar {
    fn expect(&self, _files: Option<u64>, bytes: Option<u64>) {
        if let (Some(bar), Some(bytes)) = (&self.bar, bytes.filter(|&bytes| bytes > 0)) {
            bar.set_style(style(
                "{prefix} [{bar:30}] {percent}% {decimal_bytes} of {decimal_total_bytes} \
                 {decimal_bytes_per_sec} {eta} {msg}",
            ));
            bar.set_length(bytes);
        }
    }

    fn advance(&self, files: u64, bytes: u64) {
        let Some(bar) = &self.bar else { return };
        bar.inc(bytes);
        let before = self.files.fetch_add(files, Ordering::Relaxed);
        // The text is updated only every 256 files: trees have millions.
        if before / 256 != (before + files) / 256 {
            let written = self.written.load(Ordering::Relaxed);
            let ratio = if written == 0 {
                String::new()
            } else {
                format!(", ratio {:.2}", bar.position() as f64 / written as f64)
            };
            bar.set_message(format!("{} files{ratio}", before + files));
        }
    }

    fn wrote(&self, bytes: u64) {
        self.written.fetch_add(bytes, Ordering::Relaxed);
    }
}

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).expect("the template is a constant");
    style.progress_chars("=> ")
}
