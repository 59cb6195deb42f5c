//! Tables of many kinds of data: for each level and size of a frame the mean over all corpora, and the worst of them.

use crate::measure::geometric_mean;
use crate::table::{Row, names, with_rule};

/// What separates a level from the size of a frame.
pub(crate) const AT: char = '@';

/// What is shown of each row.
struct Figure {
    title: &'static str,
    decimals: usize,
    of: fn(&Row) -> f64,
    /// Whether the first is the worse of two.
    is_worse: fn(f64, f64) -> bool,
}

const SPEED: Figure = Figure {
    title: "Speed, in brackets the least",
    decimals: 2,
    of: |row| row.rounds.speed(1).median,
    is_worse: |a, b| a < b,
};

const SIZE: Figure = Figure {
    title: "Size, in brackets the largest",
    decimals: 3,
    of: |row| row.sizes[1] as f64 / row.sizes[0] as f64,
    is_worse: |a, b| a > b,
};

/// The second peer beside the first, whose levels are `LEVEL@SIZE`.
pub(crate) fn markdown(rows: &[Row]) -> String {
    let mut text = figures(rows, &SPEED);
    if rows.iter().all(|row| row.sizes.len() > 1) {
        text += &figures(rows, &SIZE);
        text += &hulls(rows);
    }
    text
}

/// Level and size of a frame.
fn level_and_size(row: &Row) -> (&str, &str) {
    row.level.split_once(AT).unwrap_or((&row.level, ""))
}

/// A line for each level, a column for each size of a frame.
fn figures(rows: &[Row], figure: &Figure) -> String {
    let mut levels = names(rows, |row| level_and_size(row).0);
    levels.sort_by_key(|level| level.parse::<i32>().ok());
    let sizes = names(rows, |row| level_and_size(row).1);
    let mut text = format!("{}:\n\n", figure.title);
    text += &with_rule(&format!("| level | {} |", sizes.join(" | ")));
    for level in levels {
        text += &format!("\n| {level} |");
        for size in &sizes {
            let here = rows
                .iter()
                .filter(|row| level_and_size(row) == (level, size));
            let worst = here
                .clone()
                .reduce(|worst, row| {
                    if (figure.is_worse)((figure.of)(row), (figure.of)(worst)) {
                        row
                    } else {
                        worst
                    }
                })
                .map(|row| (row.corpus.as_str(), (figure.of)(row)));
            let Some((corpus, worst)) = worst else {
                text += " |";
                continue;
            };
            let (mean, decimals) = (geometric_mean(here.map(figure.of)), figure.decimals);
            text += &format!(" **{mean:.decimals$}** ({worst:.decimals$} {corpus}) |");
        }
    }
    text + "\n\n"
}

/// Speed and size of a level on a corpus, as logarithms: of the time of a byte, and of all bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    time: f64,
    size: f64,
}

fn point(row: &Row, peer: usize) -> Point {
    Point {
        time: (row.rounds.median(peer) / row.bytes as f64).ln(),
        size: (row.sizes[peer] as f64).ln(),
    }
}

/// Those that no mixture of two others beats, from the fastest to the smallest.
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

/// By how much a point's size differs from the hull's at its time; nothing if it is faster than the whole hull.
fn above(hull: &[Point], point: Point) -> Option<f64> {
    let next = hull.partition_point(|it| it.time <= point.time);
    let before = hull[next.checked_sub(1)?];
    let size = hull.get(next).map_or(before.size, |after| {
        let part = (point.time - before.time) / (after.time - before.time);
        before.size + part * (after.size - before.size)
    });
    Some((point.size - size).exp() - 1.0)
}

/// How many levels of the first peer no mixture of the second's reaches, and which of the second's are poor beside its others.
fn hulls(rows: &[Row]) -> String {
    let mut text = "Levels and the hull of ours, by corpus and size of a frame:\n\n".to_owned();
    text += &with_rule(
        "| frame | C's levels | faster than all of ours | beyond our hull | most | ours | over 0.5 % off it | most |",
    );
    for size in names(rows, |row| level_and_size(row).1) {
        let (mut levels, mut faster, mut beyond, mut poor) = (0, 0, 0, 0);
        let (mut most_beyond, mut most_poor) = (Most::default(), Most::default());
        for corpus in names(rows, |row| row.corpus.as_str()) {
            let here: Vec<&Row> = rows
                .iter()
                .filter(|row| row.corpus == corpus && level_and_size(row).1 == size)
                .collect();
            let hull = hull(here.iter().map(|row| point(row, 1)).collect());
            for row in here {
                levels += 1;
                match above(&hull, point(row, 0)) {
                    None => faster += 1,
                    Some(part) if part < 0.0 => {
                        beyond += 1;
                        most_beyond.take_in(-part, row);
                    }
                    Some(_) => {}
                }
                if let Some(part) = above(&hull, point(row, 1)).filter(|part| *part > 0.005) {
                    poor += 1;
                    most_poor.take_in(part, row);
                }
            }
        }
        let (most_beyond, most_poor) = (most_beyond.text(), most_poor.text());
        text += &format!(
            "\n| {size} | {levels} | {faster} | {beyond} | {most_beyond} | {levels} | {poor} | {most_poor} |"
        );
    }
    text + "\n\n"
}

/// The largest part, and whose it is.
#[derive(Default)]
struct Most {
    part: f64,
    name: String,
}

impl Most {
    fn take_in(&mut self, part: f64, row: &Row) {
        if part > self.part {
            let name = format!("{} at {}", row.corpus, level_and_size(row).0);
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

    fn row(corpus: &str, level: &str, sizes: [usize; 2], ms: [u64; 2]) -> Row {
        Row::of_round(corpus, level, &sizes, &ms)
    }

    #[test]
    fn means_and_the_worst_are_shown_by_level_and_size() {
        let rows = [
            row("a", "1@4K", [100, 100], [10, 5]),
            row("b", "1@4K", [100, 121], [10, 20]),
            row("a", "1@8K", [100, 90], [30, 10]),
            row("a", "2@4K", [100, 80], [10, 10]),
        ];
        let text = markdown(&rows);
        assert!(
            text.starts_with(
                "Speed, in brackets the least:\n\n| level | 4K | 8K |\n|---|---|---|\n\
                 | 1 | **1.00** (0.50 b) | **3.00** (3.00 a) |\n| 2 | **1.00** (1.00 a) | |\n\n"
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
        let rows = [
            // C's level 1 is faster than all of ours; its level 2 is smaller at the same speed.
            row("x", "1@4K", [1000, 1000], [5, 10]),
            row("x", "2@4K", [890, 900], [20, 20]),
            // Ours is slower than our level 2, and larger; C's is slower than that, but not smaller.
            row("x", "3@4K", [950, 990], [30, 30]),
        ];
        let text = hulls(&rows);
        let line = "| 4K | 3 | 1 | 1 | 1.1 % (x at 2) | 3 | 1 | 10.0 % (x at 3) |";
        assert!(text.contains(line), "{text}");
    }
}
