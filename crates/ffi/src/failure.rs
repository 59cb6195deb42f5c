//! Why a call fails. Each interface has numbers of its own for it.

/// Why a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Codec(zstd::Error),
    /// A context or a buffer is NULL.
    Null,
    /// The destination is NULL and is said to have room.
    DestinationNull,
    /// The context was not initialised for this.
    InitMissing,
    /// The context lies in a workspace, and is not to be freed.
    NotOwned,
    /// Many calls in a row had no room for output.
    OutputFull,
    /// Many calls in a row had no input.
    InputEmpty,
    /// Something was asked for that is not there.
    Unsupported,
}

impl From<zstd::Error> for Failure {
    fn from(error: zstd::Error) -> Failure {
        Failure::Codec(error)
    }
}

/// The return value for error `number`.
pub(crate) const fn code(number: usize) -> usize {
    0_usize.wrapping_sub(number)
}
