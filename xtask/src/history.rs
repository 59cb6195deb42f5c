//! The commits of this branch.

use std::path::Path;
use std::process::Command;

use crate::command::output_of;

/// A commit.
#[derive(Debug)]
pub(crate) struct Commit {
    pub(crate) id: String,
    /// The files that it touched.
    pub(crate) files: Vec<String>,
}

/// All commits of the repository at `root`, the newest first. A clone without all of them is an
/// error.
pub(crate) fn commits(root: &Path) -> Result<Vec<Commit>, String> {
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        output_of(command.args(arguments).current_dir(root))
    };
    if git(&["rev-parse", "--is-shallow-repository"])?.trim() != "false" {
        return Err("the clone is shallow: git fetch --unshallow".to_owned());
    }
    let mut commits: Vec<Commit> = Vec::new();
    for line in git(&["log", "--format=commit:%H", "--name-only"])?.lines() {
        match (line.strip_prefix("commit:"), commits.last_mut()) {
            (Some(id), _) => commits.push(Commit {
                id: id.to_owned(),
                files: Vec::new(),
            }),
            (None, Some(commit)) if !line.is_empty() => commit.files.push(line.to_owned()),
            (None, _) => {}
        }
    }
    Ok(commits)
}
