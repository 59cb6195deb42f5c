//! Facts about a tree that every container needs before and while it is written: identical files,
//! extended attributes and link targets, content, equal content of an older image, files that
//! are left out, and the proof that an image holds them.

mod content;
mod describe;
mod duplicates;
mod lost;
mod probe;
mod reuse;
mod written;

pub use content::ContentReader;
pub use describe::{Describe, Description, XattrSets};
pub use duplicates::Duplicates;
pub use lost::Lost;
pub use probe::Probe;
pub use reuse::{OldExtents, OldImage, Reuse};
pub use written::WrittenTree;
