//! The hash benchmark: a file is copied into a buffer, and the buffer hashed, piece by piece.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant;

use super::peers::CPeers;
use crate::cells::{cell, markdown, over};
use crate::measure;
use crate::options::Options;
use crate::plot::speeds;
use crate::record::TableRecord;
use crate::scratch::ScratchDir;
use crate::table::RenderedTable;

/// KiB of the buffers.
const BUFFERS: [&str; 4] = ["1", "4", "8", "16"];

const NAMES: [&str; 3] = ["xxh32", "xxh64", "crc32"];

/// Bytes of the data, and rounds.
const BYTES: usize = 32 << 20;
const ROUNDS: usize = 41;

/// A hash of this build as a number.
fn hash(name: &str, data: &[u8]) -> u64 {
    match name {
        "xxh32" => xxhash::xxh32(data, 0).into(),
        "xxh64" => xxhash::xxh64(data, 0),
        "crc32" => {
            let mut crc = flate2::Crc::new();
            crc.update(data);
            crc.sum().into()
        }
        _ => 0,
    }
}

/// Seconds for all whole buffers of the data, and the sum of the values.
fn turn(name: &str, data: &[u8], buffer: &mut [u8]) -> (f64, u64) {
    let mut sum = 0u64;
    let start = Instant::now();
    for piece in data.chunks_exact(buffer.len()) {
        buffer.copy_from_slice(piece);
        sum = sum.wrapping_add(hash(name, black_box(buffer)));
    }
    (start.elapsed().as_secs_f64(), sum)
}

/// Measures all hashes in buffers of all sizes.
pub(crate) fn measure(options: &Options, record: &mut TableRecord) -> Result<(), String> {
    measure::pin(options.cpu)?;
    let (files, said) = options.silesia(options.bytes_or(BYTES))?;
    let data: Vec<u8> = files.into_iter().flat_map(|(_, bytes)| bytes).collect();
    let scratch = ScratchDir::new(options)?;
    let peers = CPeers::build(&scratch, record);
    let versions = peers.as_ref().map_or("no zlib", |peers| &peers.versions);
    record.say(
        "peers",
        format!("C: {versions}, crc32 of zlib; ours: xxhash of this repository, crc32 of flate2"),
    );
    let rounds = options.rounds_or(ROUNDS);
    record.say("rounds", format!("medians of {rounds}"));
    let instead = "In place of filesystem.squashfs of Ubuntu 16.10";
    record.say("data", format!("{instead}: {said}, one after another"));
    let path = scratch.write("data", &data)?;
    for kib in BUFFERS {
        let size = kib.parse::<usize>().map_err(|_| "a size is no number")? << 10;
        let mut buffer = vec![0; size];
        let hashed = data.len() / size * size;
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for _ in 0..rounds {
            for name in ["copy"].into_iter().chain(NAMES) {
                let (seconds, ours) = turn(name, &data, &mut buffer);
                record.add(kib, name, "ours", "seconds", seconds);
                if let Some(peers) = &peers {
                    let numbers = peers.run(&[name, &size.to_string(), &path])?;
                    let [nanoseconds, theirs] = numbers[..] else {
                        return Err("the peer in C prints something else".into());
                    };
                    record.add(kib, name, "C", "seconds", nanoseconds as f64 / 1e9);
                    if theirs != ours {
                        return Err(format!("{name} of C and ours differ"));
                    }
                }
                if *sums.entry(name).or_insert(ours) != ours {
                    return Err(format!("{name} changes from round to round"));
                }
            }
        }
        record.add(kib, "copy", "ours", "bytes", hashed as f64);
    }
    Ok(())
}

/// GB/s without the time of copying.
fn adjusted(record: &TableRecord, kib: &str, name: &str, peer: &str) -> Option<f64> {
    let of = |name| record.value(kib, name, peer, "seconds");
    let bytes = record.value(kib, "copy", "ours", "bytes")?;
    let seconds = of(name)? - of("copy")?;
    (seconds > 0.0).then_some(bytes / 1e9 / seconds)
}

/// The table.
pub(crate) fn show(record: &TableRecord) -> RenderedTable {
    let then = TableRecord::parse(include_str!("hash.txt")).unwrap_or_default();
    let speed = |kib: &str, name: &str, peer: &str| match peer {
        "published" => then.value(kib, name, peer, "GB/s"),
        _ => adjusted(record, kib, name, peer),
    };
    let (mut rows, mut points) = (Vec::new(), Vec::new());
    for (at, name) in NAMES.into_iter().enumerate() {
        for kib in BUFFERS {
            let mut row = vec![name.to_owned(), kib.to_owned()];
            row.extend(["published", "C", "ours"].map(|peer| {
                let first = speed(BUFFERS[0], NAMES[0], peer);
                cell(over(speed(kib, name, peer), first), 3)
            }));
            let [c, ours] = ["C", "ours"].map(|peer| speed(kib, name, peer));
            row.extend([cell(c, 2), cell(ours, 2), cell(over(ours, c), 3)]);
            rows.push(row);
            let x = kib.parse().ok();
            points.push((2 * at, format!("{name} C"), x, c));
            points.push((2 * at + 1, name.to_owned(), x, ours));
        }
    }
    points.sort_by_key(|(series, ..)| *series);
    let columns = "hash | KiB of the buffer | to xxh32 of 1 KiB, published | C | ours \
        | adjusted GB/s, C | adjusted GB/s, ours | ours to C";
    let series = NAMES.map(|name| ["C", "ours"].map(|peer| format!("{name} {peer}")));
    let series: Vec<&str> = series.iter().flatten().map(String::as_str).collect();
    RenderedTable {
        text: markdown(columns, &rows),
        plot: Some(speeds(
            "Hashes: speed by the size of the buffer",
            &series,
            vec![("Hashes", points)],
            ["KiB of the buffer", "adjusted GB/s"],
        )),
    }
}
