//! What every container needs to know about a tree before and while it is written: identical files, extended
//! attributes and link targets, content, and which files are left out.

mod content;
mod describe;
mod duplicates;
mod lost;

pub use content::ContentReader;
pub use describe::{Describe, Description};
pub use duplicates::Duplicates;
pub use lost::Lost;
