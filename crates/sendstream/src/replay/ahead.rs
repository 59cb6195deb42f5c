//! Reading ahead in a stream: small files follow each other.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use ::tree::ReadAt;

/// The data to read ahead.
const WINDOW_BYTES: u64 = 64 << 10;
/// Longer parts are read as they are.
const SMALL_BYTES_MAX: usize = 4 << 10;
/// Behind a part, the next one begins within this many bytes: commands with names, owners and times
/// are between them.
const GAP_BYTES_MAX: u64 = 4 << 10;
/// Several threads read, each at its place.
const WINDOWS: usize = 4;

/// An input of which small parts are read ahead if they follow each other.
pub(super) struct Ahead {
    input: Arc<dyn ReadAt>,
    windows: Mutex<Windows>,
}

#[derive(Default)]
struct Windows {
    all: [Window; WINDOWS],
    /// The one to give up next.
    turn: usize,
}

#[derive(Default)]
struct Window {
    /// Where its bytes are in the input.
    at: u64,
    bytes: Vec<u8>,
    /// The end of the part that was read last; 0 if none was.
    next: u64,
}

impl Window {
    fn part(&self, at: u64, len: usize) -> Option<&[u8]> {
        let from = usize::try_from(at.checked_sub(self.at)?).ok()?;
        self.bytes.get(from..from.checked_add(len)?)
    }

    fn is_followed_by(&self, at: u64) -> bool {
        let gap = at.checked_sub(self.next);
        self.next > 0 && gap.is_some_and(|gap| gap <= GAP_BYTES_MAX)
    }
}

impl Ahead {
    pub(super) fn new(input: Arc<dyn ReadAt>) -> Ahead {
        Ahead {
            input,
            windows: Mutex::default(),
        }
    }

    /// Like [`ReadAt::read_exact_at`].
    pub(super) fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        let end = at.saturating_add(buf.len() as u64);
        if buf.len() > SMALL_BYTES_MAX {
            return self.input.read_exact_at(buf, at);
        }
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let windows = &mut *windows;
        for window in &mut windows.all {
            if let Some(part) = window.part(at, buf.len()) {
                buf.copy_from_slice(part);
                window.next = end;
                return Ok(());
            }
        }
        let next = windows.all.iter_mut().find(|it| it.is_followed_by(at));
        let Some(window) = next else {
            let window = &mut windows.all[windows.turn];
            windows.turn = (windows.turn + 1) % WINDOWS;
            window.bytes.clear();
            window.next = end;
            return self.input.read_exact_at(buf, at);
        };
        let left = self.input.size()?.saturating_sub(at);
        if left < buf.len() as u64 {
            return self.input.read_exact_at(buf, at);
        }
        let mut bytes = std::mem::take(&mut window.bytes);
        bytes.resize(WINDOW_BYTES.min(left) as usize, 0);
        self.input.read_exact_at(&mut bytes, at)?;
        (window.at, window.bytes, window.next) = (at, bytes, end);
        buf.copy_from_slice(&window.bytes[..buf.len()]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use testkit::Rng;

    use super::*;

    /// Counts the bytes read from it.
    struct Counted(Vec<u8>, AtomicU64);

    impl ReadAt for Counted {
        fn size(&self) -> io::Result<u64> {
            self.0.size()
        }

        fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.read_exact_at(buf, at)
        }
    }

    #[test]
    fn parts_that_follow_each_other_are_read_at_once() {
        let mut rng = Rng::new(9);
        let bytes = rng.bytes(1 << 20);
        let input = Arc::new(Counted(bytes.clone(), AtomicU64::new(0)));
        let ahead = Ahead::new(Arc::clone(&input) as Arc<dyn ReadAt>);
        let read = |at: usize, len: usize| {
            let mut buf = vec![0; len];
            ahead.read_exact_at(&mut buf, at as u64).unwrap();
            assert_eq!(buf, bytes[at..at + len], "{len} bytes at {at}");
        };
        // Two readers that take turns.
        for at in (0..500_000).step_by(300) {
            read(at, 5);
            read(at + (512 << 10), 5);
        }
        let reads = input.1.swap(0, Ordering::Relaxed);
        assert!(reads < 30, "{reads}");
        // Anywhere, of any length, up to the end.
        for _ in 0..1000 {
            let at = rng.index(bytes.len());
            read(at, rng.index((bytes.len() - at).min(8000)));
        }
        let mut beyond = [0; 10];
        assert!(ahead.read_exact_at(&mut beyond, (1 << 20) - 9).is_err());
        assert!(ahead.read_exact_at(&mut beyond, u64::MAX).is_err());
    }
}
