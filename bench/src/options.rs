//! Options of every measurement.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{ArgAction, Parser};

/// Measures tables of docs/BENCHMARKS.md (`cargo xtask bench`) or docs/published.md (`cargo xtask
/// tables`).
///
/// A table is recorded and put into its page. A table of docs/BENCHMARKS.md with options of its own
/// is only printed.
#[derive(Clone, Debug, Parser)]
#[command(name = "cargo xtask bench", args_override_self = true)]
pub(crate) struct Options {
    /// Tables or work; for docs/published.md all tables by default.
    pub(crate) names: Vec<String>,

    /// The directory of the corpora.
    #[arg(long, value_name = "DIR", default_value = "bench/corpora")]
    pub(crate) corpora: PathBuf,

    /// Files or directories instead of the usual data, absolute or in the directory of the corpora;
    /// unseen-tuning and unseen-reporting are generated.
    #[arg(long, value_name = "PATH", num_args = 1.., action = ArgAction::Set)]
    pub(crate) corpus: Vec<PathBuf>,

    /// Levels of zstd.
    #[arg(
        long,
        value_delimiter = ',',
        action = ArgAction::Set,
        allow_hyphen_values = true,
        default_value = "-5,1,3,9,15,19"
    )]
    pub(crate) levels: Vec<i32>,

    /// Codecs of images, such as zstd:1,gzip:9,zstd:16@256K (with a block size).
    #[arg(long, value_delimiter = ',', action = ArgAction::Set)]
    pub(crate) codecs: Vec<String>,

    /// Bytes in an independent frame; sizes take K and M, powers of 1024.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "128K")]
    pub(crate) block: usize,

    /// One frame of unknown content size in pieces of 4,096 bytes, instead of independent frames.
    #[arg(long)]
    pub(crate) pieces: bool,

    /// Peers to compare; the others are divided by the first.
    #[arg(long, value_delimiter = ',', action = ArgAction::Set)]
    peers: Vec<String>,

    /// Time for one row, where rounds go by time.
    #[arg(long, value_name = "S", default_value = "1")]
    pub(crate) seconds: f64,

    /// Rounds, where they are counted.
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,

    /// Bytes of the data; of a corpus of files they are spread evenly over it.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    sample: Option<usize>,

    /// The CPU of single-threaded work; by default the last one.
    #[arg(long, value_name = "N")]
    pub(crate) cpu: Option<usize>,

    /// Where data and images are written; by default TMPDIR, or /dev/shm if it exists.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,

    /// Where page, plots and records go instead of the documentation.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Measure little, to see whether it works; pages go to target/tables.
    #[arg(long)]
    pub(crate) quick: bool,

    /// Run only the last peer on the first corpus and level, for a profiler.
    #[arg(long)]
    pub(crate) profile: bool,

    /// Name rows by level and size of a frame.
    #[arg(long, hide = true)]
    pub(crate) by_size: bool,

    /// Make page and plots from the records, without measuring.
    #[arg(long)]
    pub(crate) again: bool,

    /// Rewrite the committed sizes instead of comparing them.
    #[arg(long)]
    pub(crate) update: bool,
}

/// The files of the Silesia corpus, in the order of silesia.tar.
const SILESIA: [&str; 12] = [
    "dickens", "mozilla", "mr", "nci", "ooffice", "osdb", "reymont", "samba", "sao", "webster",
    "xml", "x-ray",
];

/// Names and contents.
pub(crate) type Files = Vec<(String, Vec<u8>)>;

/// Bytes of the data of a quick run.
const QUICK_BYTES: usize = 2 << 20;

impl Options {
    /// Checks the options, and applies `--quick` and `--profile` to the others.
    pub(crate) fn settle(mut self) -> Result<Self, String> {
        if self.one_row() {
            self.levels.truncate(1);
        }
        if self.quick {
            self.seconds = self.seconds.min(1.5);
        }
        if self.block == 0 || self.sample() < self.block {
            return Err("--block must be at least 1, --sample at least a block".into());
        }
        Ok(self)
    }

    /// Whether only one row is wanted.
    pub(crate) fn one_row(&self) -> bool {
        self.quick || self.profile
    }

    /// The names of the peers, or `default`.
    pub(crate) fn peers_or(&self, default: &[&str]) -> Vec<String> {
        if self.peers.is_empty() {
            default.iter().map(|name| (*name).to_owned()).collect()
        } else {
            self.peers.clone()
        }
    }

    /// The directory of pages, plots and records, if not the documentation.
    pub(crate) fn out(&self) -> Option<&Path> {
        let quick = self.quick.then_some(Path::new("target/tables"));
        self.out.as_deref().or(quick)
    }

    pub(crate) fn rounds_or(&self, usual: usize) -> usize {
        let rounds = self.rounds.unwrap_or(if self.quick { 2 } else { usual });
        rounds.max(1)
    }

    /// Bytes of a sample of a file.
    pub(crate) fn sample(&self) -> usize {
        self.sample.unwrap_or(8 << 20)
    }

    /// Bytes of all data.
    pub(crate) fn bytes_or(&self, usual: usize) -> usize {
        let bytes = self.sample;
        bytes.unwrap_or(if self.quick { QUICK_BYTES } else { usual })
    }

    /// The paths of the named corpora.
    pub(crate) fn paths(&self) -> impl Iterator<Item = PathBuf> {
        self.corpus.iter().map(|path| self.corpora.join(path))
    }

    /// The named directories, and their names.
    pub(crate) fn directories(&self) -> Result<Vec<(String, String)>, String> {
        if self.corpus.is_empty() {
            return Err("--corpus names the directories to be packed".into());
        }
        let directory = |path: PathBuf| {
            if path.is_dir() {
                Ok((path.display().to_string(), file_name(&path)))
            } else {
                Err(format!("{} is not a directory", path.display()))
            }
        };
        self.paths().map(directory).collect()
    }

    /// The files of the Silesia corpus that exist, or the named ones, each cut so that all are
    /// about `bytes_max`; and their description.
    pub(crate) fn silesia(&self, bytes_max: usize) -> Result<(Files, String), String> {
        let mut paths = Vec::new();
        for path in self.paths() {
            if path.is_dir() {
                paths.extend(entries(&path)?);
            } else {
                paths.push(path);
            }
        }
        if self.corpus.is_empty() {
            paths = SILESIA.map(|name| self.corpora.join(name)).to_vec();
        }
        let mut files = Vec::new();
        for path in paths.iter().filter(|path| path.is_file()) {
            files.push((file_name(path), read(path)?));
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
        let starts = if kept < all { "the starts of " } else { "" };
        let said = format!("{starts}{}, {kept} bytes", names.join(" "));
        Ok((files, said))
    }
}

/// The last name of a path.
pub(crate) fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// The paths in a directory, sorted.
pub(crate) fn entries(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(dir).and_then(|dir| dir.map(|entry| Ok(entry?.path())).collect());
    let mut entries: Vec<PathBuf> =
        entries.map_err(|error| format!("read {}: {error}", dir.display()))?;
    entries.sort();
    Ok(entries)
}

/// The content of a file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("read {}: {error}", path.display()))
}

/// A number of bytes, with K and M as powers of 1024.
fn size(text: &str) -> Result<usize, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 20),
        _ => (text, 0),
    };
    let number = digits.parse::<usize>().ok();
    let bytes = number.and_then(|number| number.checked_mul(1 << shift));
    bytes.ok_or(format!("{text} is not a size"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_options_win() {
        let words = "x decode --levels -5,1 --block 1M --corpus a b --levels -1,2 --block 4K";
        let options = Options::try_parse_from(words.split(' ')).unwrap();
        assert_eq!(options.levels, [-1, 2]);
        assert_eq!((&*options.names[0], options.block), ("decode", 4096));
        let paths: Vec<_> = options.paths().collect();
        assert_eq!(
            paths,
            ["bench/corpora/a", "bench/corpora/b"].map(PathBuf::from)
        );
    }

    #[test]
    fn sizes_are_checked() {
        assert_eq!(size("3M"), Ok(3 << 20));
        assert!(size("").is_err() && size("K").is_err() && size("99999999999999999999").is_err());
        let options = Options::try_parse_from(["x", "decode", "--sample", "1K"]).unwrap();
        assert!(options.settle().is_err());
    }
}
