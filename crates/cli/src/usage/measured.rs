//! What was measured.

use std::sync::Arc;

use restow::{ContainerImage, Overhead, SubvolumeUsage};
use tree::tar::LayerUsage;
use tree::usage::{Amount, Totals, Types, UsageTree};

/// A measurement.
pub(super) struct Measured {
    /// The source and the path, for people.
    pub(super) name: String,
    pub(super) totals: Totals,
    pub(super) nodes: UsageTree,
    /// The largest files below the measured directory, and the number of others.
    pub(super) files: (Vec<(Vec<u8>, Amount)>, u64),
    pub(super) types: Types,
    pub(super) overhead: Option<Overhead>,
    pub(super) subvolumes: Option<SubvolumeUsage>,
    /// The layers with their content, if all of a container image was measured.
    pub(super) layers: Option<(Arc<ContainerImage>, Vec<LayerUsage>)>,
}
