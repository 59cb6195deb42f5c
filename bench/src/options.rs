//! What was asked for.

use std::path::PathBuf;

pub(crate) const HELP: &str = "\
Options (sizes take K and M, powers of 1024):
  --corpus PATH...   files, or directories of files; without it: the generated corpora
  --levels LIST      such as -5,1,3,9 (default: -5,1,3,9,15,19)
  --codecs LIST      of images, such as zstd:1,gzip:9,zstd:16@256K
  --block SIZE       bytes in an independent frame (default: 128K)
  --peers LIST       the first is what the others are divided by (default: c,ours)
  --seconds S        time for one row (default: 1)
  --sample SIZE      bytes taken from a corpus, spread evenly (default: 8M)
  --cpu N            the CPU to run on (default: the last one)
  --quick            only the first corpus and level, within 3 seconds
  --profile          only the first corpus and level, the second peer alone, for --seconds
  --record NAME      store raw samples in bench/record/NAME.csv
  --update           rewrite what is otherwise compared";

/// Arguments of every task; a task ignores what does not concern it.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) corpora: Vec<PathBuf>,
    pub(crate) levels: Vec<i32>,
    pub(crate) codecs: Vec<String>,
    pub(crate) block: usize,
    pub(crate) peers: Vec<String>,
    pub(crate) seconds: f64,
    pub(crate) sample: usize,
    pub(crate) cpu: Option<usize>,
    pub(crate) profile: bool,
    pub(crate) quick: bool,
    pub(crate) record: Option<String>,
    pub(crate) update: bool,
    /// As typed, for the record; of paths, which are this machine's, only the last name.
    pub(crate) command: String,
}

impl Options {
    pub(crate) fn parse(args: impl Iterator<Item = String>) -> Result<Self, String> {
        let args: Vec<String> = args.collect();
        let mut options = Self {
            corpora: Vec::new(),
            levels: vec![-5, 1, 3, 9, 15, 19],
            codecs: Vec::new(),
            block: 128 << 10,
            peers: Vec::new(),
            seconds: 1.0,
            sample: 8 << 20,
            cpu: None,
            profile: false,
            quick: false,
            record: None,
            update: false,
            command: args
                .iter()
                .map(|arg| arg.rsplit('/').next().unwrap_or(arg))
                .collect::<Vec<_>>()
                .join(" "),
        };
        let mut args = args.into_iter().peekable();
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or(format!("{arg} needs a value"));
            match arg.as_str() {
                "--corpus" => {
                    options.corpora.push(value()?.into());
                    while let Some(path) = args.next_if(|next| !next.starts_with("--")) {
                        options.corpora.push(path.into());
                    }
                }
                "--levels" => options.levels = list(&value()?, |text| text.parse().ok())?,
                "--codecs" => options.codecs = list(&value()?, |text| Some(text.to_owned()))?,
                "--block" => options.block = size(&value()?)?,
                "--peers" => options.peers = list(&value()?, |text| Some(text.to_owned()))?,
                "--seconds" => options.seconds = number(&value()?)?,
                "--sample" => options.sample = size(&value()?)?,
                "--cpu" => options.cpu = Some(number(&value()?)?),
                "--profile" => options.profile = true,
                "--quick" => options.quick = true,
                "--record" => options.record = Some(value()?),
                "--update" => options.update = true,
                other => return Err(format!("no option is called {other}")),
            }
        }
        if options.quick {
            options.levels.truncate(1);
            options.seconds = options.seconds.min(1.5);
        }
        if options.profile {
            options.levels.truncate(1);
        }
        if options.block == 0 || options.sample < options.block {
            return Err("--block must be at least 1, --sample at least a block".into());
        }
        Ok(options)
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
}

fn list<T>(text: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, String> {
    text.split(',')
        .map(|part| parse(part).ok_or(format!("{part} is not understood")))
        .collect()
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text} is not a number"))
}

fn size(text: &str) -> Result<usize, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 20),
        _ => (text, 0),
    };
    Ok(number::<usize>(digits)? << shift)
}
