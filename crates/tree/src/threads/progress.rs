//! Progress of a long operation. The command line shows it; other callers can ignore it.

/// Receives the progress of an operation, often and from any of its threads: implementations return
/// at once and do not fail.
pub trait Progress: Send + Sync {
    /// Reports the expected total, if known beforehand: files of any type, and bytes of content.
    fn expect(&self, files: Option<u64>, bytes: Option<u64>);

    /// Reports the work done since the last call.
    fn advance(&self, files: u64, bytes: u64);

    /// Reports the bytes of the result written since the last call, for operations that compress
    /// content.
    fn wrote(&self, bytes: u64) {
        let _ = bytes;
    }
}

/// Discards all progress reports.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn expect(&self, _files: Option<u64>, _bytes: Option<u64>) {}

    fn advance(&self, _files: u64, _bytes: u64) {}
}
