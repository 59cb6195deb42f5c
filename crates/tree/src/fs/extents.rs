//! The extents of one file, one after the other and checked.

use std::vec;

use super::{Extent, FileSystem, Ino};
use crate::{Error, Result};

/// A cursor over the extents of a regular file.
///
/// What it gives is without gaps or overlaps, never empty, and ends with the file: whoever walks it reaches the end. A file
/// system that answers otherwise, because the file became shorter or for another reason, gives [`Error::Changed`].
/// Extents are whole: the first may begin before the position that was asked for.
pub struct Extents<'a> {
    fs: &'a dyn FileSystem,
    file: Ino,
    size: u64,
    /// The extent given last.
    now: Option<Extent>,
    /// What comes behind it, as far as it is known.
    held: vec::IntoIter<Extent>,
    /// Whether `held` is an answer of which nothing was taken yet.
    is_new: bool,
}

impl<'a> Extents<'a> {
    /// The extents of a file of `size` bytes. Nothing is read before the first one is asked for.
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

    /// Where the extent given last ends.
    fn end(&self) -> u64 {
        self.now.map_or(0, |now| now.end())
    }

    /// The extent behind the one that was given last, or the first one; `None` at the file's end.
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

    /// The extent behind the one that was given last, without moving on to it; `None` at the file's end.
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

    /// The extent that covers `position`, which is before the file's end and not before the extent given last.
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

    /// Whether an extent goes on from there. The first of an answer may begin earlier, and all others do not.
    fn check(&self, extent: &Extent, from: u64) -> Result<()> {
        let begins = extent.offset == from || self.is_new && extent.offset < from;
        let end = extent.offset.checked_add(extent.len);
        match end {
            Some(end) if begins && end > from && end <= self.size => Ok(()),
            _ => Err(Error::Changed),
        }
    }
}
