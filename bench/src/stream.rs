//! One frame of unknown content size, fed and taken in 4096-byte pieces: how the kernel's file systems and
//! pipes call a codec.

use crate::measure::Turn;
use crate::options::Options;
use crate::peers::{Decoder, Encoder};
use crate::rows;
use crate::table::Table;
use std::time::Instant;

/// A frame that C makes is decoded.
pub(crate) fn decode(options: &Options) -> Result<Table, String> {
    let peers = options.peers_or(&["c", "ours"]);
    rows::of_all(options, &peers, |corpus, level| {
        let content = corpus.start(options.sample);
        let mut frame = vec![0; Encoder::bound(content.len())];
        let len = Encoder::new("c")?.encode_stream(level, content, &mut frame)?;
        frame.truncate(len);
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
        let bytes = |_| content.len();
        rows::measure(options, corpus, level, Vec::new(), &mut turns, 1, bytes)
    })
}

/// A corpus' first bytes are encoded.
pub(crate) fn encode(options: &Options) -> Result<Table, String> {
    let peers = options.peers_or(&["c", "ours"]);
    rows::of_all(options, &peers, |corpus, level| {
        let content = corpus.start(options.sample);
        let mut turns: Vec<Turn> = Vec::new();
        let mut sizes = Vec::new();
        for peer in &peers {
            let mut encoder = Encoder::new(peer)?;
            let mut frame = vec![0; Encoder::bound(content.len())];
            let len = encoder.encode_stream(level, content, &mut frame)?;
            frame.truncate(len);
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
        let bytes = |_| content.len();
        rows::measure(options, corpus, level, sizes, &mut turns, 1, bytes)
    })
}
