//! XXH32 and XXH64 of buffers that fit the first cache, the second, and neither.

use crate::measure::{self, Turn};
use crate::options::Options;
use crate::table::{Form, Row, Table};
use std::hint::black_box;
use std::time::Instant;

type Hash = fn(&[u8]) -> u64;

const PEERS: [(&str, Hash, Hash); 3] = [
    (
        "xxhash-rust",
        |data| u64::from(xxhash_rust::xxh32::xxh32(data, 0)),
        |data| xxhash_rust::xxh64::xxh64(data, 0),
    ),
    (
        "twox-hash",
        |data| u64::from(twox_hash::XxHash32::oneshot(0, data)),
        |data| twox_hash::XxHash64::oneshot(0, data),
    ),
    (
        "ours",
        |data| u64::from(xxhash::xxh32(data, 0)),
        |data| xxhash::xxh64(data, 0),
    ),
];

/// Bytes hashed in one round, whatever the size of the buffer.
const ROUND: usize = 20_000_000;

pub(crate) fn hash(options: &Options) -> Result<Table, String> {
    measure::pin(options.cpu)?;
    let names = options.peers_or(&["xxhash-rust", "twox-hash", "ours"]);
    let mut peers = Vec::new();
    for name in &names {
        let peer = PEERS.iter().find(|(peer, ..)| peer == name);
        peers.push(peer.ok_or(format!("no hash is called {name}"))?);
    }
    let mut table = Table::new(Form::Codecs, &names);
    let buffer: Vec<u8> = (0..10_000_000u32)
        .map(|i| (i.wrapping_mul(0x9E37_79B1) >> 24) as u8)
        .collect();
    for (kind, pick) in [("XXH64", 1), ("XXH32", 0)] {
        for (size_name, size) in [
            ("4 KiB", 4 << 10),
            ("128 KiB", 128 << 10),
            ("10 MB", 10_000_000),
        ] {
            let data = &buffer[..size];
            let hash_of = |peer: &(&str, Hash, Hash)| if pick == 0 { peer.1 } else { peer.2 };
            let want = hash_of(peers[0])(data);
            let mut turns: Vec<Turn> = Vec::new();
            for peer in &peers {
                let hash = hash_of(peer);
                turns.push(Box::new(move |_| {
                    let start = Instant::now();
                    let mut got = 0;
                    for _ in 0..ROUND / size {
                        got = hash(black_box(data));
                    }
                    let time = start.elapsed();
                    if got == want {
                        Ok(time)
                    } else {
                        Err(format!("{} differs", peer.0))
                    }
                }));
            }
            let rounds = measure::rounds(&mut turns, 1, options.seconds)?;
            table.print_and_add(Row {
                corpus: kind.into(),
                level: size_name.into(),
                bytes: ROUND / size * size,
                sizes: Vec::new(),
                cpu: Vec::new(),
                memory: String::new(),
                rounds,
            });
        }
    }
    table.print_end();
    Ok(table)
}
