//! Definition of a table: its page, its measurement, and its presentation.

use report::svg::Svg;

use crate::options::Options;
use crate::record::TableRecord;

/// A page of the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    /// No page: the table is only printed.
    Printed,
    /// docs/BENCHMARKS.md.
    Benchmarks,
    /// docs/published.md.
    Published,
}

/// Measures with the given options, and adds to the record.
pub(crate) type Measure = fn(&Options, &mut TableRecord) -> Result<(), String>;

/// A table, or work that is measured with options of the user's own.
pub(crate) struct TableSpec {
    pub(crate) page: Page,
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) measure: Measure,
    /// The options of each run; the rows of all runs are one table.
    pub(crate) runs: &'static [&'static str],
    pub(crate) show: fn(&TableRecord) -> RenderedTable,
}

/// A table in Markdown, and its plot.
pub(crate) struct RenderedTable {
    pub(crate) text: String,
    pub(crate) plot: Option<Svg>,
}

impl From<String> for RenderedTable {
    fn from(text: String) -> RenderedTable {
        RenderedTable { text, plot: None }
    }
}
