//! Rules about crates: who may depend on whom.

use std::collections::{BTreeMap, BTreeSet};

use super::repository::{Finding, Repository};

/// Which of our crates each crate may depend on. Formats do not know each other, `tree` knows the
/// codecs and no format, and the codecs know nothing but their hash.
const ARROWS: &[(&str, &[&str])] = &[
    ("xxhash", &[]),
    ("lzo", &[]),
    ("zstd", &["xxhash"]),
    ("codec", &["lzo", "zstd"]),
    ("linux", &[]),
    ("tree", &["codec", "linux", "xxhash"]),
    ("squashfs", &["codec", "tree", "xxhash"]),
    ("btrfs", &["codec", "tree", "xxhash"]),
    ("erofs", &["codec", "tree", "xxhash"]),
    ("oci", &["codec", "tree"]),
    ("patch", &["codec", "linux", "tree", "zstd"]),
    ("delta", &["codec", "patch", "tree", "xxhash", "zstd"]),
    ("sendstream", &["codec", "linux", "tree"]),
    ("fuse", &["linux", "tree"]),
    (
        "plan",
        &["btrfs", "codec", "erofs", "sendstream", "squashfs", "tree"],
    ),
    ("remote", &["tree"]),
    ("report", &[]),
    (
        "restow",
        &[
            "btrfs",
            "codec",
            "delta",
            "erofs",
            "linux",
            "oci",
            "patch",
            "plan",
            "remote",
            "sendstream",
            "squashfs",
            "tree",
        ],
    ),
    ("ffi", &["xxhash", "zstd"]),
    (
        "cli",
        &["codec", "fuse", "linux", "report", "restow", "tree"],
    ),
    ("testkit", &["linux", "tree"]),
    (
        "bench",
        &[
            "btrfs",
            "codec",
            "ffi",
            "linux",
            "lzo",
            "report",
            "sendstream",
            "squashfs",
            "tree",
            "xxhash",
            "zstd",
            "zstd-portable",
        ],
    ),
    ("zstd-portable", &["xxhash"]),
    ("smoke", &["fuse", "restow", "zstd-portable"]),
    ("xtask", &[]),
];

/// The crates that each know one container.
const FORMATS: &[&str] = &["btrfs", "erofs", "sendstream", "squashfs"];

/// Our crates depend on each other along [`ARROWS`]; tests may also use `testkit` and whatever the
/// arrows reach.
pub(super) fn arrows(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for member in members(repository) {
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == member.name) else {
            let what = format!(
                "add the arrows of `{}` to xtask/src/tidy/crates.rs",
                member.name
            );
            findings.push(Finding::new(&member.manifest, 1, what));
            continue;
        };
        let reached = reached(allowed);
        for dependency in &member.dependencies {
            let name = dependency.name.as_str();
            if !ARROWS.iter().any(|(ours, _)| *ours == name) {
                continue;
            }
            let of_tests = dependency.for_tests && (name == "testkit" || reached.contains(name));
            if !allowed.contains(&name) && !of_tests {
                let what = format!("no arrow leads from `{}` to `{name}`", member.name);
                findings.push(Finding::new(&member.manifest, dependency.line, what));
            }
        }
    }
    findings
}

/// Each outside crate stands in the workspace's manifest with the crate that may use it as a
/// comment: `tar = "0.4" # tree`, or `twox-hash = "2" # tests: xxhash, bench` for what nothing that
/// is shipped may use. What describes records on disk, or sums them, cannot be used through another
/// crate: the formats may share it, as in `# formats: btrfs, squashfs`. What is shipped by one
/// crate may also serve tests and benchmarks: `# cli; tests: bench`.
pub(super) fn owners(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    let Some(manifest) = repository.file("Cargo.toml") else {
        return vec![Finding::new("Cargo.toml", 1, "there is no workspace")];
    };
    let mut owners: BTreeMap<&str, (bool, Vec<&str>, Vec<&str>)> = BTreeMap::new();
    for (line, key, text) in entries(&manifest.text, |section| {
        section == "workspace.dependencies"
    }) {
        let comment = text
            .split_once('#')
            .map_or("", |(_, comment)| comment.trim());
        let (comment, testers) = comment.split_once("; tests:").unwrap_or((comment, ""));
        let testers = testers
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty());
        let testers: Vec<&str> = testers.collect();
        let (for_tests, names) = match comment.strip_prefix("tests:") {
            Some(names) => (true, names),
            None => (false, comment.strip_prefix("formats:").unwrap_or(comment)),
        };
        let of_formats = comment.starts_with("formats:");
        let names: Vec<&str> = names.split(',').map(str::trim).collect();
        let ours = text.contains("path = ");
        if ours {
            continue;
        }
        if (names.iter().chain(&testers)).any(|name| !ARROWS.iter().any(|(ours, _)| ours == name)) {
            let what = format!(
                "say in a comment which crate owns `{key}`: `# tree`, or `# tests: xxhash`"
            );
            findings.push(Finding::new("Cargo.toml", line, what));
        } else if of_formats && names.iter().any(|name| !FORMATS.contains(name)) {
            let what = format!("only the formats may share `{key}`");
            findings.push(Finding::new("Cargo.toml", line, what));
        } else if !for_tests && !of_formats && names.len() > 1 {
            let what = format!("`{key}` has one owner, through which the others use it");
            findings.push(Finding::new("Cargo.toml", line, what));
        }
        owners.insert(key, (for_tests, names, testers));
    }
    let mut used = BTreeSet::new();
    for member in members(repository) {
        for dependency in &member.dependencies {
            let name = dependency.name.as_str();
            if ARROWS.iter().any(|(ours, _)| *ours == name) {
                continue;
            }
            let shipped =
                !dependency.for_tests && !["bench", "testkit", "xtask"].contains(&&*member.name);
            let what = match owners.get(name) {
                None => format!("add `{name}` to the workspace's dependencies, with its owner"),
                Some((_, names, testers))
                    if !names.contains(&&*member.name)
                        && (shipped || !testers.contains(&&*member.name)) =>
                {
                    format!("`{name}` belongs to {}", names.join(", "))
                }
                Some((true, ..)) if shipped => format!("`{name}` is for tests alone"),
                Some(_) => {
                    used.insert(name.to_owned());
                    continue;
                }
            };
            findings.push(Finding::new(&member.manifest, dependency.line, what));
        }
    }
    findings
}

/// A crate of the workspace.
pub(crate) struct Member {
    /// The last part of its folder, by which the documents call it.
    pub(crate) name: String,
    /// Its folder.
    pub(crate) folder: String,
    manifest: String,
    pub(crate) dependencies: Vec<Dependency>,
}

/// A line of a manifest.
pub(crate) struct Dependency {
    pub(crate) name: String,
    line: usize,
    pub(crate) for_tests: bool,
}

/// The members that the workspace's manifest lists.
pub(super) fn members(repository: &Repository) -> Vec<Member> {
    let text = repository
        .file("Cargo.toml")
        .map_or("", |file| file.text.as_str());
    let list = text
        .split_once("\nmembers = [")
        .and_then(|(_, rest)| rest.split_once(']'));
    let folders = list
        .map_or("", |(list, _)| list)
        .lines()
        .filter_map(|line| line.split('"').nth(1));
    folders.map(|folder| member(repository, folder)).collect()
}

fn member(repository: &Repository, folder: &str) -> Member {
    let manifest = format!("{folder}/Cargo.toml");
    let text = repository
        .file(&manifest)
        .map_or("", |file| file.text.as_str());
    let mut dependencies = Vec::new();
    for for_tests in [false, true] {
        let is_wanted = |section: &str| {
            section.ends_with("dependencies") && section.ends_with("dev-dependencies") == for_tests
        };
        for (line, key, _) in entries(text, is_wanted) {
            let name = key.to_owned();
            dependencies.push(Dependency {
                name,
                line,
                for_tests,
            });
        }
    }
    Member {
        name: folder.rsplit('/').next().unwrap_or(folder).to_owned(),
        folder: folder.to_owned(),
        manifest,
        dependencies,
    }
}

/// The entries of the sections of a manifest whose names are wanted: line, key, and the whole line.
fn entries(text: &str, is_wanted: impl Fn(&str) -> bool) -> Vec<(usize, &str, &str)> {
    let mut entries = Vec::new();
    let mut wanted = false;
    let mut depth = 0;
    for (index, line) in text.lines().enumerate() {
        let content = line.split('#').next().unwrap_or_default();
        if depth == 0 && content.starts_with('[') {
            wanted = is_wanted(content.trim().trim_matches(['[', ']']));
            continue;
        }
        let key = content.split(['=', '.']).next().unwrap_or_default().trim();
        if depth == 0 && wanted && !key.is_empty() {
            entries.push((index + 1, key, line));
        }
        // A value may go on over several lines.
        let open = content.matches(['[', '{']).count();
        depth = (depth + open).saturating_sub(content.matches([']', '}']).count());
    }
    entries
}

/// What the arrows reach from `names`, over any number of crates, those included.
pub(super) fn reached<'a>(names: &[&'a str]) -> BTreeSet<&'a str> {
    let mut reached: BTreeSet<&str> = names.iter().copied().collect();
    let mut waiting: Vec<&str> = names.to_vec();
    while let Some(name) = waiting.pop() {
        let next = ARROWS
            .iter()
            .filter(|(from, _)| *from == name)
            .flat_map(|(_, to)| *to);
        waiting.extend(next.filter(|to| reached.insert(to)));
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKSPACE: &str = "[workspace]\nmembers = [\n    \"crates/zstd\",\n    \"crates/xxhash\",\n]\n\
        [workspace.dependencies]\nxxhash = { path = \"crates/xxhash\" }\ntar = \"1\" # tree\n";

    fn findings(rule: fn(&Repository) -> Vec<Finding>, workspace: &str, zstd: &str) -> Vec<String> {
        let files = [
            ("Cargo.toml", workspace),
            ("crates/xxhash/Cargo.toml", "[package]\nname = \"xxhash\"\n"),
            ("crates/zstd/Cargo.toml", zstd),
        ];
        rule(&Repository::of(&files))
            .into_iter()
            .map(|finding| finding.what)
            .collect()
    }

    #[test]
    fn wrong_arrow_is_found() {
        let good = "[dependencies]\nxxhash.workspace = true\n[dev-dependencies]\ntestkit.workspace = true\n";
        assert_eq!(findings(arrows, WORKSPACE, good), [] as [&str; 0]);
        let bad = "[dependencies]\ntestkit = { workspace = true }\n";
        assert_eq!(
            findings(arrows, WORKSPACE, bad),
            ["no arrow leads from `zstd` to `testkit`"]
        );
        let bad = "[target.'cfg(unix)'.dependencies]\ntree = { workspace = true }\n";
        assert_eq!(
            findings(arrows, WORKSPACE, bad),
            ["no arrow leads from `zstd` to `tree`"]
        );
        let bad = "[dev-dependencies]\ncli.workspace = true\n";
        assert_eq!(
            findings(arrows, WORKSPACE, bad),
            ["no arrow leads from `zstd` to `cli`"]
        );
    }

    #[test]
    fn unknown_crate_is_found() {
        let workspace = WORKSPACE.replace("crates/xxhash\",", "crates/new\",");
        assert_eq!(findings(arrows, &workspace, "").len(), 1);
    }

    #[test]
    fn wrong_owner_is_found() {
        assert_eq!(findings(owners, WORKSPACE, ""), [] as [&str; 0]);
        let other = "[dependencies]\ntar.workspace = true\n";
        assert_eq!(
            findings(owners, WORKSPACE, other),
            ["`tar` belongs to tree"]
        );
        let unlisted = "[dependencies]\nserde = \"1\"\n";
        assert_eq!(findings(owners, WORKSPACE, unlisted).len(), 1);
        let nobody = WORKSPACE.replace("# tree", "# handy");
        assert_eq!(findings(owners, &nobody, "").len(), 1);
        let tested = WORKSPACE.replace("# tree", "# tree; tests: zstd");
        assert_eq!(findings(owners, &tested, other), ["`tar` belongs to tree"]);
        let tests = "[dev-dependencies]\ntar.workspace = true\n";
        assert_eq!(findings(owners, &tested, tests), [] as [&str; 0]);
        let many = WORKSPACE.replace("# tree", "# tree, zstd");
        assert_eq!(findings(owners, &many, "").len(), 1);
        let formats = WORKSPACE.replace("# tree", "# formats: btrfs, squashfs");
        assert_eq!(findings(owners, &formats, "").len(), 0);
        let not_formats = WORKSPACE.replace("# tree", "# formats: btrfs, tree");
        assert_eq!(findings(owners, &not_formats, "").len(), 1);
    }

    #[test]
    fn dependency_of_tests_is_not_shipped() {
        let workspace = WORKSPACE.replace("# tree", "# tests: zstd, bench");
        let tests = "[dev-dependencies]\ntar.workspace = true\n";
        assert_eq!(findings(owners, &workspace, tests), [] as [&str; 0]);
        let shipped = "[dependencies]\ntar.workspace = true\n";
        assert_eq!(
            findings(owners, &workspace, shipped),
            ["`tar` is for tests alone"]
        );
    }

    #[test]
    fn values_may_take_several_lines() {
        let text = "[dependencies]\na = { version = \"1\", features = [\n  \"x\",\n] }\nb.workspace = true # y\n[c]\nd = 1\n";
        let keys: Vec<_> = entries(text, |s| s == "dependencies")
            .into_iter()
            .map(|e| (e.0, e.1))
            .collect();
        assert_eq!(keys, [(2, "a"), (5, "b")]);
    }

    #[test]
    fn arrows_have_no_circle() {
        for (name, to) in ARROWS {
            assert!(!reached(to).contains(name), "{name}");
        }
    }
}
