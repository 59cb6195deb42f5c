//! What containers are made and read with: the ordered parallel map, the output that appears whole or not at all, a
//! cache, and progress.

mod cache;
mod dedup;
mod describe;
mod ordered;
mod output;
mod progress;
pub mod temporary;

pub use cache::Cache;
pub use dedup::Duplicates;
pub use describe::{Describe, Description};
pub use ordered::{Parallel, ordered};
pub use output::{Output, OutputKind};
pub use progress::{NoProgress, Progress};
pub(crate) use temporary::Temporary;
