//! What every container needs to know about a tree before and while it is written: identical files,
//! extended attributes and link targets, content, what an older image has of it, and which files
//! are left out.

mod content;
mod describe;
mod duplicates;
mod lost;
mod reuse;

pub use content::ContentReader;
pub use describe::{Describe, Description};
pub use duplicates::Duplicates;
pub use lost::Lost;
pub use reuse::{OldExtents, OldImage, Reuse};
