//! Comparison of two sources.

use tree::diff::{Difference, READ_FIRST, READ_SECOND, diff};
use tree::{Aspects, Error, Parallel, Progress};

use crate::{Result, SourceTree};

impl SourceTree {
    /// Compares with another source, and calls `each` with each difference.
    ///
    /// # Errors
    /// A tree cannot be read, or an error of `each`, which ends the comparison.
    pub fn compare(
        &self,
        other: &SourceTree,
        (aspects, parallel): (Aspects, Parallel),
        progress: &dyn Progress,
        each: &mut dyn FnMut(&Difference) -> tree::Result<()>,
    ) -> Result<()> {
        let result = diff(
            &**self.tree(),
            &**other.tree(),
            &aspects,
            parallel,
            progress,
            &mut |difference| each(&difference),
        );
        match result {
            Err(Error::File {
                verb: READ_FIRST,
                path,
                error,
            }) => Err(self.name_error(error.in_file("read", &path))),
            Err(Error::File {
                verb: READ_SECOND,
                path,
                error,
            }) => Err(other.name_error(error.in_file("read", &path))),
            other => Ok(other?),
        }
    }
}
