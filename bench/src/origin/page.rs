//! Tables as they stand in docs/published.md, and their plots.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use report::bars::{self, Bar};
use report::scatter::{self, Plot, Point};
use report::svg::Svg;

use super::Table;
use super::record::Record;
use crate::record::machine;

/// What a table becomes: text with a link to the drawing, and the drawing.
pub(crate) struct Shown {
    pub(crate) text: String,
    pub(crate) plot: Svg,
}

/// Where pages, plots and records go.
pub(crate) struct Place {
    page: PathBuf,
    plots: PathBuf,
    records: PathBuf,
}

impl Place {
    /// The documentation.
    pub(crate) fn docs() -> Place {
        Place {
            page: root().join("docs/published.md"),
            plots: root().join("docs/plots"),
            records: root().join("bench/record/published"),
        }
    }

    /// Another directory, with a copy of the page.
    pub(crate) fn other(dir: &Path) -> Result<Place, String> {
        let place = Place {
            page: dir.join("published.md"),
            plots: dir.join("plots"),
            records: dir.join("record"),
        };
        create(dir)?;
        if !place.page.exists() {
            write(&place.page, &read(&Place::docs().page)?)?;
        }
        Ok(place)
    }

    /// The record of a table.
    pub(crate) fn record(&self, name: &str) -> PathBuf {
        self.records.join(format!("{name}.csv"))
    }

    /// Keeps a record, and shows it in the page.
    pub(crate) fn keep(&self, table: &Table, record: &Record) -> Result<(), String> {
        create(&self.records)?;
        write(&self.record(table.name), &record.text())?;
        self.put(table)
    }

    /// Shows a table in the page as its record has it.
    pub(crate) fn put(&self, table: &Table) -> Result<(), String> {
        let name = table.name;
        let record = Record::read(&self.record(name))?;
        let Shown { text, plot } = show(table, &record);
        create(&self.plots)?;
        write(&self.plots.join(format!("{name}.svg")), &plot.document())?;
        let page = read(&self.page)?;
        let (open, close) = marks(name);
        let parts = page.split_once(&open).and_then(|(before, rest)| {
            rest.split_once(&close)
                .map(|(_, after)| (before.to_owned(), after.to_owned()))
        });
        let (before, after) = parts.ok_or(format!("{name} has no marks in the page"))?;
        write(&self.page, &format!("{before}{open}{text}{close}{after}"))?;
        println!(
            "{name}: in {} and {}/{name}.svg",
            self.page.display(),
            self.plots.display()
        );
        Ok(())
    }
}

/// What stands before and behind a table.
pub(crate) fn marks(name: &str) -> (String, String) {
    (
        format!("<!-- table {name} -->\n"),
        format!("<!-- end {name} -->"),
    )
}

/// A table with the circumstances above it and its plot below.
pub(crate) fn show(table: &Table, record: &Record) -> Shown {
    let name = table.name;
    let mut shown = (table.show)(record);
    let said = |what| record.said(what).unwrap_or("-");
    let mut head = format!(
        "`cargo xtask tables {name}`, commit {}  \n{}, Linux {}; {}  \n{}",
        said("commit"),
        said("machine"),
        said("kernel"),
        said("peers"),
        said("data")
    );
    if let Some(missing) = record.said("missing") {
        head += &format!("  \nMissing: {missing}");
    }
    shown.text = format!(
        "{head}\n\n{}\n![{}](plots/{name}.svg)\n",
        shown.text, table.help
    );
    shown
}

/// Says what every record says.
pub(crate) fn circumstances(record: &mut Record) {
    let output = |words: &[&str]| {
        let output = Command::new("git").args(words).current_dir(root()).output();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        text.unwrap_or_default()
    };
    let mut commit = output(&["rev-parse", "--short=12", "HEAD"]);
    // Pages and records change while tables are made.
    let changed = output(&[
        "status",
        "--porcelain",
        "--",
        ".",
        ":!docs",
        ":!bench/record",
    ]);
    if !changed.is_empty() {
        commit += " with changes";
    }
    record.say("commit", commit);
    record.say("machine", machine());
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    // What follows the numbers names a build, not a version.
    let numbers = kernel.trim().split('-').next().unwrap_or_default();
    record.say("kernel", numbers);
}

/// A Markdown table.
pub(crate) fn markdown(columns: &[&str], rows: &[Vec<String>]) -> String {
    let mut text = format!(
        "| {} |\n|{}\n",
        columns.join(" | "),
        "---|".repeat(columns.len())
    );
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

/// One number divided by another, where both are known.
pub(crate) fn over(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    Some(a? / b?)
}

/// The geometric mean, if there are any values.
pub(crate) fn geometric(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    (!values.is_empty()).then(|| crate::measure::geometric_mean(values.into_iter()))
}

/// Megabytes of bytes.
pub(crate) fn mb(bytes: Option<f64>) -> Option<f64> {
    bytes.map(|bytes| bytes / 1e6)
}

/// A point, if it is known where it lies: the index of its series, its name, and its place on both axes.
pub(crate) type At = (usize, String, Option<f64>, Option<f64>);

/// Bars with one name: indices of their series, and lengths where they are known.
pub(crate) type OfName = (String, Vec<(usize, Option<f64>)>);

/// Draws ratio against speed: plots with their titles.
pub(crate) fn speeds(
    title: &str,
    series: &[&str],
    plots: Vec<(&str, Vec<At>)>,
    axes: [&str; 2],
) -> Svg {
    let plots: Vec<Plot> = plots
        .into_iter()
        .map(|(name, points)| {
            let points: Vec<(usize, String, f64, f64)> = points
                .into_iter()
                .filter_map(|(series, label, x, y)| Some((series, label, x?, y?)))
                .collect();
            let is_beaten = |x: f64, y: f64| {
                let mut others = points.iter();
                others.any(|(.., ox, oy)| *ox >= x && *oy >= y && (*ox > x || *oy > y))
            };
            let points = points.iter().map(|(of, label, x, y)| Point {
                x: *x,
                y: *y,
                label: label.clone(),
                tip: format!("{label}, {}: {x:.3}, {y:.3}", series[*of]),
                series: *of,
                is_best: !is_beaten(*x, *y),
                is_chosen: false,
            });
            Plot {
                title: name.to_owned(),
                x_name: axes[0].to_owned(),
                y_name: axes[1].to_owned(),
                points: points.collect(),
            }
        })
        .collect();
    let series: Vec<String> = series.iter().map(|name| (*name).to_owned()).collect();
    scatter::draw(title, &series, &plots)
}

/// Draws groups of bars, of what is known.
pub(crate) fn groups(title: &str, series: &[&str], groups: &[OfName]) -> Svg {
    let groups: Vec<bars::Group> = groups
        .iter()
        .map(|(name, of)| bars::Group {
            name: name.clone(),
            bars: of
                .iter()
                .filter_map(|(series, value)| {
                    Some(Bar {
                        series: *series,
                        value: (*value)?,
                    })
                })
                .collect(),
        })
        .collect();
    let series: Vec<String> = series.iter().map(|name| (*name).to_owned()).collect();
    bars::draw(title, &series, &groups)
}

pub(crate) fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn create(dir: &Path) -> Result<(), String> {
    fs::create_dir_all(dir).map_err(|error| format!("create {}: {error}", dir.display()))
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("read {}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::super::TABLES;
    use super::*;

    /// The page has a place for each table, shows what the records hold, and its plots are theirs.
    #[test]
    fn the_page_shows_the_records() {
        let place = Place::docs();
        let page = read(&place.page).unwrap();
        for table in TABLES {
            let (open, close) = marks(table.name);
            assert_eq!(page.matches(&open).count(), 1, "{open}");
            assert_eq!(page.matches(&close).count(), 1, "{close}");
            if place.record(table.name).exists() {
                let record = Record::read(&place.record(table.name)).unwrap();
                let Shown { text, plot } = show(table, &record);
                assert!(page.contains(&format!("{open}{text}{close}")), "{open}");
                let drawn = read(&place.plots.join(format!("{}.svg", table.name))).unwrap();
                assert!(drawn == plot.document(), "{}.svg differs", table.name);
            }
        }
    }

    /// A table of which nothing was measured has dashes and no plot that a reader could not draw.
    #[test]
    fn empty_records_are_shown() {
        for table in TABLES {
            let Shown { text, plot } = show(table, &Record::default());
            assert!(text.contains("|---|"), "{text}");
            let drawn = plot.document();
            for wrong in ["NaN", "inf"] {
                assert!(!drawn.contains(wrong) && !text.contains(wrong), "{wrong}");
            }
        }
    }
}
