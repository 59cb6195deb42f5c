//! Words that have no place here.

use super::repository::{File, Finding, Repository};

/// Each with the reason. Found in any letter case, as a part of any word.
const BANNED: &[(&str, &str)] = &[
    ("/root/", "a path of one machine"),
    ("/tmp/corpora", "a path of one machine"),
    ("/tmp/wt", "a path of one machine"),
    ("/work/", "a path of one machine"),
    (
        "blazing",
        "say how fast, against what, and how it was measured",
    ),
    ("co-authored-by", "the history says who wrote what"),
    ("cutting-edge", "say what is new"),
    (
        "lightning-fast",
        "say how fast, against what, and how it was measured",
    ),
    ("revolutionary", "say what is new"),
    ("seamless", "say what works"),
    ("state-of-the-art", "say what is new"),
    (
        "world-class",
        "say how good, against what, and how it was measured",
    ),
];

/// No text holds a banned word; this file holds them all.
pub(super) fn banned(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for File { path, text, .. } in &repository.files {
        let in_tests = path.contains("/tests/") || path.contains("testdata/");
        if path == "xtask/src/tidy/words.rs" || path.starts_with("LICENSE") || in_tests {
            continue;
        }
        for (index, line) in text.lines().enumerate() {
            let line = line.to_lowercase();
            for (word, reason) in BANNED.iter().filter(|(word, _)| line.contains(word)) {
                findings.push(Finding::new(
                    path,
                    index + 1,
                    format!("\"{word}\": {reason}"),
                ));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn banned_words_are_found() {
        let files = [
            ("README.md", "good\nSeamless\n"),
            ("crates/a/src/a.rs", "// see /work/x\n"),
            ("crates/a/tests/it/a.rs", "\"/work/x\"\n"),
        ];
        let findings = banned(&Repository::of(&files));
        let found: Vec<_> = findings.iter().map(|f| (f.path.as_str(), f.line)).collect();
        assert_eq!(found, [("README.md", 2), ("crates/a/src/a.rs", 1)]);
    }
}
