//! What is asked for, and the data.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{ArgAction, Parser};

use crate::options::size;

/// Measures tables of docs/published.md and puts them there, with their plots; their records are in bench/record/published.
#[derive(Clone, Debug, Parser)]
#[command(name = "cargo xtask tables")]
pub(crate) struct Settings {
    /// Tables; all if none is named.
    pub(super) names: Vec<String>,

    /// Where the files of the Silesia corpus are.
    #[arg(long, value_name = "DIR", default_value = "bench/corpora")]
    pub(super) corpora: PathBuf,

    /// A file or directory instead of the usual data (may be repeated).
    #[arg(long, value_name = "PATH", action = ArgAction::Append)]
    pub(super) corpus: Vec<PathBuf>,

    /// Bytes of the data; sizes take K and M, powers of 1024.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(super) sample: Option<usize>,

    /// Rounds, instead of those of the table.
    #[arg(long, value_name = "N")]
    pub(super) rounds: Option<usize>,

    /// Where data and images are while they are measured; by default in memory, if there is a /dev/shm.
    #[arg(long, value_name = "DIR")]
    pub(super) dir: Option<PathBuf>,

    /// The CPU of what has one thread; by default the last one.
    #[arg(long, value_name = "N")]
    pub(super) cpu: Option<usize>,

    /// Where page, plots and records go instead of the documentation.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Two rounds of little data, to see whether all works; written to target/tables.
    #[arg(long)]
    pub(super) quick: bool,

    /// Make page and plots from the records, without measuring.
    #[arg(long)]
    pub(super) again: bool,
}

/// The files of the Silesia corpus, in the order of silesia.tar.
const SILESIA: [&str; 12] = [
    "dickens", "mozilla", "mr", "nci", "ooffice", "osdb", "reymont", "samba", "sao", "webster",
    "xml", "x-ray",
];

/// Names and contents.
pub(super) type Files = Vec<(String, Vec<u8>)>;

/// Bytes of the data of a quick run.
const QUICK_BYTES: usize = 2 << 20;

impl Settings {
    /// Where the result goes if not into the documentation.
    pub(super) fn out(&self) -> Option<&Path> {
        let quick = self.quick.then_some(Path::new("target/tables"));
        self.out.as_deref().or(quick)
    }

    pub(super) fn rounds_or(&self, usual: usize) -> usize {
        let rounds = self.rounds.unwrap_or(if self.quick { 2 } else { usual });
        rounds.max(1)
    }

    pub(super) fn bytes_or(&self, usual: usize) -> usize {
        let bytes = self.sample;
        bytes.unwrap_or(if self.quick { QUICK_BYTES } else { usual })
    }

    /// The files of the Silesia corpus that are there, or what was named, each cut so that all are about `bytes_max`;
    /// and a sentence about them.
    pub(super) fn silesia(&self, bytes_max: usize) -> Result<(Files, String), String> {
        let mut paths = Vec::new();
        for path in &self.corpus {
            let path = self.corpora.join(path);
            if path.is_dir() {
                let entries = fs::read_dir(&path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
                let entries =
                    entries.map_err(|error| format!("read {}: {error}", path.display()))?;
                paths.extend(entries.into_iter().map(|entry| entry.path()));
                paths.sort();
            } else {
                paths.push(path);
            }
        }
        if self.corpus.is_empty() {
            let all = SILESIA.iter().map(|name| self.corpora.join(name));
            paths = all.filter(|path| path.is_file()).collect();
        }
        let mut files = Vec::new();
        for path in paths.iter().filter(|path| path.is_file()) {
            let bytes = fs::read(path);
            let bytes = bytes.map_err(|error| format!("read {}: {error}", path.display()))?;
            let name = path.file_name().unwrap_or_default();
            files.push((name.to_string_lossy().replace(',', "_"), bytes));
        }
        let all: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
        if all == 0 {
            return Err(format!(
                "{} has no file of the Silesia corpus: --corpora or --corpus names data",
                self.corpora.display()
            ));
        }
        if all > bytes_max {
            for (_, bytes) in &mut files {
                bytes.truncate((bytes.len() as u64 * bytes_max as u64 / all as u64) as usize);
            }
        }
        let kept: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
        let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        let mut said = names.join(" ");
        if kept < all {
            said = format!("the starts of {said}");
        }
        Ok((files, format!("{said}, {kept} bytes")))
    }
}
