//! Tables of codecs: every corpus at every level, means, and levels that lie behind the first
//! peer's curve.

use crate::cells::{markdown, spread_cell};
use crate::measure::geometric_mean;
use crate::record::{RecordRow, TableRecord, distinct};
use crate::table::RenderedTable;

/// The quantities of a row as the tables show them.
#[derive(Clone, Copy)]
pub(crate) struct CodecRow<'r> {
    pub(crate) corpus: &'r str,
    pub(crate) row: &'r RecordRow,
}

impl<'r> CodecRow<'r> {
    /// All rows of a record.
    pub(crate) fn all(record: &'r TableRecord) -> Vec<CodecRow<'r>> {
        let rows = record.all_rows();
        rows.map(|(corpus, row)| CodecRow { corpus, row }).collect()
    }

    pub(crate) fn level(self) -> &'r str {
        &self.row.name
    }

    /// Speed of a peer divided by the first one's.
    pub(crate) fn speed(self, peer: &str) -> f64 {
        self.row.value(peer, "speed").unwrap_or(f64::NAN)
    }

    /// Bytes of content that a peer takes in a microsecond.
    pub(crate) fn mb_per_s(self, peer: &str) -> f64 {
        self.row.value(peer, "MB/s").unwrap_or(f64::NAN)
    }

    /// Compressed bytes of the sample, where something is compressed.
    pub(crate) fn bytes(self, peer: &str) -> Option<f64> {
        self.row.value(peer, "bytes")
    }

    /// Compressed size of a peer divided by that of the first one.
    pub(crate) fn size(self, first: &str, peer: &str) -> Option<f64> {
        Some(self.bytes(peer)? / self.bytes(first)?)
    }
}

/// The table: the first peer's speed, then each other peer's size and speed divided by the first
/// one's.
pub(crate) fn show(record: &TableRecord) -> RenderedTable {
    let rows = CodecRow::all(record);
    let Some(first) = rows.first() else {
        return String::new().into();
    };
    let peers = first.row.peers();
    let (c, others) = (peers[0], &peers[1..]);
    let mut columns = format!("corpus | level | {c} MB/s");
    for peer in others {
        if first.bytes(peer).is_some() {
            columns += &format!(" | {peer} size");
        }
        columns += &format!(" | {peer} speed");
    }
    let line = |row: &CodecRow| {
        let speed = format!("{:.0}", row.mb_per_s(c));
        let mut cells = vec![row.corpus.to_owned(), row.level().to_owned(), speed];
        for peer in others {
            cells.extend(row.size(c, peer).map(|size| format!("{size:.4}")));
            cells.push(spread_cell(row.row.spread(peer, "speed")));
        }
        cells
    };
    let lines: Vec<Vec<String>> = rows.iter().map(line).collect();
    let curve = curve(&peers, &rows);
    format!(
        "{}{}\n{curve}",
        markdown(&columns, &lines),
        means(&peers, &rows)
    )
    .into()
}

/// The geometric mean of every column, the least speed in brackets: per corpus and per level if
/// there are several rows of each, then of all.
fn means(peers: &[&str], rows: &[CodecRow]) -> String {
    let corpora = distinct(rows.iter().map(|row| row.corpus));
    let levels = distinct(rows.iter().map(|row| row.level()));
    let mut text = String::new();
    let mut add = |name: &str, level: &str, keep: &dyn Fn(&CodecRow) -> bool| {
        let rows: Vec<CodecRow> = rows.iter().filter(|row| keep(row)).copied().collect();
        text += &mean(peers, name, level, &rows);
    };
    if corpora.len() > 1 && levels.len() > 1 {
        for corpus in corpora {
            add(corpus, "mean", &|row| row.corpus == corpus);
        }
        for level in levels {
            add("all", level, &|row| row.level() == level);
        }
    }
    if rows.len() > 1 {
        add("all", "mean", &|_| true);
    }
    text
}

fn mean(peers: &[&str], name: &str, level: &str, rows: &[CodecRow]) -> String {
    let mut line = format!("| **{name}** | {level} | |");
    for peer in &peers[1..] {
        if rows.iter().all(|row| row.bytes(peer).is_some()) {
            let sizes = rows.iter().filter_map(|row| row.size(peers[0], peer));
            line += &format!(" **{:.4}** |", geometric_mean(sizes));
        }
        let speeds = rows.iter().map(|row| row.speed(peer));
        let least = speeds.clone().fold(f64::INFINITY, f64::min);
        line += &format!(" **{:.3}** (least {least:.3}) |", geometric_mean(speeds));
    }
    line + "\n"
}

/// For each level the levels of the first peer that are both faster and smaller, in the mean over
/// the corpora. Empty where nothing is compressed.
fn curve(peers: &[&str], rows: &[CodecRow]) -> String {
    // Of a peer at a level: speed, and compressed bytes. Samples are as large at each level.
    let point = |level: &str, peer: &str| {
        let rows = rows.iter().filter(|row| row.level() == level);
        let speeds = rows.clone().map(|row| row.mb_per_s(peer));
        let sizes = rows.filter_map(|row| row.bytes(peer));
        (geometric_mean(speeds), geometric_mean(sizes))
    };
    let levels = distinct(rows.iter().map(|row| row.level()));
    let first = peers[0];
    let mut text = String::new();
    let has_sizes = |peer: &&&str| rows.iter().all(|row| row.bytes(peer).is_some());
    for peer in peers[1..].iter().filter(has_sizes) {
        let before = text.len();
        for level in &levels {
            let (speed, size) = point(level, peer);
            let is_better = |other: &&&str| {
                let (other_speed, other_size) = point(other, first);
                other_speed > speed && other_size < size
            };
            let better: Vec<&str> = levels.iter().filter(is_better).copied().collect();
            if !better.is_empty() {
                let better = better.join(", ");
                text += &format!(
                    "Level {level} of {peer} is behind the curve of {first}: its level {better} is faster and smaller.  \n"
                );
            }
        }
        if text.len() == before && levels.len() > 1 {
            text +=
                &format!("No level of {first} is both faster and smaller than one of {peer}.  \n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_peer_is_compared_with_the_curve() {
        let mut record = TableRecord::default();
        for (level, sizes, speeds) in [
            ("1", [500, 500, 499], [100, 25, 100]),
            ("2", [400, 400, 399], [50, 12, 50]),
        ] {
            for ((peer, size), speed) in ["c", "slow", "ours"].iter().zip(sizes).zip(speeds) {
                record.add("x", level, peer, "bytes", f64::from(size));
                record.add("x", level, peer, "MB/s", f64::from(speed));
            }
        }
        assert_eq!(
            curve(&["c", "slow", "ours"], &CodecRow::all(&record)),
            "Level 1 of slow is behind the curve of c: its level 2 is faster and smaller.  \n\
             No level of c is both faster and smaller than one of ours.  \n"
        );
    }
}
