//! Facts about a tree that every container needs before and while it is written: identical files,
//! extended attributes and link targets, content, equal content of an older image, and files that
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
