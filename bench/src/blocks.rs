//! Independent frames of one block size, as file systems keep them: each peer decodes or encodes one at a time in a
//! context that it reuses, from memory to memory.

use crate::corpus::{self, Corpus};
use crate::measure::{self, Turn};
use crate::options::Options;
use crate::peers::{Decoder, Encoder};
use crate::record::Record;
use crate::table::{self, Row};
use std::cell::RefCell;
use std::time::{Duration, Instant};

/// Frames that C makes (level as asked, content size in the header, no checksum) are decoded.
pub(crate) fn decode(options: &Options) -> Result<(), String> {
    let peers = options.peers_or(&["c", "ours"]);
    let decoders: Vec<_> = decoders(&peers)?;
    run(options, "decode", &peers, false, |corpus, level| {
        let blocks = corpus.blocks(options.block, options.sample);
        let mut c = Encoder::new("c")?;
        let mut frames = Vec::new();
        for block in &blocks {
            let mut frame = vec![0; bound(block.len())];
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
        measure_row(options, corpus, level, &blocks, Vec::new(), &mut turns)
    })
}

/// Blocks are encoded at a level. C decodes each peer's first frames, later ones must be equal to the first.
pub(crate) fn encode(options: &Options) -> Result<(), String> {
    let peers = options.peers_or(&["c", "ours"]);
    let mut encoders = Vec::new();
    for peer in &peers {
        encoders.push(RefCell::new(Encoder::new(peer)?));
    }
    run(options, "encode", &peers, true, |corpus, level| {
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
                let mut frame = vec![0; bound(block.len())];
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
            let mut output = vec![0; bound(options.block)];
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
        measure_row(options, corpus, level, &blocks, sizes, &mut turns)
    })
}

/// Runs `row` for every corpus and level, prints the table and keeps the record.
pub(crate) fn run<'a>(
    options: &Options,
    work: &str,
    peers: &[String],
    sizes: bool,
    row: impl Fn(&Corpus, i32) -> Result<Row, String> + 'a,
) -> Result<(), String> {
    measure::pin(options.cpu)?;
    let mut record = Record::new(work, peers, options);
    let mut rows = Vec::new();
    println!("{}", table::head(peers, sizes));
    for corpus in corpus::load(options)? {
        for level in &options.levels {
            let row = row(&corpus, *level)?;
            println!("{}", table::line(&row));
            record.add(&row);
            rows.push(row);
        }
    }
    println!("{}\n\n{}", table::means(&rows), table::curve(peers, &rows));
    record.store()
}

fn measure_row(
    options: &Options,
    corpus: &Corpus,
    level: i32,
    blocks: &[&[u8]],
    sizes: Vec<usize>,
    turns: &mut [Turn],
) -> Result<Row, String> {
    let rounds = if options.profile {
        measure::profile(turns, blocks.len(), options.seconds)?
    } else {
        measure::rounds(turns, blocks.len(), options.seconds)?
    };
    let bytes = blocks
        .iter()
        .take(rounds.units)
        .map(|block| block.len())
        .sum();
    Ok(Row {
        corpus: corpus.name.clone(),
        level: level.to_string(),
        bytes,
        sizes,
        rounds,
    })
}

fn decoders(peers: &[String]) -> Result<Vec<RefCell<Decoder>>, String> {
    peers
        .iter()
        .map(|peer| Ok(RefCell::new(Decoder::new(peer)?)))
        .collect()
}

/// Room for any frame of this content.
pub(crate) fn bound(len: usize) -> usize {
    len + len / 64 + 1024
}
