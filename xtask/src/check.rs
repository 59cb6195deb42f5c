//! The checks that run no test.

use std::fs;

use crate::command::{cargo, output_of, run, succeeds};
use crate::outcome::{Outcome, Report};
use crate::{root, tidy, tools};

/// Formatting, tidy, lints, documentation, licences.
pub(crate) fn check(report: &mut Report, _: &[String]) {
    report.step("rustfmt and clippy", tools::ensure_components);
    report.step("format", || run(&mut cargo(["fmt", "--all", "--check"])));
    tidy(report, &[]);
    report.step("clippy", || {
        run(&mut cargo([
            "clippy",
            "--workspace",
            "--all-targets",
            "--quiet",
            "--",
            "-D",
            "warnings",
        ]))
    });
    report.step("documentation", || {
        run(cargo(["doc", "--workspace", "--no-deps", "--quiet"])
            .env("RUSTDOCFLAGS", "-D warnings"))
    });
    report.step("licences", licences);
    // Advisories come from a server, and the program is not in Debian: it is used where somebody has installed it.
    if succeeds(&mut cargo(["deny", "--version"])) {
        report.step("cargo deny", || {
            run(&mut cargo(["deny", "check", "bans", "licenses", "sources"]))
        });
    }
}

/// The rules of the house.
pub(crate) fn tidy(report: &mut Report, _: &[String]) {
    report.step("tidy", || tidy::tidy(&root()));
}

/// Every crate that is built, also for tests and by build scripts, has a licence that `deny.toml` allows.
fn licences() -> Outcome {
    let deny = match fs::read_to_string(root().join("deny.toml")) {
        Ok(deny) => deny,
        Err(error) => return Outcome::failed(format!("read deny.toml: {error}")),
    };
    let mut tree = cargo([
        "tree",
        "--workspace",
        "--edges",
        "normal,build,dev",
        "--prefix",
        "none",
        "--format",
        "{p}|{l}",
    ]);
    let crates = match output_of(tree.arg("--all-features")) {
        Ok(crates) => crates,
        Err(reason) => return Outcome::failed(reason),
    };
    let refused = refused(&deny, &crates);
    match refused.is_empty() {
        true => Outcome::passed(),
        false => Outcome {
            failed: refused,
            ..Outcome::default()
        },
    }
}

/// The lines of `crates` (`name v1.2.3 …|licence`) whose licence `deny` does not allow.
fn refused(deny: &str, crates: &str) -> Vec<String> {
    let allowed = list_after(deny, "\nallow = [");
    let mut lines: Vec<&str> = crates.lines().filter(|line| !line.is_empty()).collect();
    lines.sort_unstable();
    lines.dedup();
    let is_refused = |line: &&str| {
        let (package, licence) = line.split_once('|').unwrap_or((line, ""));
        let name = package.split(' ').next().unwrap_or_default();
        let exceptions = list_after(deny, &format!("crate = \"{name}\", allow = ["));
        // `(*)` marks what the tree has shown before.
        !is_allowed(
            licence.trim_end_matches(" (*)"),
            &[allowed.as_slice(), &exceptions].concat(),
        )
    };
    lines
        .into_iter()
        .filter(is_refused)
        .map(str::to_owned)
        .collect()
}

/// The strings of the list that begins with `start`.
fn list_after<'a>(deny: &'a str, start: &str) -> Vec<&'a str> {
    let list = deny
        .split_once(start)
        .and_then(|(_, rest)| rest.split_once(']'));
    list.map_or_else(Vec::new, |(list, _)| {
        list.split('"').skip(1).step_by(2).collect()
    })
}

/// Whether an SPDX expression, whose alternatives stand in brackets if it joins others, is met by allowed licences.
fn is_allowed(expression: &str, allowed: &[&str]) -> bool {
    expression.split(" AND ").all(|part| {
        part.trim_matches(['(', ')'])
            .split(" OR ")
            .flat_map(|alternative| alternative.split('/'))
            .any(|licence| allowed.contains(&licence.trim_matches(['(', ')', ' '])))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DENY: &str = "[licenses]\nallow = [\n  \"MIT\",\n  \"Unicode-3.0\", # tables\n]\n\
        exceptions = [\n  { crate = \"odd\", allow = [\"BSL-1.0\"] },\n]\n";

    #[test]
    fn licences_outside_of_the_list_are_refused() {
        let crates = "a v1.0.0|MIT OR Apache-2.0\nb v1.0.0|GPL-2.0-only\nodd v1.0.0|BSL-1.0 (*)\nc v1|BSL-1.0\nd v1|\n";
        assert_eq!(
            refused(DENY, crates),
            ["b v1.0.0|GPL-2.0-only", "c v1|BSL-1.0", "d v1|"]
        );
    }

    #[test]
    fn both_sides_of_an_and_count() {
        let allowed = ["MIT", "Unicode-3.0"];
        assert!(is_allowed("(MIT OR Apache-2.0) AND Unicode-3.0", &allowed));
        assert!(!is_allowed(
            "(MIT OR Apache-2.0) AND GPL-2.0-only",
            &allowed
        ));
        assert!(is_allowed("MIT/Apache-2.0", &allowed));
        assert!(!is_allowed("", &allowed));
    }
}
