//! Tables of many kinds of data: for each level and size of a frame the mean over all corpora, and
//! the worst of them.

use crate::cells::markdown;
use crate::codec_table::CodecRow;
use crate::measure::geometric_mean;
use crate::record::{TableRecord, distinct};
use crate::table::RenderedTable;

/// Separates a level from the size of a frame.
pub(crate) const AT: char = '@';

/// The peers: C, and ours.
const PEERS: [&str; 2] = ["c", "ours"];

/// A figure of each row.
struct Figure {
    title: &'static str,
    decimals: usize,
    of: fn(CodecRow) -> f64,
    /// Whether the first is the worse of two.
    is_worse: fn(f64, f64) -> bool,
}

const SPEED: Figure = Figure {
    title: "Speed, in brackets the least",
    decimals: 2,
    of: |row| row.speed("ours"),
    is_worse: |a, b| a < b,
};

const SIZE: Figure = Figure {
    title: "Size, in brackets the largest",
    decimals: 3,
    of: |row| row.size("c", "ours").unwrap_or(f64::NAN),
    is_worse: |a, b| a > b,
};

/// Ours beside C; rows are named `LEVEL@SIZE`.
pub(crate) fn show(record: &TableRecord) -> RenderedTable {
    let rows = CodecRow::all(record);
    let mut text = figures(&rows, &SPEED);
    if rows.iter().all(|row| row.bytes("ours").is_some()) {
        text += &figures(&rows, &SIZE);
        text += &hulls(&rows);
    }
    text.into()
}

/// Level and size of a frame.
fn level_and_size<'r>(row: &CodecRow<'r>) -> (&'r str, &'r str) {
    row.level().split_once(AT).unwrap_or((row.level(), ""))
}

/// The sizes of frames.
fn sizes<'r>(rows: &[CodecRow<'r>]) -> Vec<&'r str> {
    distinct(rows.iter().map(|row| level_and_size(row).1))
}

/// A line for each level, a column for each size of a frame.
fn figures(rows: &[CodecRow], figure: &Figure) -> String {
    let mut levels = distinct(rows.iter().map(|row| level_and_size(row).0));
    levels.sort_by_key(|level| level.parse::<i32>().ok());
    let sizes = sizes(rows);
    let cell = |level: &str, size: &str| {
        let here = rows
            .iter()
            .filter(|row| level_and_size(row) == (level, size));
        let figures = here.map(|row| (row.corpus, (figure.of)(*row)));
        let worst = figures.clone().reduce(|worst, it| {
            let is_worse = (figure.is_worse)(it.1, worst.1);
            if is_worse { it } else { worst }
        });
        let Some((corpus, worst)) = worst else {
            return String::new();
        };
        let mean = geometric_mean(figures.map(|(_, figure)| figure));
        let decimals = figure.decimals;
        format!("**{mean:.decimals$}** ({worst:.decimals$} {corpus})")
    };
    let line = |level: &str| {
        let cells = sizes.iter().map(|size| cell(level, size));
        [level.to_owned()].into_iter().chain(cells).collect()
    };
    let lines: Vec<Vec<String>> = levels.into_iter().map(line).collect();
    let columns = format!("level | {}", sizes.join(" | "));
    format!("{}:\n\n{}\n", figure.title, markdown(&columns, &lines))
}

/// Speed and size of a level on a corpus, as logarithms: of the time of a byte, and of all bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    time: f64,
    size: f64,
}

fn point(row: CodecRow, peer: &str) -> Point {
    Point {
        time: -row.mb_per_s(peer).ln(),
        size: row.bytes(peer).unwrap_or(f64::NAN).ln(),
    }
}

/// The points that no mixture of two others beats, from the fastest to the smallest.
fn hull(mut points: Vec<Point>) -> Vec<Point> {
    points.sort_by(|a, b| a.time.total_cmp(&b.time).then(a.size.total_cmp(&b.size)));
    let mut hull: Vec<Point> = Vec::new();
    for point in points {
        if hull.last().is_some_and(|last| point.size >= last.size) {
            continue;
        }
        while let [.., a, b] = hull[..] {
            let turn = (b.time - a.time) * (point.size - a.size)
                - (b.size - a.size) * (point.time - a.time);
            if turn > 0.0 {
                break;
            }
            hull.pop();
        }
        hull.push(point);
    }
    hull
}

/// By how much a point's size differs from the hull's at its time; nothing if it is faster than the
/// whole hull.
fn above(hull: &[Point], point: Point) -> Option<f64> {
    let next = hull.partition_point(|it| it.time <= point.time);
    let before = hull[next.checked_sub(1)?];
    let size = hull.get(next).map_or(before.size, |after| {
        let part = (point.time - before.time) / (after.time - before.time);
        before.size + part * (after.size - before.size)
    });
    Some((point.size - size).exp() - 1.0)
}

/// Counts the levels of C that no mixture of ours reaches, and ours that are poor beside our
/// others.
fn hulls(rows: &[CodecRow]) -> String {
    let line = |size: &str| {
        let (mut levels, mut faster, mut beyond, mut poor) = (0, 0, 0, 0);
        let (mut most_beyond, mut most_poor) = (LargestPart::default(), LargestPart::default());
        for corpus in distinct(rows.iter().map(|row| row.corpus)) {
            let is_here = |row: &&CodecRow| row.corpus == corpus && level_and_size(row).1 == size;
            let here: Vec<CodecRow> = rows.iter().filter(is_here).copied().collect();
            let hull = hull(here.iter().map(|row| point(*row, "ours")).collect());
            for row in here {
                let [theirs, ours] = PEERS.map(|peer| above(&hull, point(row, peer)));
                levels += 1;
                match theirs {
                    None => faster += 1,
                    Some(part) if part < 0.0 => {
                        beyond += 1;
                        most_beyond.take_in(-part, row);
                    }
                    Some(_) => {}
                }
                if let Some(part) = ours.filter(|part| *part > 0.005) {
                    poor += 1;
                    most_poor.take_in(part, row);
                }
            }
        }
        let counts = [levels, faster, beyond].map(|count: i32| count.to_string());
        let [levels, faster, beyond] = counts;
        let (most_beyond, most_poor) = (most_beyond.text(), most_poor.text());
        let ours = [levels.clone(), poor.to_string(), most_poor];
        [size.to_owned(), levels, faster, beyond, most_beyond]
            .into_iter()
            .chain(ours)
            .collect()
    };
    let lines: Vec<Vec<String>> = sizes(rows).into_iter().map(line).collect();
    let columns = "frame | C's levels | faster than all of ours | beyond our hull | most | ours | over 0.5 % off it | most";
    let title = "Levels and the hull of ours, by corpus and size of a frame";
    format!("{title}:\n\n{}\n", markdown(columns, &lines))
}

/// The largest part, and the corpus and level that it belongs to.
#[derive(Default)]
struct LargestPart {
    part: f64,
    name: String,
}

impl LargestPart {
    fn take_in(&mut self, part: f64, row: CodecRow) {
        if part > self.part {
            let name = format!("{} at {}", row.corpus, level_and_size(&row).0);
            *self = Self { part, name };
        }
    }

    fn text(&self) -> String {
        if self.name.is_empty() {
            return "-".to_owned();
        }
        format!("{:.1} % ({})", 100.0 * self.part, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of one round over 1,000 bytes: corpus, level, sizes, and milliseconds of each peer.
    fn record(rows: &[(&str, &str, [f64; 2], [f64; 2])]) -> TableRecord {
        let mut record = TableRecord::default();
        for (corpus, level, sizes, ms) in rows {
            for (at, peer) in PEERS.into_iter().enumerate() {
                record.add(corpus, level, peer, "bytes", sizes[at]);
                record.add(corpus, level, peer, "MB/s", 1.0 / ms[at]);
            }
            record.add(corpus, level, "ours", "speed", ms[0] / ms[1]);
        }
        record
    }

    #[test]
    fn means_and_the_worst_are_shown_by_level_and_size() {
        let text = show(&record(&[
            ("a", "1@4K", [100.0, 100.0], [10.0, 5.0]),
            ("a", "1@8K", [100.0, 90.0], [30.0, 10.0]),
            ("a", "2@4K", [100.0, 80.0], [10.0, 10.0]),
            ("b", "1@4K", [100.0, 121.0], [10.0, 20.0]),
        ]))
        .text;
        assert!(
            text.starts_with(
                "Speed, in brackets the least:\n\n| level | 4K | 8K |\n|---|---|---|\n\
                 | 1 | **1.00** (0.50 b) | **3.00** (3.00 a) |\n| 2 | **1.00** (1.00 a) |  |\n\n"
            ),
            "{text}"
        );
        assert!(
            text.contains("| 1 | **1.100** (1.210 b) | **0.900** (0.900 a) |"),
            "{text}"
        );
    }

    #[test]
    fn the_hull_leaves_out_what_a_mixture_beats() {
        let point = |time, size| Point { time, size };
        let (a, b, c) = (point(0.0, 4.0), point(1.0, 2.0), point(3.0, 0.0));
        // Behind the line from a to b, behind the one from b to c, larger than what is faster.
        let others = [point(0.5, 3.5), point(2.0, 1.5), point(4.0, 0.5)];
        let hull = hull([&[c, a, b][..], &others].concat());
        assert_eq!(hull, [a, b, c]);
        let off = |point| above(&hull, point).map(|part| (1.0 + part).ln());
        assert_eq!(off(point(-0.1, 0.0)), None);
        assert!((off(others[0]).unwrap() - 0.5).abs() < 1e-9);
        assert!((off(point(2.0, 0.8)).unwrap() + 0.2).abs() < 1e-9);
        assert!((off(others[2]).unwrap() - 0.5).abs() < 1e-9);
    }

    #[test]
    fn levels_off_the_hull_are_counted_and_named() {
        let record = record(&[
            // C's level 1 is faster than all of ours; its level 2 is smaller at the same speed.
            ("x", "1@4K", [1000.0, 1000.0], [5.0, 10.0]),
            ("x", "2@4K", [890.0, 900.0], [20.0, 20.0]),
            // Ours is slower than our level 2, and larger; C's is slower than that, but not
            // smaller.
            ("x", "3@4K", [950.0, 990.0], [30.0, 30.0]),
        ]);
        let text = hulls(&CodecRow::all(&record));
        let line = "| 4K | 3 | 1 | 1 | 1.1 % (x at 2) | 3 | 1 | 10.0 % (x at 3) |";
        assert!(text.contains(line), "{text}");
    }
}
