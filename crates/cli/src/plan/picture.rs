//! The prediction as plots and as a page.

use report::html::{self, Cell};
use report::scatter::{self, Plot, Point};
use report::svg::{Svg, escape};
use restow::plan::CandidateRow;

use super::report::Report;
use super::table;
use crate::text;

/// Ratio against speed, writing and reading.
pub(super) fn svg(report: &Report<'_>) -> Svg {
    let series = series(report);
    let content = report.prediction.content_bytes as f64;
    let writing = points(report, &series, &|row| {
        Some(content / row.seconds.value.max(1e-9))
    });
    let reading = points(report, &series, &CandidateRow::decode_rate);
    let mut plots = vec![
        Plot {
            title: format!("Copying {} to {}", report.name, report.container.name()),
            x_name: format!("MB/s, {}", text::count(report.threads as u64, "thread")),
            y_name: "ratio".into(),
            points: writing,
        },
        Plot {
            title: "Reading".into(),
            x_name: "decoded MB/s, 1 thread".into(),
            y_name: "ratio".into(),
            points: best_of(reading),
        },
    ];
    if report.limits.link_rate.is_some() {
        let sent = points(report, &series, &|row| {
            report
                .transfer(row)
                .map(|seconds| content / seconds.max(1e-9))
        });
        plots.push(Plot {
            title: "Sending and unpacking".into(),
            x_name: "MB/s of content".into(),
            y_name: "ratio".into(),
            points: best_of(sent),
        });
    }
    let names: Vec<String> = series;
    scatter::draw("Compression ratio against speed", &names, &plots)
}

/// The lines of the plots: a codec each, and a block size if there are several.
fn series(report: &Report<'_>) -> Vec<String> {
    let mut all: Vec<String> = report.rows().iter().map(|row| line(report, row)).collect();
    let mut seen = Vec::new();
    all.retain(|name| {
        let is_new = !seen.contains(name);
        seen.push(name.clone());
        is_new
    });
    all
}

fn line(report: &Report<'_>, row: &CandidateRow) -> String {
    let name = row.candidate.family(report.container);
    match row.candidate.block_bytes {
        Some(bytes) if bytes != 128 << 10 => format!("{name} {}", table::of_block(bytes)),
        _ => name,
    }
}

/// The points of a plot, a series after the other, at the speeds that `rate` gives in bytes a
/// second.
fn points(
    report: &Report<'_>,
    series: &[String],
    rate: &dyn Fn(&CandidateRow) -> Option<f64>,
) -> Vec<Point> {
    let content = report.prediction.content_bytes as f64;
    let mut points = Vec::new();
    for (number, name) in series.iter().enumerate() {
        for (index, row) in report.rows().iter().enumerate() {
            let Some(rate) = rate(row).filter(|_| line(report, row) == *name) else {
                continue;
            };
            let words = report.words(row);
            let ratio = content / row.bytes.value.max(1.0);
            points.push(Point {
                x: rate / 1e6,
                y: ratio,
                tip: format!(
                    "{name} ({words}): ratio {ratio:.3}, {:.1} MB/s, {}",
                    rate / 1e6,
                    text::of_bytes(row.bytes.value as u64)
                ),
                label: words,
                series: number,
                is_best: report.front.contains(&index),
                is_chosen: report.is_chosen(index),
            });
        }
    }
    points
}

/// Marks the points than which no other is both faster and smaller.
fn best_of(mut points: Vec<Point>) -> Vec<Point> {
    for index in 0..points.len() {
        let (x, y) = (points[index].x, points[index].y);
        points[index].is_best = !points
            .iter()
            .any(|other| other.x >= x && other.y >= y && (other.x > x || other.y > y));
    }
    points
}

/// Plots, table and recommendation as a page.
pub(super) fn page(report: &Report<'_>) -> String {
    let mut body = String::new();
    for line in table::head(report).lines().filter(|line| !line.is_empty()) {
        body += &format!("<p class=\"dim\">{}</p>\n", escape(line));
    }
    if let Some(advice) = &report.advice {
        body += &format!(
            "<p><strong>{}</strong><br>{}</p>\n<pre>{}</pre>\n",
            escape(&advice.sentence),
            escape(&advice.reason),
            escape(&advice.command)
        );
    }
    body += &svg(report).element();
    body += "<h2>All candidates</h2>\n";
    let mut heads = vec![
        "Codec",
        "Block",
        "Size",
        "Ratio",
        "Time",
        "MB/s",
        "Read MB/s",
        "Memory",
        "Step from the one before",
    ];
    if report.limits.link_rate.is_some() {
        heads.insert(8, "Sent and unpacked");
    }
    let rows: Vec<html::TableRow> = (report.order.iter())
        .map(|&index| row(report, index))
        .collect();
    body += &html::table(&heads, &rows);
    body += "<p class=\"dim\">Dim rows are both slower and larger than another. The bars hold 95 of 100 results.</p>\n";
    html::page(&format!("Plan for {}", report.name), &body)
}

fn row(report: &Report<'_>, index: usize) -> html::TableRow {
    let row = &report.rows()[index];
    let content = report.prediction.content_bytes as f64;
    let mut values = vec![
        None,
        row.candidate.block_bytes.map(f64::from),
        Some(row.bytes.value),
        Some(content / row.bytes.value.max(1.0)),
        Some(row.seconds.value),
        Some(content / row.seconds.value.max(1e-9)),
        Some(row.decode_rate().unwrap_or(0.0)),
        Some(row.memory_bytes as f64),
        Some(report.step(index).map_or(0.0, |(saved, _)| saved)),
    ];
    if report.limits.link_rate.is_some() {
        values.insert(8, report.transfer(row));
    }
    let cells = table::cells(report, index).into_iter().zip(values);
    html::TableRow {
        cells: cells.map(|(text, value)| Cell { text, value }).collect(),
        class: if report.is_chosen(index) {
            "mark"
        } else if report.front.contains(&index) {
            ""
        } else {
            "dim"
        },
    }
}
