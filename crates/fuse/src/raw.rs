//! Requests as the kernel sends them (`linux/fuse.h`, protocol 7.40). Numbers are in the byte order
//! of the machine.

/// `FUSE_KERNEL_VERSION`.
pub(crate) const MAJOR: u32 = 7;
/// The newest minor version whose records are known here.
pub(crate) const MINOR: u32 = 40;
/// The minor version from which on the records have the sizes used here (Linux 4.20).
pub(crate) const MINOR_MIN: u32 = 28;

/// `FUSE_ROOT_ID`.
pub(crate) const ROOT: u64 = 1;

/// Bytes of the longest request: the kernel wants room for 8 KiB (`FUSE_MIN_READ_BUFFER`) and for
/// as many bytes to write as were negotiated, which are [`WRITE_BYTES_MAX`].
pub(crate) const REQUEST_BYTES_MAX: usize = 64 << 10;

/// Nothing is written; the kernel accepts no less than a page.
pub(crate) const WRITE_BYTES_MAX: u32 = 4096;

/// Longest name of a file (`NAME_MAX`).
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// Numbers of requests (`enum fuse_opcode`).
pub(crate) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
    pub(crate) const TMPFILE: u32 = 51;
    pub(crate) const STATX: u32 = 52;
}

/// `FUSE_NOTIFY_STORE`, which puts content into the page cache.
pub(crate) const NOTIFY_STORE: i32 = 4;

/// Abilities that kernel and server agree on (`FUSE_INIT` flags).
pub(crate) mod ability {
    pub(crate) const ASYNC_READ: u64 = 1;
    pub(crate) const EXPORT_SUPPORT: u64 = 1 << 4;
    pub(crate) const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub(crate) const DO_READDIRPLUS: u64 = 1 << 13;
    pub(crate) const ASYNC_DIO: u64 = 1 << 15;
    pub(crate) const NO_OPEN_SUPPORT: u64 = 1 << 17;
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(crate) const POSIX_ACL: u64 = 1 << 20;
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    pub(crate) const CACHE_SYMLINKS: u64 = 1 << 23;
    pub(crate) const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    pub(crate) const INIT_EXT: u64 = 1 << 30;
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) opcode: u32,
    /// The number that its reply has, too.
    pub(crate) unique: u64,
    /// The file that it is about.
    pub(crate) node: u64,
    /// The user who asks.
    pub(crate) uid: u32,
    /// The body behind the header.
    pub(crate) body: Fields<'a>,
}

impl<'a> Request<'a> {
    /// The request in these bytes; `None` if they are shorter than it says.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Request<'a>> {
        let len = Fields(bytes).u32()?;
        let mut fields = Fields(bytes.get(4..usize::try_from(len).ok()?)?);
        let (opcode, unique, node) = (fields.u32()?, fields.u64()?, fields.u64()?);
        let uid = fields.u32()?;
        // The group, the process, the length of extensions, and padding.
        fields.skip(12)?;
        Some(Request {
            opcode,
            unique,
            node,
            uid,
            body: fields,
        })
    }
}

/// Fields of a record, read from the front.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn u32(&mut self) -> Option<u32> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_ne_bytes(*field))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_ne_bytes(*field))
    }

    pub(crate) fn skip(&mut self, bytes: usize) -> Option<()> {
        self.0 = self.0.get(bytes..)?;
        Some(())
    }

    /// A name, which ends with NUL.
    pub(crate) fn name(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|&byte| byte == 0)?;
        let (name, rest) = self.0.split_at_checked(end)?;
        self.0 = rest.get(1..)?;
        Some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(len: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = len.to_ne_bytes().to_vec();
        bytes.extend(opcode::LOOKUP.to_ne_bytes());
        bytes.extend(7u64.to_ne_bytes());
        bytes.extend(1u64.to_ne_bytes());
        bytes.extend([1000u32, 100, 42, 0].map(u32::to_ne_bytes).concat());
        bytes.extend(body);
        bytes
    }

    #[test]
    fn requests_are_parsed_or_refused() {
        let bytes = request(43, b"ab\0");
        let mut parsed = Request::parse(&bytes).unwrap();
        let Request {
            opcode,
            unique,
            node,
            uid,
            ..
        } = parsed;
        assert_eq!((opcode, unique, node, uid), (opcode::LOOKUP, 7, 1, 1000));
        assert_eq!(parsed.body.name(), Some(&b"ab"[..]));
        for len in 0..43 {
            assert!(Request::parse(&bytes[..len]).is_none(), "{len}");
        }
        assert!(Request::parse(&request(39, b"")).is_none());
        assert_eq!(Fields(b"ab").name(), None);
        assert_eq!(Fields(b"abc").u32(), None);
    }
}
