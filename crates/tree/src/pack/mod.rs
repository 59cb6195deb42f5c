//! What makes a container out of a tree: the ordered parallel map, the output that appears whole or not at all, and
//! progress.

mod dedup;
mod ordered;
mod output;
mod progress;
pub mod temporary;

pub use dedup::Duplicates;
pub use ordered::{Parallel, ordered};
pub use output::{Output, OutputKind};
pub use progress::{NoProgress, Progress};
pub(crate) use temporary::Temporary;
