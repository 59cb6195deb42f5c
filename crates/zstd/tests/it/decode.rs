//! Small frames by hand, through every way to decode.

use zstd::{DECOMPRESS_WORKSPACE_SIZE, DecodeOptions, Decoder, Error, Status, Workspace};

fn once(src: &[u8], len: usize) -> Result<Vec<u8>, Error> {
    let mut workspace = Workspace::<DECOMPRESS_WORKSPACE_SIZE>::new();
    let mut dst = vec![0xee; len + 7];
    let written = zstd::decompress(&mut dst, src, &mut workspace)?;
    assert!(
        dst[written..].iter().all(|&byte| byte == 0xee),
        "written beyond the end"
    );
    dst.truncate(written);
    Ok(dst)
}

fn stream(src: &[u8], step: usize) -> Result<Vec<u8>, Error> {
    let mut workspace = vec![0; Decoder::workspace_size(1 << 17).unwrap()];
    let mut decoder = Decoder::new(DecodeOptions::new(), &mut workspace)?;
    let mut content = vec![];
    let mut at = 0;
    while at < src.len() {
        let mut piece = vec![0xee; step];
        let input = &src[at..src.len().min(at + step)];
        let progress = decoder.step(input, &mut piece)?;
        assert!(piece[progress.written..].iter().all(|&byte| byte == 0xee));
        at += progress.read;
        content.extend(&piece[..progress.written]);
        if progress.status == Status::Output {
            assert_eq!(progress.written, step);
            assert!(at < src.len(), "the last byte must be read last");
        }
    }
    Ok(content)
}

#[test]
fn small_frames() {
    let cases: &[(&[u8], &[u8])] = &[
        (&[], &[]),
        // Empty, with checksum.
        (
            &[
                0x28, 0xB5, 0x2F, 0xFD, 0x24, 0, 1, 0, 0, 0x99, 0xE9, 0xD8, 0x51,
            ],
            &[],
        ),
        // A compressed block without content.
        (&[0x28, 0xB5, 0x2F, 0xFD, 0, 0, 0x15, 0, 0, 0, 0], &[]),
        // Skippable, then a run of five.
        (
            &[
                0x53, 0x2A, 0x4D, 0x18, 2, 0, 0, 0, 9, 9, //
                0x28, 0xB5, 0x2F, 0xFD, 0x20, 5, 0x2B, 0, 0, b'z',
            ],
            b"zzzzz",
        ),
    ];
    for (src, content) in cases {
        assert_eq!(once(src, content.len()).as_deref(), Ok(*content));
        for step in [1, 2, 3, 64] {
            assert_eq!(stream(src, step).as_deref(), Ok(*content));
        }
    }
}

#[test]
fn sticky_error() {
    let mut workspace = vec![0; Decoder::workspace_size(1024).unwrap()];
    let mut decoder = Decoder::new(DecodeOptions::new(), &mut workspace).unwrap();
    let good = [0x28, 0xB5, 0x2F, 0xFD, 0x20, 1, 9, 0, 0, b'a'];
    let mut dst = [0; 4];
    assert_eq!(
        decoder.step(b"garbage", &mut dst),
        Err(Error::PrefixUnknown)
    );
    assert_eq!(decoder.step(&good, &mut dst), Err(Error::PrefixUnknown));
    decoder.reset();
    let progress = decoder.step(&good, &mut dst).unwrap();
    assert_eq!(
        (progress.read, progress.written, progress.status),
        (10, 1, Status::Done)
    );
}

#[test]
fn extent_shorter_and_longer() {
    let frame = [0x28, 0xB5, 0x2F, 0xFD, 0x20, 5, 0x2B, 0, 0, b'z', 0, 0, 0];
    let mut workspace = Workspace::<DECOMPRESS_WORKSPACE_SIZE>::new();
    let options = DecodeOptions::new();
    for (room, written, more) in [(3, 3, true), (5, 5, false), (8, 5, false)] {
        let mut dst = vec![0xee; room];
        let decoded = options
            .decompress_extent(&mut dst, &frame, &mut workspace)
            .unwrap();
        assert_eq!(
            (decoded.written, decoded.more, decoded.read),
            (written, more, 10)
        );
        assert!(dst[..written].iter().all(|&byte| byte == b'z'));
        assert!(dst[written..].iter().all(|&byte| byte == 0xee));
    }
}

#[test]
fn ranges() {
    // Two blocks: three bytes as they are, then a thousand times the letter z.
    let frame = [
        0x28, 0xB5, 0x2F, 0xFD, 0, 0x38, 0x18, 0, 0, b'a', b'b', b'c', //
        0x43, 0x1F, 0, b'z',
    ];
    let mut content = b"abc".to_vec();
    content.resize(1003, b'z');
    let mut workspace = vec![0; Decoder::workspace_size(1 << 17).unwrap()];
    let mut decoder = Decoder::new(DecodeOptions::new(), &mut workspace).unwrap();
    for (start, len) in [
        (0, 1003),
        (0, 2),
        (1, 2),
        (2, 5),
        (3, 1000),
        (500, 503),
        (900, 200),
        (2000, 1),
    ] {
        let mut dst = vec![0xee; len];
        let decoded = decoder
            .decompress_range(start as u64, &mut dst, &frame)
            .unwrap();
        let end = content.len().min(start + len);
        let expected = content.get(start..end).unwrap_or_default();
        assert_eq!(&dst[..decoded.written], expected);
        assert!(dst[decoded.written..].iter().all(|&byte| byte == 0xee));
        assert_eq!(decoded.more, start + len < content.len());
    }
    let cut = &frame[..frame.len() - 1];
    assert_eq!(
        decoder.decompress_range(0, &mut [0; 4], cut),
        Err(Error::SrcSizeWrong)
    );
    assert!(
        decoder
            .decompress_range(0, &mut [0; 2], cut)
            .is_ok_and(|decoded| decoded.more)
    );
}

#[test]
fn documented_sizes() {
    assert_eq!(DECOMPRESS_WORKSPACE_SIZE, 88_832);
    let documented = [
        (4 << 10, 39_808),
        (128 << 10, 547_712),
        (1 << 20, 1_465_216),
        (8 << 20, 8_805_248),
        (128 << 20, 134_634_368),
    ];
    for (window, size) in documented {
        assert_eq!(Decoder::workspace_size(window), Some(size));
    }
    let mut before = 0;
    for window in (0..1 << 20).step_by(1000) {
        let size = Decoder::workspace_size(window).unwrap();
        assert!(size >= before, "a larger window needs no less");
        before = size;
    }
}
