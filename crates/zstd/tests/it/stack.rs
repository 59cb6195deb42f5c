//! How deep decoding goes down the stack.
//!
//! A function paints the stack below the test and returns; then the decoder runs there; then the paint that is left
//! is looked at through `/proc/self/mem`, which needs no unsafe code.

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;

use zstd::{DECOMPRESS_WORKSPACE_SIZE, DecodeOptions, Decoder, Status};

const PAINTED: usize = 32 * 1024;
const PAINT: u8 = 0xA5;

/// The address of the lowest painted byte.
#[inline(never)]
fn paint() -> usize {
    let mut paint = [PAINT; PAINTED];
    black_box(&mut paint).as_ptr().addr()
}

/// Bytes of stack below the caller that `run` uses.
#[inline(never)]
fn depth(run: &mut dyn FnMut()) -> usize {
    let lowest = paint();
    run();
    let mut after = vec![0; PAINTED];
    File::open("/proc/self/mem")
        .unwrap()
        .read_exact_at(&mut after, lowest as u64)
        .unwrap();
    let untouched = after.iter().take_while(|&&byte| byte == PAINT).count();
    assert!(untouched < PAINTED, "nothing ran on the painted stack");
    PAINTED - untouched
}

/// Of each kind of literals and tables something.
const FRAMES: &[&[u8]] = &[
    include_bytes!("../../testdata/good-repeat-offsets-mixed.zst"),
    include_bytes!("../../testdata/good-huffman-256-symbols.zst"),
    include_bytes!("../../testdata/good-treeless-four-stream.zst"),
    &[
        0x28, 0xB5, 0x2F, 0xFD, 0x24, 0, 1, 0, 0, 0x99, 0xE9, 0xD8, 0x51,
    ],
];

#[test]
fn shallow() {
    // The kernel's own test allows 2,048 + 512 bytes; unoptimised code is not what runs there.
    let max = if cfg!(debug_assertions) {
        6 * 1024
    } else {
        2560
    };
    let mut workspace = vec![0; DECOMPRESS_WORKSPACE_SIZE];
    let mut dst = vec![0; 1 << 20];
    let mut stream = vec![0; Decoder::workspace_size(1 << 20).unwrap()];
    let mut decoder = Decoder::new(DecodeOptions::new(), &mut stream).unwrap();
    for frame in FRAMES {
        let once = depth(&mut || {
            zstd::decompress(&mut dst, frame, &mut workspace).unwrap();
        });
        let streamed = depth(&mut || {
            let mut at = 0;
            loop {
                let end = frame.len().min(at + 4096);
                let progress = decoder.step(&frame[at..end], &mut dst).unwrap();
                at += progress.read;
                if progress.status == Status::Done {
                    break;
                }
            }
        });
        assert!(once <= max, "one-shot decoding uses {once} bytes of stack");
        assert!(streamed <= max, "streaming uses {streamed} bytes of stack");
    }
}
