//! What was asked for.

use std::path::PathBuf;

use clap::{ArgAction, Parser};

/// Measures, and prints a table.
///
/// A table of docs/BENCHMARKS.md without options of its own is recorded and put into that page. With options it is only printed.
#[derive(Clone, Debug, Parser)]
#[command(name = "cargo xtask bench", args_override_self = true)]
pub(crate) struct Options {
    /// Table or work.
    pub(crate) name: String,

    /// Where the corpora of the tables lie.
    #[arg(long, value_name = "DIR", default_value = "bench/corpora")]
    pub(crate) corpora: PathBuf,

    /// Files or directories of files, absolute or in DIR; by default the generated corpora.
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

    /// Whom to compare; the others are divided by the first.
    #[arg(long, value_delimiter = ',', action = ArgAction::Set)]
    peers: Vec<String>,

    /// Time for one row.
    #[arg(long, value_name = "S", default_value = "1")]
    pub(crate) seconds: f64,

    /// Bytes taken from a corpus, spread evenly.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "8M")]
    pub(crate) sample: usize,

    /// The CPU to run on; by default the last one.
    #[arg(long, value_name = "N")]
    pub(crate) cpu: Option<usize>,

    /// Measure only the first corpus and level, within 3 seconds.
    #[arg(long)]
    pub(crate) quick: bool,

    /// Run only the last peer on the first corpus and level, for a profiler.
    #[arg(long)]
    pub(crate) profile: bool,

    /// Rewrite what is otherwise compared (sizes).
    #[arg(long)]
    pub(crate) update: bool,
}

impl Options {
    /// What the options mean together.
    pub(crate) fn settle(mut self) -> Result<Self, String> {
        if self.quick || self.profile {
            self.levels.truncate(1);
        }
        if self.quick {
            self.seconds = self.seconds.min(1.5);
        }
        if self.block == 0 || self.sample < self.block {
            return Err("--block must be at least 1, --sample at least a block".into());
        }
        Ok(self)
    }

    /// Only one row is wanted.
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

    /// Where the named corpora lie.
    pub(crate) fn paths(&self) -> impl Iterator<Item = PathBuf> {
        self.corpus.iter().map(|path| self.corpora.join(path))
    }
}

/// A number of bytes, with K and M as powers of 1024.
pub(crate) fn size(text: &str) -> Result<usize, String> {
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
        assert_eq!((options.name.as_str(), options.block), ("decode", 4096));
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
