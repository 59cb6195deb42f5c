//! The crate zstd of this repository, in workspaces that are allocated once.

use crate::stream::PIECE;
use zstd::{DECOMPRESS_WORKSPACE_SIZE, DecodeOptions, Decoder, Status, Workspace};

/// The largest window of a stream: that of level 22.
const WINDOW_MAX: u64 = 1 << 27;

pub(crate) struct OurDecoder {
    once: Box<Workspace<DECOMPRESS_WORKSPACE_SIZE>>,
    /// Empty until a stream is decoded.
    stream: Vec<u8>,
}

impl OurDecoder {
    pub(crate) fn new() -> Self {
        Self {
            once: Box::new(Workspace::new()),
            stream: Vec::new(),
        }
    }

    pub(crate) fn decode(&mut self, frame: &[u8], output: &mut [u8]) -> Result<usize, String> {
        zstd::decompress(output, frame, &mut self.once[..]).map_err(fault)
    }

    pub(crate) fn decode_stream(
        &mut self,
        frame: &[u8],
        output: &mut [u8],
    ) -> Result<usize, String> {
        if self.stream.is_empty() {
            let size = Decoder::workspace_size(WINDOW_MAX).ok_or("the window is too large")?;
            self.stream = vec![0; size];
        }
        let mut decoder = Decoder::new(DecodeOptions::new(), &mut self.stream).map_err(fault)?;
        let (mut read, mut written) = (0, 0);
        loop {
            let input = &frame[read..frame.len().min(read + PIECE)];
            let room = output.len().min(written + PIECE);
            let progress = decoder
                .step(input, &mut output[written..room])
                .map_err(fault)?;
            read += progress.read;
            written += progress.written;
            if progress.status == Status::Done {
                return Ok(written);
            }
            if progress.read == 0 && progress.written == 0 {
                return Err("our decoder does not finish".into());
            }
        }
    }
}

fn fault(error: zstd::Error) -> String {
    format!("ours: {error}")
}
