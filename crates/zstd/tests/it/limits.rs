//! Frames that ask for too much meet a limit at once, in the memory that they were given.

use crate::assemble::{BlockType, Header, block};
use crate::doors::{self, DOORS, Input};
use zstd::{DECOMPRESS_WORKSPACE_SIZE, DecodeOptions, Decoder, Error, Status};

/// A stream with memory for windows of this many bytes, and no more.
fn stream(frame: &[u8], window: u64, options: DecodeOptions) -> Result<Status, Error> {
    let mut workspace = vec![0; Decoder::workspace_size(window).expect("a small window")];
    let mut decoder = Decoder::new(options, &mut workspace)?;
    decoder
        .step(frame, &mut [0; 100])
        .map(|progress| progress.status)
}

#[test]
fn a_huge_window_is_refused_when_the_header_is_read() {
    for exponent in 8..32 {
        let header = Header::window(exponent).bytes();
        assert_eq!(
            stream(&header, 1 << 17, DecodeOptions::new()),
            Err(Error::WindowTooLarge),
            "2^{}",
            exponent + 10
        );
    }
    let header = Header::window(7).bytes();
    assert!(stream(&header, 1 << 17, DecodeOptions::new()).is_ok());
    let options = DecodeOptions::new().window_max(1 << 16);
    assert_eq!(
        stream(&header, 1 << 17, options),
        Err(Error::WindowTooLarge)
    );
    // A single segment's window is its content.
    let header = Header::single(1 << 40).bytes();
    assert_eq!(
        stream(&header, 1 << 17, DecodeOptions::new()),
        Err(Error::WindowTooLarge)
    );
}

#[test]
fn a_huge_content_size_is_refused_before_anything_is_decoded() {
    for size in [1 << 20, 1 << 40, u64::MAX] {
        let frame = [
            Header::single(size).bytes(),
            block(true, BlockType::Rle, 1, b"x"),
        ]
        .concat();
        let mut workspace = vec![0; DECOMPRESS_WORKSPACE_SIZE];
        let mut dst = [0xEE; 1000];
        let got = zstd::decompress(&mut dst, &frame, &mut workspace);
        assert_eq!(got, Err(Error::DstSizeTooSmall), "{size}");
        assert_eq!(dst, [0xEE; 1000], "nothing is written");
        assert!(workspace.iter().all(|byte| *byte == 0), "nothing is read");
    }
}

#[test]
fn a_frame_that_expands_without_end_stops_where_the_room_does() {
    // 4 bytes make 128 KiB, 100,000 times: 12 GiB.
    let mut frame = Header::window(7).bytes();
    for _ in 0..100_000 {
        frame.extend(block(false, BlockType::Rle, 128 << 10, b"x"));
    }
    frame.extend(block(true, BlockType::Raw, 0, b""));
    for (door, decode) in DOORS.iter().filter(|(door, _)| !door.contains("of room")) {
        assert_eq!(
            decode(&Input::new(&frame, 300_000)),
            Err(Error::DstSizeTooSmall),
            "{door}"
        );
    }
}

#[test]
fn empty_blocks_without_end_end_with_their_input() {
    let mut frame = Header::window(7).bytes();
    for _ in 0..200_000 {
        frame.extend(block(false, BlockType::Raw, 0, b""));
    }
    assert_eq!(
        doors::one_shot(&Input::new(&frame, 10)),
        Err(Error::SrcSizeWrong)
    );
    frame.extend(block(true, BlockType::Raw, 0, b""));
    for (door, decode) in DOORS {
        assert_eq!(decode(&Input::new(&frame, 10)), Ok(Vec::new()), "{door}");
    }
}
