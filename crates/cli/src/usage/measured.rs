//! What was measured.

use restow::{Overhead, SubvolumeUsage};
use tree::usage::{Totals, Types, UsageTree};

/// A measurement.
pub(super) struct Measured {
    /// The source and the path, for people.
    pub(super) name: String,
    pub(super) totals: Totals,
    pub(super) nodes: UsageTree,
    pub(super) types: Types,
    pub(super) overhead: Option<Overhead>,
    pub(super) subvolumes: Option<SubvolumeUsage>,
}
