//! Decompression while reading: [`Decoder`] reads frames from any [`Read`].

use std::boxed::Box;
use std::io::{self, Read};
use std::vec;

use crate::decode::SuspendedDecoder;
use crate::{DecodeOptions, Error, Status};

/// Size of the buffer for compressed input in bytes.
const BUFFER_BYTES: usize = 128 << 10;

/// The window limit of [`Decoder::new`] in bytes, the default of the `zstd` command.
pub const WINDOW_MAX: u64 = 128 << 20;

/// Reads the content of concatenated frames; skippable frames are passed over.
///
/// Fails with `UnexpectedEof` if the input ends within a frame or holds none, and with
/// `InvalidData` and an [`Error`] if a frame is invalid. After such an error it returns the same
/// error again. An error of the reader loses no data; interrupted reads are repeated.
pub struct Decoder<R> {
    reader: R,
    workspace: Box<[u8]>,
    decoder: SuspendedDecoder<'static>,
    input: Box<[u8]>,
    /// The bytes of `input` that are not yet decoded.
    start: usize,
    end: usize,
    /// Whether the last frame is complete.
    is_complete: bool,
    /// Whether the decoder has content for which there was no room.
    has_output: bool,
}

impl<R: Read> Decoder<R> {
    /// Creates a decoder for frames with windows of at most [`WINDOW_MAX`].
    pub fn new(reader: R) -> Decoder<R> {
        Decoder::with_window_max(reader, WINDOW_MAX)
    }

    /// Creates a decoder for frames with windows of at most `window_max` bytes. It allocates this
    /// much zeroed memory, which most systems provide only where it is used.
    ///
    /// # Panics
    ///
    /// If `window_max` is larger than the address space.
    pub fn with_window_max(reader: R, window_max: u64) -> Decoder<R> {
        let size = crate::Decoder::workspace_size(window_max).expect("the window fits in memory");
        let mut workspace = vec![0; size].into_boxed_slice();
        let options = DecodeOptions::new().window_max(window_max);
        let decoder = crate::Decoder::new(options, &mut workspace);
        let decoder = decoder.expect("the workspace has the size that is promised to suffice");
        Decoder {
            reader,
            decoder: decoder.suspend(),
            workspace,
            input: vec![0; BUFFER_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            is_complete: false,
            has_output: false,
        }
    }

    /// Returns the reader. Compressed bytes that were read ahead are lost.
    pub fn into_inner(self) -> R {
        self.reader
    }

    /// Decodes buffered input into `output`, and returns the number of bytes written.
    fn decode(&mut self, output: &mut [u8]) -> Result<usize, Error> {
        let mut decoder = self.decoder.clone().resume(&mut self.workspace)?;
        let result = decoder.step(&self.input[self.start..self.end], output);
        self.decoder = decoder.suspend();
        let progress = result?;
        self.start += progress.read;
        if progress.read > 0 || progress.written > 0 {
            self.is_complete = progress.status == Status::Done;
        }
        self.has_output = progress.status == Status::Output;
        Ok(progress.written)
    }
}

impl<R: Read> Read for Decoder<R> {
    fn read(&mut self, output: &mut [u8]) -> io::Result<usize> {
        if output.is_empty() {
            return Ok(0);
        }
        loop {
            if self.start == self.end && !self.has_output {
                let read = match self.reader.read(&mut self.input) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    read => read?.min(self.input.len()),
                };
                if read == 0 {
                    return if self.is_complete {
                        Ok(0)
                    } else {
                        let why = "the zstd frame is cut off";
                        Err(io::Error::new(io::ErrorKind::UnexpectedEof, why))
                    };
                }
                (self.start, self.end) = (0, read);
            }
            let written = self
                .decode(output)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            if written > 0 {
                return Ok(written);
            }
        }
    }
}
