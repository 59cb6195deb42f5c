//! Every campaign: its name, what it runs, and what that shows.

use std::fs;

use crate::environment::root;
use crate::harness::Sanitizer;
use crate::outcome::Outcome;
use crate::{archives, fleets, kmod, outside, plan, upstream};

type Program = (&'static str, fn() -> Outcome, &'static str, &'static str);

/// A line for each campaign.
const CAMPAIGNS: &str = include_str!("../../campaigns.txt");

/// Campaigns that stand in a file of their own: name, function, what they run, for people, and the
/// crate that they try.
const PROGRAMS: &[Program] = &[
    (
        "tar-archives",
        archives::campaign,
        "the archives in RESTOW_ARCHIVES, as root",
        "tree",
    ),
    ("btrfs-progs-tests", outside::btrfs_progs, SUITE, "cli"),
    ("fstests-send", outside::fstests, SUITE, "cli"),
    ("kmod-consumers", || kmod::consumers(None), MACHINE, "kmod"),
    (
        "kmod-consumers-6.12",
        || kmod::consumers(Some("6.12")),
        MACHINE,
        "kmod",
    ),
    ("kmod-dkms", kmod::dkms, MACHINE, "kmod"),
    (
        "kmod-consumers-newest",
        || kmod::consumers(Some("newest")),
        MACHINE,
        "kmod",
    ),
    ("kmod-exercise", || kmod::exercise(None), MACHINE, "kmod"),
    (
        "kmod-exercise-6.12",
        || kmod::exercise(Some("6.12")),
        MACHINE,
        "kmod",
    ),
    (
        "kmod-exercise-newest",
        || kmod::exercise(Some("newest")),
        MACHINE,
        "kmod",
    ),
    ("kmod-arm64", kmod::arm64, MACHINE, "kmod"),
    ("kmod-tree", || kmod::tree(None), MACHINE, "kmod"),
    (
        "zstd-upstream-tests",
        upstream::campaign,
        "tests of zstd's repository in RESTOW_ZSTD, with its C code and with ours",
        "ffi",
    ),
    (
        "fleets",
        fleets::campaign,
        "stores and engines of other projects",
        "cli",
    ),
    (
        "plan",
        plan::campaign,
        "the trees in RESTOW_TREES, copied with every candidate",
        "cli",
    ),
    (
        "plan-bars",
        plan::bars,
        "the trees in RESTOW_TREES, 100 samples of 4 sizes of each",
        "plan",
    ),
];
const SUITE: &str = "the test suite of another project, with its programs and with ours, as root";
const MACHINE: &str = "kernels, built and booted in QEMU";

/// A long run.
pub(super) struct Campaign {
    pub(super) name: &'static str,
    pub(super) run: Run,
    /// What is shown by it.
    pub(super) shows: &'static str,
}

/// What is run, as campaigns.txt describes it.
pub(super) enum Run {
    Tests {
        crate_name: &'static str,
        filter: &'static str,
        cases: u64,
        as_root: bool,
    },
    Program {
        run: fn() -> Outcome,
        words: &'static str,
        crate_name: &'static str,
    },
    Fuzz(&'static str),
    Miri {
        crate_name: &'static str,
        filters: Vec<&'static str>,
    },
    Harness {
        source: &'static str,
        sanitizer: Sanitizer,
    },
    Mutants {
        crate_name: &'static str,
        caught_min: u64,
        files: Vec<&'static str>,
    },
}

/// Every campaign.
pub(super) fn campaigns() -> Vec<Campaign> {
    let lines = CAMPAIGNS.lines().filter(|line| !line.starts_with('#'));
    let campaign = |line| parse(line).unwrap_or_else(|| panic!("xtask/campaigns.txt: {line}"));
    lines.map(campaign).collect()
}

fn parse(line: &'static str) -> Option<Campaign> {
    let mut cells = line.split(" | ");
    let (name, run, shows) = (cells.next()?, cells.next()?, cells.next()?);
    let run = match run.split(' ').collect::<Vec<_>>()[..] {
        [kind @ ("tests" | "kernel"), crate_name, filter, cases] => Run::Tests {
            crate_name,
            filter,
            cases: cases.parse().ok()?,
            as_root: kind == "kernel",
        },
        ["fuzz", target] => Run::Fuzz(target),
        ["miri", crate_name, ref filters @ ..] => Run::Miri {
            crate_name,
            filters: filters.to_vec(),
        },
        ["harness", source, sanitizer] => Run::Harness {
            source,
            sanitizer: Sanitizer::of_name(sanitizer)?,
        },
        ["mutants", crate_name, caught_min, ref files @ ..] => Run::Mutants {
            crate_name,
            caught_min: caught_min.parse().ok()?,
            files: files.to_vec(),
        },
        ["program"] => {
            let (_, run, words, crate_name) = *PROGRAMS.iter().find(|it| it.0 == name)?;
            Run::Program {
                run,
                words,
                crate_name,
            }
        }
        _ => return None,
    };
    Some(Campaign { name, run, shows })
}

impl Run {
    /// The names of the crates that are tried, or paths of other files.
    pub(super) fn tries(&self) -> Vec<String> {
        match self {
            Run::Tests { crate_name, .. }
            | Run::Miri { crate_name, .. }
            | Run::Mutants { crate_name, .. } => vec![(*crate_name).to_owned()],
            // The modules are built from the crate behind the C interface.
            Run::Program {
                crate_name: "kmod", ..
            } => ["kmod/", "ffi"].map(str::to_owned).into(),
            Run::Program { crate_name, .. } => vec![(*crate_name).to_owned()],
            Run::Harness { .. } => vec!["ffi".to_owned()],
            Run::Fuzz(target) => {
                let path = format!("fuzz/targets/{target}.rs");
                let text = fs::read_to_string(root().join(&path)).unwrap_or_default();
                let is_name = |char: char| char.is_alphanumeric() || char == '_';
                let before =
                    |part: &str| part.rsplit(|char| !is_name(char)).next().map(str::to_owned);
                text.split("::").filter_map(before).chain([path]).collect()
            }
        }
    }

    /// What is run, for people.
    pub(super) fn words(&self) -> String {
        match self {
            Run::Tests {
                crate_name,
                filter,
                cases,
                as_root,
            } => {
                let root = if *as_root { ", as root" } else { "" };
                format!("{filter} of {crate_name}, {} cases{root}", grouped(*cases))
            }
            Run::Program { words, .. } => (*words).to_owned(),
            Run::Fuzz(target) => format!("fuzz target {target}"),
            Run::Miri {
                crate_name,
                filters,
            } => {
                format!("{} of {crate_name}, under Miri", filters.join(", "))
            }
            Run::Harness { source, .. } => format!("{source} in C"),
            Run::Mutants { crate_name, .. } => {
                format!("mutants of {crate_name}, all of its tests each")
            }
        }
    }
}

/// A number with a comma before each three digits.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(
            [0, 999, 1000, 1_050_000].map(grouped),
            ["0", "999", "1,000", "1,050,000"]
        );
    }

    fn files_in(folder: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    /// A campaign that no longer finds its tests would be missed only when somebody runs it.
    #[test]
    fn campaigns_name_what_is_there() {
        for campaign in campaigns() {
            match campaign.run {
                Run::Tests {
                    crate_name, filter, ..
                } => {
                    let (modules, function) = filter.rsplit_once("::").unwrap_or(("", filter));
                    let folder = root().join("crates").join(crate_name).join("tests/it");
                    let file = folder.join(modules.replace("::", "/"));
                    let files = match modules {
                        "" => files_in(&folder),
                        _ => vec![file.with_extension("rs"), file.join("mod.rs")],
                    };
                    let is_there = files.iter().any(|path| {
                        let text = fs::read_to_string(path).unwrap_or_default();
                        text.contains(&format!("fn {function}"))
                    });
                    assert!(is_there, "{}", campaign.name);
                }
                Run::Program { .. } => {}
                Run::Miri {
                    crate_name,
                    filters,
                } => {
                    for filter in filters {
                        let module = filter.trim_end_matches("::").replace("::", "/");
                        let path = root()
                            .join("crates")
                            .join(crate_name)
                            .join("src")
                            .join(module);
                        let is_there = path.is_dir() || path.with_extension("rs").is_file();
                        assert!(is_there, "{}", campaign.name);
                    }
                }
                Run::Fuzz(target) => {
                    let path = root().join(format!("fuzz/targets/{target}.rs"));
                    assert!(path.is_file(), "{}", campaign.name);
                }
                Run::Harness { source, .. } => {
                    let path = root().join(format!("crates/ffi/tests/c/{source}.c"));
                    assert!(path.is_file(), "{}", campaign.name);
                }
                Run::Mutants { files, .. } => {
                    let is_there = |file: &&str| {
                        let file = file.trim_end_matches("/**");
                        root().join(file).exists()
                    };
                    assert!(files.iter().all(is_there), "{}", campaign.name);
                }
            }
        }
    }
}
