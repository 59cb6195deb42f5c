//! How fast the destination takes data.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use restow::plan::Medium;

/// Bytes that are written to learn it.
const BYTES: usize = 32 << 20;
/// Bytes of one write.
const WRITE_BYTES: usize = 1 << 20;
/// Syncs of one byte each, to learn how long one takes beside its bytes.
const SYNCS: u32 = 3;

/// A medium with this rate, or the one of the current directory, measured.
pub(super) fn of(rate: Option<f64>) -> Medium {
    let usual = Medium::default();
    match rate {
        Some(rate) => Medium { rate, ..usual },
        None => measured().unwrap_or(usual),
    }
}

fn measured() -> Option<Medium> {
    // Not all zeros: some media store those faster.
    let mut data: Vec<u8> = Vec::with_capacity(WRITE_BYTES);
    let mut state = 1u64;
    while data.len() < WRITE_BYTES {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        data.extend(state.to_be_bytes());
    }
    let start = Instant::now();
    let file = tree::spool(
        |file| {
            for _ in 0..BYTES / WRITE_BYTES {
                file.write_all(&data)?;
            }
            Ok(BYTES as u64)
        },
        Path::new("."),
    );
    let file = file.ok()?;
    let written = start.elapsed().as_secs_f64();
    let start = Instant::now();
    for at in 0..BYTES / WRITE_BYTES {
        file.read_exact_at(&mut data, (at * WRITE_BYTES) as u64)
            .ok()?;
    }
    let read = start.elapsed().as_secs_f64();
    let start = Instant::now();
    file.sync_all().ok()?;
    let synced = start.elapsed().as_secs_f64();
    let start = Instant::now();
    for at in 0..SYNCS {
        file.write_all_at(&[1], u64::from(at)).ok()?;
        file.sync_all().ok()?;
    }
    let sync_seconds = start.elapsed().as_secs_f64() / f64::from(SYNCS);
    Some(Medium {
        write_seconds: written / BYTES as f64,
        read_seconds: read / BYTES as f64,
        rate: BYTES as f64 / (synced - sync_seconds).max(1e-6),
        sync_seconds,
    })
}
