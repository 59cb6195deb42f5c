//! Cells and tables in Markdown.

use crate::measure::Spread;

/// A Markdown table: the titles of its columns, separated by ` | `, and its rows.
pub(crate) fn markdown(columns: &str, rows: &[Vec<String>]) -> String {
    let rule = "---|".repeat(columns.split(" | ").count());
    let mut text = format!("| {columns} |\n|{rule}\n");
    for row in rows {
        text += &format!("| {} |\n", row.join(" | "));
    }
    text
}

/// A number with this many decimals, or a dash.
pub(crate) fn cell(value: Option<f64>, decimals: usize) -> String {
    match value {
        Some(value) if value.is_finite() => format!("{value:.decimals$}"),
        _ => "-".to_owned(),
    }
}

/// A median with its percentiles, or a dash.
pub(crate) fn spread_cell(spread: Option<Spread>) -> String {
    match spread {
        Some(Spread { low, median, high }) => format!("{median:.3} [{low:.3}..{high:.3}]"),
        None => "-".to_owned(),
    }
}

/// One number divided by another, where both are known.
pub(crate) fn over(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    Some(a? / b?)
}

/// Megabytes of bytes.
pub(crate) fn mb(bytes: Option<f64>) -> Option<f64> {
    bytes.map(|bytes| bytes / 1e6)
}
