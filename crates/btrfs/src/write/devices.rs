//! The devices that a new file system is written to.

use std::io;

use tree::{Output, OutputKind, ReadAt, Result};

use crate::disk::chunk::Chunk;
use crate::disk::key::Logical;
use crate::options::Options;
use crate::write::layout::Spread;

/// The devices of a new file system, in the order of their IDs.
#[derive(Debug)]
pub(crate) struct Devices<'a> {
    pub(crate) outputs: &'a [Output],
    /// The size of each that is a block device.
    pub(crate) fixed: Vec<Option<u64>>,
    pub(crate) spread: Spread,
}

impl<'a> Devices<'a> {
    pub(crate) fn new(outputs: &'a [Output], options: &Options) -> Result<Devices<'a>> {
        let fixed = outputs.iter().map(|output| {
            Ok(match output.kind() {
                OutputKind::Device => Some(ReadAt::size(output)?),
                _ => None,
            })
        });
        let fixed: Vec<Option<u64>> = fixed.collect::<Result<_>>()?;
        let sizes = (fixed.iter().enumerate()).map(|(index, &fixed)| {
            let sizes = options.size_of(index).into_iter().chain(fixed);
            sizes.min()
        });
        Ok(Devices {
            outputs,
            spread: Spread::new(&sizes.collect::<Vec<_>>()),
            fixed,
        })
    }

    /// The device with this ID.
    pub(crate) fn output(&self, id: u64) -> &'a Output {
        &self.outputs[id as usize - 1]
    }

    /// Writes bytes at an address in a chunk to every copy.
    pub(crate) fn write_all_at(&self, chunk: &Chunk, bytes: &[u8], at: u64) -> io::Result<()> {
        for copy in 0..chunk.copies() {
            let (mut at, mut left) = (at, bytes);
            while !left.is_empty() {
                let place = chunk.place(Logical(at), left.len() as u64, copy);
                let (part, rest) = left.split_at(place.len as usize);
                self.output(place.device).write_all_at(part, place.at.0)?;
                (at, left) = (at + place.len, rest);
            }
        }
        Ok(())
    }
}
