//! Rules that keep documents true.

use super::crates::members;
use super::repository::{File, Finding, Repository};

/// The table of crates in ARCHITECTURE.md has one row for each member of the workspace, and no
/// other.
///
/// A row is a line that begins with the crate's folder: ``| `crates/zstd` | …``.
pub(super) fn crate_table(repository: &Repository) -> Vec<Finding> {
    const PATH: &str = "ARCHITECTURE.md";
    let Some(file) = repository.file(PATH) else {
        return vec![Finding::new(PATH, 1, "there is no such file")];
    };
    let members = members(repository);
    let mut missing: Vec<&str> = members
        .iter()
        .map(|member| member.folder.as_str())
        .collect();
    let mut findings = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        let row = line
            .strip_prefix("| `")
            .and_then(|rest| rest.split_once("` |"));
        let Some((folder, _)) = row else { continue };
        if !folder.starts_with("crates/") && !repository.has(&format!("{folder}/Cargo.toml")) {
            continue;
        }
        match missing.iter().position(|member| *member == folder) {
            Some(position) => {
                missing.remove(position);
            }
            // Folders that are a workspace of their own, or no crate, may be in the table.
            None if !folder.starts_with("crates/") || folder.matches('/').count() > 1 => {}
            None => {
                let what =
                    format!("`{folder}` is not a member of the workspace, or is listed twice");
                findings.push(Finding::new(PATH, index + 1, what));
            }
        }
    }
    findings.extend(missing.into_iter().map(|folder| {
        let what = format!("the crate table lacks the row \"| `{folder}` | what it is |\"");
        Finding::new(PATH, 1, what)
    }));
    findings
}

/// Paths that documents name in backquotes or as links exist.
pub(super) fn paths(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repository.ending(".md") {
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let mut in_example = false;
        for (index, line) in file.text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                in_example = !in_example;
            }
            if in_example {
                continue;
            }
            let quoted = line.split('`').skip(1).step_by(2);
            let missing_quoted = quoted
                .flat_map(alternatives)
                .filter(|path| is_ours(repository, path))
                .filter(|path| !exists(repository, folder, path));
            let links = line
                .split("](")
                .skip(1)
                .filter_map(|rest| rest.split(')').next());
            let missing_links = links
                .filter(|link| !link.contains("://") && !link.starts_with('#'))
                .map(|link| link.split('#').next().unwrap_or_default().to_owned())
                .filter(|link| !exists(repository, folder, link));
            for path in missing_quoted.chain(missing_links) {
                findings.push(Finding::new(
                    &file.path,
                    index + 1,
                    format!("{path} does not exist"),
                ));
            }
        }
    }
    findings
}

/// Every file below a folder called `testdata` is described in a README.md beside it or above it
/// there: by its name in backquotes, or by one name with `*` for many alike.
pub(super) fn test_data(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for File { path, .. } in &repository.files {
        let Some((root, _)) = path.rsplit_once("testdata/") else {
            continue;
        };
        let name = path.rsplit('/').next().unwrap_or(path);
        if name == "README.md" {
            continue;
        }
        let described = (path.match_indices('/').map(|(at, _)| &path[..at]))
            .filter(|folder| folder.len() >= root.len() + "testdata".len())
            .filter_map(|folder| repository.file(&format!("{folder}/README.md")))
            .flat_map(|readme| readme.text.split('`').skip(1).step_by(2))
            .any(|pattern| matches(pattern.rsplit('/').next().unwrap_or(pattern), name));
        if !described {
            findings.push(Finding::new(
                path,
                1,
                "describe it in the README.md beside it",
            ));
        }
    }
    findings
}

/// Lines of a page of decisions, at most: the README there says about 60.
const DECISION_LINES_MAX: usize = 66;

/// Every page of docs/decisions has the form that the README there describes, and a row in its
/// tables.
pub(super) fn decisions(repository: &Repository) -> Vec<Finding> {
    const FOLDER: &str = "docs/decisions/";
    let index = repository.file("docs/decisions/README.md");
    let index = index.map_or("", |readme| readme.text.as_str());
    let mut findings = Vec::new();
    for File { path, text, .. } in repository.ending(".md") {
        let Some(name) = path
            .strip_prefix(FOLDER)
            .filter(|name| *name != "README.md")
        else {
            continue;
        };
        let mut find = |line, what: &str| findings.push(Finding::new(path, line, what));
        let mut lines = text.lines();
        if !lines.next().is_some_and(|line| line.starts_with("# ")) {
            find(1, "begin with the decision as a sentence: `# …`");
        }
        let status = lines.nth(1).unwrap_or_default();
        let known = ["Status: accepted · Date: 20", "Status: replaced by "];
        if !known.iter().any(|known| status.starts_with(known)) {
            find(
                3,
                "put `Status: accepted · Date: YYYY-MM-DD` in the third line",
            );
        }
        let headings: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("## "))
            .collect();
        let form = [
            "## Context",
            "## Decision",
            "## Consequences",
            "## What was tried",
        ];
        if headings != form && headings != form[..3] {
            find(
                1,
                "its headings are Context, Decision, Consequences and, if anything was, What was tried",
            );
        }
        if text.lines().count() > DECISION_LINES_MAX {
            find(
                1,
                "a decision is a page of about 60 lines: move what was measured to docs/log",
            );
        }
        if !index.contains(&format!("]({name})")) {
            find(1, "it has no row in docs/decisions/README.md");
        }
    }
    findings
}

/// The words that `{a,b}` in a path stand for; one pair of braces at most.
fn alternatives(quoted: &str) -> Vec<String> {
    match quoted
        .split_once('{')
        .and_then(|(start, rest)| Some((start, rest.split_once('}')?)))
    {
        Some((start, (middle, end))) => middle
            .split(',')
            .map(|word| format!("{start}{word}{end}"))
            .collect(),
        None => vec![quoted.to_owned()],
    }
}

/// Whether words in backquotes are meant as a path of this repository.
fn is_ours(repository: &Repository, words: &str) -> bool {
    let is_path = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    if !words.chars().all(is_path) || words.starts_with('/') {
        return false;
    }
    // `bench/record/NAME.txt`: the reader puts the name in.
    let is_placeholder = |part: &str| {
        let stem = part.split('.').next().unwrap_or_default();
        stem.len() > 1
            && stem == stem.to_uppercase()
            && !part.ends_with(".md")
            && stem.chars().all(char::is_alphabetic)
    };
    if words.split('/').skip(1).any(is_placeholder) {
        return false;
    }
    let mut parts = words.split('/');
    match (parts.next().unwrap_or_default(), parts.next()) {
        (file, None) => file.ends_with(".md") && file.len() > 3,
        (first, Some(second)) => {
            let in_crate = ["src", "tests", "testdata", "Cargo.toml"].contains(&second);
            repository.has(first) || in_crate && repository.has(&format!("crates/{first}"))
        }
    }
}

/// Whether `path` is there: from the root, beside the document, or below `crates`.
fn exists(repository: &Repository, folder: &str, path: &str) -> bool {
    let mut beside = folder;
    let mut relative = path;
    while let Some(rest) = relative.strip_prefix("../") {
        beside = beside.rsplit_once('/').map_or("", |(above, _)| above);
        relative = rest;
    }
    let beside = match beside {
        "" => relative.to_owned(),
        _ => format!("{beside}/{relative}"),
    };
    [path, &beside, &format!("crates/{path}")]
        .iter()
        .any(|path| repository.has(path))
}

/// Whether `pattern`, in which each `*` stands for any characters, matches all of `name`.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|name| {
            (name.char_indices().map(|(at, _)| at).chain([name.len()]))
                .any(|at| matches(rest, &name[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKSPACE: (&str, &str) = (
        "Cargo.toml",
        "[workspace]\nmembers = [\n    \"crates/a\",\n    \"xtask\",\n]\n",
    );

    fn table(text: &str) -> Vec<String> {
        let files = [
            WORKSPACE,
            ("ARCHITECTURE.md", text),
            ("xtask/Cargo.toml", ""),
        ];
        let findings = crate_table(&Repository::of(&files));
        findings.into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn crate_table_must_equal_the_workspace() {
        assert_eq!(
            table("| `crates/a` | x |\n| `xtask` | y |\n| `docs` | z |\n"),
            [] as [&str; 0]
        );
        assert_eq!(table("| `crates/a` | x |\n").len(), 1);
        assert_eq!(
            table("| `crates/a` | x |\n| `crates/b` | x |\n| `xtask` | y |\n").len(),
            1
        );
        assert_eq!(crate_table(&Repository::of(&[WORKSPACE])).len(), 1);
    }

    fn missing(document: &str, text: &str) -> Vec<String> {
        let files = [
            ("crates/a/src/lib.rs", ""),
            ("docs/b.md", ""),
            (document, text),
        ];
        let findings = paths(&Repository::of(&files));
        findings.into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn missing_paths_are_found() {
        let text = "`crates/a/src/{lib,c}.rs` `a/src/d.rs` `e.md`\n";
        let expected = ["crates/a/src/c.rs", "a/src/d.rs", "e.md"]
            .map(|path| format!("{path} does not exist"));
        assert_eq!(missing("README.md", text), expected);
        assert_eq!(
            missing("README.md", "[b](docs/c.md)\n"),
            ["docs/c.md does not exist"]
        );
        assert_eq!(
            missing("docs/d.md", "[b](../e.md)\n"),
            ["../e.md does not exist"]
        );
    }

    #[test]
    fn paths_that_exist_or_are_not_ours_pass() {
        let text = "`a/src/lib.rs` `docs/` `linux/zstd.h` `/dev/null` `out.tar` `docs/NAME.csv` `x <y>/z` [u](https://e.org/x)\n";
        assert_eq!(missing("README.md", text), [] as [&str; 0]);
        assert_eq!(
            missing(
                "docs/d.md",
                "[b](b.md) [s](#x) [l](../crates/a/src/lib.rs#x) `b.md`\n"
            ),
            [] as [&str; 0]
        );
        assert_eq!(
            missing("README.md", "```\n`crates/z`\n```\n"),
            [] as [&str; 0]
        );
    }

    #[test]
    fn decisions_of_another_form_are_found() {
        let good = "# A\n\nStatus: accepted · Date: 2026-11-20\n\n## Context\n\n## Decision\n\n## Consequences\n";
        let tried = format!("{good}\n## What was tried\n");
        let long = format!("{good}{}", "line\n".repeat(DECISION_LINES_MAX));
        let files = [
            (
                "docs/decisions/README.md",
                "[a](good.md) [b](tried.md) [c](bad.md) [d](long.md)",
            ),
            ("docs/decisions/good.md", good),
            ("docs/decisions/tried.md", &tried),
            ("docs/decisions/bad.md", "A\n\n## Context\n\n## Choice\n"),
            ("docs/decisions/long.md", &long),
            ("docs/decisions/unlisted.md", good),
            ("docs/other.md", "# Not a decision\n"),
        ];
        let findings = decisions(&Repository::of(&files));
        let found: Vec<_> = (findings.iter())
            .map(|finding| (finding.path.as_str(), finding.line))
            .collect();
        let [bad, long, unlisted] =
            ["bad", "long", "unlisted"].map(|name| format!("docs/decisions/{name}.md"));
        assert_eq!(
            found,
            [
                (&*bad, 1),
                (&*bad, 3),
                (&*bad, 1),
                (&*long, 1),
                (&*unlisted, 1)
            ]
        );
    }

    #[test]
    fn undescribed_test_data_is_found() {
        let files = [
            ("crates/a/testdata/README.md", "`good-*.zst` and `bad.zst`"),
            ("crates/a/testdata/bad.zst", ""),
            ("crates/a/testdata/deep/good-1.zst", ""),
            ("crates/a/testdata/deep/other.zst", ""),
            ("testdata/x", ""),
        ];
        let findings = test_data(&Repository::of(&files));
        let found: Vec<_> = findings
            .iter()
            .map(|finding| finding.path.as_str())
            .collect();
        assert_eq!(found, ["crates/a/testdata/deep/other.zst", "testdata/x"]);
    }
}
