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
        let ours = |error| self.name_error(error);
        result.map_err(|error| of_pair(error, [&ours, &|error| other.name_error(error)]))
    }
}

/// An error of [`diff`], with the file of the first or second tree that it concerns.
pub(crate) fn of_pair(
    error: Error,
    [first, second]: [&dyn Fn(Error) -> crate::Error; 2],
) -> crate::Error {
    match error {
        Error::File { verb, path, error } if verb == READ_FIRST => {
            first(error.in_file("read", &path))
        }
        Error::File { verb, path, error } if verb == READ_SECOND => {
            second(error.in_file("read", &path))
        }
        error => error.into(),
    }
}
