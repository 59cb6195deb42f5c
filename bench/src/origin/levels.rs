//! Levels -15 to 15 as btrfs uses them: frames of 128 KiB, and the memory to make one in pieces.

use std::time::{Duration, Instant};

use zstd::{Params, stream_workspace_size};
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer};

use super::page::{Shown, cell, geometric, markdown, mb, over, speeds};
use super::record::Record;
use super::settings::Settings;
use crate::measure;
use crate::peers::{Decoder, Encoder};

/// Bytes of a workspace by the levels that share it, as the kernel has requested since January 2025 for 128 KiB.
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
const PEERS: [(&str, &str); 2] = [("C", "c"), ("ours", "ours")];

fn levels() -> impl Iterator<Item = i32> {
    (-15..=15).filter(|level| *level != 0)
}

pub(super) fn measure(settings: &Settings, record: &mut Record) -> Result<(), String> {
    measure::pin(settings.cpu)?;
    let (files, said) = settings.silesia(settings.bytes_or(BYTES))?;
    record.say("peers", format!("libzstd {}", zstd_safe::version_string()));
    let rounds = settings.rounds_or(ROUNDS);
    record.say(
        "data",
        format!("Blocks of 128 KiB: {said}; medians of {rounds} rounds"),
    );
    let blocks: Vec<&[u8]> = files
        .iter()
        .flat_map(|(_, bytes)| bytes.chunks(BLOCK))
        .collect();
    let bytes: usize = blocks.iter().map(|block| block.len()).sum();
    let mut frame = vec![0; Encoder::bound(BLOCK)];
    let mut content = vec![0; BLOCK];
    let mut codecs = Vec::new();
    for (who, peer) in PEERS {
        codecs.push((who, Encoder::new(peer)?, Decoder::new(peer)?));
    }
    for level in levels() {
        let row = level.to_string();
        // The frames of each, decoded by C; and C's frames, which both decode in the rounds.
        let mut frames: Vec<Vec<Vec<u8>>> = Vec::new();
        for at in 0..codecs.len() {
            let mut made = Vec::new();
            for block in &blocks {
                let len = codecs[at].1.encode(level, block, &mut frame)?;
                let len_back = codecs[0].2.decode(&frame[..len], &mut content)?;
                if content[..len_back] != **block {
                    return Err(format!(
                        "level {level}: C decodes something else from {}",
                        codecs[at].0
                    ));
                }
                made.push(frame[..len].to_vec());
            }
            let size: usize = made.iter().map(Vec::len).sum();
            let who = codecs[at].0;
            record.add("levels", &row, who, "bytes out", size as f64);
            record.add("levels", &row, who, "bytes in", bytes as f64);
            frames.push(made);
        }
        for round in 0..rounds {
            for at in measure::order(round, codecs.len()) {
                let (who, encoder, decoder) = &mut codecs[at];
                let mut times = [Duration::ZERO; 2];
                for (number, block) in blocks.iter().enumerate() {
                    let start = Instant::now();
                    let len = encoder.encode(level, block, &mut frame)?;
                    times[0] += start.elapsed();
                    if frame[..len] != frames[at][number] {
                        return Err(format!(
                            "level {level}: {who} made another frame than before"
                        ));
                    }
                    let start = Instant::now();
                    let len = decoder.decode(&frames[0][number], &mut content)?;
                    times[1] += start.elapsed();
                    if content[..len] != **block {
                        return Err(format!("level {level}: {who} decodes something else"));
                    }
                }
                for (metric, time) in ["compress", "decompress"].into_iter().zip(times) {
                    record.add("levels", &row, who, metric, time.as_secs_f64());
                }
            }
        }
        record.add("levels", &row, "C", "memory", c_memory(level)? as f64);
        let params = Params::for_level(level, Some(BLOCK as u64));
        record.add(
            "levels",
            &row,
            "ours",
            "memory",
            stream_workspace_size(&params) as f64,
        );
        println!("  level {level}");
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

pub(super) fn show(record: &Record) -> Shown {
    let of = |level: i32, who, metric| record.median("levels", &level.to_string(), who, metric);
    let ratio = |level, who| over(of(level, who, "bytes in"), of(level, who, "bytes out"));
    let speed = |level, who, metric| mb(over(of(level, who, "bytes in"), of(level, who, metric)));
    let published = |level: i32| {
        let found = PUBLISHED.iter().find(|(levels, _)| levels.contains(&level));
        mb(found.map(|(_, bytes)| *bytes))
    };
    let mut rows = Vec::new();
    for level in levels() {
        let mut row = vec![level.to_string()];
        row.extend(["C", "ours"].map(|who| cell(ratio(level, who), 3)));
        for metric in ["compress", "decompress"] {
            row.extend(["C", "ours"].map(|who| cell(speed(level, who, metric), 1)));
            row.push(cell(
                over(speed(level, "ours", metric), speed(level, "C", metric)),
                3,
            ));
        }
        row.push(cell(published(level), 2));
        row.extend(["C", "ours"].map(|who| cell(mb(of(level, who, "memory")), 2)));
        rows.push(row);
    }
    let mean = |metric| {
        let ratios = levels()
            .filter_map(|level| over(speed(level, "ours", metric), speed(level, "C", metric)));
        cell(geometric(ratios), 3)
    };
    let mut last = vec!["mean".to_owned()];
    last.extend(["-", "-", "-", "-"].map(str::to_owned));
    last.push(mean("compress"));
    last.extend(["-", "-"].map(str::to_owned));
    last.push(mean("decompress"));
    last.extend(["-", "-", "-"].map(str::to_owned));
    rows.push(last);
    let columns = [
        "level",
        "ratio, C",
        "ratio, ours",
        "compress MB/s, C",
        "ours",
        "ours to C",
        "decompress MB/s, C",
        "ours",
        "ours to C",
        "MB of memory, published",
        "C",
        "ours",
    ];
    let plots = ["compress", "decompress"].map(|metric| {
        let mut points = Vec::new();
        for (series, who) in ["C", "ours"].into_iter().enumerate() {
            for level in levels() {
                points.push((
                    series,
                    level.to_string(),
                    speed(level, who, metric),
                    ratio(level, who),
                ));
            }
        }
        (metric, points)
    });
    let plot = speeds(
        "Levels -15 to 15: ratio against speed",
        &["libzstd", "ours"],
        plots.into(),
        ["MB/s", "ratio"],
    );
    Shown {
        text: markdown(&columns, &rows),
        plot,
    }
}
