//! Compression while writing: [`Encoder`] writes a frame to any [`Write`].

use std::boxed::Box;
use std::io::{self, Write};
use std::vec;

use crate::{Error, Finish, Params, stream_workspace_size};

/// Size of the buffer for compressed output in bytes.
const BUFFER_BYTES: usize = 128 << 10;

/// Compresses bytes that are written to it, and writes them to another writer as one frame.
///
/// [`finish`](Self::finish) ends the frame and reports errors; a frame that is not finished is cut
/// off, also when the encoder is dropped. After an error of the writer, the same call can be
/// repeated: no byte is lost or written twice.
pub struct Encoder<W> {
    writer: W,
    encoder: crate::Encoder<'static, Box<[u8]>>,
    output: Box<[u8]>,
    /// The bytes of `output` that are not yet written.
    start: usize,
    end: usize,
}

impl<W: Write> Encoder<W> {
    /// Creates an encoder for content of unknown size with the parameters of a level and a
    /// checksum.
    pub fn new(writer: W, level: i32) -> Encoder<W> {
        let mut params = Params::for_level(level, None);
        params.checksum = true;
        Encoder::with_params(writer, &params).expect("a level has valid parameters")
    }

    /// Creates an encoder with these parameters.
    ///
    /// # Errors
    ///
    /// [`Error::ParameterOutOfBound`].
    pub fn with_params(writer: W, params: &Params) -> Result<Encoder<W>, Error> {
        params.check()?;
        let workspace = vec![0; stream_workspace_size(params)].into_boxed_slice();
        Ok(Encoder {
            writer,
            encoder: crate::Encoder::owning(params, workspace)?,
            output: vec![0; BUFFER_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
        })
    }

    /// Ends the frame, flushes the writer and returns it.
    ///
    /// # Errors
    ///
    /// As [`try_finish`](Self::try_finish); the encoder is lost.
    pub fn finish(mut self) -> io::Result<W> {
        self.try_finish()?;
        Ok(self.writer)
    }

    /// Ends the frame and flushes the writer. Nothing can be written afterwards.
    ///
    /// # Errors
    ///
    /// Those of the writer, after which it can be called again.
    pub fn try_finish(&mut self) -> io::Result<()> {
        self.complete(Finish::Frame)?;
        self.writer.flush()
    }

    /// The writer.
    pub fn inner(&self) -> &W {
        &self.writer
    }

    /// Writes buffered output.
    fn drain(&mut self) -> io::Result<()> {
        while self.start < self.end {
            match self.writer.write(&self.output[self.start..self.end]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => self.start += written.min(self.end - self.start),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Encodes into the empty buffer, and returns how much input was taken and whether all that was
    /// requested is encoded.
    fn encode(&mut self, input: &[u8], finish: Finish) -> io::Result<(usize, bool)> {
        let progress = self
            .encoder
            .step(input, &mut self.output, finish)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        (self.start, self.end) = (0, progress.written);
        Ok((progress.read, progress.held == 0))
    }

    /// Encodes and writes everything up to the end of a block or the frame.
    fn complete(&mut self, finish: Finish) -> io::Result<()> {
        loop {
            self.drain()?;
            let (_, is_complete) = self.encode(&[], finish)?;
            if is_complete {
                return self.drain();
            }
        }
    }
}

impl<W: Write> Write for Encoder<W> {
    fn write(&mut self, input: &[u8]) -> io::Result<usize> {
        loop {
            self.drain()?;
            let (read, _) = self.encode(input, Finish::Nothing)?;
            if read > 0 || input.is_empty() {
                return Ok(read);
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.complete(Finish::Block)?;
        self.writer.flush()
    }
}
