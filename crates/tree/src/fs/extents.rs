//! The extents of one file, in order and checked.

use std::vec;

use super::{Extent, FileSystem, Ino};
use crate::{Error, Result};

/// A cursor over the extents of a regular file.
///
/// The extents have no gaps or overlaps, are never empty, and end with the file. If a file system
/// answers otherwise, because the file became shorter or for another reason, the cursor returns
/// [`Error::Changed`]. Extents are whole: the first can begin before the requested position.
pub struct Extents<'a> {
    fs: &'a dyn FileSystem,
    file: Ino,
    size: u64,
    /// The last extent returned.
    now: Option<Extent>,
    /// The extents after it that are known already.
    held: vec::IntoIter<Extent>,
    /// Whether `held` is an answer from which nothing has been taken yet.
    is_new: bool,
}

impl<'a> Extents<'a> {
    /// The extents of a file of `size` bytes. Nothing is read until the first one is requested.
    pub fn new(fs: &'a dyn FileSystem, file: Ino, size: u64) -> Self {
        Extents {
            fs,
            file,
            size,
            now: None,
            held: Vec::new().into_iter(),
            is_new: false,
        }
    }

    /// Where the last extent returned ends.
    fn end(&self) -> u64 {
        self.now.map_or(0, |now| now.end())
    }

    /// The next extent; `None` at the end of the file.
    ///
    /// # Errors
    /// As for [`FileSystem::extents`]; [`Error::Changed`].
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator goes on after an error"
    )]
    pub fn next(&mut self) -> Result<Option<Extent>> {
        let from = self.end();
        if from >= self.size {
            return Ok(None);
        }
        self.covering(from).map(Some)
    }

    /// The next extent, without advancing; `None` at the end of the file.
    ///
    /// # Errors
    /// As for [`Extents::next`].
    pub fn peek(&mut self) -> Result<Option<Extent>> {
        let from = self.end();
        if from >= self.size {
            return Ok(None);
        }
        if self.held.as_slice().is_empty() {
            self.ask(from)?;
        }
        let next = *self.held.as_slice().first().ok_or(Error::Changed)?;
        self.check(&next, from)?;
        Ok(Some(next))
    }

    /// The extent that covers `position`, which must be before the end of the file and not before
    /// the last extent returned.
    ///
    /// # Errors
    /// As for [`Extents::next`].
    pub fn covering(&mut self, position: u64) -> Result<Extent> {
        let mut from = self.end();
        if let Some(now) = self.now.filter(|_| position < from) {
            return Ok(now);
        }
        loop {
            if self.held.as_slice().is_empty() {
                from = position;
                self.ask(position)?;
            }
            let extent = self.held.next().ok_or(Error::Changed)?;
            self.check(&extent, from)?;
            self.is_new = false;
            from = extent.end();
            if position < from {
                self.now = Some(extent);
                return Ok(extent);
            }
        }
    }

    fn ask(&mut self, from: u64) -> Result<()> {
        self.held = self.fs.extents(self.file, from)?.into_iter();
        self.is_new = true;
        Ok(())
    }

    /// Checks that `extent` covers `from`. Only the first extent of an answer can begin earlier.
    fn check(&self, extent: &Extent, from: u64) -> Result<()> {
        let begins = extent.offset == from || self.is_new && extent.offset < from;
        let end = extent.offset.checked_add(extent.len);
        match end {
            Some(end) if begins && end > from && end <= self.size => Ok(()),
            _ => Err(Error::Changed),
        }
    }
}
