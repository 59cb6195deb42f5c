//! The framing of a stream: its header, the headers of commands, the numbers of commands and
//! attributes (`fs/btrfs/send.h`, `Documentation/dev/dev-send-stream.rst`). All integers are
//! little-endian; nothing is aligned.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use std::fmt;

/// The magic number of a stream. The version follows, 4 bytes.
pub(crate) const MAGIC: &[u8; 13] = b"btrfs-stream\0";
/// The size of a stream's header (`struct btrfs_stream_header`).
pub(crate) const STREAM_HEADER_BYTES: usize = MAGIC.len() + 4;
/// The size of a command's header (`struct btrfs_cmd_header`): length of the payload, command,
/// checksum.
pub(crate) const COMMAND_HEADER_BYTES: usize = 10;

/// The version of a stream, which its header states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// The first one, which Linux writes unless it is asked for another.
    V1 = 1,
    /// Linux 6.0 and later: stored compressed extents, file attributes, holes, birth times, and
    /// data of any length.
    V2 = 2,
    /// fs-verity. Linux writes it only if it was configured for experiments.
    V3 = 3,
}

impl Version {
    /// All versions, in order.
    pub const ALL: [Version; 3] = [Version::V1, Version::V2, Version::V3];

    /// The version with this number, if it is known.
    pub fn parse(number: u32) -> Option<Version> {
        Version::ALL.into_iter().find(|it| it.number() == number)
    }

    /// Its number in a stream's header.
    #[expect(clippy::as_conversions, reason = "the number of a variant")]
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// Whether [`attribute::DATA`] has no length and reaches to the end of its command.
    pub(crate) fn has_long_data(self) -> bool {
        self >= Version::V2
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.number())
    }
}

/// The header of a stream.
pub(crate) fn stream_header(version: Version) -> [u8; STREAM_HEADER_BYTES] {
    let mut header = [0; STREAM_HEADER_BYTES];
    let (magic, number) = header.split_at_mut(MAGIC.len());
    magic.copy_from_slice(MAGIC);
    number.copy_from_slice(&version.number().to_le_bytes());
    header
}

/// The checksum of a command: CRC-32C over its header, with zeros in place of the checksum, and its
/// payload. Unlike the usual CRC-32C, the register starts at 0 and is not inverted at the end.
pub(crate) fn checksum(payload_bytes: u32, command: u16, payload: &[u8]) -> u32 {
    let mut header = [0; COMMAND_HEADER_BYTES];
    header[..4].copy_from_slice(&payload_bytes.to_le_bytes());
    header[4..6].copy_from_slice(&command.to_le_bytes());
    !crc32c::crc32c_append(crc32c::crc32c_append(!0, &header), payload)
}

/// The header of a command with this payload.
pub(crate) fn command_header(
    payload_bytes: u32,
    command: u16,
    payload: &[u8],
) -> [u8; COMMAND_HEADER_BYTES] {
    let mut header = [0; COMMAND_HEADER_BYTES];
    header[..4].copy_from_slice(&payload_bytes.to_le_bytes());
    header[4..6].copy_from_slice(&command.to_le_bytes());
    header[6..].copy_from_slice(&checksum(payload_bytes, command, payload).to_le_bytes());
    header
}

/// The numbers of commands (`enum btrfs_send_cmd`).
pub(crate) mod command {
    pub(crate) const SUBVOL: u16 = 1;
    pub(crate) const SNAPSHOT: u16 = 2;
    pub(crate) const MKFILE: u16 = 3;
    pub(crate) const MKDIR: u16 = 4;
    pub(crate) const MKNOD: u16 = 5;
    pub(crate) const MKFIFO: u16 = 6;
    pub(crate) const MKSOCK: u16 = 7;
    pub(crate) const SYMLINK: u16 = 8;
    pub(crate) const RENAME: u16 = 9;
    pub(crate) const LINK: u16 = 10;
    pub(crate) const UNLINK: u16 = 11;
    pub(crate) const RMDIR: u16 = 12;
    pub(crate) const SET_XATTR: u16 = 13;
    pub(crate) const REMOVE_XATTR: u16 = 14;
    pub(crate) const WRITE: u16 = 15;
    pub(crate) const CLONE: u16 = 16;
    pub(crate) const TRUNCATE: u16 = 17;
    pub(crate) const CHMOD: u16 = 18;
    pub(crate) const CHOWN: u16 = 19;
    pub(crate) const UTIMES: u16 = 20;
    pub(crate) const END: u16 = 21;
    pub(crate) const UPDATE_EXTENT: u16 = 22;
    pub(crate) const FALLOCATE: u16 = 23;
    pub(crate) const FILEATTR: u16 = 24;
    pub(crate) const ENCODED_WRITE: u16 = 25;
    pub(crate) const ENABLE_VERITY: u16 = 26;
}

/// The numbers of attributes (`BTRFS_SEND_A_*`).
pub(crate) mod attribute {
    pub(crate) const UUID: u16 = 1;
    pub(crate) const CTRANSID: u16 = 2;
    pub(crate) const INO: u16 = 3;
    pub(crate) const SIZE: u16 = 4;
    pub(crate) const MODE: u16 = 5;
    pub(crate) const UID: u16 = 6;
    pub(crate) const GID: u16 = 7;
    pub(crate) const RDEV: u16 = 8;
    pub(crate) const CTIME: u16 = 9;
    pub(crate) const MTIME: u16 = 10;
    pub(crate) const ATIME: u16 = 11;
    pub(crate) const OTIME: u16 = 12;
    pub(crate) const XATTR_NAME: u16 = 13;
    pub(crate) const XATTR_DATA: u16 = 14;
    pub(crate) const PATH: u16 = 15;
    pub(crate) const PATH_TO: u16 = 16;
    pub(crate) const PATH_LINK: u16 = 17;
    pub(crate) const FILE_OFFSET: u16 = 18;
    pub(crate) const DATA: u16 = 19;
    pub(crate) const CLONE_UUID: u16 = 20;
    pub(crate) const CLONE_CTRANSID: u16 = 21;
    pub(crate) const CLONE_PATH: u16 = 22;
    pub(crate) const CLONE_OFFSET: u16 = 23;
    pub(crate) const CLONE_LEN: u16 = 24;
    pub(crate) const FALLOCATE_MODE: u16 = 25;
    pub(crate) const FILEATTR: u16 = 26;
    pub(crate) const UNENCODED_FILE_LEN: u16 = 27;
    pub(crate) const UNENCODED_LEN: u16 = 28;
    pub(crate) const UNENCODED_OFFSET: u16 = 29;
    pub(crate) const COMPRESSION: u16 = 30;
    pub(crate) const ENCRYPTION: u16 = 31;
    pub(crate) const VERITY_ALGORITHM: u16 = 32;
    pub(crate) const VERITY_BLOCK_SIZE: u16 = 33;
    pub(crate) const VERITY_SALT_DATA: u16 = 34;
    pub(crate) const VERITY_SIG_DATA: u16 = 35;
    /// One more than the greatest number.
    pub(crate) const COUNT: usize = 36;
}
