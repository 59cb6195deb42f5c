//! A reply, put together in a buffer that is used again for the next one.

/// The size of `struct fuse_out_header`.
const HEADER_BYTES: usize = 16;
/// Most bytes that a reply has after its header: the kernel asks for at most 256 pages, as
/// negotiated.
pub(crate) const BODY_BYTES_MAX: usize = 1 << 20;

/// An error number (errno(3)), positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

/// A reply: room for the header, and as much of the body as was put into it.
pub(crate) struct Reply {
    bytes: Box<[u8]>,
    len: usize,
}

impl Reply {
    pub(crate) fn new() -> Reply {
        Reply {
            bytes: vec![0; HEADER_BYTES.saturating_add(BODY_BYTES_MAX)].into_boxed_slice(),
            len: HEADER_BYTES,
        }
    }

    /// Starts again.
    pub(crate) fn clear(&mut self) {
        self.len = HEADER_BYTES;
    }

    /// The number of bytes in the body.
    pub(crate) fn body_len(&self) -> usize {
        self.len.saturating_sub(HEADER_BYTES)
    }

    /// Appends bytes. What does not fit is left out: no reply is longer than what the kernel asked
    /// for, which is checked where the length is not fixed.
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        if let Some(room) = self.bytes.get_mut(self.len..)
            && let Some((room, _)) = room.split_at_mut_checked(bytes.len())
        {
            room.copy_from_slice(bytes);
            self.len = self.len.saturating_add(bytes.len());
        }
    }

    pub(crate) fn u16(&mut self, field: u16) {
        self.put(&field.to_ne_bytes());
    }

    pub(crate) fn u32(&mut self, field: u32) {
        self.put(&field.to_ne_bytes());
    }

    pub(crate) fn u64(&mut self, field: u64) {
        self.put(&field.to_ne_bytes());
    }

    pub(crate) fn zeros(&mut self, count: usize) {
        const ZEROS: [u8; 64] = [0; 64];
        let mut left = count;
        while let Some((zeros, _)) = ZEROS.split_at_checked(left.min(ZEROS.len()))
            && left > 0
        {
            self.put(zeros);
            left = left.saturating_sub(zeros.len());
        }
    }

    /// Room for up to `bytes` bytes of the body, which [`Reply::fill`] then counts.
    pub(crate) fn room(&mut self, bytes: usize) -> &mut [u8] {
        let end = self.len.saturating_add(bytes).min(self.bytes.len());
        self.bytes.get_mut(self.len..end).unwrap_or_default()
    }

    /// Counts bytes that were written to [`Reply::room`].
    pub(crate) fn fill(&mut self, bytes: usize) {
        self.len = self.len.saturating_add(bytes).min(self.bytes.len());
    }

    /// The reply to request `unique`: the body, or an error.
    pub(crate) fn finish(&mut self, unique: u64, error: Option<Errno>) -> &[u8] {
        if error.is_some() {
            self.clear();
        }
        self.headed(
            unique,
            error.map_or(0, |Errno(errno)| errno.saturating_neg()),
        )
    }

    /// The body as a notification, which is unasked.
    pub(crate) fn finish_notification(&mut self, code: i32) -> &[u8] {
        self.headed(0, code)
    }

    fn headed(&mut self, unique: u64, errno: i32) -> &[u8] {
        let len = u32::try_from(self.len).unwrap_or(u32::MAX);
        let mut header = &mut *self.bytes;
        for field in [
            &len.to_ne_bytes()[..],
            &errno.to_ne_bytes(),
            &unique.to_ne_bytes(),
        ] {
            let (room, rest) = std::mem::take(&mut header).split_at_mut(field.len());
            room.copy_from_slice(field);
            header = rest;
        }
        self.bytes.get(..self.len).unwrap_or_default()
    }
}
