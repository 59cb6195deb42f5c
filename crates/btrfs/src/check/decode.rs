//! Decodes every encoded extent, each once: data whose checksum matches can still be invalid to its
//! codec.

use tree::{Error, Result, ordered, to_usize};

use super::data;
use super::extents::Encoded;
use super::state::{BtrfsChecker, finding};
use crate::disk::compression::Compression;
use crate::disk::csum_tree;
use crate::disk::volume::ReadBuffers;
use crate::read::Btrfs;

/// Stored bytes that one job decodes.
const JOB_BYTES: u64 = 512 << 10;

/// The result of decoding an extent.
enum DecodeOutcome {
    Whole,
    /// The stored bytes cannot be read, or do not match their checksums: that is another finding.
    Unread,
    Wrong(Error),
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

    /// Decodes all extents that files refer to.
    pub(super) fn decode(&mut self) -> Result<()> {
        let mut all: Vec<Encoded> = std::mem::take(&mut self.encoded).into_iter().collect();
        all.sort_unstable();
        let mut jobs = Vec::new();
        let (mut from, mut bytes) = (0, 0);
        for (index, extent) in all.iter().enumerate() {
            if bytes + extent.len > JOB_BYTES && from < index {
                jobs.push(&all[from..index]);
                (from, bytes) = (index, 0);
            }
            bytes += extent.len;
        }
        jobs.push(&all[from..]);
        let (btrfs, extents, progress) = (self.btrfs, &self.extents, self.progress);
        let (findings, summary) = (&mut self.findings, &mut self.summary);
        ordered(
            self.parallel,
            jobs.into_iter(),
            Vec::new,
            |content, job| {
                let decode =
                    |extent: &Encoded| decode(btrfs, extent, content).map(|is| (*extent, is));
                job.iter().map(decode).collect::<Result<Vec<_>>>()
            },
            |decoded| {
                for (extent, decoded) in decoded {
                    progress.advance(0, extent.len);
                    match decoded {
                        DecodeOutcome::Whole => summary.decoded_bytes += extent.ram_bytes,
                        DecodeOutcome::Unread => {}
                        DecodeOutcome::Wrong(error) => {
                            let mut finding = finding(0, error);
                            if findings.reports_next() {
                                finding.file = data::path(btrfs, extents, extent.at.0);
                            }
                            findings.add(finding)?;
                        }
                    }
                }
                Ok(())
            },
        )
    }
}

fn decode(btrfs: &Btrfs, extent: &Encoded, content: &mut Vec<u8>) -> Result<DecodeOutcome> {
    let volume = &btrfs.volume;
    let checksums = match &btrfs.checksums {
        Some(tree) if extent.has_checksums => Some(tree),
        None if extent.has_checksums => return Ok(DecodeOutcome::Unread),
        _ => None,
    };
    content.resize(to_usize(extent.ram_bytes), 0);
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
            let sectorsize = volume.superblock.sectorsize;
            let (compression, at) = (extent.compression, extent.at.0);
            Ok(
                match compression.decode(decoder, sectorsize, stored, content, at) {
                    Ok(()) => DecodeOutcome::Whole,
                    Err(error) => DecodeOutcome::Wrong(error),
                },
            )
        },
    )
}
