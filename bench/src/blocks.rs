//! Independent frames of one block size, as file systems keep them: each peer decodes or encodes
//! one at a time in a context that it reuses, from memory to memory.

use std::time::{Duration, Instant};

use crate::measure::Turn;
use crate::options::Options;
use crate::peers::{Decoder, Encoder};
use crate::record::TableRecord;
use crate::rows::{self, RowTurns};
use crate::stream;

/// Decodes frames of C: level as asked, content size in the header, no checksum.
pub(crate) fn decode(options: &Options, record: &mut TableRecord) -> Result<(), String> {
    if options.pieces {
        return stream::decode(options, record);
    }
    let peers = options.peers_or(&["c", "ours"]);
    let mut decoders = peers
        .iter()
        .map(|peer| Decoder::new(peer))
        .collect::<Result<Vec<_>, _>>()?;
    let (mut c, mut verifier) = (Encoder::new("c")?, Decoder::new("c")?);
    rows::of_all(options, record, &peers, |corpus, level, measure| {
        let blocks = corpus.blocks(options.block, options.sample());
        let frames = frames(&mut c, &mut verifier, level, &blocks)?;
        let turns = decoders
            .iter_mut()
            .map(|decoder| decode_turn(decoder, &frames, &blocks));
        measure(RowTurns {
            turns: turns.collect(),
            sizes: Vec::new(),
            units: blocks.iter().map(|block| block.len()).collect(),
        })
    })
}

/// Encodes blocks at a level. C decodes each peer's first frames, later ones must be equal to the
/// first.
pub(crate) fn encode(options: &Options, record: &mut TableRecord) -> Result<(), String> {
    if options.pieces {
        return stream::encode(options, record);
    }
    let peers = options.peers_or(&["c", "ours"]);
    let mut encoders = peers
        .iter()
        .map(|peer| Encoder::new(peer))
        .collect::<Result<Vec<_>, _>>()?;
    let mut verifier = Decoder::new("c")?;
    rows::of_all(options, record, &peers, |corpus, level, measure| {
        let blocks = corpus.blocks(options.block, options.sample());
        let (mut turns, mut sizes) = (Vec::new(), Vec::new());
        for encoder in &mut encoders {
            let frames = frames(encoder, &mut verifier, level, &blocks)?;
            sizes.push(frames.iter().map(Vec::len).sum());
            turns.push(encode_turn(encoder, level, frames, &blocks));
        }
        let units = blocks.iter().map(|block| block.len()).collect();
        measure(RowTurns {
            turns,
            sizes,
            units,
        })
    })
}

/// Encodes each block once, and compares it with what C decodes.
pub(crate) fn frames(
    encoder: &mut Encoder,
    verifier: &mut Decoder,
    level: i32,
    blocks: &[&[u8]],
) -> Result<Vec<Vec<u8>>, String> {
    let mut frames = Vec::new();
    for block in blocks {
        let mut frame = vec![0; Encoder::bound(block.len())];
        let len = encoder.encode(level, block, &mut frame)?;
        frame.truncate(len);
        let mut content = vec![0; block.len()];
        let len = verifier.decode(&frame, &mut content)?;
        if content[..len] != **block {
            return Err(format!("C decodes something else from {}", encoder.name()));
        }
        frames.push(frame);
    }
    Ok(frames)
}

/// Decodes frames, which are those of the blocks.
pub(crate) fn decode_turn<'a>(
    decoder: &'a mut Decoder,
    frames: &'a [Vec<u8>],
    blocks: &'a [&[u8]],
) -> Turn<'a> {
    let longest = blocks.iter().map(|block| block.len()).max();
    let mut output = vec![0; longest.unwrap_or_default()];
    Box::new(move |units| {
        let mut time = Duration::ZERO;
        for (frame, block) in frames.iter().zip(blocks).take(units) {
            let start = Instant::now();
            let len = decoder.decode(frame, &mut output)?;
            time += start.elapsed();
            if output[..len] != **block {
                return Err(format!("{} decoded something else", decoder.name()));
            }
        }
        Ok(time)
    })
}

/// Encodes blocks, whose frames must be the given ones.
pub(crate) fn encode_turn<'a>(
    encoder: &'a mut Encoder,
    level: i32,
    frames: Vec<Vec<u8>>,
    blocks: &'a [&[u8]],
) -> Turn<'a> {
    let longest = blocks.iter().map(|block| block.len()).max();
    let mut output = vec![0; Encoder::bound(longest.unwrap_or_default())];
    Box::new(move |units| {
        let mut time = Duration::ZERO;
        for (frame, block) in frames.iter().zip(blocks).take(units) {
            let start = Instant::now();
            let len = encoder.encode(level, block, &mut output)?;
            time += start.elapsed();
            if output[..len] != **frame {
                return Err(format!("{} made another frame than before", encoder.name()));
            }
        }
        Ok(time)
    })
}
