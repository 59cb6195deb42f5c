//! The hash benchmark: a file is copied into a buffer, and the buffer hashed, piece by piece.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant;

use super::page::{Shown, cell, markdown, over, speeds};
use super::peers::Peers;
use super::record::Record;
use super::settings::Settings;
use super::work::Work;
use crate::measure;

/// Adjusted GB/s of xxh32, xxh64 and crc32 by the KiB of the buffer: from the commit that added xxHash to Linux 4.14.
const PUBLISHED: [(&str, [f64; 3]); 4] = [
    ("1", [6.37, 11.46, 1.74]),
    ("4", [5.79, 12.80, 1.95]),
    ("8", [5.84, 13.60, 1.89]),
    ("16", [6.30, 12.80, 1.84]),
];

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

pub(super) fn measure(settings: &Settings, record: &mut Record) -> Result<(), String> {
    measure::pin(settings.cpu)?;
    let (files, said) = settings.silesia(settings.bytes_or(BYTES))?;
    let data: Vec<u8> = files.into_iter().flat_map(|(_, bytes)| bytes).collect();
    let work = Work::new(settings)?;
    let peers = Peers::build(&work, record);
    let versions = peers.as_ref().map_or("no zlib", |peers| &peers.versions);
    record.say(
        "peers",
        format!("C: {versions}, crc32 of zlib; ours: xxhash of this repository, crc32 of flate2"),
    );
    let rounds = settings.rounds_or(ROUNDS);
    record.say("data", format!("In place of filesystem.squashfs of Ubuntu 16.10: {said}, one after another; medians of {rounds} rounds"));
    let path = work.write("data", &data)?;
    for (kib, _) in PUBLISHED {
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
fn adjusted(record: &Record, kib: &str, name: &str, who: &str) -> Option<f64> {
    let of = |name| record.median(kib, name, who, "seconds");
    let bytes = record.median(kib, "copy", "ours", "bytes")?;
    let seconds = of(name)? - of("copy")?;
    (seconds > 0.0).then_some(bytes / 1e9 / seconds)
}

pub(super) fn show(record: &Record) -> Shown {
    let mut rows = Vec::new();
    let mut points = Vec::new();
    let now = |kib, name, who| adjusted(record, kib, name, who);
    for (at, name) in NAMES.into_iter().enumerate() {
        for (kib, published) in PUBLISHED {
            let first = Some(PUBLISHED[0].1[0]);
            let (c, ours) = (now(kib, name, "C"), now(kib, name, "ours"));
            let to_first = |value, who| cell(over(value, now("1", "xxh32", who)), 3);
            rows.push(vec![
                name.to_owned(),
                kib.to_owned(),
                cell(over(Some(published[at]), first), 3),
                to_first(c, "C"),
                to_first(ours, "ours"),
                cell(c, 2),
                cell(ours, 2),
                cell(over(ours, c), 3),
            ]);
            let x = kib.parse().ok();
            points.push((2 * at, format!("{name} C"), x, c));
            points.push((2 * at + 1, name.to_owned(), x, ours));
        }
    }
    points.sort_by_key(|(series, ..)| *series);
    let columns = [
        "hash",
        "KiB of the buffer",
        "to xxh32 of 1 KiB, published",
        "C",
        "ours",
        "adjusted GB/s, C",
        "adjusted GB/s, ours",
        "ours to C",
    ];
    let series = [
        "xxh32 C",
        "xxh32 ours",
        "xxh64 C",
        "xxh64 ours",
        "crc32 C",
        "crc32 ours",
    ];
    let plots = vec![("Hashes", points)];
    let plot = speeds(
        "Hashes: speed by the size of the buffer",
        &series,
        plots,
        ["KiB of the buffer", "adjusted GB/s"],
    );
    Shown {
        text: markdown(&columns, &rows),
        plot,
    }
}
