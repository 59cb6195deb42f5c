//! The rules of the house that no compiler knows, checked over the whole repository in well under a
//! second.
//!
//! A rule is a function from the files to what breaks it. Each has a test that shows it fail on a
//! bad example.

mod code;
mod crates;
mod documents;
mod imports;
mod records;
mod repository;
mod shape;
mod source;
mod words;

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use crate::environment::is_ci;
use crate::outcome::Outcome;
pub(crate) use crates::{Dependency, Member};
use repository::{Finding, Repository};

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
    ("results of known commits", records::known_commits),
    ("words", words::banned),
];

/// Checks every rule over the repository at `root` and prints what breaks one.
pub(crate) fn tidy(root: &Path) -> Outcome {
    let repository = match Repository::read(root) {
        Ok(repository) => repository,
        Err(error) => return Outcome::failed(format!("read the repository: {error}")),
    };
    let mut count = 0;
    for (name, rule) in RULES {
        for finding in rule(&repository) {
            println!(
                "{}:{}: {} [{name}]",
                finding.path, finding.line, finding.what
            );
            count += 1;
        }
    }
    let mut outcome = match count {
        0 => Outcome::passed(),
        _ => Outcome::failed(format!("{count} findings")),
    };
    if let Err(reason) = repository.commits {
        let reason = format!("the commits that results name: {reason}");
        let reasons = if is_ci() {
            &mut outcome.failed
        } else {
            &mut outcome.skipped
        };
        reasons.push(reason);
    }
    outcome
}

/// The crates that one may be built from, itself included.
pub(crate) fn built_from(name: &str) -> BTreeSet<&str> {
    crates::reached(&[name])
}

/// The crates of the workspace at `root`.
pub(crate) fn members(root: &Path) -> io::Result<Vec<Member>> {
    Ok(crates::members(&Repository::read(root)?))
}
