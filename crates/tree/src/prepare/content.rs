//! The content of files on its way into a container.

use std::sync::{Mutex, PoisonError};

use crate::{Error, Extent, FileId, FileSystem, Inventory, Result};

/// Where the workers of a container read the content of files. One policy for all containers: a file that cannot be read
/// ends the work with an error that names it, or is left out.
pub struct ContentReader<'a> {
    fs: &'a dyn FileSystem,
    inventory: &'a Inventory,
    skip_unreadable: bool,
    /// Buffers that wait to be used again.
    free: Mutex<Vec<Vec<u8>>>,
    buffer_bytes: usize,
}

impl<'a> ContentReader<'a> {
    /// The content of the files in `inventory`, which is of `fs`, for results of at most `buffer_bytes` bytes each. With
    /// `skip_unreadable` files that cannot be read are left out.
    pub fn new(
        fs: &'a dyn FileSystem,
        inventory: &'a Inventory,
        buffer_bytes: usize,
        skip_unreadable: bool,
    ) -> Self {
        ContentReader {
            fs,
            inventory,
            skip_unreadable,
            free: Mutex::default(),
            buffer_bytes,
        }
    }

    /// A buffer of the full size, with any content: from a worker with a result to the writer, which gives it back.
    pub fn buffer(&self) -> Vec<u8> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let recycled = free.pop();
        drop(free);
        recycled.unwrap_or_else(|| vec![0; self.buffer_bytes])
    }

    /// Gives a buffer of the full size back.
    pub fn recycle(&self, buffer: Vec<u8>) {
        debug_assert_eq!(buffer.len(), self.buffer_bytes);
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.push(buffer);
    }

    /// The tree.
    pub fn fs(&self) -> &'a dyn FileSystem {
        self.fs
    }

    /// Its inventory.
    pub fn inventory(&self) -> &'a Inventory {
        self.inventory
    }

    /// Fills `buf` with what a file holds from `offset` on.
    ///
    /// # Errors
    /// As for [`FileSystem::read_at`]; [`Error::Changed`] when there are fewer bytes.
    pub fn read(&self, file: FileId, offset: u64, buf: &mut [u8]) -> Result<()> {
        let ino = self.inventory.ino(file);
        if self.fs.read_at(ino, offset, buf)? < buf.len() {
            return Err(Error::Changed);
        }
        Ok(())
    }

    /// Puts the stored bytes of an encoded extent into a buffer, and returns how many they are. What lies behind them is
    /// zero.
    ///
    /// # Errors
    /// As for [`FileSystem::read_encoded`]; [`Error::Changed`] when they are more than the buffer holds.
    pub fn read_encoded(
        &self,
        file: FileId,
        extent: &Extent,
        buffer: &mut Vec<u8>,
    ) -> Result<usize> {
        let bytes = buffer.len();
        let read = self
            .fs
            .read_encoded(self.inventory.ino(file), extent, buffer);
        let len = buffer.len();
        buffer.resize(bytes, 0);
        read?;
        if len > bytes {
            return Err(Error::Changed);
        }
        buffer[len..].fill(0);
        Ok(len)
    }

    /// Separates what ends the work from what costs only this file: the inner error is the reason to leave it out.
    ///
    /// # Errors
    /// The error, with the file's path, unless files that cannot be read are left out.
    pub fn forgive<T>(&self, file: FileId, result: Result<T>) -> Result<Result<T>> {
        match result {
            Err(error) if !self.skip_unreadable => Err(self.in_file(file, error)),
            result => Ok(result),
        }
    }

    /// An error of reading that file, with its path.
    pub fn in_file(&self, file: FileId, error: Error) -> Error {
        let path = self.inventory.path(self.inventory.first_name(file));
        error.in_file("read", &path)
    }
}
