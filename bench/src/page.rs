//! Puts tables into the pages of the documentation, generated from their records.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::options::Options;
use crate::record::TableRecord;
use crate::table::{Page, RenderedTable, TableSpec};

/// The files of the documentation, or of another directory with copies of its pages.
pub(crate) struct PageFiles {
    docs: PathBuf,
    records: PathBuf,
}

impl PageFiles {
    /// The documentation, or the directory that the options name.
    pub(crate) fn new(options: &Options) -> PageFiles {
        match options.out() {
            None => PageFiles {
                docs: root().join("docs"),
                records: root().join("bench/record"),
            },
            Some(dir) => PageFiles {
                docs: dir.to_owned(),
                records: dir.join("record"),
            },
        }
    }

    fn page(&self, table: &TableSpec) -> PathBuf {
        self.docs.join(match table.page {
            Page::Published => "published.md",
            _ => "BENCHMARKS.md",
        })
    }

    fn plot(&self, table: &TableSpec) -> PathBuf {
        self.docs.join(format!("plots/{}.svg", table.name))
    }

    fn record(&self, table: &TableSpec) -> PathBuf {
        let dir = match table.page {
            Page::Published => "published/",
            _ => "",
        };
        self.records.join(format!("{dir}{}.txt", table.name))
    }

    /// The record of a table, if there is one.
    pub(crate) fn read(&self, table: &TableSpec) -> Result<Option<TableRecord>, String> {
        let path = self.record(table);
        let text = path.exists().then(|| read(&path)).transpose()?;
        text.map(|text| TableRecord::parse(&text)).transpose()
    }

    /// Keeps a record, and puts its table into the page.
    pub(crate) fn keep(&self, table: &TableSpec, record: &TableRecord) -> Result<(), String> {
        write(&self.record(table), &record.text())?;
        self.put(table)
    }

    /// Puts a table into its page, and its plot beside it, as the record has them.
    pub(crate) fn put(&self, table: &TableSpec) -> Result<(), String> {
        let path = self.page(table);
        let name = table.name;
        let Some(record) = self.read(table)? else {
            println!("{name}: no record");
            return Ok(());
        };
        let RenderedTable { text, plot } = render(table, &record);
        if let Some(plot) = plot {
            write(&self.plot(table), &plot.document())?;
        }
        if !path.exists() {
            let page = path.file_name().unwrap_or_default();
            write(&path, &read(&root().join("docs").join(page))?)?;
        }
        let page = read(&path)?;
        let (open, close) = marks(name);
        let around = page.split_once(&open).and_then(|(before, rest)| {
            let (_, after) = rest.split_once(&close)?;
            Some((before, after))
        });
        let (before, after) = around.ok_or(format!("{name} has no marks in the page"))?;
        write(&path, &format!("{before}{open}{text}{close}{after}"))?;
        println!("{name}: in {}", path.display());
        Ok(())
    }
}

/// The lines before and after a table.
fn marks(name: &str) -> (String, String) {
    (
        format!("<!-- table {name} -->\n"),
        format!("<!-- end {name} -->"),
    )
}

/// A table with the circumstances of its measurement and its plot below it.
pub(crate) fn render(table: &TableSpec, record: &TableRecord) -> RenderedTable {
    let name = table.name;
    let RenderedTable { text, plot } = (table.show)(record);
    let said = |what| record.said(what).unwrap_or("unknown");
    let task = match table.page {
        Page::Published => "tables",
        _ => "bench",
    };
    let mut text = format!(
        "{}\n\n`cargo xtask {task} {name}`: {}, commit {}; {}, Linux {}; {} rounds  \nPeers: {}",
        text.trim_end(),
        said("date"),
        said("commit"),
        said("processor"),
        said("kernel"),
        said("rounds"),
        said("peers")
    );
    for (title, what) in [("Data", "data"), ("Missing", "missing")] {
        if let Some(said) = record.said(what) {
            text += &format!("  \n{title}: {said}");
        }
    }
    text.push('\n');
    if plot.is_some() && table.page != Page::Printed {
        text += &format!("\n![{}](plots/{name}.svg)\n", table.help);
    }
    RenderedTable { text, plot }
}

/// Notes the circumstances of every measurement.
pub(crate) fn circumstances(record: &mut TableRecord) {
    let output = |program: &str, words: &[&str]| {
        let output = Command::new(program)
            .args(words)
            .current_dir(root())
            .output();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        text.unwrap_or_default()
    };
    record.say("date", output("date", &["--utc", "+%Y-%m-%d"]));
    let mut commit = output("git", &["rev-parse", "--short=12", "HEAD"]);
    // Pages and records change while tables are made.
    let unchanged = [".", ":!docs", ":!bench/record"];
    let status = [&["status", "--porcelain", "--"][..], &unchanged].concat();
    if !output("git", &status).is_empty() {
        commit += " with changes";
    }
    record.say("commit", commit);
    record.say("processor", processor());
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    // The words after the numbers name a build, not a version.
    let numbers = kernel.trim().split('-').next().unwrap_or_default();
    record.say("kernel", numbers);
}

/// The kind and number of CPUs; nothing that names the machine.
fn processor() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let fields = info.lines().filter_map(|line| line.split_once(':'));
    let mut fields = fields.map(|(key, value)| (key.trim(), value.trim()));
    // Not available_parallelism: this thread may be held on one.
    let count = fields
        .clone()
        .filter(|(key, _)| *key == "processor")
        .count();
    let model = fields.find(|(key, _)| *key == "model name");
    let model = model.map_or(std::env::consts::ARCH, |(_, model)| model);
    format!("{model} ({count} CPUs)")
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("read {}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    let dir = path.parent().unwrap_or(path);
    fs::create_dir_all(dir).map_err(|error| format!("create {}: {error}", dir.display()))?;
    fs::write(path, text).map_err(|error| format!("write {}: {error}", path.display()))
}

/// Whether a page has a table once, as its record has it, with its plot.
#[cfg(test)]
pub(crate) fn assert_is_in_page(table: &TableSpec) {
    let files = PageFiles {
        docs: root().join("docs"),
        records: root().join("bench/record"),
    };
    let page = read(&files.page(table)).unwrap();
    let (open, close) = marks(table.name);
    assert_eq!(page.matches(&open).count(), 1, "{open}");
    assert_eq!(page.matches(&close).count(), 1, "{close}");
    let record = files.read(table).unwrap();
    let record = record.unwrap_or_else(|| panic!("{} has no record", table.name));
    for known in ["date", "commit", "processor", "kernel", "rounds", "peers"] {
        assert!(record.said(known).is_some(), "{}: no {known}", table.name);
    }
    let RenderedTable { text, plot } = render(table, &record);
    assert!(page.contains(&format!("{open}{text}{close}")), "{open}");
    if let Some(plot) = plot {
        let drawn = read(&files.plot(table)).unwrap();
        assert!(drawn == plot.document(), "{}.svg differs", table.name);
    }
}
