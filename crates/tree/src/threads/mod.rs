//! Work on several threads whose results come in order, and how its progress is reported.

mod ordered;
mod progress;

pub use ordered::{Parallel, ordered};
pub use progress::{NoProgress, Progress};
