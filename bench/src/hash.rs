//! XXH32 and XXH64 of buffers that fit the first cache, the second, and neither.

use std::hint::black_box;
use std::time::Instant;

use crate::measure::{self, Turn};
use crate::options::Options;
use crate::record::TableRecord;
use crate::rows::{self, RowTurns};

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

/// Hashes buffers of three sizes with each peer.
pub(crate) fn hash(options: &Options, record: &mut TableRecord) -> Result<(), String> {
    measure::pin(options.cpu)?;
    let names = options.peers_or(&["xxhash-rust", "twox-hash", "ours"]);
    let mut peers = Vec::new();
    for name in &names {
        let peer = PEERS.iter().find(|(peer, ..)| peer == name);
        peers.push(peer.ok_or(format!("no hash is called {name}"))?);
    }
    rows::say_peers(record, &names);
    let buffer: Vec<u8> = (0..10_000_000u32)
        .map(|i| (i.wrapping_mul(0x9E37_79B1) >> 24) as u8)
        .collect();
    for kind in ["XXH64", "XXH32"] {
        for (row, size) in [
            ("4 KiB", 4 << 10),
            ("128 KiB", 128 << 10),
            ("10 MB", 10_000_000),
        ] {
            let data = &buffer[..size];
            let hash_of = |peer: &(&str, Hash, Hash)| if kind == "XXH32" { peer.1 } else { peer.2 };
            let want = hash_of(peers[0])(data);
            let turn = |peer: &&'static (&'static str, Hash, Hash)| -> Turn {
                let (hash, name) = (hash_of(peer), peer.0);
                Box::new(move |_| {
                    let start = Instant::now();
                    let mut got = 0;
                    for _ in 0..ROUND / size {
                        got = hash(black_box(data));
                    }
                    let time = start.elapsed();
                    (got == want)
                        .then_some(time)
                        .ok_or_else(|| format!("{name} differs"))
                })
            };
            let turns = RowTurns {
                turns: peers.iter().map(turn).collect(),
                sizes: Vec::new(),
                units: vec![ROUND / size * size],
            };
            rows::measure(options, record, &names, [kind, row], turns)?;
        }
    }
    Ok(())
}
