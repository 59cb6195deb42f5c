//! Reading ahead, where reading takes as long as processing.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

/// Small enough for a cache, and large enough that passing it on costs nothing.
const BLOCK_BYTES: usize = 256 << 10;
const BLOCKS: usize = 4;

/// Reads an input in another thread, up to 1 MiB ahead.
///
/// When it is dropped, the thread ends with its next block: data read ahead is lost.
pub(crate) struct ReadAhead<R> {
    blocks: Receiver<io::Result<Vec<u8>>>,
    spent: SyncSender<Vec<u8>>,
    block: Vec<u8>,
    /// How much of the block was passed on.
    at: usize,
    thread: JoinHandle<R>,
}

impl<R: Read + Send + 'static> ReadAhead<R> {
    pub(crate) fn new(mut input: R) -> Self {
        let (send, blocks) = sync_channel(BLOCKS);
        let (spent, unused) = sync_channel(BLOCKS + 1);
        let thread = thread::spawn(move || {
            loop {
                let mut block: Vec<u8> = unused.try_recv().unwrap_or_default();
                block.resize(BLOCK_BYTES, 0);
                let read = read(&mut input, &mut block);
                let is_over = !matches!(read, Ok(1..));
                let block = read.map(|read| {
                    block.truncate(read);
                    block
                });
                if send.send(block).is_err() || is_over {
                    return input;
                }
            }
        });
        ReadAhead {
            blocks,
            spent,
            block: Vec::new(),
            at: 0,
            thread,
        }
    }

    /// The input, of which all was read. Waits for the thread: before the end of the input, that
    /// can take as long as a pipe is open.
    pub(crate) fn finish(self) -> R {
        drop(self.blocks);
        match self.thread.join() {
            Ok(input) => input,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

/// Reads once, again after signals.
fn read(input: &mut impl Read, block: &mut [u8]) -> io::Result<usize> {
    loop {
        match input.read(block) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

impl<R> Read for ReadAhead<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.block.len() {
            // Without a sender, the end or an error was passed on before.
            let Ok(next) = self.blocks.recv() else {
                return Ok(0);
            };
            let spent = std::mem::replace(&mut self.block, next?);
            self.at = 0;
            // The thread may be over.
            let _ = self.spent.try_send(spent);
        }
        let unread = &self.block[self.at..];
        let len = unread.len().min(buffer.len());
        buffer[..len].copy_from_slice(&unread[..len]);
        self.at += len;
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read};

    use super::{BLOCK_BYTES, ReadAhead};

    /// Gives pieces of changing lengths, and an error at the end.
    struct Pieces(u64, u64);

    impl Read for Pieces {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let left = self.1 - self.0;
            if left == 0 {
                return Err(io::Error::other("the end of the pieces"));
            }
            let len = (self.0 % 70_001 + 1).min(left).min(buffer.len() as u64);
            for (byte, at) in buffer.iter_mut().zip(self.0..self.0 + len) {
                *byte = (at % 251) as u8;
            }
            self.0 += len;
            Ok(len as usize)
        }
    }

    #[test]
    fn bytes_come_in_order_and_before_the_error() {
        let len = 5 * BLOCK_BYTES as u64 + 17;
        let mut ahead = ReadAhead::new(Pieces(0, len));
        let mut read = Vec::new();
        let error = ahead.read_to_end(&mut read).unwrap_err();
        assert_eq!(error.to_string(), "the end of the pieces");
        assert_eq!(read.len() as u64, len);
        assert!(
            (0..)
                .zip(&read)
                .all(|(at, byte)| at % 251 == u64::from(*byte))
        );
        // Nothing comes after an error.
        assert_eq!(ahead.read(&mut [0; 10]).unwrap(), 0);
        assert_eq!(ahead.finish().0, len);
    }

    #[test]
    fn the_end_is_final() {
        let mut ahead = ReadAhead::new(&b"the bytes"[..]);
        let mut read = String::new();
        ahead.read_to_string(&mut read).unwrap();
        assert_eq!(read, "the bytes");
        assert_eq!(ahead.read(&mut [0; 10]).unwrap(), 0);
        assert!(ahead.finish().is_empty());
    }

    #[test]
    fn whoever_stops_early_does_not_wait() {
        drop(ReadAhead::new(io::repeat(7)));
        let mut ahead = ReadAhead::new(io::repeat(7));
        assert_eq!(ahead.read(&mut [0; 10]).unwrap(), 10);
        ahead.finish();
    }
}
