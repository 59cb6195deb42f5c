//! `btrfs check` of the installed version and of a newer one, asked about changed images.

use std::fs::File;
use std::path::{Path, PathBuf};

use testkit::{BtrfsImage, Tool, newer_tool, tool};

use crate::damage::is_clean_to_btrfs;

/// A version of `btrfs check`.
pub(crate) struct Judge {
    tool: Tool,
    /// As it names itself: `btrfs-progs v6.2`.
    pub(crate) version: String,
}

impl Judge {
    fn new(tool: Tool) -> Judge {
        let output = tool.run(["--version"]).stdout;
        let version = String::from_utf8_lossy(&output);
        let version = version.lines().next().unwrap_or_default().to_owned();
        Judge { tool, version }
    }

    /// Whether it finds nothing wrong, including data.
    pub(crate) fn is_clean(&self, image: &Path) -> bool {
        is_clean_to_btrfs(&self.tool, image)
    }
}

/// The installed version; with `all`, also a newer one, where there is one.
pub(crate) fn judges(all: bool) -> Option<Vec<Judge>> {
    let newer = all.then(|| newer_tool("btrfs")).flatten();
    let tools = [Some(tool("btrfs")?), newer].into_iter().flatten();
    Some(tools.map(Judge::new).collect())
}

pub(crate) fn versions(judges: &[Judge]) -> Vec<&str> {
    judges.iter().map(|judge| &*judge.version).collect()
}

/// The file of a sound image, to which changes are written and taken back.
pub(crate) struct JudgedFile<'a> {
    path: PathBuf,
    file: File,
    judges: &'a [Judge],
}

impl<'a> JudgedFile<'a> {
    pub(crate) fn new(good: &BtrfsImage, path: PathBuf, judges: &'a [Judge]) -> JudgedFile<'a> {
        good.write_file(&path);
        assert!(judges.iter().all(|judge| judge.is_clean(&path)));
        let file = File::options().write(true).open(&path).unwrap();
        JudgedFile { path, file, judges }
    }

    /// By judge: whether it finds something wrong with a change of the image.
    pub(crate) fn findings(&self, changed: &BtrfsImage) -> Vec<bool> {
        changed.write_changes(&self.file, false);
        let findings = self.judges.iter().map(|judge| !judge.is_clean(&self.path));
        let findings = findings.collect();
        changed.write_changes(&self.file, true);
        findings
    }
}
