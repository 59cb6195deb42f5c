//! The record of a table: its circumstances, and the quantities from which the page is generated.
//!
//! A record is a text file, `bench/record/NAME.txt`. It begins with lines such as `commit:
//! 68d7ca4`; each part of the table follows under its name in brackets, one line a row. A quantity
//! is a number, or a median with the tenth and the ninetieth percentile, `1.164 [1.107..1.207]`;
//! `-` is not measured. Single samples are not kept.

use std::fmt::Write as _;
use std::time::Instant;

use crate::measure::{Spread, median};

/// Separates the cells of a line.
const BAR: &str = " | ";

/// One measured quantity of a row.
struct Quantity {
    peer: String,
    metric: String,
    /// The value of each round; one number once the record was read from its file.
    samples: Vec<f64>,
    /// Tenth and ninetieth percentile, if the table shows them.
    range: Option<[f64; 2]>,
}

impl Quantity {
    fn spread(&self) -> Spread {
        let median = median(&self.samples).unwrap_or(f64::NAN);
        let [low, high] = self.range.unwrap_or([median; 2]);
        Spread { low, median, high }
    }

    fn text(&self) -> String {
        let Spread { low, median, high } = self.spread();
        match self.range {
            Some(_) => format!("{} [{}..{}]", rounded(median), rounded(low), rounded(high)),
            None => rounded(median).to_string(),
        }
    }
}

/// One row of a table: all its quantities.
pub(crate) struct RecordRow {
    pub(crate) name: String,
    quantities: Vec<Quantity>,
}

impl RecordRow {
    fn find(&self, peer: &str, metric: &str) -> Option<&Quantity> {
        let mut all = self.quantities.iter();
        all.find(|it| it.peer == peer && it.metric == metric)
    }

    /// The median of a quantity, if it was measured.
    pub(crate) fn value(&self, peer: &str, metric: &str) -> Option<f64> {
        Some(self.find(peer, metric)?.spread().median)
    }

    /// The median and the percentiles of a quantity.
    pub(crate) fn spread(&self, peer: &str, metric: &str) -> Option<Spread> {
        self.find(peer, metric).map(Quantity::spread)
    }

    /// The peers in the order of their first quantities.
    pub(crate) fn peers(&self) -> Vec<&str> {
        distinct(self.quantities.iter().map(|it| it.peer.as_str()))
    }
}

/// Rows that belong together.
struct RecordPart {
    name: String,
    rows: Vec<RecordRow>,
}

/// All quantities of a table, and the circumstances of their measurement.
#[derive(Default)]
pub(crate) struct TableRecord {
    circumstances: Vec<(String, String)>,
    parts: Vec<RecordPart>,
}

impl TableRecord {
    /// Sets a circumstance.
    pub(crate) fn say(&mut self, name: &str, text: impl Into<String>) {
        let text = text.into().replace('\n', " ");
        match self.circumstances.iter_mut().find(|(said, _)| said == name) {
            Some((_, said)) => *said = text,
            None => self.circumstances.push((name.to_owned(), text)),
        }
    }

    /// A circumstance, if it is set.
    pub(crate) fn said(&self, name: &str) -> Option<&str> {
        let found = self.circumstances.iter().find(|(said, _)| said == name);
        found.map(|(_, text)| text.as_str())
    }

    /// Notes the number of rounds of a row; the record keeps the least and the largest.
    pub(crate) fn count_rounds(&mut self, rounds: usize) {
        let said = self.said("rounds").unwrap_or_default();
        let said = said.split(' ').filter_map(|word| word.parse().ok());
        let all: Vec<usize> = said.chain([rounds]).collect();
        let (least, most) = (all.iter().min(), all.iter().max());
        let (least, most) = (least.unwrap_or(&rounds), most.unwrap_or(&rounds));
        let to = format!("{least} to ");
        let least = if least == most { "" } else { &to };
        self.say("rounds", format!("medians of {least}{most}"));
    }

    /// Adds a sample of a quantity.
    pub(crate) fn add(&mut self, part: &str, row: &str, peer: &str, metric: &str, value: f64) {
        self.quantity([part, row, peer, metric]).samples.push(value);
    }

    /// Adds a quantity with its percentiles.
    pub(crate) fn add_spread(&mut self, key: [&str; 4], Spread { low, median, high }: Spread) {
        let quantity = self.quantity(key);
        quantity.samples = vec![median];
        quantity.range = Some([low, high]);
    }

    /// Does a piece of work and adds the seconds that it took.
    pub(crate) fn timed<T>(
        &mut self,
        [part, row, peer]: [&str; 3],
        work: impl FnOnce() -> Result<T, String>,
    ) -> Result<T, String> {
        let start = Instant::now();
        let result = work()?;
        self.add(part, row, peer, "seconds", start.elapsed().as_secs_f64());
        Ok(result)
    }

    fn quantity(&mut self, [part, row, peer, metric]: [&str; 4]) -> &mut Quantity {
        let at = self.parts.iter().position(|it| it.name == part);
        let at = at.unwrap_or_else(|| {
            let (name, rows) = (part.to_owned(), Vec::new());
            self.parts.push(RecordPart { name, rows });
            self.parts.len() - 1
        });
        let rows = &mut self.parts[at].rows;
        let at = rows.iter().rposition(|it| it.name == row);
        let at = at.unwrap_or_else(|| {
            let (name, quantities) = (row.to_owned(), Vec::new());
            rows.push(RecordRow { name, quantities });
            rows.len() - 1
        });
        let all = &mut rows[at].quantities;
        let at = all
            .iter()
            .position(|it| it.peer == peer && it.metric == metric);
        let at = at.unwrap_or_else(|| {
            all.push(Quantity {
                peer: peer.to_owned(),
                metric: metric.to_owned(),
                samples: Vec::new(),
                range: None,
            });
            all.len() - 1
        });
        &mut all[at]
    }

    /// Replaces the samples of each quantity by the least of them.
    pub(crate) fn keep_least(&mut self) {
        for row in self.parts.iter_mut().flat_map(|part| &mut part.rows) {
            for quantity in &mut row.quantities {
                let least = quantity.samples.iter().copied().reduce(f64::min);
                quantity.samples = least.into_iter().collect();
            }
        }
    }

    /// The names of the parts.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().map(|part| part.name.as_str())
    }

    /// The rows of a part, in the order of their first samples.
    pub(crate) fn rows(&self, part: &str) -> &[RecordRow] {
        let found = self.parts.iter().find(|it| it.name == part);
        found.map_or(&[], |part| &part.rows)
    }

    /// All rows, with the names of their parts.
    pub(crate) fn all_rows(&self) -> impl Iterator<Item = (&str, &RecordRow)> {
        let parts = self.parts.iter();
        parts.flat_map(|part| part.rows.iter().map(|row| (part.name.as_str(), row)))
    }

    /// The median of a quantity, if it was measured.
    pub(crate) fn value(&self, part: &str, row: &str, peer: &str, metric: &str) -> Option<f64> {
        let rows = self.rows(part);
        let row = rows.iter().find(|it| it.name == row)?;
        row.value(peer, metric)
    }

    /// Prints a row as soon as it was measured.
    pub(crate) fn print_row(&self, part: &str, row: &str) {
        let Some(found) = self.rows(part).iter().find(|it| it.name == row) else {
            return;
        };
        let mut line = format!("  {part}, {row}:");
        for quantity in &found.quantities {
            let Quantity { peer, metric, .. } = quantity;
            let _ = write!(line, " {peer} {metric} {};", quantity.text());
        }
        println!("{}", line.trim_end_matches(';'));
    }

    /// The text of the file.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for (name, said) in &self.circumstances {
            let _ = writeln!(text, "{name}: {said}");
        }
        for part in &self.parts {
            let quantities = part.rows.iter().flat_map(|row| &row.quantities);
            let columns = distinct(quantities.map(|it| (it.peer.as_str(), it.metric.as_str())));
            let _ = write!(text, "\n[{}]\nrow", part.name);
            for (peer, metric) in &columns {
                let _ = write!(text, "{BAR}{peer}: {metric}");
            }
            for row in &part.rows {
                let _ = write!(text, "\n{}", row.name);
                for (peer, metric) in &columns {
                    let quantity = row.find(peer, metric);
                    let quantity = quantity.map_or("-".to_owned(), Quantity::text);
                    let _ = write!(text, "{BAR}{quantity}");
                }
            }
            text.push('\n');
        }
        text
    }

    /// Reads the text of a file.
    pub(crate) fn parse(text: &str) -> Result<TableRecord, String> {
        let mut record = TableRecord::default();
        let mut part: Option<&str> = None;
        let mut columns: Vec<(&str, &str)> = Vec::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            let wrong = || format!("a record has the line {line:.60}");
            let name = line.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
            if name.is_some() {
                part = name;
                continue;
            }
            let Some(part) = part else {
                let (name, text) = line.split_once(": ").ok_or_else(wrong)?;
                record.say(name, text);
                continue;
            };
            let mut cells = line.split(BAR);
            let row = cells.next().unwrap_or_default();
            if row == "row" {
                let pairs = cells.map(|cell| cell.split_once(": ").ok_or_else(wrong));
                columns = pairs.collect::<Result<_, _>>()?;
                continue;
            }
            let cells: Vec<&str> = cells.collect();
            if cells.len() != columns.len() {
                return Err(wrong());
            }
            for ((peer, metric), cell) in columns.iter().zip(cells).filter(|it| it.1 != "-") {
                let number = |text: &str| text.parse::<f64>().map_err(|_| wrong());
                let Some((median, range)) = cell.split_once(" [") else {
                    record.add(part, row, peer, metric, number(cell)?);
                    continue;
                };
                let (low, high) = range.split_once("..").ok_or_else(wrong)?;
                let spread = Spread {
                    low: number(low)?,
                    median: number(median)?,
                    high: number(high.trim_end_matches(']'))?,
                };
                record.add_spread([part, row, peer, metric], spread);
            }
        }
        Ok(record)
    }
}

/// Each value once, in the order of the first ones.
pub(crate) fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut all = Vec::new();
    for value in values {
        if !all.contains(&value) {
            all.push(value);
        }
    }
    all
}

/// A whole number as it is, another one with nine digits.
fn rounded(value: f64) -> f64 {
    if value.fract() == 0.0 {
        return value;
    }
    format!("{value:.8e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let mut record = TableRecord::default();
        record.say("commit", "abc");
        for rounds in [7, 5, 9] {
            record.count_rounds(rounds);
        }
        for value in [0.5, 0.25, 3.0, 0.1] {
            record.add("compress", "zstd 1", "ours", "seconds", value);
        }
        record.add("compress", "zstd 3, fast", "C", "bytes", 73_645_762.0);
        let spread = Spread {
            low: 0.912_345_678_912,
            median: 1.0,
            high: 1.5,
        };
        record.add_spread(["x", "1@4K", "ours", "speed"], spread);
        let again = TableRecord::parse(&record.text()).unwrap();
        assert_eq!(again.text(), record.text());
        assert_eq!(again.said("commit"), Some("abc"));
        assert_eq!(again.said("rounds"), Some("medians of 5 to 9"));
        let of = |metric| again.value("compress", "zstd 1", "ours", metric);
        assert_eq!((of("seconds"), of("bytes")), (Some(0.375), None));
        let row = &again.rows("x")[0];
        let spread = row.spread("ours", "speed").unwrap();
        assert_eq!(
            (spread.low, spread.median, spread.high),
            (0.912_345_679, 1.0, 1.5)
        );
        assert!(again.text().contains("1@4K | 1 [0.912345679..1.5]\n"));
        record.keep_least();
        let least = record.value("compress", "zstd 1", "ours", "seconds");
        assert_eq!(least, Some(0.1));
        assert!(TableRecord::parse("[a]\nrow | b: c\nd | x").is_err());
        assert!(TableRecord::parse("a").is_err() && TableRecord::parse("[a]\nb | 1").is_err());
    }
}
