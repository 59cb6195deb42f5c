//! Rows, cells, means: what a run prints and what is spliced into the documentation.

use crate::measure::{Rounds, Spread, geometric_mean};

/// One corpus at one level (or whatever the first columns say).
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) corpus: String,
    pub(crate) level: String,
    /// Bytes of uncompressed data in the timed part of a round.
    pub(crate) bytes: usize,
    /// Compressed bytes of the whole sample, per peer; empty where nothing is compressed.
    pub(crate) sizes: Vec<usize>,
    pub(crate) rounds: Rounds,
}

/// The head of a Markdown table.
pub(crate) fn head(peers: &[String], sizes: bool) -> String {
    let mut line = format!("| corpus | level | {} MB/s |", peers[0]);
    for peer in &peers[1..] {
        if sizes {
            line += &format!(" {peer} size |");
        }
        line += &format!(" {peer} speed |");
    }
    let rule: String = line
        .chars()
        .filter(|c| *c == '|')
        .skip(1)
        .map(|_| "---|")
        .collect();
    format!("{line}\n|{rule}")
}

/// A row: the first peer's speed, then each other peer's size and speed divided by the first one's.
pub(crate) fn line(row: &Row) -> String {
    let speed = row.bytes as f64 / row.rounds.median(0) / 1e6;
    let mut line = format!("| {} | {} | {speed:.0} |", row.corpus, row.level);
    for peer in 1..row.rounds.times[0].len() {
        if let Some(size) = row.sizes.get(peer) {
            line += &format!(" {:.4} |", *size as f64 / row.sizes[0] as f64);
        }
        let Spread { low, median, high } = row.rounds.speed(peer);
        line += &format!(" {median:.3} [{low:.3}..{high:.3}] |");
    }
    line
}

/// The geometric mean of every column, the least speed in brackets; per corpus if there are several rows of each.
pub(crate) fn means(rows: &[Row]) -> String {
    let mut lines = Vec::new();
    let mut corpora: Vec<&str> = rows.iter().map(|row| row.corpus.as_str()).collect();
    corpora.dedup();
    if corpora.len() > 1 && corpora.len() < rows.len() {
        for corpus in &corpora {
            lines.push(mean(
                corpus,
                rows.iter().filter(|row| row.corpus == *corpus),
            ));
        }
    }
    if rows.len() > 1 {
        lines.push(mean("all", rows.iter()));
    }
    lines.join("\n")
}

fn mean<'a>(name: &str, rows: impl Iterator<Item = &'a Row> + Clone) -> String {
    let mut line = format!("| **{name}** | mean | |");
    let Some(first) = rows.clone().next() else {
        return line;
    };
    for peer in 1..first.rounds.times[0].len() {
        if first.sizes.get(peer).is_some() {
            let size = |row: &Row| row.sizes[peer] as f64 / row.sizes[0] as f64;
            line += &format!(" **{:.4}** |", geometric_mean(rows.clone().map(size)));
        }
        let speed = |row: &Row| row.rounds.speed(peer).median;
        let least = rows.clone().map(speed).fold(f64::INFINITY, f64::min);
        line += &format!(
            " **{:.3}** (least {least:.3}) |",
            geometric_mean(rows.clone().map(speed))
        );
    }
    line
}
