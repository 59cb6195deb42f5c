//! How far a long operation is. The command line shows it; everyone else ignores it.

/// Told how far an operation is, from any of its threads, often: implementations return at once and do not fail.
pub trait Progress: Send + Sync {
    /// Says how much there will be, where that is known beforehand: files of any kind, and bytes of content.
    fn expect(&self, files: Option<u64>, bytes: Option<u64>);

    /// Says how much has been done since the last call.
    fn advance(&self, files: u64, bytes: u64);

    /// Says how many bytes of the result were written since the last call, where content becomes smaller.
    fn wrote(&self, bytes: u64) {
        let _ = bytes;
    }
}

/// Progress that nobody looks at.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn expect(&self, _files: Option<u64>, _bytes: Option<u64>) {}

    fn advance(&self, _files: u64, _bytes: u64) {}
}
