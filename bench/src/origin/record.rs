//! What was measured of a table, kept in a file, so that the page can be made of it again.

use std::path::Path;
use std::time::Instant;
use std::{fs, iter};

const COLUMNS: &str = "part,row,who,metric,values of each round";

/// One measured quantity.
struct Line {
    part: String,
    row: String,
    who: String,
    metric: String,
    values: Vec<f64>,
}

/// All that was measured of a table, and under which circumstances.
#[derive(Default)]
pub(crate) struct Record {
    /// Names and texts, in the order of the page.
    head: Vec<(String, String)>,
    lines: Vec<Line>,
}

impl Record {
    /// Says something about the whole.
    pub(crate) fn say(&mut self, name: &str, text: impl Into<String>) {
        self.head
            .push((name.to_owned(), text.into().replace('\n', " ")));
    }

    /// What was said.
    pub(crate) fn said(&self, name: &str) -> Option<&str> {
        let found = self.head.iter().find(|(said, _)| said == name);
        found.map(|(_, text)| text.as_str())
    }

    /// Takes in one more value of a quantity.
    pub(crate) fn add(&mut self, part: &str, row: &str, who: &str, metric: &str, value: f64) {
        match self.position(part, row, who, metric) {
            Some(at) => self.lines[at].values.push(value),
            None => self.lines.push(Line {
                part: part.to_owned(),
                row: row.to_owned(),
                who: who.to_owned(),
                metric: metric.to_owned(),
                values: vec![value],
            }),
        }
    }

    /// Does a piece of work and takes in the seconds that it took.
    pub(super) fn timed<T>(
        &mut self,
        [part, row, who]: [&str; 3],
        work: impl FnOnce() -> Result<T, String>,
    ) -> Result<T, String> {
        let start = Instant::now();
        let result = work()?;
        self.add(part, row, who, "seconds", start.elapsed().as_secs_f64());
        Ok(result)
    }

    fn position(&self, part: &str, row: &str, who: &str, metric: &str) -> Option<usize> {
        self.lines.iter().position(|line| {
            line.part == part && line.row == row && line.who == who && line.metric == metric
        })
    }

    /// The values of a quantity, none if it was not measured.
    pub(crate) fn values(&self, part: &str, row: &str, who: &str, metric: &str) -> &[f64] {
        self.position(part, row, who, metric)
            .map_or(&[], |at| &self.lines[at].values)
    }

    /// The median of the rounds.
    pub(crate) fn median(&self, part: &str, row: &str, who: &str, metric: &str) -> Option<f64> {
        median(self.values(part, row, who, metric))
    }

    /// The least of the rounds.
    pub(crate) fn least(&self, part: &str, row: &str, who: &str, metric: &str) -> Option<f64> {
        let values = self.values(part, row, who, metric).iter().copied();
        values.reduce(f64::min)
    }

    /// The rows of a part, in the order of their first values.
    pub(crate) fn rows(&self, part: &str) -> Vec<&str> {
        let mut rows = Vec::new();
        for line in self.lines.iter().filter(|line| line.part == part) {
            if !rows.contains(&line.row.as_str()) {
                rows.push(line.row.as_str());
            }
        }
        rows
    }

    pub(crate) fn text(&self) -> String {
        let head = self
            .head
            .iter()
            .map(|(name, text)| format!("# {name}: {text}"));
        let lines = self.lines.iter().map(|line| {
            let values: Vec<String> = line.values.iter().map(f64::to_string).collect();
            let Line {
                part,
                row,
                who,
                metric,
                ..
            } = line;
            format!("{part},{row},{who},{metric},{}", values.join(" "))
        });
        head.chain(iter::once(COLUMNS.to_owned()))
            .chain(lines)
            .map(|line| line + "\n")
            .collect()
    }

    pub(crate) fn parse(text: &str) -> Result<Record, String> {
        let mut record = Record::default();
        for line in text.lines().filter(|line| *line != COLUMNS) {
            let wrong = || format!("a record has the line {line:.60}");
            if let Some(said) = line.strip_prefix("# ") {
                let (name, text) = said.split_once(": ").ok_or_else(wrong)?;
                record.say(name, text);
                continue;
            }
            let cells: Vec<&str> = line.split(',').collect();
            let [part, row, who, metric, values] = cells[..] else {
                return Err(wrong());
            };
            for value in values.split(' ') {
                let value = value.parse().map_err(|_| wrong())?;
                record.add(part, row, who, metric, value);
            }
        }
        Ok(record)
    }

    pub(crate) fn read(path: &Path) -> Result<Record, String> {
        let text = fs::read_to_string(path);
        Record::parse(&text.map_err(|error| format!("read {}: {error}", path.display()))?)
    }
}

/// The median.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        count if count % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let mut record = Record::default();
        record.say("commit", "abc");
        for value in [0.5, 0.25, 3.0, 0.1] {
            record.add("compress", "zstd 1", "ours", "seconds", value);
        }
        record.add("compress", "zstd 3", "C", "bytes", 73_645_762.0);
        let again = Record::parse(&record.text()).unwrap();
        assert_eq!(again.text(), record.text());
        assert_eq!(again.said("commit"), Some("abc"));
        assert_eq!(again.rows("compress"), ["zstd 1", "zstd 3"]);
        let of = |metric| again.median("compress", "zstd 1", "ours", metric);
        assert_eq!((of("seconds"), of("bytes")), (Some(0.375), None));
        let least = again.least("compress", "zstd 1", "ours", "seconds");
        assert_eq!(least, Some(0.1));
        assert!(Record::parse("a,b,c,d,x").is_err() && Record::parse("a,b").is_err());
    }
}
