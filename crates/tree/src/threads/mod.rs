//! Work on several threads with results in order, and progress reports.

mod ordered;
mod progress;

pub use ordered::{Parallel, ordered, ordered_on_demand};
pub use progress::{NoProgress, Progress};
