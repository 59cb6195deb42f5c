//! The page of results: rows, and how old each is.

use std::fs;
use std::process::Command;
use std::time::Duration;

use super::list::{Campaign, campaigns, grouped};
use crate::command::output_of;
use crate::environment::root;
use crate::history::{self, Commit};
use crate::tidy;

/// Where the results are kept.
pub(super) const PAGE: &str = "docs/campaigns.md";

/// A result is stale when more commits than this touched what it tried.
const STALE: usize = 50;

/// How old the result of a campaign is.
pub(super) enum Age {
    NoRow,
    /// The row names no commit of the history.
    Unknown,
    /// That many later commits touched what was tried.
    Commits(usize),
}

impl Age {
    /// Whether the campaign is to be run.
    pub(super) fn is_stale(&self) -> bool {
        !matches!(self, Age::Commits(0..=STALE))
    }

    /// For people.
    pub(super) fn words(&self) -> String {
        match self {
            Age::NoRow => "no row".to_owned(),
            Age::Unknown => "unknown commit".to_owned(),
            Age::Commits(count) if self.is_stale() => format!("{count} commits, stale"),
            Age::Commits(count) => format!("{count} commits"),
        }
    }
}

/// Every campaign with its age.
pub(super) fn ages() -> Result<Vec<(Campaign, Age)>, String> {
    let page = fs::read_to_string(root().join(PAGE));
    let page = page.map_err(|error| format!("read {PAGE}: {error}"))?;
    let history = history::commits(&root())?;
    let members = tidy::members(&root()).map_err(|error| format!("read manifests: {error}"))?;
    let folder = |name: &str| {
        let member = members.iter().find(|member| member.name == name);
        member.map(|member| format!("{}/", member.folder))
    };
    let age = |campaign: Campaign| {
        // Of the crates that it is built from, tests and manuals are not tried.
        let mut paths = Vec::new();
        for name in campaign.run.tries() {
            for below in tidy::built_from(&name) {
                let path = folder(below).map(|folder| folder + "src/");
                paths.extend(path.filter(|_| below != name));
            }
            paths.extend(folder(&name).or(name.contains('/').then_some(name)));
        }
        let age = age_of(&page, campaign.name, &history, &paths);
        (campaign, age)
    };
    Ok(campaigns().into_iter().map(age).collect())
}

/// The age of a row whose result depends on files whose paths begin with one of `paths`.
fn age_of(page: &str, name: &str, history: &[Commit], paths: &[String]) -> Age {
    let start = format!("| `{name}` |");
    let Some(row) = page.lines().find(|line| line.starts_with(&start)) else {
        return Age::NoRow;
    };
    let commit = row.split(" | ").nth(2).unwrap_or_default();
    let commit = commit.split(' ').next().unwrap_or_default();
    let at = history.iter().position(|it| it.id.starts_with(commit));
    at.map_or(Age::Unknown, |at| {
        let is_tried = |file: &String| paths.iter().any(|path| file.starts_with(path));
        let later = history[..at].iter();
        Age::Commits(
            later
                .filter(|commit| commit.files.iter().any(is_tried))
                .count(),
        )
    })
}

/// A word about results that are to be taken again, if there are any.
pub(crate) fn stale_note() -> Option<String> {
    let ages = ages().ok()?;
    let stale = ages.iter().filter(|(_, age)| age.is_stale()).count();
    let all = ages.len();
    (stale > 0).then(|| {
        format!(
            "{stale} of {all} campaigns are stale or have no row: `cargo xtask campaign` names them"
        )
    })
}

/// The commit that is tried, and whether the work tree differs from it.
pub(super) fn commit() -> String {
    let git = |words: &[&str]| {
        let mut command = Command::new("git");
        output_of(command.args(words).current_dir(root()))
    };
    let commit = git(&["rev-parse", "--short=8", "HEAD"]).unwrap_or_else(|_| "unknown".to_owned());
    let changes = [
        "status",
        "--porcelain",
        "--untracked-files=no",
        "--",
        ".",
        ":!docs/campaigns.md",
    ];
    let is_clean = git(&changes).is_ok_and(|list| list.is_empty());
    commit.trim().to_owned() + if is_clean { "" } else { " and changes" }
}

/// The processor and the kernel; nothing that names the machine.
fn machine() -> String {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let (info, kernel) = (read("/proc/cpuinfo"), read("/proc/sys/kernel/osrelease"));
    let mut models = info
        .lines()
        .filter_map(|line| line.strip_prefix("model name"));
    let count = models.clone().count();
    let model = models
        .next()
        .unwrap_or("unknown")
        .trim_start_matches([':', ' ', '\t']);
    // The words after the numbers name a build, not a version.
    let kernel = kernel.trim().split('-').next().unwrap_or_default();
    format!("{model} ({count} CPUs), Linux {kernel}")
}

/// The row of a campaign: name, date, commit, cases, result, duration with the machine, and what it
/// shows.
pub(super) fn row(
    campaign: &Campaign,
    commit: &str,
    cases: u64,
    result: &str,
    time: Duration,
) -> Result<String, String> {
    let date = output_of(Command::new("date").args(["-u", "+%F"]))?;
    Ok(format!(
        "| `{}` | {} | {commit} | {} | {} | {}; {} | {} |",
        campaign.name,
        date.trim(),
        grouped(cases),
        // What would end the cell, or the row.
        result.replace('|', "/").replace('\n', " "),
        duration(time),
        machine(),
        campaign.shows
    ))
}

/// The page with `row` in place of the one of that name, or after the last row.
pub(super) fn with_row(page: &str, name: &str, row: &str) -> String {
    let start = format!("| `{name}` |");
    let mut lines: Vec<&str> = page.lines().collect();
    match lines.iter().position(|line| line.starts_with(&start)) {
        Some(at) => lines[at] = row,
        None => {
            let last = lines.iter().rposition(|line| line.starts_with('|'));
            lines.insert(last.map_or(lines.len(), |last| last + 1), row);
        }
    }
    lines.join("\n") + "\n"
}

fn duration(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds => format!("{} min", (seconds + 30) / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_replaces_that_of_its_name() {
        let page = "# C\n\n| a | b |\n|---|---|\n| `x` | 1 |\n| `xy` | 2 |\n\nEnd.\n";
        assert_eq!(
            with_row(page, "x", "| `x` | 3 |"),
            page.replace("| `x` | 1 |", "| `x` | 3 |")
        );
        assert_eq!(
            with_row(page, "z", "| `z` | 4 |"),
            page.replace("| 2 |\n", "| 2 |\n| `z` | 4 |\n")
        );
    }

    #[test]
    fn rows_age_by_later_commits_of_their_crates() {
        let commit = |id: usize, file: &str| Commit {
            id: format!("{id:040x}"),
            files: vec![file.to_owned()],
        };
        let mut history: Vec<Commit> = (0..=STALE)
            .map(|id| commit(id, "crates/a/src/x.rs"))
            .collect();
        history.push(commit(100, "README.md"));
        history.push(commit(101, "crates/a/src/x.rs"));
        let age = |commit: &str, path: &str| {
            let page = format!("| `c` | 2026 | {commit} | 1 |\n");
            age_of(&page, "c", &history, &[path.to_owned()])
        };
        let last = format!("{:040x} and changes", 101);
        assert_eq!(age(&last, "crates/a/").words(), "51 commits, stale");
        assert_eq!(age(&last, "README").words(), "1 commits");
        assert_eq!(
            age(&format!("{:040x}", 1), "crates/a/").words(),
            "1 commits"
        );
        assert_eq!(
            age("unknown (recorded in 0)", "crates/a/").words(),
            "unknown commit"
        );
        assert!(age_of("", "c", &history, &[]).is_stale());
    }
}
