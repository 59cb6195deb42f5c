//! zstd frames with a table of their places, of which some entries are wrong.
//!
//! Asserts: no panic; a part of the content is as in the whole; with a right table, the content is
//! that which was compressed.
//!
//! `cargo +nightly fuzz run seekable`
#![cfg_attr(not(test), no_main)]

use libfuzzer_sys::fuzz_target;
use tree::{ReadAt, Seekable};

const SKIPPABLE: u32 = 0x184d_2a5e;
const SEEKABLE: u32 = 0x8f92_eab1;

fuzz_target!(|data: &[u8]| {
    let Some((&[piece, wrong, by, descriptor], content)) = data.split_first_chunk() else {
        return;
    };
    let (mut file, mut entries) = (Vec::new(), Vec::new());
    for piece in content.chunks(usize::from(piece) + 1) {
        let frame = zstd_safe_frame(piece);
        entries.extend((frame.len() as u32).to_le_bytes());
        entries.extend((piece.len() as u32).to_le_bytes());
        file.extend(frame);
    }
    let frames = (entries.len() / 8) as u32;
    if let Some(byte) = entries.get_mut(usize::from(wrong)) {
        *byte = byte.wrapping_add(by);
    }
    let is_right = by == 0 || usize::from(wrong) >= entries.len();
    file.extend(SKIPPABLE.to_le_bytes());
    file.extend((entries.len() as u32 + 9).to_le_bytes());
    file.extend(entries);
    file.extend(frames.to_le_bytes());
    // The table has no checksums, but the input may claim it.
    file.push(if is_right { 0 } else { descriptor });
    file.extend(SEEKABLE.to_le_bytes());
    let Ok(Some(seekable)) = Seekable::open(file) else {
        assert!(!is_right || frames == 0, "a right table was refused");
        return;
    };
    let size = seekable.size().expect("it was read").min(1 << 20) as usize;
    let mut whole = vec![0; size];
    let read = seekable.read_exact_at(&mut whole, 0);
    if is_right {
        read.as_ref().expect("all is right");
        assert!(whole == content);
    }
    if read.is_ok() {
        let mut part = vec![0; size / 2];
        let at = size - part.len();
        seekable
            .read_exact_at(&mut part, at as u64)
            .expect("the whole can be read");
        assert!(part == whole[at..], "a part is as in the whole");
    }
});

/// A frame by C.
fn zstd_safe_frame(content: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(zstd_safe::compress_bound(content.len()));
    zstd_safe::compress(&mut frame, content, 1).expect("there is room");
    frame
}
