//! Work on several threads with results in order, and progress reports.

mod ordered;
mod progress;

pub use ordered::{Parallel, ordered};
pub use progress::{NoProgress, Progress};
