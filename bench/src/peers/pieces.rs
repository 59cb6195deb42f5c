//! How a stream is divided: as the kernel's file systems and pipes call a codec.

/// Bytes given, and bytes of room, in one call.
pub(super) const PIECE: usize = 4096;
