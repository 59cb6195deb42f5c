//! Decodes every encoded extent, each once: data whose checksum matches can still be invalid to its
//! codec.

use std::collections::HashSet;

use codec::Decoder;
use tree::{Error, Result, ordered, to_usize};

use super::extents::Encoded;
use super::state::{BtrfsChecker, finding};
use crate::disk::compression::Compression;
use crate::disk::csum_tree;
use crate::disk::volume::ReadBuffers;
use crate::read::Btrfs;

/// Stored bytes that one job reads and decodes.
const JOB_BYTES: u64 = 512 << 10;

/// The result of decoding an extent.
pub(super) enum DecodeOutcome {
    /// Not decoded yet, or the stored bytes cannot be read, or do not match their checksums: that
    /// is another finding.
    Unread,
    Whole,
    Wrong(Box<Error>),
}

impl BtrfsChecker<'_> {
    /// Remembers an encoded extent of a file.
    pub(super) fn encoded(
        &mut self,
        extent: &crate::disk::extent::DataExtent,
        has_checksums: bool,
    ) {
        if let Some(compression) = extent.compression
            && self.options.data.decodes()
        {
            self.encoded.insert(Encoded {
                at: extent.at,
                len: extent.len,
                ram_bytes: extent.ram_bytes,
                compression,
                has_checksums,
            });
        }
    }

    /// Decodes the only part of a file, which is stored inline.
    pub(super) fn decode_inline(
        &mut self,
        compression: Compression,
        stored: &[u8],
        ram_bytes: u64,
        at: u64,
    ) -> Result<()> {
        if !self.options.data.decodes() {
            return Ok(());
        }
        let volume = &self.btrfs.volume;
        let sectorsize = volume.superblock.sectorsize;
        let mut content = vec![0; (to_usize(ram_bytes)).next_multiple_of(to_usize(sectorsize))];
        volume.with_buffers(|worker| {
            compression.decode(&mut worker.decoder, sectorsize, stored, &mut content, at)
        })?;
        self.summary.decoded_bytes += ram_bytes;
        Ok(())
    }

    /// Decodes the extents that were not decoded when their checksums were compared, and reports
    /// the faults of all, in the order of their addresses.
    pub(super) fn decode(&mut self, decoding: Decoding) -> Result<()> {
        let Decoding { list, mut outcomes } = decoding;
        let mut jobs = vec![Vec::new()];
        let mut bytes = 0;
        for (index, extent) in list.iter().enumerate() {
            if !matches!(outcomes[index], DecodeOutcome::Unread) {
                continue;
            }
            if bytes > 0 && bytes + extent.len > JOB_BYTES {
                jobs.push(Vec::new());
                bytes = 0;
            }
            bytes += extent.len;
            jobs.last_mut().expect("there is one").push(index);
        }
        let (btrfs, extents, progress) = (self.btrfs, &self.extents, self.progress);
        let (findings, summary) = (&mut self.findings, &mut self.summary);
        let mut reported = 0;
        let mut report = |outcomes: &mut [DecodeOutcome], to: usize| {
            for (extent, outcome) in list.iter().zip(outcomes).take(to).skip(reported) {
                match std::mem::replace(outcome, DecodeOutcome::Unread) {
                    DecodeOutcome::Whole => summary.decoded_bytes += extent.ram_bytes,
                    DecodeOutcome::Unread => {}
                    DecodeOutcome::Wrong(error) => {
                        let mut finding = finding(0, *error);
                        if findings.reports_next() {
                            finding.file = extents.path(btrfs, extent.at.0);
                        }
                        findings.add(finding)?;
                    }
                }
            }
            reported = to;
            Ok(())
        };
        ordered(
            self.parallel,
            jobs.into_iter(),
            Vec::new,
            |content, job: Vec<usize>| {
                let decode = |index| Ok((index, decode(btrfs, &list[index], content)?));
                job.into_iter().map(decode).collect::<Result<Vec<_>>>()
            },
            |decoded| {
                for (index, outcome) in decoded {
                    progress.advance(0, list[index].len);
                    outcomes[index] = outcome;
                    report(&mut outcomes, index + 1)?;
                }
                Ok(())
            },
        )?;
        report(&mut outcomes, list.len())
    }
}

/// Extents to decode, and their outcomes.
pub(super) struct Decoding {
    /// In ascending order of address.
    pub(super) list: Vec<Encoded>,
    /// The outcome of each.
    pub(super) outcomes: Vec<DecodeOutcome>,
}

impl Decoding {
    pub(super) fn new(encoded: HashSet<Encoded>) -> Decoding {
        let mut list: Vec<Encoded> = encoded.into_iter().collect();
        list.sort_unstable();
        let outcomes = list.iter().map(|_| DecodeOutcome::Unread).collect();
        Decoding { list, outcomes }
    }
}

/// Reads and decodes an extent.
fn decode(btrfs: &Btrfs, extent: &Encoded, content: &mut Vec<u8>) -> Result<DecodeOutcome> {
    let volume = &btrfs.volume;
    let checksums = match &btrfs.checksums {
        Some(tree) if extent.has_checksums => Some(tree),
        None if extent.has_checksums => return Ok(DecodeOutcome::Unread),
        _ => None,
    };
    volume.with_buffers(
        |ReadBuffers {
             decoder,
             stored,
             checksums: sums,
         }| {
            stored.resize(to_usize(extent.len), 0);
            match csum_tree::read_data(volume, checksums, extent.at, stored, sums) {
                Err(Error::Io(error)) => return Err(Error::Io(error)),
                Err(_) => return Ok(DecodeOutcome::Unread),
                Ok(()) => {}
            }
            Ok(decode_stored(btrfs, extent, stored, decoder, content))
        },
    )
}

/// Decodes the stored bytes of an extent. `content` is memory to reuse.
pub(super) fn decode_stored(
    btrfs: &Btrfs,
    extent: &Encoded,
    stored: &[u8],
    decoder: &mut Decoder,
    content: &mut Vec<u8>,
) -> DecodeOutcome {
    content.resize(to_usize(extent.ram_bytes), 0);
    let sectorsize = btrfs.superblock().sectorsize;
    let (compression, at) = (extent.compression, extent.at.0);
    match compression.decode(decoder, sectorsize, stored, content, at) {
        Ok(()) => DecodeOutcome::Whole,
        Err(error) => DecodeOutcome::Wrong(error.into()),
    }
}
