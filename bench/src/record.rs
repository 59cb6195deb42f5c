//! Raw samples in `bench/record/*.csv`, and tables made from them in `docs/BENCHMARKS.md`.

use crate::measure::Rounds;
use crate::published::PUBLISHED;
use crate::table::{Form, Row, Table};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The columns of codecs, and, with two more, of whole processes.
const COLUMNS: [&str; 2] = [
    "corpus,level,bytes,peer,size,nanoseconds of each round",
    "corpus,level,bytes,peer,size,CPU nanoseconds,peak memory,nanoseconds of each round",
];

/// Keeps the samples of a table.
pub(crate) fn store(name: &str, table: &Table) -> Result<(), String> {
    let path = path_of(name);
    fs::create_dir_all(root().join("bench/record"))
        .map_err(|error| format!("create bench/record: {error}"))?;
    fs::write(&path, csv(name, &machine(), table))
        .map_err(|error| format!("write {}: {error}", path.display()))
}

fn csv(name: &str, machine: &str, table: &Table) -> String {
    let of_processes = table.rows.iter().any(|row| !row.cpu.is_empty());
    let columns = COLUMNS[usize::from(of_processes)];
    let mut text =
        format!("# command: cargo xtask bench {name}\n# machine: {machine}\n{columns}\n");
    for row in &table.rows {
        let Row {
            corpus,
            level,
            bytes,
            memory,
            ..
        } = row;
        for (peer, name) in table
            .peers
            .iter()
            .take(row.rounds.times[0].len())
            .enumerate()
        {
            let size = row.sizes.get(peer).map_or(String::new(), usize::to_string);
            let times = row
                .rounds
                .times
                .iter()
                .map(|round| round[peer].as_nanos().to_string());
            let times = times.collect::<Vec<_>>().join(" ");
            text += &format!("{corpus},{level},{bytes},{name},{size},");
            if of_processes {
                let cpu = row.cpu.get(peer).map_or(0, Duration::as_nanos);
                text += &format!("{cpu},{memory},");
            }
            text += &format!("{times}\n");
        }
    }
    text
}

/// Puts all tables of which there are records into the page.
pub(crate) fn splice_all() -> Result<(), String> {
    for table in PUBLISHED {
        if path_of(table.name).exists() {
            splice(table.name)?;
        } else {
            println!("{}: no record, left as it was", table.name);
        }
    }
    Ok(())
}

/// Puts the table of `bench/record/NAME.csv` between `<!-- bench NAME -->` and `<!-- end NAME -->`.
pub(crate) fn splice(name: &str) -> Result<(), String> {
    let table = PUBLISHED.iter().find(|table| table.name == name);
    let form = table.ok_or(format!("{name} is no table of the page"))?.form;
    let page = root().join("docs/BENCHMARKS.md");
    let text = read(&page)?;
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
    let table = markdown(name, form, &read(&path_of(name))?)?;
    let text = format!("{before}{open}{table}{close}{after}");
    fs::write(&page, text).map_err(|error| format!("write {}: {error}", page.display()))?;
    println!("{name}: spliced");
    Ok(())
}

/// The stored samples as a table, the command above it.
fn markdown(name: &str, form: Form, csv: &str) -> Result<String, String> {
    let mut machine = "";
    let mut table = Table::new(form, &[]);
    for line in csv.lines() {
        if let Some(text) = line.strip_prefix("# machine: ") {
            machine = text;
        } else if !line.starts_with("# ") && !COLUMNS.contains(&line) {
            add(&mut table, line)?;
        }
    }
    if table.rows.is_empty() {
        return Err("a record has no rows".into());
    }
    let table = table.markdown();
    Ok(format!(
        "`cargo xtask bench {name}`  \n{machine}\n\n{table}"
    ))
}

/// Takes in one line of a record: a peer's part of a row.
fn add(table: &mut Table, line: &str) -> Result<(), String> {
    let cells: Vec<&str> = line.split(',').collect();
    let (corpus, level, bytes, peer, size, cpu, memory, times) = match cells[..] {
        [corpus, level, bytes, peer, size, times] => {
            (corpus, level, bytes, peer, size, "", "", times)
        }
        [corpus, level, bytes, peer, size, cpu, memory, times] => {
            (corpus, level, bytes, peer, size, cpu, memory, times)
        }
        _ => return Err(format!("a record has the line {line:.60}")),
    };
    let number = |text: &str| {
        text.parse::<u64>()
            .map_err(|_| format!("{text} is not a number"))
    };
    if !table.peers.iter().any(|name| name == peer) {
        table.peers.push(peer.to_owned());
    }
    if peer == table.peers[0] {
        table.rows.push(Row {
            corpus: corpus.to_owned(),
            level: level.to_owned(),
            bytes: number(bytes)? as usize,
            sizes: Vec::new(),
            cpu: Vec::new(),
            memory: memory.to_owned(),
            rounds: Rounds {
                times: Vec::new(),
                units: 0,
            },
        });
    }
    let row = table.rows.last_mut().ok_or("a record has no first peer")?;
    if !size.is_empty() {
        row.sizes.push(number(size)? as usize);
    }
    if !cpu.is_empty() {
        row.cpu.push(Duration::from_nanos(number(cpu)?));
    }
    for (round, time) in times.split(' ').enumerate() {
        if round == row.rounds.times.len() {
            row.rounds.times.push(Vec::new());
        }
        row.rounds.times[round].push(Duration::from_nanos(number(time)?));
    }
    Ok(())
}

/// The kind of CPU; nothing that names the machine.
pub(crate) fn machine() -> String {
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

fn path_of(name: &str) -> PathBuf {
    root().join(format!("bench/record/{name}.csv"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page shows what the records hold, and `bench report` would change nothing.
    #[test]
    fn records_are_in_the_page() {
        let page = read(&root().join("docs/BENCHMARKS.md")).unwrap();
        for table in PUBLISHED
            .iter()
            .filter(|table| path_of(table.name).exists())
        {
            let record = read(&path_of(table.name)).unwrap();
            let spliced = markdown(table.name, table.form, &record).unwrap();
            assert!(page.contains(&spliced), "{}", table.name);
        }
    }

    #[test]
    fn record_of_processes_gives_its_table_again() {
        let ms = Duration::from_millis;
        let row = |peers: usize| Row {
            corpus: "usr".into(),
            level: "zstd:1".into(),
            bytes: 0,
            sizes: vec![1000, 990],
            cpu: vec![ms(30), ms(15)],
            memory: "9 MB".into(),
            rounds: Rounds {
                times: vec![[ms(20), ms(10), ms(15), ms(40)][..peers].to_vec(); 3],
                units: 1,
            },
        };
        let peers = ["mksquashfs", "restow", "restow verifying", "gensquashfs"].map(str::to_owned);
        let mut table = Table::new(Form::Squashfs, &peers);
        table.rows = vec![row(4), row(3)];
        let text = markdown("x", Form::Squashfs, &csv("x", "a machine", &table)).unwrap();
        assert!(
            text.starts_with("`cargo xtask bench x`  \na machine\n\n| tree |"),
            "{text}"
        );
        assert!(text.ends_with(&table.markdown()), "{text}");
        assert!(text.contains(
            "| usr | zstd:1 | 0.02 | 0.500 [0.500..0.500] | 0.500 | 0.750 [0.750..0.750] | - | 0.9900 | 9 MB |"
        ));
    }
}
