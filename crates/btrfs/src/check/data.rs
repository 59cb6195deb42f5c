//! Checks checksums and the data they cover, which worker threads read, compare and decode.

use std::collections::VecDeque;

use codec::Decoder;
use tree::{DataCheck, Error, Result, ordered, to_usize};

use super::decode::{DecodeOutcome, Decoding, decode_stored};
use super::extents::{Encoded, RecordedExtent};
use super::ranges::{end_in, join};
use super::state::{BtrfsChecker, finding, wrong};
use crate::disk::address_space::AddressSpace;
use crate::disk::chunk::Chunk;
use crate::disk::csum_tree;
use crate::disk::key::{Key, Logical, object};
use crate::disk::node::TreeItem;
use crate::disk::tree::{Cursor, Tree};
use crate::read::Btrfs;

/// Bytes of data that one job compares.
const JOB_BYTES: usize = 1 << 20;
/// Bytes of data that are read at once, to be compared and decoded while the processor's cache has
/// them.
const READ_BYTES: u64 = 256 << 10;

/// Identifies the damaged copy.
const COPIES: [&str; 4] = [
    "first copy of data has the wrong checksum",
    "second copy of data has the wrong checksum",
    "third copy of data has the wrong checksum",
    "fourth copy of data has the wrong checksum",
];

/// Data in one chunk, and its checksums.
struct ChecksummedRange<'b> {
    chunk: &'b Chunk,
    at: Logical,
    len: usize,
    sums: Vec<u8>,
    /// No earlier range has these addresses.
    is_new: bool,
}

/// An item of work, in the order of addresses.
enum ChecksumJob<'b> {
    /// Data to compare.
    Compare(Vec<ChecksummedRange<'b>>),
    /// A finding about the checksums themselves.
    Report(Error),
}

/// The result of a job.
#[derive(Default)]
struct Compared {
    bytes: u64,
    damages: Vec<DataDamage>,
    /// Encoded extents, by number.
    decoded: Vec<(usize, DecodeOutcome)>,
}

/// A finding about data.
struct DataDamage {
    tree: u64,
    error: Error,
    /// The address of the data, if a file that contains it should be named.
    at: Option<u64>,
}

impl DataDamage {
    fn of_checksums(error: Error) -> DataDamage {
        DataDamage {
            tree: object::CSUM_TREE,
            error,
            at: None,
        }
    }
}

impl BtrfsChecker<'_> {
    /// Checks that checksums belong to data extents and, if data is checked, that every copy of the
    /// data matches them. Extents that are read whole are decoded as well.
    pub(super) fn checksums(&mut self, tree: &Tree, decoding: &mut Decoding) -> Result<()> {
        let (btrfs, extents, progress) = (self.btrfs, &self.extents, self.progress);
        let data = self.options.data >= DataCheck::Checksums;
        let (findings, summary) = (&mut self.findings, &mut self.summary);
        let Decoding { list, outcomes } = decoding;
        let encoded = &**list;
        let jobs = ChecksumJobs {
            btrfs,
            encoded,
            cursor: Some(tree.seek(&btrfs.volume, Key::MIN)?),
            covered: CoveredRanges::new(&extents.list, &self.log.data),
            lost_chunks: &self.lost_chunks,
            data,
            end_before: 0,
            ranges_end: 0,
            queue: JobQueue::default(),
        };
        ordered(
            self.parallel,
            jobs,
            CheckBuffers::default,
            |buffers, job| match job? {
                ChecksumJob::Report(error) => Ok(Compared {
                    damages: vec![DataDamage::of_checksums(error)],
                    ..Compared::default()
                }),
                ChecksumJob::Compare(pieces) => compare(btrfs, encoded, &pieces, buffers),
            },
            |compared| {
                summary.data_bytes += compared.bytes;
                progress.advance(0, compared.bytes);
                for (index, decoded) in compared.decoded {
                    progress.advance(0, encoded[index].len);
                    outcomes[index] = decoded;
                }
                for DataDamage { tree, error, at } in compared.damages {
                    let mut finding = finding(tree, error);
                    if let Some(at) = at
                        && findings.reports_next()
                    {
                        finding.file = extents.path(btrfs, at);
                    }
                    findings.add(finding)?;
                }
                Ok(())
            },
        )
    }
}

/// Memory of a thread.
#[derive(Default)]
struct CheckBuffers {
    stored: Vec<u8>,
    content: Vec<u8>,
    decoder: Decoder,
}

/// Reads every copy of the pieces and compares it with the checksums. A copy on a missing device is
/// left out. Encoded extents are decoded from the first copy of a piece that holds all of them, if
/// it is whole: this is the one that readers use.
fn compare(
    btrfs: &Btrfs,
    encoded: &[Encoded],
    pieces: &[ChecksummedRange<'_>],
    buffers: &mut CheckBuffers,
) -> Result<Compared> {
    let sector = to_usize(btrfs.superblock().sectorsize);
    let mut compared = Compared::default();
    for piece in pieces {
        buffers.stored.resize(piece.len, 0);
        for copy in 0..AddressSpace::copies(piece.chunk) {
            let space = &btrfs.volume.space;
            let buffer = &mut *buffers.stored;
            match space.read_copy(piece.chunk, piece.at, buffer, copy) {
                Ok(()) => {
                    let damages = compared.damages.len();
                    compared.compare(btrfs, piece, 0, buffer, copy);
                    if copy == 0 && piece.is_new && compared.damages.len() == damages {
                        compared.decode(btrfs, encoded, piece, buffers);
                    }
                }
                // A striped chunk has parts on the other devices.
                Err(Error::InvalidInput(_)) => {
                    for (index, part) in buffer.chunks_mut(sector).enumerate() {
                        let at = Logical(piece.at.0 + (index * sector) as u64);
                        match space.read_copy(piece.chunk, at, part, copy) {
                            Ok(()) => compared.compare(btrfs, piece, index, part, copy),
                            Err(Error::InvalidInput(_)) => {}
                            Err(error) => compared.fail(error)?,
                        }
                    }
                }
                Err(error) => compared.fail(error)?,
            }
        }
        compared.bytes += piece.len as u64;
    }
    Ok(compared)
}

impl Compared {
    /// # Errors
    /// [`Error::Io`], which is not a finding.
    fn fail(&mut self, error: Error) -> Result<()> {
        if let Error::Io(error) = error {
            return Err(Error::Io(error));
        }
        self.damages.push(DataDamage::of_checksums(error));
        Ok(())
    }

    /// Decodes the encoded extents that lie in a piece, whose bytes are in `buffers`.
    fn decode(
        &mut self,
        btrfs: &Btrfs,
        encoded: &[Encoded],
        piece: &ChecksummedRange<'_>,
        buffers: &mut CheckBuffers,
    ) {
        let CheckBuffers {
            stored,
            content,
            decoder,
        } = buffers;
        let first = encoded.partition_point(|extent| extent.at < piece.at);
        for (index, extent) in encoded.iter().enumerate().skip(first) {
            let from = to_usize(extent.at.0 - piece.at.0);
            if from >= piece.len {
                break;
            }
            let to = from.saturating_add(to_usize(extent.len));
            if let Some(stored) = stored.get(from..to)
                && extent.has_checksums
            {
                let decoded = decode_stored(btrfs, extent, stored, decoder, content);
                self.decoded.push((index, decoded));
            }
        }
    }

    /// Compares sectors of a piece, starting with sector `first`, with their checksums.
    fn compare(
        &mut self,
        btrfs: &Btrfs,
        piece: &ChecksummedRange<'_>,
        first: usize,
        data: &[u8],
        copy: usize,
    ) {
        let superblock = btrfs.superblock();
        let (sector, checksum) = (to_usize(superblock.sectorsize), superblock.checksum);
        let size = checksum.size();
        let sums = piece.sums.chunks(size).enumerate().skip(first);
        for (data, (index, sum)) in data.chunks(sector).zip(sums) {
            let found = checksum.of(data);
            if found[..size] != *sum {
                let place = piece.at.0 + (index * sector) as u64;
                let what = COPIES[copy.min(COPIES.len() - 1)];
                // As the kernel prints it; only the first eight bytes of a longer one.
                let found = u64::from_le_bytes(*found.first_chunk().unwrap_or(&[0; 8]));
                self.damages.push(DataDamage {
                    tree: 0,
                    error: wrong(what, Logical(place), found).into(),
                    at: Some(place),
                });
            }
        }
    }
}

/// The address ranges of data extents, including those that only the log has: ranges that do not
/// touch, in ascending order. Extents follow each other in any number, and any number of tree
/// blocks lies between them.
struct CoveredRanges(Vec<(u64, u64)>);

impl CoveredRanges {
    fn new(extents: &[RecordedExtent], log: &[(u64, u64)]) -> CoveredRanges {
        let data = extents.iter().filter(|extent| !extent.is_tree_block);
        let data = data.map(|extent| (extent.at, extent.at + extent.len));
        let mut ranges: Vec<(u64, u64)> = data.chain(log.iter().copied()).collect();
        join(&mut ranges);
        CoveredRanges(ranges)
    }

    /// The end of the covered range that contains `at`; `at` itself if it is not.
    fn end(&self, at: u64) -> u64 {
        end_in(&self.0, at).max(at)
    }

    /// Where the next range after `at` begins.
    fn next(&self, at: u64) -> u64 {
        let index = self.0.partition_point(|range| range.0 <= at);
        self.0.get(index).map_or(u64::MAX, |range| range.0)
    }
}

/// Iterates over the checksum tree.
struct ChecksumJobs<'b> {
    btrfs: &'b Btrfs,
    /// The extents to decode, in ascending order of address.
    encoded: &'b [Encoded],
    cursor: Option<Cursor<'b>>,
    covered: CoveredRanges,
    lost_chunks: &'b [u64],
    /// Whether to compare data.
    data: bool,
    /// Where the checksums of the previous item end.
    end_before: u64,
    /// Where the ranges so far end.
    ranges_end: u64,
    queue: JobQueue<'b>,
}

/// Jobs that are ready, and the pieces of the next one.
#[derive(Default)]
struct JobQueue<'b> {
    jobs: VecDeque<Result<ChecksumJob<'b>>>,
    pieces: Vec<ChecksummedRange<'b>>,
    /// Total length of the pieces in bytes.
    bytes: usize,
}

impl<'b> JobQueue<'b> {
    fn compare(&mut self, piece: ChecksummedRange<'b>) {
        if self.bytes + piece.len > JOB_BYTES {
            self.close();
        }
        self.bytes += piece.len;
        self.pieces.push(piece);
    }

    fn report(&mut self, error: Error) {
        self.close();
        self.jobs.push_back(Ok(ChecksumJob::Report(error)));
    }

    /// Turns the pieces into a job.
    fn close(&mut self) {
        self.bytes = 0;
        if !self.pieces.is_empty() {
            let pieces = std::mem::take(&mut self.pieces);
            self.jobs.push_back(Ok(ChecksumJob::Compare(pieces)));
        }
    }
}

impl<'b> ChecksumJobs<'b> {
    /// Queues the work for the next item; returns whether there was one.
    fn item(&mut self) -> Result<bool> {
        let Some(mut cursor) = self.cursor.take() else {
            return Ok(false);
        };
        let Some(item) = cursor.item() else {
            return Ok(false);
        };
        let (from, to) = match csum_tree::parse_item(&item, self.btrfs.superblock()) {
            Ok(range) => range,
            Err(error) => {
                self.queue.report(error);
                cursor.advance()?;
                self.cursor = Some(cursor);
                return Ok(true);
            }
        };
        if from < self.end_before {
            let what = wrong("checksums overlap", Logical(from), self.end_before);
            self.queue.report(what.into());
        }
        self.end_before = to;
        let mut at = from;
        while at < to {
            let covered = self.covered.end(at).min(to);
            if self.data {
                self.compare(&item, from, at, covered);
            }
            at = covered;
            if at < to {
                let next = self.covered.next(at).min(to);
                let what = wrong(
                    "checksums of bytes outside of all extents",
                    Logical(at),
                    next,
                );
                self.queue.report(what.into());
                at = next;
            }
        }
        cursor.advance()?;
        self.cursor = Some(cursor);
        Ok(true)
    }

    /// Queues the data between two addresses, whose checksums are in the item that starts at
    /// `from`. It may lie in several chunks.
    fn compare(&mut self, item: &TreeItem<'_>, from: u64, mut at: u64, to: u64) {
        let superblock = self.btrfs.superblock();
        let sector = u64::from(superblock.sectorsize);
        let size = superblock.checksum.size();
        let space = &self.btrfs.volume.space;
        while at < to {
            let chunk = match space.chunk(Logical(at), sector) {
                Ok(chunk) => chunk,
                Err(error) => {
                    self.queue.report(error);
                    let chunks = space.chunks.chunks();
                    let next = chunks.partition_point(|chunk| chunk.start.0 <= at);
                    at = chunks.get(next).map_or(to, |chunk| chunk.start.0);
                    continue;
                }
            };
            let end = to.min(chunk.end().0);
            let len = self.read_end(at, end) - at;
            if self.lost_chunks.binary_search(&chunk.start.0).is_err() {
                let sums = ((at - from) / sector) as usize * size;
                let sums_bytes = (len / sector) as usize * size;
                self.queue.compare(ChecksummedRange {
                    chunk,
                    at: Logical(at),
                    len: to_usize(len),
                    sums: item.data[sums..sums + sums_bytes].to_vec(),
                    is_new: at >= self.ranges_end,
                });
                self.ranges_end = self.ranges_end.max(at + len);
            }
            at += len;
        }
    }
}

impl ChecksumJobs<'_> {
    /// Where a read that begins at `at` ends, within an encoded extent only if it must.
    fn read_end(&self, at: u64, end: u64) -> u64 {
        if end - at <= READ_BYTES {
            return end;
        }
        let end = at + READ_BYTES;
        let next = self.encoded.partition_point(|extent| extent.at.0 < end);
        let last = next.checked_sub(1).map(|last| self.encoded[last]);
        let cut = last.filter(|last| last.at.0 > at && last.at.0.saturating_add(last.len) > end);
        cut.map_or(end, |extent| extent.at.0)
    }
}

impl<'b> Iterator for ChecksumJobs<'b> {
    type Item = Result<ChecksumJob<'b>>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.queue.jobs.is_empty() && self.cursor.is_some() {
            let item = self.item();
            if !matches!(item, Ok(true)) {
                self.cursor = None;
                self.queue.close();
                self.queue.jobs.extend(item.err().map(Err));
            }
        }
        self.queue.jobs.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(at: u64, is_tree_block: bool) -> RecordedExtent {
        RecordedExtent {
            at,
            len: 10,
            is_tree_block,
            refs: 1,
            level: 0,
            generation: 1,
            owner: 0,
        }
    }

    #[test]
    fn gaps_are_what_neither_extents_nor_the_log_cover() {
        let mut extents: Vec<RecordedExtent> = (0..10).map(|at| found(10 * at, false)).collect();
        extents.extend([found(100, true), found(130, false)]);
        let covered = CoveredRanges::new(&extents, &[(50, 55), (110, 120)]);
        let ends = [0, 15, 99, 100, 110, 120, 135].map(|at| covered.end(at));
        assert_eq!(ends, [100, 100, 100, 100, 120, 120, 140]);
        let next = [0, 100, 110, 135].map(|at| covered.next(at));
        assert_eq!(next, [110, 110, 130, u64::MAX]);
    }

    /// Were each of them visited for each checksum, this would take hours.
    #[test]
    fn extents_and_tree_blocks_in_any_number_are_not_visited() {
        let extents: Vec<RecordedExtent> = (0..1 << 20)
            .map(|at| found(10 * at, at >= 1 << 19))
            .collect();
        let covered = CoveredRanges::new(&extents, &[]);
        for turn in 0..1 << 19 {
            assert_eq!(covered.end(10 * turn), 10 << 19);
            assert_eq!(covered.next(10 * turn), u64::MAX);
        }
    }
}
