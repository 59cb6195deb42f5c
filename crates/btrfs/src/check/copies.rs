//! Compares the copies of data that has no checksums: nothing else tells that they differ.

use tree::{DataCheck, Error, Result, to_usize};

use super::state::{BtrfsChecker, finding, wrong};
use crate::disk::address_space::AddressSpace;
use crate::disk::key::Logical;

/// Bytes that are compared at once.
const PART_BYTES: u64 = 1 << 20;

impl BtrfsChecker<'_> {
    /// Compares every copy of the written data of files without checksums with the first that can
    /// be read. Of a striped chunk with parity, the further copies are reconstructions.
    pub(super) fn copies_without_checksums(&mut self) -> Result<()> {
        let ranges = std::mem::take(&mut self.without_checksums).into_joined();
        if self.options.data < DataCheck::Checksums {
            return Ok(());
        }
        for (from, to) in ranges {
            let mut at = from;
            while at < to {
                let chunk = self.btrfs.chunks().find(Logical(at));
                // An address in no chunk was reported with its extent.
                let Some(end) = chunk.map(|chunk| chunk.end().0.min(to)) else {
                    break;
                };
                let len = (end - at).min(PART_BYTES);
                self.compare_copies(at, len)?;
                at += len;
            }
        }
        Ok(())
    }

    /// Compares the copies of bytes in one chunk, and reports the first sector that differs.
    fn compare_copies(&mut self, at: u64, len: u64) -> Result<()> {
        let btrfs = self.btrfs;
        let space = &btrfs.volume.space;
        let sector = to_usize(btrfs.superblock().sectorsize);
        let chunk = space.chunk(Logical(at), len)?;
        let mut first: Option<Vec<u8>> = None;
        for copy in 0..AddressSpace::copies(chunk) {
            let mut bytes = vec![0; to_usize(len)];
            match space.read_copy(chunk, Logical(at), &mut bytes, copy) {
                Ok(()) => {}
                // On a missing device.
                Err(Error::InvalidInput(_)) => continue,
                Err(error) => {
                    self.found(0, error)?;
                    continue;
                }
            }
            let Some(first) = &first else {
                first = Some(bytes);
                continue;
            };
            let mut sectors = first.chunks(sector).zip(bytes.chunks(sector));
            if let Some(index) = sectors.position(|(one, other)| one != other) {
                let place = at + (index * sector) as u64;
                let what = "copies of data without checksums differ";
                let mut finding = finding(0, wrong(what, Logical(place), copy as u64).into());
                finding.file = self.extents.path(btrfs, place);
                self.findings.add(finding)?;
            }
        }
        Ok(())
    }
}
