//! The files that the rules look at, and the findings that they return.

use std::cell::OnceCell;
use std::path::Path;
use std::{fs, io};

use super::source::Source;
use crate::history::{self, Commit};

/// What breaks a rule, and where.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) path: String,
    /// Counted from 1.
    pub(super) line: usize,
    pub(super) what: String,
}

impl Finding {
    pub(super) fn new(path: &str, line: usize, what: impl Into<String>) -> Finding {
        Finding {
            path: path.to_owned(),
            line,
            what: what.into(),
        }
    }
}

/// Every file of the repository, in the order of their paths.
pub(super) struct Repository {
    pub(super) files: Vec<File>,
    /// The commits of this branch, or why they are not known.
    pub(super) commits: Result<Vec<Commit>, String>,
}

pub(super) struct File {
    /// Relative to the root, with `/` between the names.
    pub(super) path: String,
    /// Empty if the file is not UTF-8.
    pub(super) text: String,
    /// What `source` gives, once it was asked.
    source: OnceCell<Source>,
}

impl File {
    pub(super) fn new(path: String, text: String) -> File {
        File {
            path,
            text,
            source: OnceCell::new(),
        }
    }

    /// The text as Rust source.
    pub(super) fn source(&self) -> &Source {
        self.source.get_or_init(|| Source::parse(&self.text))
    }
}

impl Repository {
    /// Reads all files but those that `.gitignore` leaves out.
    pub(super) fn read(root: &Path) -> io::Result<Repository> {
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
        let commits = history::commits(root);
        Ok(Repository { files, commits })
    }

    /// The files whose names end so.
    pub(super) fn ending(&self, suffix: &str) -> impl Iterator<Item = &File> {
        self.files
            .iter()
            .filter(move |file| file.path.ends_with(suffix))
    }

    pub(super) fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Whether a file or directory is there.
    pub(super) fn has(&self, path: &str) -> bool {
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
    pub(super) fn of(files: &[(&str, &str)]) -> Repository {
        let files = files
            .iter()
            .map(|(path, text)| File::new((*path).to_owned(), (*text).to_owned()));
        Repository {
            files: files.collect(),
            commits: Err(String::new()),
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
