//! Levels -15 to 15 as btrfs uses them: frames of 128 KiB, and the memory to make one in pieces.

use zstd::{Params, stream_workspace_size};
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer};

use crate::blocks::{decode_turn, encode_turn, frames};
use crate::cells::{cell, markdown, mb, over};
use crate::measure::{self, geometric_mean};
use crate::options::Options;
use crate::peers::{Decoder, Encoder};
use crate::plot::speeds;
use crate::record::TableRecord;
use crate::rows;
use crate::table::RenderedTable;

/// Bytes of a workspace by the levels that share it, as the kernel has requested since January 2025
/// for 128 KiB.
const PUBLISHED: [(std::ops::RangeInclusive<i32>, f64); 8] = [
    (-15..=-1, 926_969.0),
    (1..=1, 943_353.0),
    (2..=2, 1_041_657.0),
    (3..=3, 1_303_801.0),
    (4..=11, 1_959_161.0),
    (12..=12, 2_483_449.0),
    (13..=13, 2_632_633.0),
    (14..=15, 3_277_111.0),
];

const BLOCK: usize = 128 << 10;
/// Bytes of the data, and rounds.
const BYTES: usize = 8 << 20;
const ROUNDS: usize = 9;
/// Names in the table, and of the codecs.
const PEERS: [(&str, &str); 2] = [("C", "c"), ("ours", "ours")];

fn levels() -> impl Iterator<Item = i32> {
    (-15..=15).filter(|level| *level != 0)
}

/// Measures all levels.
pub(crate) fn measure(options: &Options, record: &mut TableRecord) -> Result<(), String> {
    measure::pin(options.cpu)?;
    let (files, said) = options.silesia(options.bytes_or(BYTES))?;
    rows::say_peers(record, &PEERS.map(|(_, name)| name.to_owned()));
    let rounds = options.rounds_or(ROUNDS);
    record.say("rounds", format!("medians of {rounds}"));
    record.say("data", format!("Blocks of 128 KiB: {said}"));
    let blocks: Vec<&[u8]> = files
        .iter()
        .flat_map(|(_, bytes)| bytes.chunks(BLOCK))
        .collect();
    let bytes: usize = blocks.iter().map(|block| block.len()).sum();
    let mut verifier = Decoder::new("c")?;
    let mut codecs = Vec::new();
    for (peer, name) in PEERS {
        codecs.push((peer, Encoder::new(name)?, Decoder::new(name)?));
    }
    for level in levels() {
        let row = level.to_string();
        // Both decode the frames of C.
        let theirs = frames(&mut codecs[0].1, &mut verifier, level, &blocks)?;
        let mut turns = Vec::new();
        for (peer, encoder, decoder) in &mut codecs {
            let made = frames(encoder, &mut verifier, level, &blocks)?;
            let size: usize = made.iter().map(Vec::len).sum();
            record.add("levels", &row, peer, "bytes out", size as f64);
            record.add("levels", &row, peer, "bytes in", bytes as f64);
            let encode = encode_turn(encoder, level, made, &blocks);
            let decode = decode_turn(decoder, &theirs, &blocks);
            turns.push((peer, [("compress", encode), ("decompress", decode)]));
        }
        for round in 0..rounds {
            for at in measure::order(round, turns.len()) {
                let (peer, turns) = &mut turns[at];
                for (metric, turn) in turns {
                    let time = turn(blocks.len())?;
                    record.add("levels", &row, peer, metric, time.as_secs_f64());
                }
            }
        }
        let params = Params::for_level(level, Some(BLOCK as u64));
        let ours = stream_workspace_size(&params);
        record.add("levels", &row, "C", "memory", c_memory(level)? as f64);
        record.add("levels", &row, "ours", "memory", ours as f64);
        record.print_row("levels", &row);
    }
    Ok(())
}

/// Bytes of C's context after it has compressed a block of known size in pieces.
fn c_memory(level: i32) -> Result<usize, String> {
    let fault = |code| format!("C: {}", zstd_safe::get_error_name(code));
    let mut context = CCtx::try_create().ok_or("C has no memory")?;
    context
        .set_parameter(CParameter::CompressionLevel(level))
        .map_err(fault)?;
    context
        .set_pledged_src_size(Some(BLOCK as u64))
        .map_err(fault)?;
    let (block, mut room) = (vec![0; BLOCK], vec![0; 4096]);
    for piece in block.chunks(4096) {
        let mut piece = InBuffer::around(piece);
        while piece.pos() < piece.src.len() {
            let mut out = OutBuffer::around(&mut room[..]);
            context
                .compress_stream(&mut out, &mut piece)
                .map_err(fault)?;
        }
    }
    Ok(context.sizeof())
}

/// The table.
pub(crate) fn show(record: &TableRecord) -> RenderedTable {
    let of = |level: i32, peer: &str, metric: &str| {
        record.value("levels", &level.to_string(), peer, metric)
    };
    let ratio = |level, peer| over(of(level, peer, "bytes in"), of(level, peer, "bytes out"));
    let speed =
        |level, peer, metric| mb(over(of(level, peer, "bytes in"), of(level, peer, metric)));
    let to_c = |level, metric| over(speed(level, "ours", metric), speed(level, "C", metric));
    let published = |level: i32| {
        let found = PUBLISHED.iter().find(|(levels, _)| levels.contains(&level));
        mb(found.map(|(_, bytes)| *bytes))
    };
    let (peers, metrics) = (["C", "ours"], ["compress", "decompress"]);
    let mut rows = Vec::new();
    for level in levels() {
        let mut row = vec![level.to_string()];
        row.extend(peers.map(|peer| cell(ratio(level, peer), 3)));
        for metric in metrics {
            row.extend(peers.map(|peer| cell(speed(level, peer, metric), 1)));
            row.push(cell(to_c(level, metric), 3));
        }
        row.push(cell(published(level), 2));
        row.extend(peers.map(|peer| cell(mb(of(level, peer, "memory")), 2)));
        rows.push(row);
    }
    let mut means = vec!["-".to_owned(); 12];
    means[0] = "mean".to_owned();
    for (metric, at) in metrics.into_iter().zip([5, 8]) {
        let ratios: Vec<f64> = levels().filter_map(|level| to_c(level, metric)).collect();
        let mean = geometric_mean(ratios.iter().copied());
        means[at] = cell((!ratios.is_empty()).then_some(mean), 3);
    }
    rows.push(means);
    let plots = metrics.map(|metric| {
        let points = peers.into_iter().enumerate().flat_map(|(series, peer)| {
            levels().map(move |level| {
                let (x, y) = (speed(level, peer, metric), ratio(level, peer));
                (series, level.to_string(), x, y)
            })
        });
        (metric, points.collect())
    });
    let columns = "level | ratio, C | ratio, ours | compress MB/s, C | ours | ours to C \
        | decompress MB/s, C | ours | ours to C | MB of memory, published | C | ours";
    RenderedTable {
        text: markdown(columns, &rows),
        plot: Some(speeds(
            "Levels -15 to 15: ratio against speed",
            &["libzstd", "ours"],
            plots.into(),
            ["MB/s", "ratio"],
        )),
    }
}
