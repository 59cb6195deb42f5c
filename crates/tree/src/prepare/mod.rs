//! What every container needs of a tree before and while it is written: which files are equal, what else is known of
//! them, their content, and which of them are left out.

mod content;
mod describe;
mod duplicates;
mod lost;

pub use content::ContentReader;
pub use describe::{Describe, Description};
pub use duplicates::Duplicates;
pub use lost::Lost;
