//! What the devices of the kernel modules must say: the loops of `kmod/zstd_compress_test.c` and
//! `kmod/zstd_decompress_test.c` in user space.
//!
//! `device FILE FOLDER LEVEL...` compresses FILE at each level, 4,096 bytes at a time, into
//! `FOLDER/zst/LEVEL.zst`. Lines of `FOLDER/compressed` have the level, length and XXH64 of each;
//! lines of `FOLDER/hashes` the name and value of hashes of FILE; and `FOLDER/sizes` its length and
//! XXH64. A third of the frames of this crate's tests, and each of those with a changed byte, are
//! put into `FOLDER/good` or `FOLDER/bad`, as they are decoded or not.
use std::error::Error;
use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

use xxhash::{xxh32, xxh64};
use zstd::{DecodeOptions, Decoder, Encoder, Finish, Params, Status, stream_workspace_size};

/// What a device takes and gives at once.
const PIECE: usize = 4096;

/// The window for which the device that decodes the frames of the tests has room.
const WINDOW: u64 = 8 << 20;

/// One frame in three is tried, and no frame longer than 16 KiB: the emulated machine that reads
/// them is slow.
const FRAMES_SHARE: usize = 3;
const FRAME_MAX: usize = 16 << 10;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let (Some(file), Some(folder)) = (arguments.next(), arguments.next()) else {
        return Err("usage: device FILE FOLDER LEVEL...".into());
    };
    let folder = Path::new(&folder);
    for name in ["zst", "good", "bad"] {
        fs::create_dir_all(folder.join(name))?;
    }
    let content = fs::read(&file)?;
    let mut compressed = String::new();
    for level in arguments {
        let frame = compress(&content, level.parse()?)?;
        let hash = xxh64(&frame, 0);
        writeln!(compressed, "{level} {} {hash:016x}", frame.len())?;
        fs::write(folder.join(format!("zst/{level}.zst")), frame)?;
    }
    fs::write(folder.join("compressed"), compressed)?;
    let hash = xxh64(&content, 0);
    let sizes = format!("{} {hash:016x}\n", content.len());
    fs::write(folder.join("sizes"), sizes)?;
    let (short, crc) = (xxh32(&content, 0), crc32(&content));
    let hashes = format!("xxh32 {short:08x}\nxxh64 {hash:016x}\ncrc32 {crc:08x}\n");
    fs::write(folder.join("hashes"), hashes)?;
    judge(folder)
}

/// The frame of a stream of content of unknown size.
fn compress(content: &[u8], level: i32) -> Result<Vec<u8>, zstd::Error> {
    let params = Params::for_level(level, None);
    let mut workspace = vec![0; stream_workspace_size(&params)];
    let mut encoder = Encoder::new(&params, &mut workspace)?;
    let mut frame = Vec::new();
    let mut out = [0; PIECE];
    for mut piece in content.chunks(PIECE) {
        while !piece.is_empty() {
            let progress = encoder.step(piece, &mut out, Finish::Nothing)?;
            frame.extend_from_slice(&out[..progress.written]);
            piece = &piece[progress.read..];
        }
    }
    loop {
        let progress = encoder.step(&[], &mut out, Finish::Frame)?;
        frame.extend_from_slice(&out[..progress.written]);
        if progress.held == 0 {
            return Ok(frame);
        }
    }
}

/// Sorts the frames of the tests by whether they are decoded.
fn judge(folder: &Path) -> Result<(), Box<dyn Error>> {
    let cases = env::var("RESTOW_CASES").ok();
    let changes: u64 = cases.as_ref().map_or(Ok(1), |cases| cases.parse())?;
    let share = cases.map_or(FRAMES_SHARE, |_| 1);
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let mut workspace = vec![0; Decoder::workspace_size(WINDOW).unwrap_or_default()];
    let mut paths = Vec::new();
    for entry in fs::read_dir(testdata)? {
        paths.push(entry?.path());
    }
    paths.sort();
    for path in paths.iter().step_by(share) {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        if path.extension().is_none_or(|extension| extension != "zst") {
            continue;
        }
        let frame = fs::read(path)?;
        if frame.len() > FRAME_MAX {
            continue;
        }
        for change in 0..=changes {
            let mut frame = frame.clone();
            if change > 0 {
                // Somewhere behind the magic number.
                let at =
                    4 + xxh64(&frame, change - 1) as usize % frame.len().saturating_sub(4).max(1);
                if let Some(byte) = frame.get_mut(at) {
                    *byte ^= 0x10;
                }
            }
            let verdict = if is_decoded(&frame, &mut workspace) {
                "good"
            } else {
                "bad"
            };
            fs::write(folder.join(format!("{verdict}/{name}-{change}")), &frame)?;
        }
    }
    Ok(())
}

/// Whether the bytes are whole frames, all of which are decoded.
fn is_decoded(bytes: &[u8], workspace: &mut [u8]) -> bool {
    let Ok(mut decoder) = Decoder::new(DecodeOptions::new(), workspace) else {
        return false;
    };
    let mut out = [0; PIECE];
    let mut is_whole = true;
    for mut piece in bytes.chunks(PIECE) {
        loop {
            let Ok(progress) = decoder.step(piece, &mut out) else {
                return false;
            };
            piece = &piece[progress.read..];
            is_whole = progress.status == Status::Done;
            if piece.is_empty() && (is_whole || progress.written < PIECE) {
                break;
            }
        }
    }
    is_whole
}

/// The CRC32 of gzip, a bit at a time.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| (crc >> 1) ^ if crc & 1 == 1 { 0xEDB8_8320 } else { 0 };
    let add = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc));
    !bytes.iter().fold(!0, add)
}
