//! The prediction as a table for people.

use std::fmt::Write as _;

use restow::plan::{CandidateRow, Coding, Range};

use super::report::Report;
use crate::text;

/// Makes text less bright on a terminal, and as bright as usual again.
const DIM: &str = "\x1b[2m";
const BOLD: &str = "\x1b[1m";
const USUAL: &str = "\x1b[0m";

/// The heads of the columns.
const HEADS: [&str; 9] = [
    "codec",
    "block",
    "size",
    "ratio",
    "time",
    "MB/s",
    "read MB/s",
    "memory",
    "step",
];

/// The whole report.
pub(super) fn of(report: &Report<'_>, is_terminal: bool) -> String {
    let mut words = head(report);
    let mut lines = vec![HEADS.map(str::to_owned).to_vec()];
    if report.limits.link_rate.is_some() {
        lines[0].insert(8, "sent".into());
    }
    for &row in &report.order {
        lines.push(cells(report, row));
    }
    let columns = lines[0].len();
    let widths: Vec<usize> = (0..columns)
        .map(|column| lines.iter().map(|line| line[column].chars().count()).max())
        .map(Option::unwrap_or_default)
        .collect();
    for (number, line) in lines.iter().enumerate() {
        let row = number.checked_sub(1).map(|number| report.order[number]);
        let is_dim = row.is_some_and(|row| !report.front.contains(&row));
        let mark = match row {
            Some(row) if report.is_chosen(row) => '>',
            Some(_) if is_dim => '-',
            _ => ' ',
        };
        let mut text = format!("{mark} {:<1$}", line[0], widths[0]);
        for (cell, width) in line.iter().zip(&widths).skip(1) {
            let _ = write!(text, "  {cell:>width$}");
        }
        let text = text.trim_end();
        let (before, after) = match (is_terminal, mark) {
            (true, '-') => (DIM, USUAL),
            (true, '>') => (BOLD, USUAL),
            _ => ("", ""),
        };
        let _ = writeln!(words, "{before}{text}{after}");
    }
    words + &foot(report)
}

/// The basis of the prediction.
pub(super) fn head(report: &Report<'_>) -> String {
    let mut words = format!(
        "{}: {}, {}",
        report.name,
        text::count(report.prediction.files, "file"),
        text::of_bytes(report.prediction.content_bytes)
    );
    if report.prediction.duplicate_bytes > 0 {
        let bytes = text::of_bytes(report.prediction.duplicate_bytes);
        let _ = write!(words, " ({bytes} in duplicates)");
    }
    let _ = writeln!(
        words,
        "; for {}, {}",
        report.container.name(),
        text::count(report.threads as u64, "thread")
    );
    let sampled = report
        .rows()
        .iter()
        .map(|row| row.sampled)
        .max_by_key(|it| it.parts);
    if let Some(sampled) = sampled.filter(|sampled| sampled.parts > 0) {
        let _ = writeln!(
            words,
            "sample {}: {} of {} in each candidate, {} in the first pass; took {}",
            report.seed,
            text::of_bytes(sampled.tried_bytes),
            text::count(sampled.parts, "part"),
            text::of_bytes(sampled.first_bytes),
            of_seconds(report.seconds)
        );
    }
    words.push('\n');
    words
}

fn foot(report: &Report<'_>) -> String {
    let Some(advice) = &report.advice else {
        return String::new();
    };
    format!(
        "\nrecommended: {}\nreason: {}\n\n  {}\n",
        advice.sentence, advice.reason, advice.command
    )
}

/// The cells of a row.
pub(super) fn cells(report: &Report<'_>, index: usize) -> Vec<String> {
    let row = &report.rows()[index];
    let content = report.prediction.content_bytes as f64;
    let rate = |bytes: f64| match bytes / 1e6 {
        rate if rate < 9.95 => format!("{rate:.1}"),
        rate => format!("{rate:.0}"),
    };
    let step = report.step(index).map_or(String::new(), |(saved, times)| {
        format!("-{:.1} % size, x{times:.1} time", 100.0 * saved)
    });
    let mut cells = vec![
        report.words(row),
        block(row),
        format!(
            "{} {}",
            text::of_bytes(row.bytes.value as u64),
            percent(row.bytes)
        ),
        format!("{:.3}", content / row.bytes.value.max(1.0)),
        of_time(row.seconds),
        rate(content / row.seconds.value.max(1e-9)),
        row.decode_rate().map_or(String::from("-"), rate),
        text::of_bytes(row.memory_bytes),
        step,
    ];
    if report.limits.link_rate.is_some() {
        let sent = report.transfer(row).map_or(String::new(), of_seconds);
        cells.insert(8, sent);
    }
    cells
}

fn block(row: &CandidateRow) -> String {
    match row.candidate.block_bytes {
        Some(bytes) if row.candidate.coding != Coding::Plain => of_block(bytes),
        _ => String::from("-"),
    }
}

/// A predicted time. Where the error is larger, as that of a `sync` for a few files, only the
/// end of the bar says anything.
fn of_time(range: Range) -> String {
    if range.error > range.value {
        return format!("at most {}", of_seconds(range.value + range.error));
    }
    format!("{} {}", of_seconds(range.value), percent(range))
}

fn percent(range: Range) -> String {
    if range.value <= 0.0 {
        return String::new();
    }
    format!("±{:.1}%", 100.0 * range.error / range.value)
}

/// A block size as `--block-size` takes it.
pub(super) fn of_block(bytes: u32) -> String {
    match bytes >> 20 {
        0 => format!("{}K", bytes >> 10),
        mib => format!("{mib}M"),
    }
}

/// A time in seconds, minutes or hours.
pub(super) fn of_seconds(seconds: f64) -> String {
    match seconds {
        _ if seconds < 0.0995 => format!("{:.0} ms", 1000.0 * seconds),
        _ if seconds < 9.95 => format!("{seconds:.1} s"),
        _ if seconds < 99.5 => format!("{seconds:.0} s"),
        _ if seconds < 99.5 * 60.0 => format!("{:.1} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_is_not_known_is_a_limit() {
        let of = |value, error| of_time(Range { value, error });
        assert_eq!(of(2.0, 0.25), "2.0 s ±12.5%");
        assert_eq!(of(0.011, 0.102), "at most 0.1 s");
        assert_eq!(of(0.0, 0.0), "0 ms ");
    }
}
