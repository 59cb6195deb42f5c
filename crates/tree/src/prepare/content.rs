//! Reads file content for the containers.

use std::sync::{Mutex, PoisonError};

use crate::{Checksum, Error, Extent, FileId, Inventory, Result};

/// Where the workers of all containers read file content. It holds their common policy for a file
/// that cannot be read: fail with an error that names it, or leave it out.
pub struct ContentReader<'a> {
    inventory: &'a Inventory<'a>,
    skip_unreadable: bool,
    /// Buffers to be reused.
    free: Mutex<Vec<Vec<u8>>>,
    buffer_bytes: usize,
}

impl<'a> ContentReader<'a> {
    /// Reads the files of `inventory` into results of at most `buffer_bytes` bytes each.
    /// With `skip_unreadable`, files that cannot be read are left out.
    pub fn new(inventory: &'a Inventory<'a>, buffer_bytes: usize, skip_unreadable: bool) -> Self {
        ContentReader {
            inventory,
            skip_unreadable,
            free: Mutex::default(),
            buffer_bytes,
        }
    }

    /// A buffer of full size with arbitrary content. A worker passes its result to the writer in
    /// it, and the writer returns it with [`ContentReader::recycle`].
    pub fn buffer(&self) -> Vec<u8> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let recycled = free.pop();
        drop(free);
        recycled.unwrap_or_else(|| vec![0; self.buffer_bytes])
    }

    /// Returns a buffer of full size.
    pub fn recycle(&self, buffer: Vec<u8>) {
        debug_assert_eq!(buffer.len(), self.buffer_bytes);
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.push(buffer);
    }

    /// The inventory.
    pub fn inventory(&self) -> &'a Inventory<'a> {
        self.inventory
    }

    /// Fills `buf` with a file's content at `offset`.
    ///
    /// # Errors
    /// As for [`read_at`](crate::FileSystem::read_at); [`Error::Changed`] if there are fewer bytes.
    pub fn read(&self, file: FileId, offset: u64, buf: &mut [u8]) -> Result<()> {
        let ino = self.inventory.ino(file);
        if self.inventory.tree().read_at(ino, offset, buf)? < buf.len() {
            return Err(Error::Changed);
        }
        Ok(())
    }

    /// Reads the stored bytes of an encoded extent into a buffer and returns their number, and the
    /// checksum that they match, if the container has one. The rest of the buffer is zeroed.
    ///
    /// # Errors
    /// As for [`read_encoded`](crate::FileSystem::read_encoded); [`Error::Changed`] if the buffer
    /// is too small for them.
    pub fn read_encoded(
        &self,
        file: FileId,
        extent: &Extent,
        buffer: &mut Vec<u8>,
    ) -> Result<(usize, Option<Checksum>)> {
        let bytes = buffer.len();
        let tree = self.inventory.tree();
        let read = tree.read_encoded(self.inventory.ino(file), extent, buffer);
        let len = buffer.len();
        buffer.resize(bytes, 0);
        let checksum = read?;
        if len > bytes {
            return Err(Error::Changed);
        }
        buffer[len..].fill(0);
        Ok((len, checksum))
    }

    /// Separates errors that end the work from those that affect only this file: the inner error is
    /// why the file is left out.
    ///
    /// # Errors
    /// The error, with the file's path, unless unreadable files are left out.
    pub fn forgive<T>(&self, file: FileId, result: Result<T>) -> Result<Result<T>> {
        match result {
            Err(error) if !self.skip_unreadable => Err(self.in_file(file, error)),
            result => Ok(result),
        }
    }

    /// A read error of this file, with its path.
    pub fn in_file(&self, file: FileId, error: Error) -> Error {
        let path = self.inventory.path(self.inventory.first_name(file));
        error.in_file("read", &path)
    }
}
