//! Raw samples in `bench/record/*.csv`, and tables made from them in `docs/BENCHMARKS.md`.

use crate::measure::Rounds;
use crate::options::Options;
use crate::table::{self, Row};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The raw samples of one run, as they will be stored.
pub(crate) struct Record {
    path: Option<PathBuf>,
    peers: Vec<String>,
    text: String,
}

const COLUMNS: &str = "corpus,level,bytes,peer,size,nanoseconds of each round";

impl Record {
    pub(crate) fn new(work: &str, peers: &[String], options: &Options) -> Self {
        let path = options
            .record
            .as_ref()
            .map(|name| dir().join(format!("{name}.csv")));
        let text = format!(
            "# command: cargo run --release -p bench -- {work} {}\n# machine: {}\n{COLUMNS}\n",
            options.command,
            machine()
        );
        Self {
            path,
            peers: peers.to_vec(),
            text,
        }
    }

    pub(crate) fn add(&mut self, row: &Row) {
        for (peer, name) in self.peers.iter().enumerate() {
            let size = row
                .sizes
                .get(peer)
                .map(usize::to_string)
                .unwrap_or_default();
            let times: Vec<String> = row
                .rounds
                .times
                .iter()
                .map(|round| round[peer].as_nanos().to_string())
                .collect();
            let Row {
                corpus,
                level,
                bytes,
                ..
            } = row;
            // Writing to a string cannot fail.
            let _ = writeln!(
                self.text,
                "{corpus},{level},{bytes},{name},{size},{}",
                times.join(" ")
            );
        }
    }

    pub(crate) fn store(self) -> Result<(), String> {
        let Some(path) = self.path else { return Ok(()) };
        fs::create_dir_all(dir()).map_err(|error| format!("create bench/record: {error}"))?;
        fs::write(&path, self.text).map_err(|error| format!("write {}: {error}", path.display()))
    }
}

/// Puts the table of `bench/record/NAME.csv` between `<!-- bench NAME -->` and `<!-- end NAME -->`.
pub(crate) fn report(_: &Options) -> Result<(), String> {
    let page = root().join("docs/BENCHMARKS.md");
    let mut text = read(&page)?;
    let mut names: Vec<String> = text
        .lines()
        .filter_map(|line| {
            line.strip_prefix("<!-- bench ")?
                .strip_suffix(" -->")
                .map(str::to_owned)
        })
        .collect();
    names.dedup();
    for name in names {
        let record = dir().join(format!("{name}.csv"));
        if !record.exists() {
            println!("{name}: no record, left as it was");
            continue;
        }
        let (open, close) = (
            format!("<!-- bench {name} -->\n"),
            format!("<!-- end {name} -->"),
        );
        let (before, rest) = text
            .split_once(&open)
            .ok_or(format!("{name}: no opening mark"))?;
        let (_, after) = rest
            .split_once(&close)
            .ok_or(format!("{name}: no closing mark"))?;
        text = format!("{before}{open}{}{close}{after}", markdown(&read(&record)?)?);
        println!("{name}: spliced");
    }
    fs::write(&page, text).map_err(|error| format!("write {}: {error}", page.display()))
}

/// The stored samples as a table, the command above it.
fn markdown(csv: &str) -> Result<String, String> {
    let (mut command, mut machine) = ("", "");
    let mut peers: Vec<String> = Vec::new();
    let mut rows: Vec<Row> = Vec::new();
    for line in csv.lines() {
        if let Some(text) = line.strip_prefix("# command: ") {
            command = text;
        } else if let Some(text) = line.strip_prefix("# machine: ") {
            machine = text;
        } else if line != COLUMNS {
            let cells: Vec<&str> = line.split(',').collect();
            let [corpus, level, bytes, peer, size, times] = cells[..] else {
                return Err(format!("a record has the line {line:.60}"));
            };
            let number = |text: &str| {
                text.parse::<u64>()
                    .map_err(|_| format!("{text} is not a number"))
            };
            if !peers.iter().any(|name| name == peer) {
                peers.push(peer.to_owned());
            }
            if peer == peers[0] {
                let rounds = Rounds {
                    times: Vec::new(),
                    units: 0,
                };
                let (corpus, level) = (corpus.to_owned(), level.to_owned());
                let bytes = number(bytes)? as usize;
                rows.push(Row {
                    corpus,
                    level,
                    bytes,
                    sizes: Vec::new(),
                    rounds,
                });
            }
            let row = rows.last_mut().ok_or("a record has no first peer")?;
            if !size.is_empty() {
                row.sizes.push(number(size)? as usize);
            }
            for (round, time) in times.split(' ').enumerate() {
                if round == row.rounds.times.len() {
                    row.rounds.times.push(Vec::new());
                }
                row.rounds.times[round].push(Duration::from_nanos(number(time)?));
            }
        }
    }
    let first = rows.first().ok_or("a record has no rows")?;
    let mut text = format!(
        "`{command}`  \n{machine}\n\n{}\n",
        table::head(&peers, !first.sizes.is_empty())
    );
    for row in &rows {
        text += &table::line(row);
        text += "\n";
    }
    text += &table::means(&rows);
    text += "\n";
    let curve = table::curve(&peers, &rows);
    if !curve.is_empty() {
        text += &format!("\n{curve}\n");
    }
    Ok(text)
}

/// The kind of CPU; nothing that names the machine.
fn machine() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let fields: BTreeMap<&str, &str> = info
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(key, value)| (key.trim(), value.trim()))
        .collect();
    // Not what this thread may use: it is held on one.
    let cpus = info
        .lines()
        .filter(|line| line.starts_with("processor"))
        .count();
    format!(
        "{} ({cpus} CPUs)",
        fields.get("model name").unwrap_or(&std::env::consts::ARCH)
    )
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("read {}: {error}", path.display()))
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn dir() -> PathBuf {
    root().join("bench/record")
}
