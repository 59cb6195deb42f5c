//! Which crates a change touches, and which others it can break.

use std::collections::BTreeSet;
use std::process::Command;

use crate::command::output_of;
use crate::environment::root;
use crate::tidy::{Dependency, Member};

/// Files outside of the crates that every crate is built with.
const OF_ALL_CRATES: &[&str] = &["Cargo.toml", "Cargo.lock", "clippy.toml", ".cargo/"];

/// Files outside of the crates, and the crate whose tests read them.
const READ_BY_TESTS: &[(&str, &str)] = &[("README.md", "crates/cli"), ("fuzz/", "fuzz/smoke")];

/// The crates that a change concerns, by their folders.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changed {
    /// With a changed file.
    pub(crate) touched: Vec<String>,
    /// Built from touched ones, or tested with them.
    pub(crate) dependent: Vec<String>,
}

/// The files that differ from where the work began: in the commits since then, in the work tree,
/// and new ones.
///
/// The work began where this branch left `main`; on `main` itself, with the last commit.
pub(crate) fn files() -> Result<Vec<String>, String> {
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        output_of(command.args(arguments).current_dir(root()))
    };
    let head = git(&["rev-parse", "HEAD"])?;
    let mut bases = ["origin/main", "main"]
        .iter()
        .filter_map(|main| git(&["merge-base", "HEAD", main]).ok())
        .filter(|base| *base != head);
    let base = match bases.next() {
        Some(base) => base,
        // The first commit of all has nothing before it.
        None => git(&["rev-parse", "HEAD~"]).unwrap_or(head),
    };
    let differ = git(&["diff", "--name-only", base.trim()])?;
    let new = git(&["ls-files", "--others", "--exclude-standard"])?;
    Ok(differ
        .lines()
        .chain(new.lines())
        .map(str::to_owned)
        .collect())
}

/// Which of `members` the files concern.
pub(crate) fn crates(members: &[Member], files: &[String]) -> Changed {
    let mut touched: BTreeSet<&str> = BTreeSet::new();
    for file in files {
        if OF_ALL_CRATES.iter().any(|path| file.starts_with(path)) {
            touched.extend(members.iter().map(|member| &*member.folder));
        }
        let reader = READ_BY_TESTS
            .iter()
            .find(|(path, _)| file.starts_with(path));
        let holder = (members.iter())
            .filter(|member| file.starts_with(&format!("{}/", member.folder)))
            .max_by_key(|member| member.folder.len());
        touched.extend(holder.map(|member| &*member.folder));
        touched.extend(reader.map(|(_, folder)| *folder));
    }
    let depends_on =
        |member: &Member, folders: &BTreeSet<&str>, wanted: fn(&Dependency) -> bool| {
            (member
                .dependencies
                .iter()
                .filter(|dependency| wanted(dependency)))
            .any(|dependency| {
                let mut others = members.iter().filter(|other| other.name == dependency.name);
                others.any(|other| folders.contains(&*other.folder))
            })
        };
    // What is built from a touched crate, over any number of crates.
    let mut reached = touched.clone();
    loop {
        let before = reached.len();
        for member in members {
            if depends_on(member, &reached, |dependency| !dependency.for_tests) {
                reached.insert(&member.folder);
            }
        }
        if reached.len() == before {
            break;
        }
    }
    // What only its tests are built from counts if that itself was touched: else each change would
    // reach all crates.
    for member in members {
        if depends_on(member, &touched, |dependency| dependency.for_tests) {
            reached.insert(&member.folder);
        }
    }
    let in_order = |wanted: &dyn Fn(&str) -> bool| -> Vec<String> {
        let folders = members.iter().map(|member| &member.folder);
        folders.filter(|folder| wanted(folder)).cloned().collect()
    };
    Changed {
        touched: in_order(&|folder| touched.contains(folder)),
        dependent: in_order(&|folder| reached.contains(folder) && !touched.contains(folder)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// What a change of `file` concerns in this repository.
    fn changed(file: &str) -> Changed {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        crates(&crate::tidy::members(root).unwrap(), &[file.to_owned()])
    }

    #[test]
    fn crates_that_are_built_from_a_touched_one_are_found() {
        let changed = changed("crates/squashfs/src/lib.rs");
        assert_eq!(changed.touched, ["crates/squashfs"]);
        assert_eq!(
            changed.dependent,
            ["crates/plan", "crates/restow", "crates/cli", "fuzz/smoke"]
        );
    }

    #[test]
    fn crates_that_are_tested_with_a_touched_one_are_found() {
        let changed = changed("crates/testkit/src/rng.rs");
        assert_eq!(changed.touched, ["crates/testkit"]);
        assert!(
            changed
                .dependent
                .iter()
                .any(|folder| folder == "crates/zstd")
        );
    }

    #[test]
    fn a_fuzz_target_is_tried() {
        assert_eq!(changed("fuzz/targets/lzo.rs").touched, ["fuzz/smoke"]);
    }

    #[test]
    fn crate_inside_of_another_folder_is_itself() {
        assert_eq!(
            changed("bench/zstd-portable/Cargo.toml").touched,
            ["bench/zstd-portable"]
        );
    }

    #[test]
    fn manifest_of_the_workspace_concerns_all_and_documents_nobody() {
        assert!(changed("Cargo.toml").touched.len() > 10);
        assert_eq!(changed("docs/decisions/README.md"), Changed::default());
        assert_eq!(changed("README.md").touched, ["crates/cli"]);
    }
}
