//! Attributes of files, as the protocol has them.

use tree::{Device, FileKind, Metadata, Time};

use crate::reply::Reply;

/// The size of a block of `st_blocks`.
const SECTOR_BYTES: u64 = 512;
/// The advised size of a read (`st_blksize`).
const BLOCK_BYTES: u32 = 4096;
/// Offsets of files are signed in Linux.
const SIZE_MAX: u64 = u64::MAX >> 1;

/// `STATX_BASIC_STATS`, `STATX_BTIME`.
const STATX_BASIC: u32 = 0x7ff;
const STATX_BTIME: u32 = 0x800;
/// The size of `struct fuse_attr`.
pub(crate) const ATTRIBUTE_BYTES: usize = 88;

/// The owner and permissions that the mount shows instead of the tree's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// All files belong to this user.
    pub uid: Option<u32>,
    /// All files belong to this group.
    pub gid: Option<u32>,
    /// Permissions that no file has.
    pub umask: u16,
}

/// The attributes of a file.
#[derive(Debug)]
pub(crate) struct Attributes {
    pub(crate) metadata: Metadata,
    /// `st_ino`.
    pub(crate) number: u64,
    /// Bytes of the content that are not holes.
    pub(crate) stored_bytes: u64,
}

impl Attributes {
    /// The same with the user's wishes.
    pub(crate) fn owned(mut self, owner: Owner) -> Attributes {
        let metadata = &mut self.metadata;
        metadata.uid = owner.uid.unwrap_or(metadata.uid);
        metadata.gid = owner.gid.unwrap_or(metadata.gid);
        metadata.permissions &= !owner.umask;
        self
    }

    fn mode(&self) -> u32 {
        self.metadata.kind.mode_bits() | u32::from(self.metadata.permissions)
    }

    fn size(&self) -> u64 {
        self.metadata.size.min(SIZE_MAX)
    }

    fn blocks(&self) -> u64 {
        self.stored_bytes.min(SIZE_MAX).div_ceil(SECTOR_BYTES)
    }

    /// Access, modification and change. A time that the container does not store is that of the
    /// last modification.
    fn times(&self) -> [Time; 3] {
        let mtime = self.metadata.mtime;
        [
            self.metadata.atime.unwrap_or(mtime),
            mtime,
            self.metadata.ctime.unwrap_or(mtime),
        ]
    }

    /// Appends a `struct fuse_attr`.
    pub(crate) fn emit(&self, reply: &mut Reply) {
        reply.u64(self.number);
        reply.u64(self.size());
        reply.u64(self.blocks());
        for time in self.times() {
            reply.u64(time.seconds.cast_unsigned());
        }
        for time in self.times() {
            reply.u32(time.nanoseconds);
        }
        reply.u32(self.mode());
        reply.u32(self.metadata.nlink);
        reply.u32(self.metadata.uid);
        reply.u32(self.metadata.gid);
        reply.u32(device_number(&self.metadata));
        reply.u32(BLOCK_BYTES);
        reply.u32(0);
    }

    /// Appends a `struct fuse_statx`.
    pub(crate) fn emit_statx(&self, reply: &mut Reply) {
        let btime = self.metadata.btime;
        reply.u32(STATX_BASIC | btime.map_or(0, |_| STATX_BTIME));
        reply.u32(BLOCK_BYTES);
        reply.u64(0);
        reply.u32(self.metadata.nlink);
        reply.u32(self.metadata.uid);
        reply.u32(self.metadata.gid);
        reply.u16(u16::try_from(self.mode()).unwrap_or(0)); // has 16 bits
        reply.u16(0);
        reply.u64(self.number);
        reply.u64(self.size());
        reply.u64(self.blocks());
        reply.u64(0);
        let [atime, mtime, ctime] = self.times();
        for time in [atime, btime.unwrap_or_default(), ctime, mtime] {
            reply.u64(time.seconds.cast_unsigned());
            reply.u32(time.nanoseconds);
            reply.u32(0);
        }
        let Device { major, minor } = self.metadata.rdev;
        reply.u32(major);
        reply.u32(minor);
        // The device of the file system, which only the kernel knows, and what is reserved.
        reply.u64(0);
        for _ in 0..14 {
            reply.u64(0);
        }
    }
}

/// The 32 bits of `new_encode_dev` in Linux.
fn device_number(metadata: &Metadata) -> u32 {
    let Device { major, minor } = metadata.rdev;
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

/// The type of a directory entry (`DT_*`).
pub(crate) fn entry_type(kind: FileKind) -> u32 {
    kind.mode_bits() >> 12
}

#[cfg(test)]
mod tests {
    use super::*;

    fn emitted(attributes: &Attributes, emit: fn(&Attributes, &mut Reply)) -> Vec<u8> {
        let mut reply = Reply::new();
        emit(attributes, &mut reply);
        reply.finish(0, None)[16..].to_vec()
    }

    #[test]
    fn records_have_the_layout_of_linux() {
        let metadata = Metadata {
            uid: 7,
            rdev: Device {
                major: 0x123,
                minor: 0x45678,
            },
            mtime: Time {
                seconds: -1,
                nanoseconds: 5,
            },
            btime: Some(Time {
                seconds: 3,
                nanoseconds: 4,
            }),
            size: u64::MAX,
            ..Metadata::new(FileKind::BlockDevice, 0o4755)
        };
        let attributes = Attributes {
            metadata,
            number: 42,
            stored_bytes: 513,
        };
        let owner = Owner {
            gid: Some(8),
            umask: 0o022,
            ..Owner::default()
        };
        let attributes = attributes.owned(owner);
        let bytes = emitted(&attributes, Attributes::emit);
        assert_eq!(bytes.len(), ATTRIBUTE_BYTES);
        let u64_at =
            |bytes: &[u8], at: usize| u64::from_ne_bytes(bytes[at..][..8].try_into().unwrap());
        let u32_at =
            |bytes: &[u8], at: usize| u32::from_ne_bytes(bytes[at..][..4].try_into().unwrap());
        assert_eq!(
            [0, 8, 16].map(|at| u64_at(&bytes, at)),
            [42, i64::MAX as u64, 2]
        );
        assert_eq!([24, 32, 40].map(|at| u64_at(&bytes, at) as i64), [-1; 3]);
        assert_eq!([48, 52, 56].map(|at| u32_at(&bytes, at)), [5; 3]);
        // mode, nlink, uid, gid, rdev, blksize, flags
        let rest = [60, 64, 68, 72, 76, 80, 84].map(|at| u32_at(&bytes, at));
        assert_eq!(rest, [0o64755 & !0o022, 1, 7, 8, 0x4561_2378, 4096, 0]);
        let bytes = emitted(&attributes, Attributes::emit_statx);
        assert_eq!(bytes.len(), 256);
        assert_eq!(u32_at(&bytes, 0), 0xfff);
        assert_eq!(u32_at(&bytes, 28), 0o64755 & !0o022);
        assert_eq!((u64_at(&bytes, 32), u64_at(&bytes, 48)), (42, 2));
        // atime, btime, ctime, mtime
        let seconds = [64, 80, 96, 112].map(|at| u64_at(&bytes, at) as i64);
        assert_eq!(seconds, [-1, 3, -1, -1]);
        assert_eq!((u32_at(&bytes, 128), u32_at(&bytes, 132)), (0x123, 0x45678));
    }
}
