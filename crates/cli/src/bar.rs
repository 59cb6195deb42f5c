//! Progress on standard error: a bar on a terminal, or JSON for a program.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tree::Progress;
use tree::json::Object;

/// The interval between redraws.
const REFRESH: Duration = Duration::from_millis(100);
/// The least time between two objects.
const INTERVAL: Duration = Duration::from_millis(200);

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// A bar, if standard error is a terminal
    Bar,
    /// A JSON object per line
    Json,
    /// Not at all
    None,
}

/// The form that the user wants, as its number.
static FORM: AtomicU8 = AtomicU8::new(Form::Bar as u8);

/// The bar on the screen.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Removes the bar from the screen.
pub(crate) fn clear() {
    let shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(bar) = shown {
        bar.finish_and_clear();
    }
}

/// Sets the form of progress for every command.
pub(crate) fn show_as(form: Form) {
    FORM.store(form as u8, Ordering::Relaxed);
}

/// Progress, visible or not.
pub(crate) struct Bar {
    view: View,
    files: AtomicU64,
    written: AtomicU64,
}

enum View {
    Hidden,
    Bar(ProgressBar),
    Json(Objects),
}

/// Progress for a program.
struct Objects {
    word: &'static str,
    bytes: AtomicU64,
    /// [`u64::MAX`] if that is not known.
    total: AtomicU64,
    /// When the last object was printed; `None` after the end.
    last: Mutex<Option<Instant>>,
}

impl Bar {
    /// Progress with a word for the activity; no bar if `quiet`, or without a terminal. Progress
    /// for a program is always printed.
    pub(crate) fn new(word: &'static str, quiet: bool) -> Bar {
        let form = FORM.load(Ordering::Relaxed);
        let view = if form == Form::Json as u8 {
            View::Json(Objects {
                word,
                bytes: AtomicU64::new(0),
                total: AtomicU64::new(u64::MAX),
                last: Mutex::new(Some(Instant::now())),
            })
        } else if !quiet && form == Form::Bar as u8 && io::stderr().is_terminal() {
            View::Bar(terminal_bar(word))
        } else {
            View::Hidden
        };
        Bar::of(view)
    }

    /// Progress that is not shown.
    pub(crate) fn hidden() -> Bar {
        Bar::of(View::Hidden)
    }

    fn of(view: View) -> Bar {
        Bar {
            view,
            files: AtomicU64::new(0),
            written: AtomicU64::new(0),
        }
    }

    /// Whether anybody sees it.
    pub(crate) fn is_shown(&self) -> bool {
        !matches!(self.view, View::Hidden)
    }

    /// Removes the bar from the screen, or prints the last object.
    pub(crate) fn finish(&self) {
        match &self.view {
            View::Hidden => {}
            View::Bar(_) => clear(),
            View::Json(objects) => {
                let mut last = objects.last.lock().unwrap_or_else(PoisonError::into_inner);
                if last.take().is_some() {
                    self.print(objects, true);
                }
            }
        }
    }

    fn print(&self, objects: &Objects, is_done: bool) {
        let mut object = Object::new()
            .text("progress", objects.word)
            .number("files", self.files.load(Ordering::Relaxed))
            .number("bytes", objects.bytes.load(Ordering::Relaxed));
        let total = objects.total.load(Ordering::Relaxed);
        if total != u64::MAX {
            object = object.number("total_bytes", total);
        }
        let object = object
            .number("written_bytes", self.written.load(Ordering::Relaxed))
            .flag("is_done", is_done);
        // Progress that cannot be printed is not an error.
        let _ = writeln!(io::stderr(), "{}", object.line());
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Progress for Bar {
    fn expect(&self, _files: Option<u64>, bytes: Option<u64>) {
        let Some(bytes) = bytes.filter(|&bytes| bytes > 0) else {
            return;
        };
        match &self.view {
            View::Hidden => {}
            View::Bar(bar) => {
                bar.set_style(style(
                    "{prefix} [{bar:10}] {percent}% {decimal_bytes} of {decimal_total_bytes} \
                     {decimal_bytes_per_sec} {eta} {wide_msg}",
                ));
                bar.set_length(bytes);
            }
            View::Json(objects) => objects.total.store(bytes, Ordering::Relaxed),
        }
    }

    fn advance(&self, files: u64, bytes: u64) {
        if !self.is_shown() {
            return;
        }
        let before = self.files.fetch_add(files, Ordering::Relaxed);
        match &self.view {
            View::Hidden => {}
            View::Bar(bar) => {
                bar.inc(bytes);
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
            View::Json(objects) => {
                objects.bytes.fetch_add(bytes, Ordering::Relaxed);
                // Another thread is printing.
                let Ok(mut last) = objects.last.try_lock() else {
                    return;
                };
                if last.is_some_and(|last| last.elapsed() >= INTERVAL) {
                    self.print(objects, false);
                    *last = Some(Instant::now());
                }
            }
        }
    }

    fn wrote(&self, bytes: u64) {
        self.written.fetch_add(bytes, Ordering::Relaxed);
    }
}

fn terminal_bar(word: &'static str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
    bar.set_style(style(
        "{prefix} {spinner} {decimal_bytes} {decimal_bytes_per_sec} {wide_msg}",
    ));
    bar.set_prefix(word);
    bar.enable_steady_tick(REFRESH);
    *SHOWN.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.clone());
    bar
}

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).expect("the template is a constant");
    style.progress_chars("=> ")
}
