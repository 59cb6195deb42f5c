//! The rules of the house that no compiler knows, checked over the whole repository in well under a
//! second.
//!
//! A rule is a function from the files to what breaks it. Each has a test that shows it fail on a
//! bad example.

mod code;
mod crates;
mod documents;
mod imports;
mod shape;
mod source;
mod words;

use std::cell::OnceCell;
use std::path::Path;
use std::{fs, io};

use crate::Outcome;
pub(crate) use crates::{Dependency, Member};
use source::Source;

/// Finds what breaks it.
type Rule = fn(&Repository) -> Vec<Finding>;

/// Name and function of each rule.
const RULES: &[(&str, Rule)] = &[
    ("unsafe only in its rooms", code::unsafe_rooms),
    ("files of at most 1,000 lines", code::long_files),
    ("unique error words", code::unique_error_words),
    ("names", code::names),
    ("no glob re-exports", code::glob_re_exports),
    (
        "no environment and no clock below the command",
        code::surroundings,
    ),
    ("reasons beside what is left to do", code::left_to_do),
    ("one reason to ignore a test", code::ignored_tests),
    ("no circle of imports", imports::circles),
    ("type names", shape::type_names),
    ("functions of at most 120 lines", shape::long_functions),
    ("comments of at most 100 columns", shape::wide_comments),
    ("one module style", shape::module_style),
    ("crate arrows", crates::arrows),
    ("one owner for each outside dependency", crates::owners),
    ("crate table in ARCHITECTURE.md", documents::crate_table),
    ("paths named in documents exist", documents::paths),
    ("test data is described", documents::test_data),
    ("the form of decisions", documents::decisions),
    ("words", words::banned),
];

/// Rules, and the folders that do not pass them yet. It only gets shorter.
const NOT_YET: &[(&str, &[&str])] = &[(
    "no circle of imports",
    &[
        "bench/",
        "crates/btrfs/",
        "crates/codec/",
        "crates/sendstream/",
        "crates/tree/",
        "crates/zstd/",
        "xtask/",
    ],
)];

/// Checks every rule over the repository at `root` and prints what breaks one; also in folders that
/// do not pass yet, if asked.
pub(crate) fn tidy(root: &Path, everywhere: bool) -> Outcome {
    let repository = match Repository::read(root) {
        Ok(repository) => repository,
        Err(error) => return Outcome::failed(format!("read the repository: {error}")),
    };
    let mut count = 0;
    for (name, rule) in RULES {
        let not_yet = NOT_YET.iter().filter(|(waiting, _)| waiting == name);
        let not_yet: Vec<&str> = not_yet.flat_map(|(_, folders)| *folders).copied().collect();
        for finding in rule(&repository) {
            if !everywhere
                && not_yet
                    .iter()
                    .any(|folder| finding.path.starts_with(folder))
            {
                continue;
            }
            println!(
                "{}:{}: {} [{name}]",
                finding.path, finding.line, finding.what
            );
            count += 1;
        }
    }
    match count {
        0 => Outcome::passed(),
        _ => Outcome::failed(format!("{count} findings")),
    }
}

/// The crates of the workspace at `root`.
pub(crate) fn members(root: &Path) -> io::Result<Vec<Member>> {
    Ok(crates::members(&Repository::read(root)?))
}

/// What breaks a rule, and where.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    path: String,
    /// Counted from 1.
    line: usize,
    what: String,
}

impl Finding {
    fn new(path: &str, line: usize, what: impl Into<String>) -> Finding {
        Finding {
            path: path.to_owned(),
            line,
            what: what.into(),
        }
    }
}

/// Every file of the repository, in the order of their paths.
struct Repository {
    files: Vec<File>,
}

struct File {
    /// Relative to the root, with `/` between the names.
    path: String,
    /// Empty if the file is not UTF-8.
    text: String,
    /// What `source` gives, once it was asked.
    source: OnceCell<Source>,
}

impl File {
    fn new(path: String, text: String) -> File {
        File {
            path,
            text,
            source: OnceCell::new(),
        }
    }

    /// The text as Rust source.
    fn source(&self) -> &Source {
        self.source.get_or_init(|| Source::parse(&self.text))
    }
}

impl Repository {
    /// Reads all files but those that `.gitignore` leaves out.
    fn read(root: &Path) -> io::Result<Repository> {
        let ignored = fs::read_to_string(root.join(".gitignore"))?;
        let mut ignored: Vec<&str> = ignored.lines().map(|line| line.trim_matches('/')).collect();
        ignored.push(".git");
        let mut files = Vec::new();
        let mut directories = vec![String::new()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(root.join(&directory))? {
                let entry = entry?;
                let name = entry
                    .file_name()
                    .into_string()
                    .map_err(|name| io::Error::other(format!("{} is not UTF-8", name.display())))?;
                let path = match directory.as_str() {
                    "" => name,
                    _ => format!("{directory}/{name}"),
                };
                let kind = entry.file_type()?;
                if ignored.contains(&path.as_str()) {
                } else if kind.is_dir() {
                    directories.push(path);
                } else if kind.is_file() {
                    let text = String::from_utf8(fs::read(entry.path())?).unwrap_or_default();
                    files.push(File::new(path, text));
                }
            }
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Repository { files })
    }

    /// The files whose names end so.
    fn ending(&self, suffix: &str) -> impl Iterator<Item = &File> {
        self.files
            .iter()
            .filter(move |file| file.path.ends_with(suffix))
    }

    fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Whether a file or directory is there.
    fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        (self.files.iter()).any(|file| match file.path.strip_prefix(path) {
            Some(rest) => rest.is_empty() || rest.starts_with('/'),
            None => false,
        })
    }
}

#[cfg(test)]
impl Repository {
    /// A repository of these paths and texts.
    fn of(files: &[(&str, &str)]) -> Repository {
        let files = files
            .iter()
            .map(|(path, text)| File::new((*path).to_owned(), (*text).to_owned()));
        Repository {
            files: files.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_count_as_there() {
        let repository = Repository::of(&[("docs/decisions/README.md", "")]);
        assert!(repository.has("docs/decisions") && repository.has("docs/decisions/"));
        assert!(repository.has("docs/decisions/README.md"));
        assert!(!repository.has("docs/dec") && !repository.has("decisions"));
    }

    #[test]
    fn this_repository_is_read_without_what_is_ignored() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let repository = Repository::read(root).unwrap();
        assert!(repository.has("xtask/src/tidy/mod.rs") && repository.has(".ci/run"));
        assert!(!repository.has(".git") && !repository.has("target"));
    }
}
