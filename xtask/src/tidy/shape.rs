//! Rules about the shape of source: how long functions and comments are, how often a name is used,
//! where modules stand.

use std::collections::BTreeMap;

use super::repository::{File, Finding, Repository};
use super::source::word_positions;

/// Names that more than two types have, because readers know what they mean.
const SHARED_NAMES: &[(&str, &str)] = &[
    ("Decoder", "of a codec"),
    ("Encoder", "of a codec"),
    ("Error", "of a crate"),
    ("Options", "of the operation that the module is named after"),
    ("Reader", "of the format that the module is named after"),
    ("Superblock", "the kernel's name in both formats"),
    ("Workspace", "of a codec"),
];

/// How many types have one name, at most: a record on disk and what is made of it.
const SAME_NAME_MAX: usize = 2;

const FUNCTION_LINES_MAX: usize = 120;

/// Longer functions: file, name, and the reason.
const LONG_FUNCTIONS: &[(&str, &str, &str)] = &[
    (
        "crates/zstd/src/arch/search/double_fast.rs",
        "find_min",
        "one loop, whose state stays in registers: docs/decisions/zstd-encoder-speed.md",
    ),
    (
        "crates/zstd/src/arch/search/fast.rs",
        "find_min",
        "one loop, whose state stays in registers: docs/decisions/zstd-encoder-speed.md",
    ),
    (
        "crates/zstd/src/arch/search/lazy.rs",
        "parse",
        "one loop, whose state stays in registers: docs/decisions/zstd-encoder-speed.md",
    ),
    (
        "crates/zstd/src/arch/sequences.rs",
        "run_body",
        "one loop, whose state stays in registers: docs/decisions/zstd-decoder-speed.md",
    ),
    (
        "crates/zstd/src/encode/finder/optimal/parse.rs",
        "series",
        "one loop, whose state stays in registers: docs/decisions/zstd-optimal-parser.md",
    ),
];

const COMMENT_COLUMNS_MAX: usize = 100;

/// A type's name says what it is: it is used for one thing, or two, in the whole repository.
pub(super) fn type_names(repository: &Repository) -> Vec<Finding> {
    let mut places: BTreeMap<&str, Vec<(&File, usize)>> = BTreeMap::new();
    for file in product(repository) {
        let code = file.source().shipped();
        for keyword in ["struct", "enum", "trait", "union"] {
            for at in word_positions(code, keyword) {
                let rest = code[at + keyword.len()..].trim_start();
                let len = rest
                    .find(|c: char| !c.is_alphanumeric() && c != '_')
                    .unwrap_or(rest.len());
                // `union` is a name, too.
                if rest[..len].starts_with(char::is_uppercase) {
                    places
                        .entry(&rest[..len])
                        .or_default()
                        .push((file, file.source().line_at(at)));
                }
            }
        }
    }
    let mut findings = Vec::new();
    for (name, places) in places {
        if places.len() <= SAME_NAME_MAX || SHARED_NAMES.iter().any(|(shared, _)| *shared == name) {
            continue;
        }
        for (file, line) in &places {
            let what = format!(
                "{} types are called `{name}`: name this one for what it is",
                places.len()
            );
            findings.push(Finding::new(&file.path, *line, what));
        }
    }
    findings
}

/// A function is one idea; the exceptions are listed with their reasons.
pub(super) fn long_functions(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in product(repository) {
        let source = file.source();
        let code = source.shipped();
        for at in word_positions(code, "fn") {
            let rest = &code[at + 2..];
            let name = rest
                .trim_start()
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .next();
            let Some((name, len)) = name
                .zip(body_end(rest))
                .filter(|(name, _)| !name.is_empty())
            else {
                continue;
            };
            let lines = code[at..at + 2 + len].lines().count();
            let listed = LONG_FUNCTIONS
                .iter()
                .any(|(path, function, _)| *path == file.path && *function == name);
            if lines > FUNCTION_LINES_MAX && !listed {
                let what = format!(
                    "`{name}` has {lines} lines, more than {FUNCTION_LINES_MAX}: cut it by its steps"
                );
                findings.push(Finding::new(&file.path, source.line_at(at), what));
            }
        }
    }
    findings
}

/// Comments fit beside the code that they explain.
pub(super) fn wide_comments(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repository.ending(".rs") {
        let mut lines = file.text.lines();
        let mut read = 0;
        for (first, comment) in &file.source().comments {
            let beside = (first - 1)
                .checked_sub(read)
                .and_then(|skipped| lines.nth(skipped));
            let Some(line) = beside else { continue };
            read = *first;
            // A comment at the end of a line of code, or an address, cannot be broken.
            let stands_alone = line.trim_start().starts_with("//");
            if stands_alone
                && line.chars().count() > COMMENT_COLUMNS_MAX
                && !comment.contains("://")
            {
                let what = format!("a comment of more than {COMMENT_COLUMNS_MAX} columns");
                findings.push(Finding::new(&file.path, *first, what));
            }
        }
    }
    findings
}

/// A module with modules below it is the file `mod.rs` in their folder.
pub(super) fn module_style(repository: &Repository) -> Vec<Finding> {
    (repository.ending(".rs"))
        .filter(|file| {
            repository
                .ending(".rs")
                .any(|below| is_below(&below.path, &file.path))
        })
        .map(|file| {
            let folder = file.path.trim_end_matches(".rs");
            Finding::new(
                &file.path,
                1,
                format!("move it to {folder}/mod.rs, beside its modules"),
            )
        })
        .collect()
}

/// Whether a file lies in the folder that has the name of the module `path`.
fn is_below(below: &str, path: &str) -> bool {
    let folder = below.strip_prefix(path.trim_end_matches(".rs"));
    folder.is_some_and(|rest| rest.starts_with('/'))
}

/// The length up to the end of the body, of code after `fn`, if there is a body.
fn body_end(code: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut in_parentheses = 0_usize;
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' => in_parentheses += 1,
            ')' | ']' => in_parentheses = in_parentheses.saturating_sub(1),
            ';' if depth == 0 && in_parentheses == 0 => return None,
            '{' => depth += 1,
            '}' if depth == 1 => return Some(at + 1),
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

/// The source that is not for tests.
fn product(repository: &Repository) -> impl Iterator<Item = &File> {
    let for_tests = ["/tests/", "/examples/", "/tests.rs"];
    (repository.ending(".rs")).filter(move |file| {
        !for_tests.iter().any(|part| file.path.contains(part)) && !file.path.starts_with("fuzz/")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where `rule` finds something.
    fn lines(rule: fn(&Repository) -> Vec<Finding>, files: &[(&str, &str)]) -> Vec<usize> {
        let findings = rule(&Repository::of(files));
        findings.into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn third_type_of_a_name_is_found() {
        let text = "struct Job;\nenum Error {}\nmod a { pub(crate) struct Error; }\n";
        let more = "//! struct Job\ntrait Job {}\nstruct Error<'a>(&'a str);\n#[cfg(test)]\nmod tests {\nstruct Job;\n}\n";
        assert_eq!(
            lines(
                type_names,
                &[("crates/a/src/a.rs", text), ("crates/a/src/b.rs", more)]
            ),
            []
        );
        let third = ("bench/src/c.rs", "union Job {}\nunion(a);\n");
        let files = [
            ("crates/a/src/a.rs", text),
            ("crates/a/src/b.rs", more),
            third,
        ];
        assert_eq!(lines(type_names, &files), [1, 2, 1]);
        let of_tests = ("crates/a/tests/it/c.rs", third.1);
        assert_eq!(lines(type_names, &[files[0], files[1], of_tests]), []);
    }

    #[test]
    fn long_function_is_found() {
        let body = |lines: usize| {
            format!(
                "trait A {{\n    fn a(b: [u8; 2]);\n    fn c() {{\n{}    }}\n}}\n",
                "b();\n".repeat(lines)
            )
        };
        let (long, fits) = (body(119), body(118));
        assert_eq!(lines(long_functions, &[("crates/a/src/a.rs", &long)]), [3]);
        assert_eq!(lines(long_functions, &[("crates/a/src/a.rs", &fits)]), []);
        assert_eq!(
            lines(long_functions, &[("crates/a/src/tests.rs", &long)]),
            []
        );
    }

    #[test]
    fn wide_comment_is_found() {
        let (wide, fits) = (
            format!("    /// {}\n", "é".repeat(93)),
            format!("    /// {}\n", "é".repeat(92)),
        );
        let address = format!("// https://{}\n", "x".repeat(99));
        let code = format!("let a = \"{}\"; // b\n", "x".repeat(99));
        let text = [fits.as_str(), &wide, &address, &code, "/* a\nb */\n", &wide].concat();
        assert_eq!(lines(wide_comments, &[("a.rs", &text)]), [2, 7]);
    }

    #[test]
    fn module_beside_its_folder_is_found() {
        let good = ("crates/a/src/b/mod.rs", "");
        let child = ("crates/a/src/b/c.rs", "");
        assert_eq!(
            lines(module_style, &[good, child, ("crates/a/src/bc.rs", "")]),
            []
        );
        assert_eq!(
            lines(module_style, &[("crates/a/src/b.rs", ""), child]),
            [1]
        );
    }
}
