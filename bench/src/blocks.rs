//! Independent frames of one block size, as file systems keep them: each peer decodes or encodes one at a time in a
//! context that it reuses, from memory to memory.

use crate::measure::Turn;
use crate::options::Options;
use crate::peers::{Decoder, Encoder};
use crate::rows;
use crate::table::Table;
use std::cell::RefCell;
use std::time::{Duration, Instant};

/// Frames that C makes (level as asked, content size in the header, no checksum) are decoded.
pub(crate) fn decode(options: &Options) -> Result<Table, String> {
    let peers = options.peers_or(&["c", "ours"]);
    let decoders: Vec<_> = decoders(&peers)?;
    rows::of_all(options, &peers, |corpus, level| {
        let blocks = corpus.blocks(options.block, options.sample);
        let mut c = Encoder::new("c")?;
        let mut frames = Vec::new();
        for block in &blocks {
            let mut frame = vec![0; Encoder::bound(block.len())];
            let len = c.encode(level, block, &mut frame)?;
            frame.truncate(len);
            frames.push(frame);
        }
        let mut turns: Vec<Turn> = Vec::new();
        for decoder in &decoders {
            let (frames, blocks) = (&frames, &blocks);
            let mut output = vec![0; options.block];
            turns.push(Box::new(move |units| {
                let decoder = &mut *decoder.borrow_mut();
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
            }));
        }
        let units = blocks.len();
        let bytes = bytes_of(&blocks);
        rows::measure(options, corpus, level, Vec::new(), &mut turns, units, bytes)
    })
}

/// Blocks are encoded at a level. C decodes each peer's first frames, later ones must be equal to the first.
pub(crate) fn encode(options: &Options) -> Result<Table, String> {
    let peers = options.peers_or(&["c", "ours"]);
    let mut encoders = Vec::new();
    for peer in &peers {
        encoders.push(RefCell::new(Encoder::new(peer)?));
    }
    rows::of_all(options, &peers, |corpus, level| {
        let blocks = corpus.blocks(options.block, options.sample);
        let mut c = Decoder::new("c")?;
        let mut sizes = Vec::new();
        let mut turns: Vec<Turn> = Vec::new();
        for encoder in &encoders {
            // The whole sample once, for its size.
            let mut frames = Vec::new();
            let mut decoded = vec![0; options.block];
            for block in &blocks {
                let encoder = &mut *encoder.borrow_mut();
                let mut frame = vec![0; Encoder::bound(block.len())];
                let len = encoder.encode(level, block, &mut frame)?;
                frame.truncate(len);
                let len = c.decode(&frame, &mut decoded)?;
                if decoded[..len] != **block {
                    return Err(format!("C decodes something else from {}", encoder.name()));
                }
                frames.push(frame);
            }
            sizes.push(frames.iter().map(Vec::len).sum());

            let blocks = &blocks;
            let mut output = vec![0; Encoder::bound(options.block)];
            turns.push(Box::new(move |units| {
                let encoder = &mut *encoder.borrow_mut();
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
            }));
        }
        let units = blocks.len();
        let bytes = bytes_of(&blocks);
        rows::measure(options, corpus, level, sizes, &mut turns, units, bytes)
    })
}

/// Bytes of the first blocks, by their number.
fn bytes_of(blocks: &[&[u8]]) -> impl Fn(usize) -> usize {
    |units| blocks.iter().take(units).map(|block| block.len()).sum()
}

fn decoders(peers: &[String]) -> Result<Vec<RefCell<Decoder>>, String> {
    peers
        .iter()
        .map(|peer| Ok(RefCell::new(Decoder::new(peer)?)))
        .collect()
}
