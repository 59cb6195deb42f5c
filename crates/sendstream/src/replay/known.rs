//! Trees that are there before a stream is replayed.

use std::sync::Arc;

use ::tree::FileSystem;

/// A tree that streams can build on.
pub(crate) struct KnownTree {
    pub(crate) uuid: [u8; 16],
    /// The transaction of its last change where it was sent, unless anything is accepted.
    pub(crate) ctransid: Option<u64>,
    pub(crate) tree: Arc<dyn FileSystem>,
    /// How many trees it is on top of.
    pub(crate) depth: u32,
}

impl KnownTree {
    /// Whether it is as it was when it had this transaction.
    pub(crate) fn is(&self, ctransid: u64) -> bool {
        self.ctransid.is_none_or(|own| own == ctransid)
    }
}
