//! The old file as a patch is made from it: its segments, and where their content is found.

use std::collections::{BTreeMap, HashMap};

use tree::{Parallel, Progress, ReadAt, Result, ordered, to_u64, to_usize};
use xxhash::xxh64;

use crate::DeltaInput;
use crate::index::{Anchor, AnchorIndex, anchors};
use crate::scan::{Segment, SegmentKind, scan};
use patch::format::Source;
use patch::steps::{LIKE_FRAMES_MAX, LikeFrame, STRETCHES_MAX, Stretch, like_bytes_max};
use patch::{BlockCodec, SourceDecoder};

/// Copies of plain bytes are at least this long; shorter repeats are left to zstd.
const COPY_BYTES_MIN: usize = 256;
/// Equal content of two frames is at least this long, or its matches are not looked at.
const STRETCH_BYTES_MIN: usize = 32;
/// Bytes around a gap that precede the content for it.
const MARGIN: u64 = 256;
/// Segments that precede the content of one piece.
const VOTED_MAX: usize = 16;
/// Frames of at most this content may be tables, whose records differ everywhere: those at the same
/// place, counted from the end of the file, precede them, too.
const TABLE_BYTES_MAX: u32 = 8192;
/// Tables on each side of that place.
const TABLES_AROUND: usize = 2;

/// A file of which parts are found by their content.
pub(crate) struct OldFile<'a> {
    pub(crate) file: &'a dyn ReadAt,
    pub(crate) size: u64,
    pub(crate) sha256: [u8; 32],
    segments: Vec<Segment>,
    /// The hashes of stored frames, sorted, and their segments.
    frames: Vec<(u64, u32)>,
    index: AnchorIndex,
    /// Segments that may be tables.
    tables: Vec<u32>,
}

/// Bytes of the new file that are in the patch, and so can precede later ones.
#[derive(Default)]
pub(crate) struct Recent {
    by_key: HashMap<u32, u32>,
    sources: Vec<Source>,
}

impl Recent {
    pub(crate) fn add(&mut self, source: Source, keys: &[u32]) {
        let number = self.sources.len() as u32;
        self.sources.push(source);
        for key in keys {
            self.by_key.entry(*key).or_insert(number);
        }
    }
}

/// The anchors of a segment.
struct Indexed {
    segment: u32,
    /// Of a frame, as it is stored.
    hash: u64,
    anchors: Vec<Anchor>,
}

/// Decodes a block; `None` if it is none, or has another length.
pub(crate) fn decoded(
    stored: &[u8],
    content_bytes: u32,
    codec: BlockCodec,
    decoder: &mut SourceDecoder,
) -> Option<Vec<u8>> {
    let mut content = vec![0; to_usize(content_bytes)];
    (decoder.decode(codec, &mut content, stored)).then_some(content)
}

/// The bytes of a segment.
pub(crate) fn read(file: &dyn ReadAt, segment: &Segment) -> Result<Vec<u8>> {
    let mut bytes = vec![0; to_usize(segment.bytes)];
    file.read_exact_at(&mut bytes, segment.at)?;
    Ok(bytes)
}

impl<'a> OldFile<'a> {
    /// Reads the whole file twice.
    pub(crate) fn index(
        input: &DeltaInput<'a>,
        parallel: Parallel,
        progress: &dyn Progress,
    ) -> Result<OldFile<'a>> {
        let file = input.file;
        let size = file.size()?;
        let (segments, sha256) = scan(input, size)?;
        let mut index = AnchorIndex::default();
        let mut frames = Vec::new();
        let jobs = (0u32..).zip(&segments);
        let jobs = jobs.filter(|(_, segment)| segment.kind != SegmentKind::Zeros);
        ordered(
            parallel,
            jobs,
            SourceDecoder::default,
            |decoder, (segment, found)| {
                let stored = read(file, found)?;
                let content = match found.kind {
                    SegmentKind::Block {
                        content_bytes,
                        codec,
                    } => decoded(&stored, content_bytes, codec, decoder),
                    SegmentKind::Plain | SegmentKind::Zeros => {
                        return Ok(Indexed {
                            segment,
                            hash: 0,
                            anchors: anchors(&stored),
                        });
                    }
                };
                let anchors = content.map_or(Vec::new(), |content| anchors(&content));
                let hash = xxh64(&stored, 0);
                Ok(Indexed {
                    segment,
                    hash,
                    anchors,
                })
            },
            |found: Indexed| {
                let segment = &segments[to_usize(found.segment)];
                if segment.content_bytes().is_some() {
                    frames.push((found.hash, found.segment));
                }
                index.add(found.segment, &found.anchors);
                progress.advance(0, segment.bytes.into());
                Ok::<(), tree::Error>(())
            },
        )?;
        index.sort();
        frames.sort_unstable();
        let tables = tables(&segments);
        Ok(OldFile {
            file,
            size,
            sha256,
            segments,
            frames,
            index,
            tables,
        })
    }

    /// Where an equal frame is stored.
    pub(crate) fn equal_frame(&self, stored: &[u8]) -> Result<Option<u64>> {
        let hash = xxh64(stored, 0);
        let from = self.frames.partition_point(|(other, _)| *other < hash);
        for (other, segment) in &self.frames[from..] {
            let segment = &self.segments[to_usize(*segment)];
            if *other != hash {
                break;
            }
            if to_usize(segment.bytes) == stored.len() && read(self.file, segment)? == stored {
                return Ok(Some(segment.at));
            }
        }
        Ok(None)
    }

    /// The segments that have the most anchors in common with content.
    pub(crate) fn voted(
        &self,
        found: &[Anchor],
        content_bytes: usize,
        recent: &Recent,
    ) -> Vec<Source> {
        let mut votes: BTreeMap<Source, u32> = BTreeMap::new();
        for anchor in found {
            let source = match self.index.find(anchor.key) {
                Some(entry) => source_of(&self.segments[to_usize(entry.segment)]),
                None => match recent.by_key.get(&anchor.key) {
                    Some(number) => recent.sources[to_usize(*number)],
                    None => continue,
                },
            };
            *votes.entry(source).or_default() += 1;
        }
        let mut votes: Vec<(Source, u32)> = votes.into_iter().collect();
        votes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let (mut sources, mut bytes) = (Vec::new(), 0);
        for (source, _) in votes.into_iter().take(VOTED_MAX) {
            bytes += source.prefix_bytes();
            if bytes > 2 * to_u64(content_bytes) + (128 << 10) {
                break;
            }
            sources.push(source);
        }
        sources
    }

    /// The frames at the place of a table, `from_end` tables before the end of the file.
    pub(crate) fn tables_near(&self, from_end: usize) -> impl Iterator<Item = Source> {
        let place = self.tables.len().saturating_sub(from_end);
        let from = place.saturating_sub(TABLES_AROUND);
        let to = self.tables.len().min(place + TABLES_AROUND + 1);
        let near = self.tables[from.min(to)..to].iter();
        near.map(|segment| source_of(&self.segments[to_usize(*segment)]))
    }

    /// The frames among the sources of content, and their stretches of it.
    pub(crate) fn frames_like(
        &self,
        content: &[u8],
        found: &[Anchor],
        sources: &[Source],
        decoder: &mut SourceDecoder,
    ) -> Result<Vec<LikeFrame>> {
        let longest = like_bytes_max(content.len() as u32);
        let is_frame = |it: &&Source| {
            let is_short = to_usize(it.stored_bytes) <= longest;
            it.content_bytes > 0 && it.codec == BlockCodec::Zstd && it.at < self.size && is_short
        };
        let mut frames = Vec::new();
        for source in sources.iter().filter(is_frame).take(LIKE_FRAMES_MAX) {
            let mut stored = vec![0; to_usize(source.stored_bytes)];
            self.file.read_exact_at(&mut stored, source.at)?;
            let Some(old) = decoded(&stored, source.content_bytes, source.codec, decoder) else {
                continue;
            };
            let stretches = self.stretches(content, found, source.at, &old);
            if !stretches.is_empty() {
                frames.push(LikeFrame {
                    at: source.at,
                    stored_bytes: source.stored_bytes,
                    stretches,
                });
            }
        }
        Ok(frames)
    }

    /// The stretches of content that the frame at `at` has, too, whose content is `old`.
    fn stretches(&self, content: &[u8], found: &[Anchor], at: u64, old: &[u8]) -> Vec<Stretch> {
        let (mut stretches, mut done) = (Vec::new(), 0);
        for anchor in found {
            let here = to_usize(anchor.offset);
            let Some(entry) = self.index.find(anchor.key).filter(|_| here > done) else {
                continue;
            };
            let there = to_usize(entry.offset);
            if self.segments[to_usize(entry.segment)].at != at || there > old.len() {
                continue;
            }
            let before = old[..there].iter().rev();
            let back = equal(before, content[done..here].iter().rev());
            let forward = equal(old[there..].iter(), content[here..].iter());
            if back + forward < STRETCH_BYTES_MIN {
                continue;
            }
            stretches.push(Stretch {
                from: (there - back) as u32,
                to: (here - back) as u32,
                bytes: (back + forward) as u32,
            });
            done = here + forward;
            if stretches.len() == STRETCHES_MAX {
                break;
            }
        }
        stretches
    }

    /// Plain bytes that are equal to some of `bytes`, in order: where they are there and here.
    pub(crate) fn copies(&self, bytes: &[u8], found: &[Anchor]) -> Result<Vec<PlainCopy>> {
        let mut copies: Vec<PlainCopy> = Vec::new();
        let (mut done, mut tried) = (0, None);
        for anchor in found {
            let here = to_usize(anchor.offset);
            let Some(entry) = self.index.find(anchor.key).filter(|_| here > done) else {
                continue;
            };
            let segment = &self.segments[to_usize(entry.segment)];
            if segment.kind != SegmentKind::Plain {
                continue;
            }
            let there = segment.at + u64::from(entry.offset);
            let distance = Some(there.wrapping_sub(to_u64(here)));
            if tried == distance {
                continue;
            }
            tried = distance;
            let before = (here - done).min(to_usize(there));
            let after = (bytes.len() - here).min(to_usize(self.size - there));
            let mut window = vec![0; before + after];
            self.file
                .read_exact_at(&mut window, there - to_u64(before))?;
            let (behind, ahead) = window.split_at(before);
            let back = equal(behind.iter().rev(), bytes[here - before..here].iter().rev());
            let forward = equal(ahead.iter(), bytes[here..].iter());
            if back + forward >= COPY_BYTES_MIN {
                done = here + forward;
                copies.push(PlainCopy {
                    old_at: there - to_u64(back),
                    from: here - back,
                    to: done,
                });
            }
        }
        Ok(copies)
    }

    /// The bytes between two copies, or beside one, for `bytes` that are between them here.
    pub(crate) fn gap(
        &self,
        before: Option<&PlainCopy>,
        after: Option<&PlainCopy>,
        bytes: usize,
    ) -> Option<Source> {
        let reach = 2 * to_u64(bytes) + MARGIN;
        let before = before.map(|copy| copy.old_at + to_u64(copy.to - copy.from));
        let after = after.map(|copy| copy.old_at);
        let (from, to) = match (before, after) {
            (Some(from), Some(to)) if from <= to && to - from <= 2 * reach => (from, to),
            (Some(from), _) => (from, from + reach),
            (None, Some(to)) => (to.saturating_sub(reach), to),
            (None, None) => return None,
        };
        let from = from.saturating_sub(MARGIN);
        let to = (to + MARGIN).min(self.size);
        Some(Source {
            at: from,
            stored_bytes: u32::try_from(to - from).ok()?,
            content_bytes: 0,
            codec: BlockCodec::Zstd,
        })
    }
}

/// Plain bytes that both files have.
pub(crate) struct PlainCopy {
    pub(crate) old_at: u64,
    /// Where they begin and end in the bytes that were looked for.
    pub(crate) from: usize,
    pub(crate) to: usize,
}

fn equal<'b>(first: impl Iterator<Item = &'b u8>, second: impl Iterator<Item = &'b u8>) -> usize {
    first
        .zip(second)
        .take_while(|(first, second)| first == second)
        .count()
}

/// The segments that may be tables.
pub(crate) fn tables(segments: &[Segment]) -> Vec<u32> {
    let tables = (0u32..).zip(segments).filter(|(_, it)| is_table(it));
    tables.map(|(segment, _)| segment).collect()
}

pub(crate) fn is_table(segment: &Segment) -> bool {
    segment
        .content_bytes()
        .is_some_and(|bytes| bytes <= TABLE_BYTES_MAX)
}

pub(crate) fn source_of(segment: &Segment) -> Source {
    Source {
        at: segment.at,
        stored_bytes: segment.bytes,
        content_bytes: segment.content_bytes().unwrap_or(0),
        codec: match segment.kind {
            SegmentKind::Block { codec, .. } => codec,
            SegmentKind::Plain | SegmentKind::Zeros => BlockCodec::Zstd,
        },
    }
}
