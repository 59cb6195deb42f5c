//! The adapters for `std::io` and the functions that return vectors, against libzstd.

use std::io::{self, ErrorKind, Read, Write};

use testkit::Rng;
use zstd::{Error, compress_to_vec, decompress_to_vec, read, write};

/// Passes on a few bytes at a time, and fails now and then without losing any.
struct Unreliable<T> {
    inner: T,
    rng: Rng,
}

impl<T> Unreliable<T> {
    fn new(inner: T, seed: u64) -> Unreliable<T> {
        let rng = Rng::new(seed);
        Unreliable { inner, rng }
    }

    /// The number of bytes to pass on, of at most `len`.
    fn part(&mut self, len: usize) -> io::Result<usize> {
        if self.rng.chance(8) {
            return Err(ErrorKind::Interrupted.into());
        }
        if self.rng.chance(8) {
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(1 + self.rng.index(len.min(9000)))
    }
}

impl<R: Read> Read for Unreliable<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.part(buf.len())?;
        self.inner.read(&mut buf[..len])
    }
}

impl<W: Write> Write for Unreliable<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let len = self.part(buf.len())?;
        self.inner.write(&buf[..len])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Repeats what fails with `WouldBlock`.
fn repeat<T>(mut action: impl FnMut() -> io::Result<T>) -> T {
    loop {
        match action() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            result => return result.expect("no other error"),
        }
    }
}

/// Text with some noise, of a random length.
fn content(rng: &mut Rng) -> Vec<u8> {
    let len = [0, 1, 100, 70_000, 700_000][rng.index(5)];
    let len = len + rng.index(len + 1);
    let mut content: Vec<u8> = (0..len)
        .map(|n| b"the quick brown fox "[(n ^ (n >> 9)) % 20])
        .collect();
    let noise = rng.index(len / 2 + 1);
    rng.fill(&mut content[..noise]);
    content
}

fn read_unreliably(frames: &[u8], seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut decoder = read::Decoder::new(Unreliable::new(frames, seed));
    let (mut got, mut buf) = (Vec::new(), vec![0; 200_000]);
    loop {
        let room = 1 + rng.index(buf.len());
        let len = repeat(|| decoder.read(&mut buf[..room]));
        if len == 0 {
            return got;
        }
        got.extend(&buf[..len]);
    }
}

#[test]
fn concatenated_frames_of_c_read_back_in_pieces() {
    let mut rng = Rng::new(1);
    for case in 0..testkit::cases(12) {
        let (mut frames, mut all) = (Vec::new(), Vec::new());
        for _ in 0..1 + rng.index(3) {
            let content = content(&mut rng);
            let mut frame = vec![0; zstd_safe::compress_bound(content.len())];
            let level = [1, 3, 19][rng.index(3)];
            let len = zstd_safe::compress(&mut frame[..], &content, level).unwrap();
            frames.extend(&frame[..len]);
            // A skippable frame.
            frames.extend([0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3]);
            all.extend(content);
        }
        assert!(read_unreliably(&frames, case) == all, "case {case}");
        assert!(decompress_to_vec(&frames, all.len()).unwrap() == all);
        if let Some(limit) = all.len().checked_sub(1) {
            let too_long = decompress_to_vec(&frames, limit);
            assert_eq!(too_long, Err(Error::DstSizeTooSmall));
        }
    }
}

#[test]
fn what_is_written_in_pieces_is_one_frame_for_c() {
    let mut rng = Rng::new(2);
    for case in 0..testkit::cases(12) {
        let content = content(&mut rng);
        let sink = Unreliable::new(Vec::new(), case);
        let mut encoder = write::Encoder::new(sink, [-3, 1, 5, 13][rng.index(4)]);
        let mut at = 0;
        while at < content.len() {
            let end = at + 1 + rng.index(content.len() - at);
            at += repeat(|| encoder.write(&content[at..end]));
            if rng.chance(5) {
                repeat(|| encoder.flush());
                let written = encoder.inner().inner.clone();
                let mut flushed = Vec::new();
                let mut decoder = read::Decoder::new(&written[..]);
                let cut = decoder.read_to_end(&mut flushed).unwrap_err();
                assert_eq!(cut.kind(), ErrorKind::UnexpectedEof);
                assert!(flushed == content[..at], "case {case}");
            }
        }
        repeat(|| encoder.try_finish());
        repeat(|| encoder.try_finish());
        let frame = &encoder.inner().inner;
        assert_eq!(zstd::frame_size(frame), Ok(frame.len()), "case {case}");
        let mut back = vec![0; content.len()];
        let len = zstd_safe::decompress(&mut back[..], frame).unwrap();
        assert!(len == content.len() && back == content, "case {case}");
        assert!(read_unreliably(frame, case) == content);
        assert!(decompress_to_vec(frame, 1 << 21).unwrap() == content);
    }
}

#[test]
fn vectors_hold_what_c_reads() {
    let mut rng = Rng::new(3);
    for level in [-15, -1, 0, 1, 4, 12, 22, 100] {
        let content = content(&mut rng);
        let frame = compress_to_vec(&content, level);
        let mut back = vec![0; content.len()];
        assert_eq!(
            zstd_safe::decompress(&mut back[..], &frame),
            Ok(content.len())
        );
        assert!(back == content && decompress_to_vec(&frame, usize::MAX).unwrap() == content);
    }
}

/// Damage is an error, and the same one again; it never gives more than the limit.
#[test]
fn damaged_input_fails_and_fails_again() {
    let mut rng = Rng::new(4);
    for case in 0..testkit::cases(100) {
        let mut frame = compress_to_vec(&content(&mut rng)[..], 1);
        if rng.chance(3) {
            frame.truncate(rng.index(frame.len()));
        } else {
            for _ in 0..3 {
                let at = rng.index(frame.len());
                frame[at] ^= 1 << rng.index(8);
            }
        }
        let mut decoder = read::Decoder::with_window_max(&frame[..], 8 << 20);
        let mut got = Vec::new();
        let result = (&mut decoder).take(1 << 24).read_to_end(&mut got);
        if let Err(error) = result {
            let again = decoder.read(&mut [0; 10]).expect_err("it failed before");
            assert_eq!(again.kind(), error.kind(), "case {case}");
            assert!(matches!(
                error.kind(),
                ErrorKind::InvalidData | ErrorKind::UnexpectedEof
            ));
        }
        let limited = decompress_to_vec(&frame, 100_000);
        assert!(limited.is_err() || limited.is_ok_and(|content| content.len() <= 100_000));
    }
    for not_a_frame in [&b""[..], b"\x28\xb5", b"something else"] {
        let mut decoder = read::Decoder::new(not_a_frame);
        assert!(decoder.read(&mut [0; 10]).is_err());
    }
}

/// A header that asks for a window over the limit costs nothing.
#[test]
fn a_window_over_the_limit_is_an_error() {
    let header = [0x28, 0xb5, 0x2f, 0xfd, 0, 0xa0];
    let mut decoder = read::Decoder::with_window_max(&header[..], 1 << 20);
    let error = decoder.read(&mut [0; 10]).unwrap_err();
    let inner = error.get_ref().and_then(|it| it.downcast_ref::<Error>());
    assert_eq!(inner, Some(&Error::WindowTooLarge));
}

#[test]
fn a_writer_that_takes_nothing_is_an_error() {
    let mut room = [0; 4];
    let mut encoder = write::Encoder::new(&mut room[..], 3);
    encoder.write_all(b"content").unwrap();
    assert_eq!(encoder.finish().unwrap_err().kind(), ErrorKind::WriteZero);
}
