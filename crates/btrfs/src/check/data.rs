//! Checks checksums and the data they cover, which worker threads read and compare.

use std::collections::VecDeque;

use tree::{DataCheck, Error, Result, ordered};

use super::extents::{Extents, Found};
use super::state::{Check, finding, wrong};
use crate::address_space::AddressSpace;
use crate::chunk::Chunk;
use crate::csum_tree;
use crate::key::{Key, Logical, object};
use crate::read::Btrfs;
use crate::tree::{Cursor, Tree};

/// Bytes of data that one job compares.
const JOB_BYTES: usize = 1 << 20;

/// Identifies the damaged copy.
const COPIES: [&str; 4] = [
    "first copy of data has another checksum",
    "second copy of data has another checksum",
    "third copy of data has another checksum",
    "fourth copy of data has another checksum",
];

/// Data in one chunk, and its checksums.
struct Piece<'b> {
    chunk: &'b Chunk,
    at: Logical,
    len: usize,
    sums: Vec<u8>,
}

/// An item of work, in the order of addresses.
enum Job<'b> {
    /// Data to compare.
    Compare(Vec<Piece<'b>>),
    /// A finding about the checksums themselves.
    Report(Error),
}

/// The result of a job.
#[derive(Default)]
struct Compared {
    bytes: u64,
    damages: Vec<Damage>,
}

/// A finding about data.
struct Damage {
    tree: u64,
    error: Error,
    /// The address of the data, if a file that contains it should be named.
    at: Option<u64>,
}

impl Damage {
    fn of_checksums(error: Error) -> Damage {
        Damage {
            tree: object::CSUM_TREE,
            error,
            at: None,
        }
    }
}

impl Check<'_> {
    /// Checks that checksums belong to data extents and, if data is checked, that every copy of the data matches them.
    pub(super) fn checksums(&mut self, tree: &Tree) -> Result<()> {
        let (btrfs, extents, progress) = (self.btrfs, &self.extents, self.progress);
        let data = self.options.data >= DataCheck::Checksums;
        let (findings, summary) = (&mut self.findings, &mut self.summary);
        ordered(
            self.parallel,
            Jobs::new(btrfs, tree, &extents.list, data)?,
            Vec::new,
            |buffer, job| match job? {
                Job::Report(error) => Ok(Compared {
                    bytes: 0,
                    damages: vec![Damage::of_checksums(error)],
                }),
                Job::Compare(pieces) => compare(btrfs, &pieces, buffer),
            },
            |compared| {
                summary.data_bytes += compared.bytes;
                progress.advance(0, compared.bytes);
                for Damage { tree, error, at } in compared.damages {
                    let mut finding = finding(tree, error);
                    if let Some(at) = at
                        && findings.reports_next()
                    {
                        finding.file = path(btrfs, extents, at);
                    }
                    findings.add(finding)?;
                }
                Ok(())
            },
        )
    }
}

/// The path of a file that uses the extent at this address, if one can be found.
pub(super) fn path(btrfs: &Btrfs, extents: &Extents, at: u64) -> Option<Box<[u8]>> {
    let index = extents.list.partition_point(|extent| extent.at <= at);
    let extent = &extents.list[index.checked_sub(1)?];
    let (root, inode) = extents.file(extent.at)?;
    // If the tree is damaged too, no path is found.
    btrfs.path_in(root, inode).ok()?.map(Into::into)
}

/// Reads every copy of the pieces and compares it with the checksums.
fn compare(btrfs: &Btrfs, pieces: &[Piece<'_>], buffer: &mut Vec<u8>) -> Result<Compared> {
    let superblock = btrfs.superblock();
    let (sector, checksum) = (superblock.sectorsize as usize, superblock.checksum);
    let size = checksum.size();
    let mut compared = Compared::default();
    for Piece {
        chunk,
        at,
        len,
        sums,
    } in pieces
    {
        buffer.resize(*len, 0);
        for copy in 0..AddressSpace::copies(chunk) {
            match btrfs.volume.space.read_copy(chunk, *at, buffer, copy) {
                Err(Error::Io(error)) => return Err(Error::Io(error)),
                Err(error) => {
                    compared.damages.push(Damage::of_checksums(error));
                    continue;
                }
                Ok(()) => {}
            }
            let pairs = buffer.chunks(sector).zip(sums.chunks(size));
            for (index, (data, sum)) in pairs.enumerate() {
                let found = checksum.of(data);
                if found[..size] != *sum {
                    let place = at.0 + (index * sector) as u64;
                    let what = COPIES[copy.min(COPIES.len() - 1)];
                    // As the kernel prints it; only the first eight bytes of a longer one.
                    let found = u64::from_le_bytes(*found.first_chunk().unwrap_or(&[0; 8]));
                    compared.damages.push(Damage {
                        tree: 0,
                        error: wrong(what, Logical(place), found).into(),
                        at: Some(place),
                    });
                }
            }
        }
        compared.bytes += *len as u64;
    }
    Ok(compared)
}

/// Iterates over the checksum tree.
struct Jobs<'b> {
    btrfs: &'b Btrfs,
    cursor: Option<Cursor<'b>>,
    /// In ascending order of address.
    extents: &'b [Found],
    /// Whether to compare data.
    data: bool,
    /// Where the checksums of the previous item end.
    end_before: u64,
    queue: Queue<'b>,
}

/// Jobs that are ready, and the pieces of the next one.
#[derive(Default)]
struct Queue<'b> {
    jobs: VecDeque<Result<Job<'b>>>,
    pieces: Vec<Piece<'b>>,
    /// Total length of the pieces in bytes.
    bytes: usize,
}

impl<'b> Queue<'b> {
    fn compare(&mut self, piece: Piece<'b>) {
        if self.bytes + piece.len > JOB_BYTES {
            self.close();
        }
        self.bytes += piece.len;
        self.pieces.push(piece);
    }

    fn report(&mut self, error: Error) {
        self.close();
        self.jobs.push_back(Ok(Job::Report(error)));
    }

    /// Turns the pieces into a job.
    fn close(&mut self) {
        self.bytes = 0;
        if !self.pieces.is_empty() {
            let pieces = std::mem::take(&mut self.pieces);
            self.jobs.push_back(Ok(Job::Compare(pieces)));
        }
    }
}

impl<'b> Jobs<'b> {
    fn new(btrfs: &'b Btrfs, tree: &Tree, extents: &'b [Found], data: bool) -> Result<Jobs<'b>> {
        Ok(Jobs {
            btrfs,
            cursor: Some(tree.seek(&btrfs.volume, Key::MIN)?),
            extents,
            data,
            end_before: 0,
            queue: Queue::default(),
        })
    }

    /// Queues the work for the next item; returns whether there was one.
    fn item(&mut self) -> Result<bool> {
        let Some(cursor) = &mut self.cursor else {
            return Ok(false);
        };
        let Some(item) = cursor.item() else {
            return Ok(false);
        };
        let superblock = self.btrfs.superblock();
        let (from, to) = csum_tree::parse_item(&item, superblock)?;
        if from < self.end_before {
            let what = wrong("checksums overlap", Logical(from), self.end_before);
            self.queue.report(what.into());
        }
        self.end_before = to;
        let mut covered = from;
        let first = (self.extents).partition_point(|extent| extent.at + extent.len <= from);
        for extent in &self.extents[first..] {
            if covered >= to || extent.at > covered || extent.is_tree_block {
                break;
            }
            covered = extent.at + extent.len;
        }
        if covered < to {
            let what = wrong("checksums of what is no extent", Logical(covered), to);
            self.queue.report(what.into());
        } else if self.data {
            let sums_bytes =
                JOB_BYTES / superblock.sectorsize as usize * superblock.checksum.size();
            let pieces = (from..to).step_by(JOB_BYTES);
            for (at, sums) in pieces.zip(item.data.chunks(sums_bytes)) {
                let (at, len) = (Logical(at), (to - at).min(JOB_BYTES as u64));
                match self.btrfs.volume.space.chunk(at, len) {
                    Ok(chunk) => self.queue.compare(Piece {
                        chunk,
                        at,
                        len: len as usize,
                        sums: sums.to_vec(),
                    }),
                    Err(error) => {
                        self.queue.report(error);
                        break;
                    }
                }
            }
        }
        cursor.advance()?;
        Ok(true)
    }
}

impl<'b> Iterator for Jobs<'b> {
    type Item = Result<Job<'b>>;

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
