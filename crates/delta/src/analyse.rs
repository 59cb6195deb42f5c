//! Finds out how a segment of the new file is made from the old file.

use std::ops::Range;

use tree::{ReadAt, Result, to_usize};
use zstd::Frame;

use patch::steps::{LikelyMatches, emit_steps};
use patch::{BlockCodec, PatchError, SourceDecoder, XZ_EXTREME, xz_settings};

use crate::index::{Anchor, anchors};
use crate::old::{OldFile, Recent, decoded, is_table, read, tables};
use crate::scan::{Segment, SegmentKind};
use patch::Encoder;
use patch::format::{ENCODERS_MAX, Source};

/// Frames that are tried with all levels one after the other without success before the others are
/// taken to be of another encoder.
const SEARCHES_MAX: u32 = 24;
/// The content for which the parameters of archives are chosen, and whose frames have a checksum.
const ARCHIVE_PART_BYTES: u32 = 2 << 20;
/// Levels in the order in which they are tried: the usual ones first.
const LEVELS: [i16; 22] = [
    3, 15, 19, 1, 9, 5, 6, 2, 4, 7, 8, 10, 11, 12, 13, 14, 16, 17, 18, 20, 21, 22,
];

/// The first level whose search takes several times as long as the rest of encoding: from here on,
/// the patch has the steps of a block that is like old ones.
const STEPS_LEVEL_MIN: i16 = 5;

/// From here on, a search takes ten times as long as the rest.
const SLOW_LEVEL_MIN: i16 = 10;
/// Shorter content is quick at all levels.
const SLOW_CONTENT_BYTES_MIN: usize = 32 << 10;

const GZIP_LEVELS: [i16; 11] = [9, 6, 1, 2, 3, 4, 5, 7, 10, 11, 12];
const XZ_LEVELS: [i16; 12] = [
    6,
    6 + XZ_EXTREME,
    9 + XZ_EXTREME,
    3,
    5,
    4,
    2,
    1,
    0,
    3 + XZ_EXTREME,
    1 + XZ_EXTREME,
    5 + XZ_EXTREME,
];
const LZ4_LEVELS: [i16; 12] = [12, 0, 9, 3, 4, 5, 6, 7, 8, 10, 11, 2];

/// A step of making a segment.
pub(crate) enum Step {
    Copy {
        at: u64,
        bytes: u64,
    },
    /// These of the segment's bytes.
    Take(Range<usize>),
    /// All of the segment's bytes, from content.
    Encode {
        content: Vec<u8>,
        encoder: Encoder,
        /// The steps of the block, if a search takes long.
        steps: Option<Vec<u8>>,
    },
    Zeros,
}

/// How a segment is made.
pub(crate) struct Piece {
    pub(crate) segment: Segment,
    /// Its bytes, unless they are zeros.
    pub(crate) bytes: Vec<u8>,
    pub(crate) steps: Vec<Step>,
    /// Bytes like those that are taken or encoded.
    pub(crate) sources: Vec<Source>,
    /// The keys by which later segments find this one.
    pub(crate) keys: Vec<u32>,
    /// A frame that no encoder makes.
    pub(crate) is_foreign: bool,
}

impl Piece {
    /// Takes a frame as it is stored. Another encoder, too, mostly gives like content frames that
    /// begin alike.
    pub(crate) fn take_all(&mut self) {
        self.is_foreign = true;
        self.steps = vec![Step::Take(0..self.bytes.len())];
        for source in &mut self.sources {
            source.content_bytes = 0;
        }
    }
}

/// The encoders that made frames so far.
pub(crate) struct KnownEncoders {
    /// With the number of frames, the most frequent first.
    counts: Vec<(Encoder, u64)>,
    searches_left: u32,
}

impl KnownEncoders {
    pub(crate) fn new() -> Self {
        KnownEncoders {
            counts: Vec::new(),
            searches_left: SEARCHES_MAX,
        }
    }

    /// Learns from a piece.
    pub(crate) fn learn(&mut self, piece: &Piece) {
        for step in &piece.steps {
            let Step::Encode { encoder, .. } = step else {
                continue;
            };
            if encoder.is_described() {
                self.searches_left = self.searches_left.saturating_sub(1);
                continue;
            }
            self.searches_left = SEARCHES_MAX;
            let known = self.counts.iter().position(|(known, _)| known == encoder);
            if let Some(known) = known {
                self.counts[known].1 += 1;
            } else if self.counts.len() < ENCODERS_MAX {
                self.counts.push((*encoder, 1));
            }
        }
        if piece.is_foreign {
            self.searches_left = self.searches_left.saturating_sub(1);
        }
        self.counts
            .sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    }

    /// The encoders to try, for a block of this codec and [variant](Encoder::variant).
    fn candidates(&self, codec: BlockCodec, variant: u8) -> impl Iterator<Item = Encoder> {
        let known = self.counts.iter().map(|(encoder, _)| *encoder);
        let levels = match codec {
            BlockCodec::Zstd => &LEVELS[..],
            BlockCodec::Gzip => &GZIP_LEVELS,
            BlockCodec::Xz => &XZ_LEVELS,
            BlockCodec::Lz4 => &LZ4_LEVELS,
        };
        let levels = if self.searches_left > 0 { levels } else { &[] };
        let searched = levels.iter().flat_map(move |level| {
            let is_of_archive = codec == BlockCodec::Zstd && variant != 0;
            let sizes: &[u32] = if is_of_archive {
                &[ARCHIVE_PART_BYTES, 0]
            } else {
                &[0]
            };
            sizes.iter().map(move |sized_bytes| Encoder {
                sized_bytes: *sized_bytes,
                ..Encoder::new(codec, *level, variant)
            })
        });
        known
            .filter(move |it| (it.codec, it.variant) == (codec, variant))
            .chain(searched)
    }
}

/// The new file, and the state of looking at its segments.
pub(crate) struct Analysis<'a> {
    pub(crate) old: &'a OldFile<'a>,
    pub(crate) new: &'a dyn ReadAt,
    pub(crate) segments: Vec<Segment>,
    /// Segments that may be tables.
    tables: Vec<u32>,
    pub(crate) recent: Recent,
    pub(crate) known: KnownEncoders,
}

/// The memory of a worker.
#[derive(Default)]
pub(crate) struct Worker {
    decoder: SourceDecoder,
    encoding: Vec<u8>,
    encoded: Vec<u8>,
    likely: LikelyMatches,
}

impl<'a> Analysis<'a> {
    pub(crate) fn new(old: &'a OldFile<'a>, new: &'a dyn ReadAt, segments: Vec<Segment>) -> Self {
        Analysis {
            tables: tables(&segments),
            old,
            new,
            segments,
            recent: Recent::default(),
            known: KnownEncoders::new(),
        }
    }

    pub(crate) fn piece(&self, worker: &mut Worker, number: usize) -> Result<Piece> {
        let segment = self.segments[number];
        let mut piece = Piece {
            segment,
            bytes: Vec::new(),
            steps: vec![Step::Zeros],
            sources: Vec::new(),
            keys: Vec::new(),
            is_foreign: false,
        };
        match segment.kind {
            SegmentKind::Zeros => {}
            SegmentKind::Plain => {
                piece.bytes = read(self.new, &segment)?;
                self.plain(&mut piece)?;
            }
            SegmentKind::Block {
                content_bytes,
                codec,
            } => {
                piece.bytes = read(self.new, &segment)?;
                self.block(&mut piece, (content_bytes, codec), number, worker)?;
            }
        }
        Ok(piece)
    }

    fn block(
        &self,
        piece: &mut Piece,
        (content_bytes, codec): (u32, BlockCodec),
        number: usize,
        worker: &mut Worker,
    ) -> Result<()> {
        let bytes = u64::from(piece.segment.bytes);
        if let Some(at) = self.old.equal_frame(&piece.bytes)? {
            piece.steps = vec![Step::Copy { at, bytes }];
            return Ok(());
        }
        let Some(content) = decoded(&piece.bytes, content_bytes, codec, &mut worker.decoder) else {
            piece.take_all();
            return Ok(());
        };
        let room = Encoder::bound(content_bytes);
        worker.encoded.resize(room.max(worker.encoded.len()), 0);
        let found = anchors(&content);
        piece.sources = self.old.voted(&found, content.len(), &self.recent);
        if is_table(&piece.segment) {
            let rank = self.tables.binary_search(&(number as u32)).unwrap_or(0);
            let near = self.old.tables_near(self.tables.len() - rank);
            let missing: Vec<Source> = near.filter(|it| !piece.sources.contains(it)).collect();
            piece.sources.extend(missing);
        }
        let encoder = self.encoder(codec, &content, &piece.bytes, worker);
        let is_foreign = encoder.is_none();
        if is_foreign && codec != BlockCodec::Zstd {
            piece.take_all();
            return Ok(());
        }
        let encoder = encoder.unwrap_or(Encoder::described());
        let steps = self.steps(piece, &content, &found, &encoder, worker)?;
        if is_foreign && steps.is_none() {
            piece.take_all();
            return Ok(());
        }
        piece.keys = keys(&found);
        if steps.is_none() && piece.sources.is_empty() && is_slow(&encoder, content.len()) {
            piece.steps = vec![Step::Take(0..piece.bytes.len())];
            return Ok(());
        }
        piece.steps = vec![Step::Encode {
            content,
            encoder,
            steps,
        }];
        Ok(())
    }

    /// The encoder that gives `stored` for `content`.
    fn encoder(
        &self,
        codec: BlockCodec,
        content: &[u8],
        stored: &[u8],
        worker: &mut Worker,
    ) -> Option<Encoder> {
        let variant = match codec {
            BlockCodec::Zstd => match Frame::parse(stored) {
                Ok(Frame::Zstd(header)) => header.checksum.into(),
                _ => return None,
            },
            BlockCodec::Xz => xz_settings(stored)?.0,
            BlockCodec::Gzip | BlockCodec::Lz4 => 0,
        };
        self.known.candidates(codec, variant).find(|encoder| {
            let needed = encoder.workspace_bytes(content.len() as u32);
            if worker.encoding.len() < needed {
                worker.encoding.resize(needed, 0);
            }
            let len = encoder.encode(&mut worker.encoded, content, &mut worker.encoding);
            len.is_some_and(|len| worker.encoded[..len] == *stored)
        })
    }

    /// The steps of a block as the patch has them, if they save a search and are not long.
    fn steps(
        &self,
        piece: &Piece,
        content: &[u8],
        found: &[Anchor],
        encoder: &Encoder,
        worker: &mut Worker,
    ) -> Result<Option<Vec<u8>>> {
        let is_described = encoder.is_described();
        if encoder.codec != BlockCodec::Zstd || !is_described && encoder.level < STEPS_LEVEL_MIN {
            return Ok(None);
        }
        let decoder = &mut worker.decoder;
        let frames = self
            .old
            .frames_like(content, found, &piece.sources, decoder)?;
        if frames.is_empty() {
            return Ok(None);
        }
        let read = &mut |buffer: &mut [u8], at: u64| {
            let read = self.old.file.read_exact_at(buffer, at);
            read.map_err(PatchError::Old)
        };
        let likely = &mut worker.likely;
        if let Err(error) = likely.find(&frames, content, 0, read) {
            return match error {
                PatchError::Old(error) => Err(error.into()),
                _ => Ok(None),
            };
        }
        let (mut steps, mut descriptions) = (Vec::new(), Vec::new());
        let read = zstd::read_described(
            &piece.bytes,
            &mut vec![0; zstd::READ_STEPS_WORKSPACE_SIZE],
            &mut |step| steps.push(step),
            &mut |bytes| descriptions.extend_from_slice(bytes),
        );
        let descriptions = is_described.then_some(&descriptions[..]);
        let emitted = emit_steps(content, &frames, descriptions, likely, &steps);
        // Another way to make a block of ours is a search.
        let longest = if is_described {
            piece.bytes.len() / 4 * 3
        } else {
            piece.bytes.len() / 3
        };
        if read.is_err() || emitted.len() > longest {
            return Ok(None);
        }
        let len = encoder.encode_steps(
            &mut worker.encoded,
            content,
            descriptions.unwrap_or_default(),
            &mut steps.iter().copied(),
            &mut vec![0; zstd::COMPRESS_STEPS_WORKSPACE_SIZE],
        );
        Ok((len.is_some_and(|len| worker.encoded[..len] == *piece.bytes)).then_some(emitted))
    }

    fn plain(&self, piece: &mut Piece) -> Result<()> {
        let found = anchors(&piece.bytes);
        let copies = self.old.copies(&piece.bytes, &found)?;
        piece.steps.clear();
        let ends = copies.iter().map(|it| (it.from, it.to));
        let ends = ends.chain([(piece.bytes.len(), piece.bytes.len())]);
        let mut done = 0;
        for (number, (from, to)) in ends.enumerate() {
            if done < from {
                piece.steps.push(Step::Take(done..from));
                let before = number.checked_sub(1).map(|before| &copies[before]);
                let gap = self.old.gap(before, copies.get(number), from - done);
                piece.sources.extend(gap);
                let inside = |it: &&Anchor| (done..from).contains(&to_usize(it.offset));
                let inside: Vec<Anchor> = found.iter().filter(inside).copied().collect();
                piece
                    .sources
                    .extend(self.old.voted(&inside, from - done, &self.recent));
                piece.keys.extend(keys(&inside));
            }
            if let Some(copy) = copies.get(number) {
                let (at, bytes) = (copy.old_at, tree::to_u64(to - from));
                piece.steps.push(Step::Copy { at, bytes });
            }
            done = to;
        }
        Ok(())
    }
}

/// Whether a search takes so long that content which is like nothing is sent as it is stored:
/// such a level packs it as the patch would.
fn is_slow(encoder: &Encoder, content_bytes: usize) -> bool {
    let is_slow = match encoder.codec {
        BlockCodec::Zstd => encoder.level >= SLOW_LEVEL_MIN,
        BlockCodec::Xz => true,
        BlockCodec::Gzip | BlockCodec::Lz4 => false,
    };
    is_slow && content_bytes >= SLOW_CONTENT_BYTES_MIN
}

fn keys(anchors: &[Anchor]) -> Vec<u32> {
    anchors.iter().map(|anchor| anchor.key).collect()
}
