//! The state of a check: what it has learned so far, and where it sends findings.

use std::collections::HashSet;

use tree::{CheckOptions, Corrupt, Error, Finding, Findings, Parallel, Progress, Result};

use super::decode::Encoded;
use super::extents::{Extents, References};
use crate::key::Logical;
use crate::read::Btrfs;

/// Summary of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckSummary {
    /// Number of findings, including those not reported.
    pub findings: u64,
    /// Number of tree blocks.
    pub tree_blocks: u64,
    /// Number of data extents.
    pub extents: u64,
    /// Number of inodes, counted once for each subvolume that contains them.
    pub inodes: u64,
    /// Bytes of data compared with their checksums.
    pub data_bytes: u64,
    /// Bytes of content that encoded extents decoded to, each counted once.
    pub decoded_bytes: u64,
}

/// A check in progress.
pub(super) struct Check<'b> {
    pub(super) btrfs: &'b Btrfs,
    pub(super) options: CheckOptions,
    pub(super) parallel: Parallel,
    pub(super) progress: &'b dyn Progress,
    pub(super) findings: Findings<'b>,
    pub(super) summary: CheckSummary,
    pub(super) references: References,
    pub(super) extents: Extents,
    /// The encoded extents that files refer to.
    pub(super) encoded: HashSet<Encoded>,
}

impl Check<'_> {
    /// Records a finding in a tree; tree 0 stands for no tree.
    pub(super) fn found(&mut self, tree: u64, error: Error) -> Result<()> {
        self.findings.add(finding(tree, error))
    }

    pub(super) fn corrupt(&mut self, tree: u64, what: Corrupt) -> Result<()> {
        self.found(tree, Error::Corrupt(what))
    }

    /// Records a finding and continues.
    pub(super) fn tolerate(&mut self, tree: u64, result: Result<()>) -> Result<()> {
        match result {
            Ok(()) => Ok(()),
            Err(error) => self.found(tree, error),
        }
    }
}

/// A finding in a tree; tree 0 stands for no tree.
pub(super) fn finding(tree: u64, error: Error) -> Finding {
    Finding {
        error,
        part: (tree != 0).then_some(("tree", tree.cast_signed())),
        file: None,
    }
}

/// The error for something wrong at an address.
pub(super) fn wrong(what: &'static str, at: Logical, got: u64) -> Corrupt {
    Corrupt {
        what,
        at: at.0,
        got,
    }
}
