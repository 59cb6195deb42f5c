//! Rules about source code.

use std::collections::BTreeMap;

use super::repository::{File, Finding, Repository};
use super::source::word_positions;

/// The only places where `unsafe` may stand; the crate of each says why in its own documentation.
const UNSAFE_ROOMS: &[&str] = &[
    "crates/ffi/src/",
    "crates/linux/src/",
    "crates/zstd/src/arch/",
    "kmod/",
];

/// Crates whose root cannot forbid unsafe code, because it holds a room.
const HOLDS_A_ROOM: &[&str] = &["crates/ffi/", "crates/linux/", "kmod/"];

const LINES_MAX: usize = 1000;

/// Module names that say nothing about what is in the module.
const EMPTY_NAMES: &[&str] = &["common", "helper", "helpers", "misc", "util", "utils"];

/// `unsafe` stands in its rooms, and the roots of all other crates forbid it.
pub(super) fn unsafe_rooms(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repository.ending(".rs") {
        let path = &file.path;
        let source = file.source();
        if !starts_with_any(path, UNSAFE_ROOMS) {
            for at in word_positions(&source.code, "unsafe") {
                let what = "unsafe code outside of its rooms (see CONTRIBUTING.md)";
                findings.push(Finding::new(path, source.line_at(at), what));
            }
        }
        let is_root = path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs");
        // The one crate with a room for fast kernels forbids it where they are left out.
        let expected = match path.as_str() {
            "crates/zstd/src/lib.rs" => {
                "#![cfg_attr(not(feature = \"arch\"), forbid(unsafe_code))]"
            }
            _ => "#![forbid(unsafe_code)]",
        };
        if is_root && !starts_with_any(path, HOLDS_A_ROOM) && !file.text.contains(expected) {
            findings.push(Finding::new(
                path,
                1,
                format!("the crate's root lacks {expected}"),
            ));
        }
    }
    findings
}

/// No source file is longer than a person can hold in mind.
pub(super) fn long_files(repository: &Repository) -> Vec<Finding> {
    let is_source = |file: &&File| {
        [".rs", ".c", ".h"]
            .iter()
            .any(|end| file.path.ends_with(end))
    };
    (repository.files.iter().filter(is_source))
        .map(|file| (file, file.text.lines().count()))
        .filter(|(_, lines)| *lines > LINES_MAX)
        .map(|(file, lines)| {
            let what =
                format!("{lines} lines are more than {LINES_MAX}: cut the file by its nouns");
            Finding::new(&file.path, LINES_MAX + 1, what)
        })
        .collect()
}

/// The words of a `Corrupt` error stand once in the repository, so that one search finds the check
/// that failed.
pub(super) fn unique_error_words(repository: &Repository) -> Vec<Finding> {
    let mut places: BTreeMap<String, Vec<(&str, usize)>> = BTreeMap::new();
    for file in repository.ending(".rs").filter(|file| !is_test(&file.path)) {
        let source = file.source();
        let tests = source.tests_start();
        for (at, words) in &source.strings {
            let before = source.code[..*at].trim_end();
            let line = source.line_at(*at);
            let is_error = before.ends_with("what:") || before.ends_with("corrupt(");
            if is_error && line < tests {
                places
                    .entry(words.clone())
                    .or_default()
                    .push((&file.path, line));
            }
        }
    }
    let mut findings = Vec::new();
    for (words, places) in places {
        for (path, line) in &places[1..] {
            let (first, at) = places[0];
            let what = format!("\"{words}\" already names another error, at {first}:{at}");
            findings.push(Finding::new(path, *line, what));
        }
    }
    findings
}

/// Functions are not called `get_…`, and modules say what is in them.
pub(super) fn names(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repository.ending(".rs") {
        let path = &file.path;
        let mut parts = path.trim_end_matches(".rs").split('/');
        if let Some(name) = parts.find(|part| EMPTY_NAMES.contains(part)) {
            findings.push(Finding::new(
                path,
                1,
                format!("\"{name}\" says nothing: name what it holds"),
            ));
        }
        for (number, line) in file.source().code.lines().enumerate() {
            if line.contains("fn get_") {
                let what = "a function that gives a thing is named after the thing, without get_";
                findings.push(Finding::new(path, number + 1, what));
            }
            let module = line
                .split_once("mod ")
                .map(|(_, rest)| rest.trim_end_matches([';', '{', ' ']));
            if let Some(name) = module.filter(|name| EMPTY_NAMES.contains(name)) {
                findings.push(Finding::new(
                    path,
                    number + 1,
                    format!("\"{name}\" says nothing: name what it holds"),
                ));
            }
        }
    }
    findings
}

/// One public path leads to each item, and it is written out.
pub(super) fn glob_re_exports(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repository.ending(".rs") {
        let source = file.source();
        for at in word_positions(&source.code, "pub") {
            let statement = source.code[at..].split(';').next().unwrap_or_default();
            // Inside of a crate, `pub(crate)`, there is no public path yet.
            let rest = statement.trim_start_matches("pub").trim_start();
            if rest.starts_with("use ") && rest.contains("::*") {
                let what = "re-export items by name";
                findings.push(Finding::new(&file.path, source.line_at(at), what));
            }
        }
    }
    findings
}

/// Libraries read neither the environment nor the clock: the same call does the same thing.
pub(super) fn surroundings(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_library = |path: &str| {
        let is_program = path.starts_with("crates/cli/") || path.ends_with("/src/main.rs");
        path.starts_with("crates/") && !is_program && !is_test(path)
    };
    for file in repository
        .ending(".rs")
        .filter(|file| is_library(&file.path))
    {
        let source = file.source();
        let tests = source.tests_start();
        for word in ["env::", "Instant", "SystemTime"] {
            for at in source.code.match_indices(word).map(|(at, _)| at) {
                let line = source.line_at(at);
                let in_word =
                    source.code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
                if !in_word && line < tests {
                    let what =
                        format!("{word}: only the command reads the environment and the clock");
                    findings.push(Finding::new(&file.path, line, what));
                }
            }
        }
    }
    findings
}

/// What is left to do says why it is left.
pub(super) fn left_to_do(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repository.ending(".rs") {
        let source = file.source();
        for (line, comment) in &source.comments {
            for word in ["TODO", "FIXME", "XXX", "HACK"] {
                for at in word_positions(comment, word) {
                    let reason = comment[at + word.len()..].trim_start_matches(':');
                    // In backquotes it is a word that is spoken of.
                    let quoted = comment[..at].ends_with('`');
                    if !quoted && (word != "TODO" || reason.split_whitespace().count() < 4) {
                        let what = "write \"TODO: \" and why it is left, in at least four words";
                        findings.push(Finding::new(&file.path, *line, what));
                    }
                }
            }
        }
        for macro_name in ["todo!", "unimplemented!"] {
            for at in source.code.match_indices(macro_name).map(|(at, _)| at) {
                let what = format!("{macro_name}() is no program");
                findings.push(Finding::new(&file.path, source.line_at(at), what));
            }
        }
    }
    findings
}

/// `cargo xtask kernel` runs the ignored tests, hence no other reason to ignore one may exist: it
/// would run unseen.
pub(super) fn ignored_tests(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repository.ending(".rs") {
        let source = file.source();
        for (at, _) in source.code.match_indices("#[ignore") {
            let reason = (source.strings.iter())
                .find(|(quote, _)| *quote > at)
                .map(|(_, text)| text.as_str());
            let with_reason = source.code[at..].starts_with("#[ignore = \"");
            if !with_reason || reason != Some("needs root") {
                let what = "the only reason to ignore a test is \"needs root\"; sizes scale with RESTOW_CASES";
                findings.push(Finding::new(&file.path, source.line_at(at), what));
            }
        }
    }
    findings
}

fn is_test(path: &str) -> bool {
    let folders = ["/tests/", "/examples/", "/testkit/"];
    folders.iter().any(|folder| path.contains(folder)) || path.starts_with("fuzz/")
}

fn starts_with_any(path: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| path.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where `rule` finds something in one file.
    fn lines(rule: fn(&Repository) -> Vec<Finding>, path: &str, text: &str) -> Vec<usize> {
        let findings = rule(&Repository::of(&[(path, text)]));
        findings.into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn unsafe_is_found_outside_of_its_rooms() {
        let text = "//! unsafe\nlet a = \"unsafe\";\nunsafe { b() }\n";
        assert_eq!(lines(unsafe_rooms, "crates/tree/src/a.rs", text), [3]);
        assert_eq!(
            lines(unsafe_rooms, "crates/zstd/src/arch/copy.rs", text),
            []
        );
        assert_eq!(lines(unsafe_rooms, "crates/zstd/src/archive.rs", text), [3]);
        assert_eq!(lines(unsafe_rooms, "crates/tree/tests/it/a.rs", text), [3]);
    }

    #[test]
    fn roots_must_forbid_unsafe() {
        assert_eq!(
            lines(unsafe_rooms, "crates/tree/src/lib.rs", "//! A crate.\n"),
            [1]
        );
        assert_eq!(
            lines(
                unsafe_rooms,
                "crates/tree/src/lib.rs",
                "#![forbid(unsafe_code)]\n"
            ),
            []
        );
        assert_eq!(
            lines(unsafe_rooms, "crates/linux/src/lib.rs", "//! A crate.\n"),
            []
        );
        assert_eq!(
            lines(
                unsafe_rooms,
                "crates/zstd/src/lib.rs",
                "#![deny(unsafe_code)]\n"
            ),
            [1]
        );
    }

    #[test]
    fn long_file_is_found() {
        assert_eq!(lines(long_files, "a.rs", &"\n".repeat(1001)), [1001]);
        assert_eq!(lines(long_files, "a.rs", &"\n".repeat(1000)), []);
        assert_eq!(lines(long_files, "a.csv", &"\n".repeat(1001)), []);
    }

    #[test]
    fn repeated_error_words_are_found() {
        let text = "Corrupt { what: \"bad key\", at, got }\nCorrupt {\n    what: \"bad key\",\n}\n";
        assert_eq!(lines(unique_error_words, "crates/a/src/a.rs", text), [3]);
        assert_eq!(
            lines(unique_error_words, "crates/a/tests/it/a.rs", text),
            []
        );
        let text =
            "corrupt(\"bad key\", 1)\n#[cfg(test)]\nmod tests {\ncorrupt(\"bad key\", 1)\n}\n";
        assert_eq!(lines(unique_error_words, "crates/a/src/a.rs", text), []);
        let files = [
            ("crates/a/src/a.rs", "what: \"x\""),
            ("crates/b/src/b.rs", "what: \"x\""),
        ];
        assert_eq!(unique_error_words(&Repository::of(&files)).len(), 1);
    }

    #[test]
    fn empty_names_are_found() {
        assert_eq!(lines(names, "crates/a/src/utils.rs", ""), [1]);
        assert_eq!(lines(names, "crates/a/src/common/x.rs", ""), [1]);
        assert_eq!(
            lines(
                names,
                "crates/a/src/a.rs",
                "mod x;\npub(crate) mod helpers;\n"
            ),
            [2]
        );
        assert_eq!(
            lines(
                names,
                "crates/a/src/a.rs",
                "pub fn get_it() {}\nfn getter() {}\n"
            ),
            [1]
        );
    }

    #[test]
    fn glob_re_export_is_found() {
        let text = "use a::*;\npub use b::{c, d};\npub use e::*;\npub use f::{\n    g::*,\n};\npub(crate) use h::*;\n";
        assert_eq!(lines(glob_re_exports, "a.rs", text), [3, 4]);
    }

    #[test]
    fn clock_and_environment_are_found() {
        let text = "// Instant\nlet a = std::env::var(\"X\");\nuse std::time::{Instant};\n\
            let b = my_env::var();\n#[cfg(test)]\nmod tests {\nInstant::now()\n}\n";
        assert_eq!(lines(surroundings, "crates/tree/src/a.rs", text), [2, 3]);
        assert_eq!(lines(surroundings, "crates/cli/src/a.rs", text), []);
        assert_eq!(lines(surroundings, "crates/tree/tests/it/a.rs", text), []);
    }

    #[test]
    fn reasonless_work_is_found() {
        let text = "// TODO\n// TODO: the kernel has no call for it\n// FIXME: it is wrong in some way\ntodo!();\n";
        assert_eq!(lines(left_to_do, "a.rs", text), [1, 3, 4]);
    }

    #[test]
    fn other_reasons_to_ignore_are_found() {
        let text = "#[ignore]\n#[ignore = \"needs root\"]\n#[ignore = \"slow\"]\n";
        assert_eq!(lines(ignored_tests, "a.rs", text), [1, 3]);
    }
}
