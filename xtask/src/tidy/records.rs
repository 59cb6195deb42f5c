//! Results name where they come from.

use super::repository::{Finding, Repository};

/// The pages that show results, and how a line of each begins its commit.
const PAGES: &[(&str, &str)] = &[
    ("docs/BENCHMARKS.md", ", commit "),
    ("docs/published.md", ", commit "),
];

/// What the head of each record of a benchmark says.
const HEAD: &[&str] = &["date", "commit", "processor", "kernel", "rounds", "peers"];

/// Each commit that a result names is in the history, and each record of a benchmark names one, and
/// what it was measured on.
///
/// A result of an unknown commit names the one that recorded it: `unknown (recorded in 5efade4)`.
pub(super) fn known_commits(repository: &Repository) -> Vec<Finding> {
    let Ok(commits) = &repository.commits else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    for file in &repository.files {
        let is_record = file.path.starts_with("bench/record/");
        let page = PAGES.iter().find(|(path, _)| *path == file.path);
        for (index, line) in file.text.lines().enumerate() {
            let named = match page {
                Some((_, before)) => line.split_once(before).map(|(_, commit)| commit),
                None if is_record => line.strip_prefix("commit: "),
                None if file.path == "docs/campaigns.md" && line.starts_with("| `") => {
                    line.split(" | ").nth(2)
                }
                None => None,
            };
            let Some(named) = named else { continue };
            let id = named.strip_prefix("unknown (recorded in ").unwrap_or(named);
            let len = id.find(|char: char| !char.is_ascii_hexdigit());
            let id = &id[..len.unwrap_or(id.len())];
            if id.len() < 7 || !commits.iter().any(|commit| commit.id.starts_with(id)) {
                let what = format!("the history has no commit \"{id}\": run it again");
                findings.push(Finding::new(&file.path, index + 1, what));
            }
        }
        let head = file.text.split("\n\n").next().unwrap_or_default();
        let says = |key: &&&str| {
            head.lines()
                .any(|line| line.starts_with(&format!("{key}: ")))
        };
        for key in HEAD.iter().filter(|key| is_record && !says(key)) {
            let what = format!("the record does not say its {key}");
            findings.push(Finding::new(&file.path, 1, what));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Commit;

    fn findings(files: &[(&str, &str)]) -> usize {
        let mut repository = Repository::of(files);
        let id = "0123456789abcdef".to_owned();
        let files = Vec::new();
        repository.commits = Ok(vec![Commit { id, files }]);
        known_commits(&repository).len()
    }

    #[test]
    fn unknown_commits_are_found() {
        let lines = |commit: &str| {
            let head = "date: d\nprocessor: p\nkernel: k\nrounds: 1\npeers: c\ncommit: ";
            let files = [
                ("docs/campaigns.md", format!("| `a` | d | {commit} | 1 |\n")),
                (
                    "docs/BENCHMARKS.md",
                    format!("`x`: d, commit {commit}; p\n"),
                ),
                ("bench/record/a.txt", format!("{head}{commit}\n\n[a]\n")),
            ];
            findings(&files.each_ref().map(|(path, text)| (*path, text.as_str())))
        };
        assert_eq!(lines("01234567"), 0);
        assert_eq!(lines("01234567 and changes"), 0);
        assert_eq!(lines("unknown (recorded in 0123456)"), 0);
        assert_eq!(lines("11234567"), 3);
        assert_eq!(lines("unknown"), 3);
        assert_eq!(lines("01"), 3);
    }

    #[test]
    fn records_say_what_they_were_measured_on() {
        let record = ("bench/record/a.txt", "commit: 0123456\n\n[a]\n");
        assert_eq!(findings(&[record]), HEAD.len() - 1);
    }
}
