//! The state of a check: what it knows so far, and where its findings go.

use tree::{Corrupt, Error, Finding, Findings, Parallel, Progress, Result};

use super::extents::{Extents, References};
use crate::key::Logical;
use crate::read::Btrfs;

/// How much was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckSummary {
    /// Things that are wrong, those not reported included.
    pub findings: u64,
    /// Tree blocks.
    pub tree_blocks: u64,
    /// Data extents.
    pub extents: u64,
    /// Inodes, counted once for each subvolume that shows them.
    pub inodes: u64,
    /// Bytes of data that were compared with their checksums.
    pub data_bytes: u64,
}

/// A check under way.
pub(super) struct Check<'b> {
    pub(super) btrfs: &'b Btrfs,
    pub(super) parallel: Parallel,
    pub(super) progress: &'b dyn Progress,
    pub(super) findings: Findings<'b>,
    pub(super) summary: CheckSummary,
    pub(super) references: References,
    pub(super) extents: Extents,
}

impl Check<'_> {
    /// Notes what is wrong in a tree; 0 is none.
    pub(super) fn found(&mut self, tree: u64, error: Error) -> Result<()> {
        self.findings.add(finding(tree, error))
    }

    pub(super) fn corrupt(&mut self, tree: u64, what: Corrupt) -> Result<()> {
        self.found(tree, Error::Corrupt(what))
    }

    /// Notes what is wrong, and goes on.
    pub(super) fn tolerate(&mut self, tree: u64, result: Result<()>) -> Result<()> {
        match result {
            Ok(()) => Ok(()),
            Err(error) => self.found(tree, error),
        }
    }
}

/// A finding in a tree; 0 is none.
pub(super) fn finding(tree: u64, error: Error) -> Finding {
    Finding {
        error,
        part: (tree != 0).then_some(("tree", tree.cast_signed())),
        file: None,
    }
}

/// The error that something about an address is wrong.
pub(super) fn wrong(what: &'static str, at: Logical, got: u64) -> Corrupt {
    Corrupt {
        what,
        at: at.0,
        got,
    }
}
