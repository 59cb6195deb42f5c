//! Tables of images: ratio, and speed of writing and reading, beside the published figures.

use crate::cells::{cell, markdown, mb, over};
use crate::plot::speeds;
use crate::record::TableRecord;
use crate::table::RenderedTable;

/// How a table of images looks.
pub(super) struct ImageTable {
    /// The record of the published figures.
    pub(super) published: &'static str,
    pub(super) columns: &'static str,
    /// The parts of writing and reading, and the peers whose speeds are shown; the first two are
    /// Linux and ours.
    pub(super) parts: [(&'static str, &'static [&'static str]); 2],
    /// Decimals of speeds relative to the first method.
    pub(super) decimals: usize,
    pub(super) title: &'static str,
    pub(super) series: [&'static str; 2],
    pub(super) plots: [&'static str; 2],
}

impl ImageTable {
    pub(super) fn show(&self, record: &TableRecord) -> RenderedTable {
        let then = TableRecord::parse(self.published).unwrap_or_default();
        let [(write, _), _] = self.parts;
        let bytes = |method: &str| record.value(write, method, "Linux", "bytes in");
        let ratio = |method: &str, peer: &str| {
            over(
                bytes(method),
                record.value(write, method, peer, "bytes out"),
            )
        };
        let speed = |part: &str, method: &str, peer: &str| match peer {
            "published" => then.value(part, method, peer, "MB/s"),
            _ => mb(over(
                bytes(method),
                record.value(part, method, peer, "seconds"),
            )),
        };
        let methods: Vec<&str> = then.rows(write).iter().map(|row| &*row.name).collect();
        let mut rows = Vec::new();
        for method in &methods {
            let published = then.value(write, method, "published", "ratio");
            let mut row = vec![(*method).to_owned(), cell(published, 2)];
            row.extend(["Linux", "ours"].map(|peer| cell(ratio(method, peer), 3)));
            for (part, peers) in self.parts {
                let to_first =
                    |peer| over(speed(part, method, peer), speed(part, methods[0], peer));
                let peers_of_ratio = ["published", "Linux", "ours"];
                row.extend(peers_of_ratio.map(|peer| cell(to_first(peer), self.decimals)));
                row.extend(peers.iter().map(|peer| cell(speed(part, method, peer), 1)));
            }
            let [ours, linux] = ["ours", "Linux"].map(|peer| speed(write, method, peer));
            row.push(cell(over(ours, linux), 3));
            rows.push(row);
        }
        let plots = self.parts.iter().zip(self.plots).map(|((part, _), title)| {
            let mut points = Vec::new();
            for (series, peer) in ["Linux", "ours"].into_iter().enumerate() {
                for method in &methods {
                    let (x, y) = (speed(part, method, peer), ratio(method, peer));
                    points.push((series, (*method).to_owned(), x, y));
                }
            }
            (title, points)
        });
        RenderedTable {
            text: markdown(self.columns, &rows),
            plot: Some(speeds(
                self.title,
                &self.series,
                plots.collect(),
                ["MB/s", "ratio"],
            )),
        }
    }
}
