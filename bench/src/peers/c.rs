//! C's libzstd by its binding: contexts are reused, parameters follow from the level and the known
//! size.

use super::calls::{Decode, Encode, PIECE};
use zstd_safe::{CCtx, CParameter, DCtx, InBuffer, OutBuffer, ResetDirective, get_error_name};

pub(crate) struct CDecoder(DCtx<'static>);

impl CDecoder {
    pub(crate) fn new() -> Result<Self, String> {
        DCtx::try_create().map(Self).ok_or("C has no memory".into())
    }
}

impl Decode for CDecoder {
    fn decode(&mut self, frame: &[u8], output: &mut [u8]) -> Result<usize, String> {
        self.0.decompress(output, frame).map_err(fault)
    }

    fn decode_stream(&mut self, frame: &[u8], output: &mut [u8]) -> Result<usize, String> {
        self.0.reset(ResetDirective::SessionOnly).map_err(fault)?;
        let (mut read, mut written) = (0, 0);
        loop {
            let mut input = InBuffer::around(&frame[read..frame.len().min(read + PIECE)]);
            let room = output.len().min(written + PIECE);
            let mut piece = OutBuffer::around(&mut output[written..room]);
            let wanted = self
                .0
                .decompress_stream(&mut piece, &mut input)
                .map_err(fault)?;
            written += piece.pos();
            read += input.pos();
            if wanted == 0 {
                return Ok(written);
            }
            if input.pos() == 0 && read == frame.len() && written == room {
                return Err("C does not finish".into());
            }
        }
    }
}

pub(crate) struct CEncoder(CCtx<'static>);

impl CEncoder {
    pub(crate) fn new() -> Result<Self, String> {
        CCtx::try_create().map(Self).ok_or("C has no memory".into())
    }
}

impl Encode for CEncoder {
    fn encode(&mut self, level: i32, content: &[u8], output: &mut [u8]) -> Result<usize, String> {
        self.0
            .set_parameter(CParameter::CompressionLevel(level))
            .map_err(fault)?;
        self.0.compress2(output, content).map_err(fault)
    }

    fn encode_stream(
        &mut self,
        level: i32,
        content: &[u8],
        output: &mut [u8],
    ) -> Result<usize, String> {
        self.0.reset(ResetDirective::SessionOnly).map_err(fault)?;
        self.0
            .set_parameter(CParameter::CompressionLevel(level))
            .map_err(fault)?;
        let mut written = 0;
        for chunk in content.chunks(PIECE) {
            let mut input = InBuffer::around(chunk);
            while input.pos() < chunk.len() {
                let room = output.len().min(written + PIECE);
                let mut piece = OutBuffer::around(&mut output[written..room]);
                self.0
                    .compress_stream(&mut piece, &mut input)
                    .map_err(fault)?;
                written += piece.pos();
            }
        }
        loop {
            let room = output.len().min(written + PIECE);
            let mut piece = OutBuffer::around(&mut output[written..room]);
            let left = self.0.end_stream(&mut piece).map_err(fault)?;
            written += piece.pos();
            if left == 0 {
                return Ok(written);
            }
        }
    }
}

fn fault(code: usize) -> String {
    format!("C: {}", get_error_name(code))
}
