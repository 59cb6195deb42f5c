//! Copies for the command lines of other programs.

use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use restow::{CopyJob, CopyOptions, CopySummary, Format, SourceTree};
use tree::Progress;
use tree::edit::{Edits, IdMap};

use crate::bar::Bar;
use crate::copy::{CopyWords, NameLine, Names};
use crate::message::tell;
use crate::text;

/// The output during a copy.
#[derive(Clone, Copy)]
pub(super) enum Shown {
    Nothing,
    /// A bar, on a terminal.
    Bar,
    /// A line for each name.
    Names(NameLine),
    /// How much is done, in percent: a number on each line.
    Percentage,
}

/// Progress as numbers.
#[derive(Default)]
struct Percentage {
    total: AtomicU64,
    done: AtomicU64,
    /// The last number that was printed, and one more.
    shown: AtomicU64,
}

impl Progress for Percentage {
    fn expect(&self, _files: Option<u64>, bytes: Option<u64>) {
        self.total.store(bytes.unwrap_or(0), Ordering::Relaxed);
    }

    fn advance(&self, _files: u64, bytes: u64) {
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let total = self.total.load(Ordering::Relaxed).max(1);
        let percent = (u128::from(done) * 100 / u128::from(total)).min(100) as u64;
        if self.shown.fetch_max(percent + 1, Ordering::Relaxed) <= percent {
            // A closed pipe for the numbers does not stop the copy.
            let _ = writeln!(io::stdout(), "{percent}");
        }
    }
}

/// Copies a tree, and prints the files and properties that the destination does not have.
///
/// # Errors
/// The source cannot be read, or the destination cannot be written.
pub(super) fn write(
    source: SourceTree,
    to: (&Path, Format),
    edits: Option<Edits>,
    options: &CopyOptions,
) -> Result<CopySummary> {
    write_after(source, to, edits, options, Shown::Nothing, |_| Ok(()))
}

/// The same, and prints its progress; `before` sees the files that will be copied.
///
/// # Errors
/// As for [`write`], and those of `before`.
pub(super) fn write_after(
    source: SourceTree,
    (dst, format): (&Path, Format),
    edits: Option<Edits>,
    options: &CopyOptions,
    shown: Shown,
    before: impl FnOnce(&CopyJob<'_>) -> Result<()>,
) -> Result<CopySummary> {
    let source = source.for_format(format, dst, options)?;
    let bar = Bar::new("copied", !matches!(shown, Shown::Bar));
    let percentage = Percentage::default();
    let summary = CopyJob::with(&source, (dst, format), edits, options, |job| {
        for (path, why) in job.ignored_additions() {
            tell(&format!("{}: {why}", text::of_path(path)));
        }
        before(job)?;
        let line = match shown {
            Shown::Names(line) => Some(line),
            _ => None,
        };
        let names = Names::new(&bar, job.inventory(), line, dst);
        let progress: &dyn Progress = match shown {
            Shown::Percentage => &percentage,
            _ => &names,
        };
        let summary = job.write(progress, &mut |_| {})?;
        names.finish();
        Ok::<_, anyhow::Error>(summary)
    })?;
    let words = CopyWords::of((dst, format), None, &source, &summary);
    words.losses.iter().for_each(|(_, words)| tell(words));
    words.lost.iter().for_each(|words| tell(words));
    source
        .lost()
        .iter()
        .for_each(|lost| tell(&format!("{}: {lost}", source.name())));
    Ok(summary)
}

/// The maps that add an offset to all IDs; adds it to the one that all files get.
///
/// # Errors
/// That one exceeds 32 bits.
pub(super) fn id_offset(offset: u32, forced: &mut Option<u32>) -> Result<Vec<IdMap>> {
    if let Some(id) = forced {
        *id = id.checked_add(offset).context("is too large")?;
    }
    let Some(count) = u32::MAX.checked_sub(offset).filter(|_| offset > 0) else {
        return Ok(Vec::new());
    };
    let map = IdMap {
        from: 0,
        to: offset,
        count: count.saturating_add(1),
    };
    // As in the programs, the sum has 32 bits.
    let beyond = IdMap {
        from: offset.wrapping_neg(),
        to: 0,
        count: offset,
    };
    Ok(vec![map, beyond])
}
