//! Errors in the words of the user: the operation, the file, the reason.

use std::{fmt, io};

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed.
///
/// [`fmt::Display`] writes the outermost words only, as is usual; `{error:#}` writes the causes,
/// too, each after a colon.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A tree, image or stream cannot be read or written.
    Tree(tree::Error),
    /// The operation is impossible, for this reason.
    Refused(String),
    /// An operation, and the error that ended it.
    During {
        /// A verb and its object, as in `open disk.btrfs`.
        operation: String,
        /// The reason.
        error: Box<Error>,
    },
    /// As `During`, of one file of a source that can be read without it.
    UnreadableFile {
        /// A verb and the file, as in `read etc/fstab in disk.btrfs`.
        operation: String,
        /// The reason.
        error: tree::Error,
    },
}

impl Error {
    pub(crate) fn refused(why: impl Into<String>) -> Error {
        Error::Refused(why.into())
    }

    /// Adds the operation that the error ended.
    #[must_use]
    pub fn during(self, operation: impl Into<String>) -> Error {
        Error::During {
            operation: operation.into(),
            error: Box::new(self),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Tree(error) => error.fmt(f)?,
            Error::Refused(why) => f.write_str(why)?,
            Error::During { operation, error } if f.alternate() => {
                write!(f, "{operation}: {error:#}")?;
            }
            Error::UnreadableFile { operation, error } if f.alternate() => {
                write!(f, "{operation}: {error}")?;
            }
            Error::During { operation, .. } | Error::UnreadableFile { operation, .. } => {
                f.write_str(operation)?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // Its words are those of the cause.
            Error::Tree(error) => error.source(),
            Error::Refused(_) => None,
            Error::During { error, .. } => match &**error {
                Error::Tree(error) => Some(error),
                error => Some(error),
            },
            Error::UnreadableFile { error, .. } => Some(error),
        }
    }
}

impl From<tree::Error> for Error {
    fn from(error: tree::Error) -> Error {
        Error::Tree(error)
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::Tree(error.into())
    }
}

/// Adds the operation that an error ended.
pub(crate) trait During<T> {
    fn during(self, operation: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<Error>> During<T> for Result<T, E> {
    fn during(self, operation: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| error.into().during(operation()))
    }
}

/// Returns [`Error::Refused`] with these words.
macro_rules! refuse {
    ($($words:tt)*) => {
        return Err($crate::Error::refused(format!($($words)*)))
    };
}
pub(crate) use refuse;

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn a_chain_says_each_cause_once() {
        let error = Error::from(tree::Error::NotFound)
            .during("find a")
            .during("open b");
        assert_eq!(error.to_string(), "open b");
        assert_eq!(
            format!("{error:#}"),
            "open b: find a: no such file or directory"
        );
        let last = error.source().and_then(|it| it.source()).unwrap();
        assert!(matches!(last.downcast_ref(), Some(tree::Error::NotFound)));
        assert!(last.source().is_none());
    }
}
