//! Every way to decode a frame: ours through each entry point, and C's.

use std::cell::RefCell;
use testkit::Rng;
use zstd::{
    DECOMPRESS_WORKSPACE_SIZE, DecodeOptions, Decoder, DecoderDictionary, Dictionary, Error, Frame,
    PieceDecoder, PieceKind, Status,
};

/// What is decoded, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) magicless: bool,
    pub(crate) dictionary: Option<&'a [u8]>,
    /// Bytes of room for the content.
    pub(crate) capacity: usize,
}

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8], capacity: usize) -> Self {
        Self {
            bytes,
            magicless: false,
            dictionary: None,
            capacity,
        }
    }

    fn options(&self) -> Result<DecodeOptions<'a>, Error> {
        let options = DecodeOptions::new().magicless(self.magicless);
        Ok(match self.dictionary {
            Some(bytes) => options.dictionary(Dictionary::new(bytes)?),
            None => options,
        })
    }
}

pub(crate) type Door = fn(&Input) -> Result<Vec<u8>, Error>;

/// Ways that must agree on content and on verdict.
pub(crate) const DOORS: &[(&str, Door)] = &[
    ("one shot", one_shot),
    ("one byte at a time", drip),
    ("one byte of room at a time", trickle),
    ("random steps", jitter),
    ("whole input, whole output", gulp),
    ("extents", extents),
    ("a prepared dictionary", prepared),
    ("headers and blocks", pieces),
];

/// Largest window that a stream is given memory for.
pub(crate) const STREAM_WINDOW: u64 = if cfg!(miri) { 1 << 17 } else { 1 << 24 };

const UNTOUCHED: u8 = 0xEE;

thread_local! {
    /// Never cleared: each frame finds what the last one left.
    static ONCE: RefCell<Vec<u8>> = RefCell::new(vec![0xA5; DECOMPRESS_WORKSPACE_SIZE]);
    static STREAM: RefCell<Vec<u8>> =
        RefCell::new(vec![0; Decoder::workspace_size(STREAM_WINDOW).expect("16 MiB can be had")]);
}

fn with_workspace<T>(decode: impl FnOnce(&mut [u8]) -> T) -> T {
    ONCE.with_borrow_mut(|workspace| decode(workspace))
}

/// All at once, with the dictionary's tables made before.
fn prepared(input: &Input) -> Result<Vec<u8>, Error> {
    let Some(bytes) = input.dictionary else {
        return one_shot(input);
    };
    let mut memory = vec![0xA5; DecoderDictionary::SIZE];
    let dictionary = DecoderDictionary::new(Dictionary::new(bytes)?, &mut memory)?;
    let options = DecodeOptions::new()
        .magicless(input.magicless)
        .prepared(&dictionary);
    let mut dst = vec![UNTOUCHED; input.capacity];
    // What making it left in the workspace must not matter.
    let mut workspace = vec![0xA5; DECOMPRESS_WORKSPACE_SIZE];
    let written = options.decompress(&mut dst, input.bytes, &mut workspace)?;
    dst.truncate(written);
    Ok(dst)
}

/// All at once, to a destination that is larger than the content.
pub(crate) fn one_shot(input: &Input) -> Result<Vec<u8>, Error> {
    let options = input.options()?;
    let mut dst = vec![UNTOUCHED; input.capacity];
    let written = with_workspace(|workspace| options.decompress(&mut dst, input.bytes, workspace))?;
    assert!(
        dst[written..].iter().all(|byte| *byte == UNTOUCHED),
        "written beyond the end"
    );
    dst.truncate(written);
    Ok(dst)
}

/// Frame by frame as file systems do; each into what is left of the destination.
pub(crate) fn extents(input: &Input) -> Result<Vec<u8>, Error> {
    let options = input.options()?;
    let mut dst = vec![UNTOUCHED; input.capacity];
    let (mut at, mut rest) = (0, input.bytes);
    while !rest.is_empty() {
        if let Ok(Frame::Skippable { size, .. }) = Frame::parse(rest)
            && !input.magicless
            && rest.len() as u64 == 8 + u64::from(size)
        {
            break; // nothing but this skippable frame is left
        }
        let room = &mut dst[at..];
        let decoded = with_workspace(|workspace| options.decompress_extent(room, rest, workspace));
        let decoded = match decoded {
            Err(Error::PrefixUnknown) if at > 0 => return Err(Error::SrcSizeWrong),
            decoded => decoded?,
        };
        if decoded.more {
            return Err(Error::DstSizeTooSmall);
        }
        at += decoded.written;
        rest = &rest[decoded.read..];
    }
    assert!(
        dst[at..].iter().all(|byte| *byte == UNTOUCHED),
        "written beyond the end"
    );
    dst.truncate(at);
    Ok(dst)
}

/// Header by header and block by block.
fn pieces(input: &Input) -> Result<Vec<u8>, Error> {
    let options = input.options()?;
    let mut dst = vec![UNTOUCHED; input.capacity];
    let (mut at, mut rest) = (0, input.bytes);
    with_workspace(|workspace| {
        let mut decoder = PieceDecoder::new(options, workspace)?;
        while !rest.is_empty() {
            let begun = rest;
            decoder.reset(options);
            assert_eq!(decoder.next(), PieceKind::FrameHeader);
            while decoder.wanted() > 0 {
                let Some((piece, after)) = rest.split_at_checked(decoder.wanted()) else {
                    // As soon as a wrong byte is seen.
                    let first = begun.len() == input.bytes.len();
                    if decoder.next() == PieceKind::FrameHeader && !input.magicless && first {
                        Frame::parse(begun)?;
                    }
                    return Err(Error::SrcSizeWrong);
                };
                match decoder.decode(piece, &mut dst, at) {
                    Err(Error::PrefixUnknown) if begun.len() < input.bytes.len() => {
                        return Err(Error::SrcSizeWrong);
                    }
                    written => at += written?,
                }
                rest = after;
            }
        }
        Ok(())
    })?;
    assert!(
        dst[at..].iter().all(|byte| *byte == UNTOUCHED),
        "written beyond the end"
    );
    dst.truncate(at);
    Ok(dst)
}

/// Only the first `input.capacity` bytes of the first frame, and whether there are more.
pub(crate) fn range(input: &Input) -> Result<(Vec<u8>, bool), Error> {
    let options = input.options()?;
    let mut dst = vec![UNTOUCHED; input.capacity];
    let decoded =
        with_workspace(|workspace| options.decompress_extent(&mut dst, input.bytes, workspace))?;
    assert!(
        dst[decoded.written..].iter().all(|byte| *byte == UNTOUCHED),
        "written beyond the end"
    );
    dst.truncate(decoded.written);
    Ok((dst, decoded.more))
}

fn drip(input: &Input) -> Result<Vec<u8>, Error> {
    steps(input, || (1, 1 << 17))
}

fn trickle(input: &Input) -> Result<Vec<u8>, Error> {
    steps(input, || (1 << 20, 1))
}

fn jitter(input: &Input) -> Result<Vec<u8>, Error> {
    let mut rng = Rng::new(input.bytes.len() as u64);
    let mut size = move || match rng.below(4) {
        0 => rng.index(3),
        1 => rng.index(40),
        2 => rng.index(5000),
        _ => rng.index(200_000),
    };
    steps(input, move || (size(), size()))
}

fn gulp(input: &Input) -> Result<Vec<u8>, Error> {
    steps(input, || (usize::MAX, usize::MAX))
}

/// A stream whose calls give so much input and room as `sizes` says.
fn steps(input: &Input, mut sizes: impl FnMut() -> (usize, usize)) -> Result<Vec<u8>, Error> {
    let options = input.options()?;
    STREAM.with_borrow_mut(|workspace| {
        let mut decoder = Decoder::new(options, workspace)?;
        let mut dst = vec![UNTOUCHED; input.capacity];
        let (mut read, mut written, mut idle) = (0usize, 0usize, 0);
        // Nothing at all is no frame, and that is well.
        let mut between_frames = true;
        loop {
            let (give, room) = sizes();
            let end = input.bytes.len().min(read.saturating_add(give));
            let room = dst.len().min(written.saturating_add(room));
            let progress = match decoder.step(&input.bytes[read..end], &mut dst[written..room]) {
                Ok(progress) => progress,
                Err(error) => {
                    let again = decoder.step(input.bytes, &mut []);
                    assert_eq!(again, Err(error), "an error stays");
                    return Err(match error {
                        Error::PrefixUnknown if between_frames && read > 0 => Error::SrcSizeWrong,
                        error => error,
                    });
                }
            };
            assert!(progress.read <= end - read && progress.written <= room - written);
            read += progress.read;
            written += progress.written;
            between_frames = match progress.status {
                Status::Done => true,
                _ if progress.read > 0 => false,
                _ => between_frames,
            };
            if read == input.bytes.len() && (between_frames || progress.status != Status::Output) {
                break;
            }
            if written == dst.len() && progress.status == Status::Output && progress.read == 0 {
                return Err(Error::DstSizeTooSmall);
            }
            idle = if progress.read + progress.written == 0 {
                idle + 1
            } else {
                0
            };
            assert!(idle < 1000, "no progress with input and room");
        }
        assert!(
            dst[written..].iter().all(|byte| *byte == UNTOUCHED),
            "written beyond the end"
        );
        if !between_frames {
            return Err(Error::SrcSizeWrong);
        }
        dst.truncate(written);
        Ok(dst)
    })
}

/// C's decoder, all at once.
pub(crate) fn c_one_shot(input: &Input) -> Result<Vec<u8>, &'static str> {
    C.with_borrow_mut(|c| {
        prepare(c, input)?;
        let mut dst = vec![0; input.capacity];
        let written = c
            .decompress(&mut dst[..], input.bytes)
            .map_err(zstd_safe::get_error_name)?;
        dst.truncate(written);
        Ok(dst)
    })
}

/// C's decoder as a stream of 1000-byte pieces.
pub(crate) fn c_stream(input: &Input) -> Result<Vec<u8>, &'static str> {
    C.with_borrow_mut(|c| {
        prepare(c, input)?;
        let mut dst = vec![0; input.capacity];
        let mut output = zstd_safe::OutBuffer::around(&mut dst[..]);
        let mut done = true;
        for piece in input.bytes.chunks(1000) {
            let mut piece_in = zstd_safe::InBuffer::around(piece);
            while piece_in.pos() < piece.len() {
                let before = (piece_in.pos(), output.pos());
                let left = c.decompress_stream(&mut output, &mut piece_in);
                done = left.map_err(zstd_safe::get_error_name)? == 0;
                if before == (piece_in.pos(), output.pos()) {
                    return Err("no room");
                }
            }
        }
        let written = output.pos();
        if !done {
            return Err("frame ends early");
        }
        dst.truncate(written);
        Ok(dst)
    })
}

thread_local! {
    static C: RefCell<zstd_safe::DCtx<'static>> = RefCell::new(zstd_safe::DCtx::create());
}

fn prepare(c: &mut zstd_safe::DCtx, input: &Input) -> Result<(), &'static str> {
    use zstd_safe::{DParameter, FrameFormat, ResetDirective};
    let name = zstd_safe::get_error_name;
    c.reset(ResetDirective::SessionAndParameters)
        .map_err(name)?;
    c.set_parameter(DParameter::WindowLogMax(STREAM_WINDOW.ilog2()))
        .map_err(name)?;
    if input.magicless {
        c.set_parameter(DParameter::Format(FrameFormat::Magicless))
            .map_err(name)?;
    }
    c.load_dictionary(input.dictionary.unwrap_or_default())
        .map_err(name)?;
    Ok(())
}
