//! One frame of unknown content size, fed and taken in 4096-byte pieces: how the kernel's file
//! systems and pipes call a codec.

use std::time::Instant;

use crate::measure::Turn;
use crate::options::Options;
use crate::peers::{Decoder, Encoder};
use crate::record::TableRecord;
use crate::rows::{self, RowTurns};

/// Decodes a frame of C.
pub(crate) fn decode(options: &Options, record: &mut TableRecord) -> Result<(), String> {
    let peers = options.peers_or(&["c", "ours"]);
    rows::of_all(options, record, &peers, |corpus, level, measure| {
        let content = corpus.start(options.sample());
        let frame = frame(&mut Encoder::new("c")?, level, content)?;
        let mut turns: Vec<Turn> = Vec::new();
        for peer in &peers {
            let mut decoder = Decoder::new(peer)?;
            let frame = &frame;
            let mut output = vec![0; content.len()];
            turns.push(Box::new(move |_| {
                let start = Instant::now();
                let len = decoder.decode_stream(frame, &mut output)?;
                let time = start.elapsed();
                if output[..len] != *content {
                    return Err(format!("{} decoded something else", decoder.name()));
                }
                Ok(time)
            }));
        }
        let (sizes, units) = (Vec::new(), vec![content.len()]);
        measure(RowTurns {
            turns,
            sizes,
            units,
        })
    })
}

/// Encodes a corpus' first bytes.
pub(crate) fn encode(options: &Options, record: &mut TableRecord) -> Result<(), String> {
    let peers = options.peers_or(&["c", "ours"]);
    rows::of_all(options, record, &peers, |corpus, level, measure| {
        let content = corpus.start(options.sample());
        let (mut turns, mut sizes): (Vec<Turn>, _) = (Vec::new(), Vec::new());
        for peer in &peers {
            let mut encoder = Encoder::new(peer)?;
            let frame = frame(&mut encoder, level, content)?;
            let mut decoded = vec![0; content.len()];
            let len = Decoder::new("c")?.decode_stream(&frame, &mut decoded)?;
            if decoded[..len] != *content {
                return Err(format!("C decodes something else from {peer}"));
            }
            sizes.push(frame.len());
            let mut output = vec![0; Encoder::bound(content.len())];
            turns.push(Box::new(move |_| {
                let start = Instant::now();
                let len = encoder.encode_stream(level, content, &mut output)?;
                let time = start.elapsed();
                if output[..len] != *frame {
                    return Err(format!("{} made another frame than before", encoder.name()));
                }
                Ok(time)
            }));
        }
        let units = vec![content.len()];
        measure(RowTurns {
            turns,
            sizes,
            units,
        })
    })
}

fn frame(encoder: &mut Encoder, level: i32, content: &[u8]) -> Result<Vec<u8>, String> {
    let mut frame = vec![0; Encoder::bound(content.len())];
    let len = encoder.encode_stream(level, content, &mut frame)?;
    frame.truncate(len);
    Ok(frame)
}
