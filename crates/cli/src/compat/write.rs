//! Copies for the command lines of other programs.

use std::path::Path;

use anyhow::{Context, Result};
use restow::{CopyJob, CopyOptions, CopySummary, Format, SourceTree};
use tree::NoProgress;
use tree::edit::Edits;

use crate::copy::CopyWords;
use crate::message::tell;
use crate::text;

/// Copies a tree, and prints the files and properties that the destination does not have.
///
/// # Errors
/// The source cannot be read, or the destination cannot be written.
pub(super) fn write(
    source: SourceTree,
    (dst, format): (&Path, Format),
    edits: Option<Edits>,
    options: &CopyOptions,
) -> Result<CopySummary> {
    let name = text::of_host_path(dst, "standard output");
    let source = source.for_format(format, dst, options)?;
    let summary = CopyJob::with(&source, (dst, format), edits, options, |job| {
        for (path, why) in job.ignored_additions() {
            tell(&format!("{}: {why}", text::of_path(path)));
        }
        Ok::<_, anyhow::Error>(job.write(&NoProgress, &mut |_| {})?)
    })
    .with_context(|| format!("write {name}"))?;
    let words = CopyWords::of((dst, format), None, &source, &summary);
    words.losses.iter().for_each(|(_, words)| tell(words));
    words.lost.iter().for_each(|words| tell(words));
    source
        .lost()
        .iter()
        .for_each(|lost| tell(&format!("{}: {lost}", source.name())));
    Ok(summary)
}
