//! Rows, cells, means: what a run prints and what is spliced into the documentation.

use std::time::Duration;

use crate::kinds;
use crate::measure::{Rounds, Spread, geometric_mean};

/// What the columns of a table are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Codecs in this process: size and speed, divided by the first peer's.
    Codecs,
    /// Codecs in this process over many kinds of data and sizes of a frame: means, and the worst.
    Kinds,
    /// SquashFS images by whole processes: wall time, divided by mksquashfs's.
    Squashfs,
    /// SquashFS images unpacked: wall time, divided by unsquashfs's.
    Unpacked,
    /// Directories and archives by whole processes: wall time, divided by that of GNU tar, cp or diff.
    Trees,
    /// btrfs images by whole processes: wall time, divided by mkfs.btrfs's.
    Btrfs,
}

/// One corpus at one level (or whatever the first columns say).
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) corpus: String,
    pub(crate) level: String,
    /// Bytes of uncompressed data in the timed part of a round.
    pub(crate) bytes: usize,
    /// Compressed bytes of the whole sample, per peer; empty where nothing is compressed.
    pub(crate) sizes: Vec<usize>,
    /// CPU time of all rounds, per peer, where whole processes are measured.
    pub(crate) cpu: Vec<Duration>,
    /// Our peak memory, where whole processes are measured.
    pub(crate) memory: String,
    pub(crate) rounds: Rounds,
}

#[cfg(test)]
impl Row {
    /// A row of one round over 1,000 bytes: the sizes, and the milliseconds that each peer took.
    pub(crate) fn of_round(corpus: &str, level: &str, sizes: &[usize], ms: &[u64]) -> Row {
        let times = ms.iter().map(|ms| Duration::from_millis(*ms)).collect();
        Row {
            corpus: corpus.into(),
            level: level.into(),
            bytes: 1000,
            sizes: sizes.to_vec(),
            cpu: Vec::new(),
            memory: String::new(),
            rounds: Rounds {
                times: vec![times],
                units: 1,
            },
        }
    }
}

/// Rows of the same peers.
pub(crate) struct Table {
    form: Form,
    pub(crate) peers: Vec<String>,
    pub(crate) rows: Vec<Row>,
}

impl Table {
    pub(crate) fn new(form: Form, peers: &[String]) -> Table {
        Table {
            form,
            peers: peers.to_vec(),
            rows: Vec::new(),
        }
    }

    /// One table of the rows of several.
    pub(crate) fn joined(tables: Vec<Table>) -> Option<Table> {
        tables.into_iter().reduce(|mut table, other| {
            // Some rows may lack the last peer.
            if other.peers.len() > table.peers.len() {
                table.peers = other.peers;
            }
            table.rows.extend(other.rows);
            table
        })
    }

    /// Adds a row and prints it, the first one after the head.
    pub(crate) fn print_and_add(&mut self, row: Row) {
        if self.rows.is_empty() {
            println!("{}", self.head(!row.sizes.is_empty()));
        }
        println!("{}", self.line(&row));
        self.rows.push(row);
    }

    /// Prints what follows the rows.
    pub(crate) fn print_end(&self) {
        print!("{}", self.end());
    }

    /// All of it, in Markdown.
    pub(crate) fn markdown(&self) -> String {
        if self.form == Form::Kinds {
            return kinds::markdown(&self.rows);
        }
        let has_sizes = self.rows.first().is_some_and(|row| !row.sizes.is_empty());
        let mut text = self.head(has_sizes) + "\n";
        for row in &self.rows {
            text += &self.line(row);
            text += "\n";
        }
        text + &self.end()
    }

    fn head(&self, has_sizes: bool) -> String {
        match self.form {
            Form::Codecs | Form::Kinds => head(&self.peers, has_sizes),
            Form::Squashfs => with_rule(
                "| tree | `--compress` | mksquashfs s | `--no-verify` | CPU | verifying | gensquashfs | size | peak memory |",
            ),
            Form::Unpacked => {
                with_rule("| tree | codec | unsquashfs s | wall | CPU | peak memory |")
            }
            Form::Trees => with_rule("| tree | work | GNU s | wall | CPU | peak memory |"),
            Form::Btrfs => with_rule(
                "| tree | `--compress` | mkfs.btrfs s | wall | CPU | size | peak memory |",
            ),
        }
    }

    fn line(&self, row: &Row) -> String {
        if self.form == Form::Codecs {
            return line(row);
        }
        let Row {
            corpus,
            level,
            memory,
            rounds,
            ..
        } = row;
        let mut cells = vec![
            corpus.clone(),
            level.clone(),
            format!("{:.2}", rounds.median(0)),
        ];
        cells.extend([rounds.wall(1), cpu(row, 1)]);
        if self.form == Form::Squashfs {
            let is_there = rounds.times[0].len() > 3;
            let third = if is_there {
                rounds.wall(3)
            } else {
                "-".to_owned()
            };
            cells.extend([rounds.wall(2), third]);
        }
        if let [theirs, ours, ..] = row.sizes[..] {
            cells.push(format!("{:.4}", ours as f64 / theirs as f64));
        }
        cells.push(memory.clone());
        format!("| {} |", cells.join(" | "))
    }

    fn end(&self) -> String {
        if self.form != Form::Codecs {
            return String::new();
        }
        let mut text = means(&self.rows);
        text += "\n";
        let curve = curve(&self.peers, &self.rows);
        if !curve.is_empty() {
            text += &format!("\n{curve}\n");
        }
        text
    }
}

/// CPU time of a peer, divided by the first one's.
fn cpu(row: &Row, peer: usize) -> String {
    match row.cpu.get(peer) {
        Some(cpu) => format!(
            "{:.3}",
            cpu.as_secs_f64() / row.cpu[0].as_secs_f64().max(0.01)
        ),
        None => "-".to_owned(),
    }
}

/// A head with the line below it.
pub(crate) fn with_rule(line: &str) -> String {
    let rule: String = line
        .chars()
        .filter(|c| *c == '|')
        .skip(1)
        .map(|_| "---|")
        .collect();
    format!("{line}\n|{rule}")
}

/// The head of a Markdown table.
fn head(peers: &[String], sizes: bool) -> String {
    let mut line = format!("| corpus | level | {} MB/s |", peers[0]);
    for peer in &peers[1..] {
        if sizes {
            line += &format!(" {peer} size |");
        }
        line += &format!(" {peer} speed |");
    }
    with_rule(&line)
}

/// A row: the first peer's speed, then each other peer's size and speed divided by the first one's.
fn line(row: &Row) -> String {
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

/// The geometric mean of every column, the least speed in brackets: per corpus and per level if there are several rows of
/// each, then of all.
fn means(rows: &[Row]) -> String {
    let mut lines = Vec::new();
    let (corpora, levels) = (
        names(rows, |row| row.corpus.as_str()),
        names(rows, |row| row.level.as_str()),
    );
    if corpora.len() > 1 && levels.len() > 1 {
        for corpus in corpora {
            lines.push(mean(corpus, "mean", of(rows, |row| row.corpus == corpus)));
        }
        for level in levels {
            lines.push(mean("all", level, of(rows, |row| row.level == level)));
        }
    }
    if rows.len() > 1 {
        lines.push(mean("all", "mean", rows.iter()));
    }
    lines.join("\n")
}

/// What the rows are called, each name once.
pub(crate) fn names<'r>(rows: &'r [Row], name: impl Fn(&'r Row) -> &'r str) -> Vec<&'r str> {
    let mut names: Vec<&str> = Vec::new();
    for row in rows {
        if !names.contains(&name(row)) {
            names.push(name(row));
        }
    }
    names
}

fn of(rows: &[Row], keep: impl Fn(&Row) -> bool + Clone) -> impl Iterator<Item = &Row> + Clone {
    rows.iter().filter(move |row| keep(row))
}

/// For each level which other level of the first peer is both faster and smaller, in the mean over the corpora. Empty where
/// nothing is compressed.
fn curve(peers: &[String], rows: &[Row]) -> String {
    // Of a peer at a level: seconds a byte, and what is left of a byte.
    let point = |level: &str, peer: usize| {
        let rows = of(rows, |row| row.level == level);
        let seconds = |row: &Row| row.rounds.median(peer) / row.bytes as f64;
        // Samples are as large at each level, so that sizes can be compared as they are.
        let size = |row: &Row| row.sizes[peer] as f64;
        (
            geometric_mean(rows.clone().map(seconds)),
            geometric_mean(rows.map(size)),
        )
    };
    let Some(first) = rows.first().filter(|row| row.sizes.len() > 1) else {
        return String::new();
    };
    let levels = names(rows, |row| row.level.as_str());
    let mut lines = Vec::new();
    for peer in 1..first.sizes.len() {
        let before = lines.len();
        for level in &levels {
            let (seconds, size) = point(level, peer);
            let better = levels.iter().filter(|other| {
                let (other_seconds, other_size) = point(other, 0);
                other_seconds < seconds && other_size < size
            });
            let better: Vec<&str> = better.copied().collect();
            if !better.is_empty() {
                lines.push(format!(
                    "Level {level} of {} is behind the curve of {}: its level {} is faster and smaller.  ",
                    peers[peer],
                    peers[0],
                    better.join(", ")
                ));
            }
        }
        if lines.len() == before && levels.len() > 1 {
            lines.push(format!(
                "No level of {} is both faster and smaller than one of {}.  ",
                peers[0], peers[peer]
            ));
        }
    }
    lines.join("\n")
}

fn mean<'a>(name: &str, level: &str, rows: impl Iterator<Item = &'a Row> + Clone) -> String {
    let mut line = format!("| **{name}** | {level} | |");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_peer_is_compared_with_the_curve() {
        let peers = ["c", "slow", "ours"].map(str::to_owned);
        let rows = [
            Row::of_round("x", "1", &[500, 500, 499], &[10, 40, 10]),
            Row::of_round("x", "2", &[400, 400, 399], &[20, 80, 20]),
        ];
        assert_eq!(
            curve(&peers, &rows),
            "Level 1 of slow is behind the curve of c: its level 2 is faster and smaller.  \n\
             No level of c is both faster and smaller than one of ours.  "
        );
    }
}
