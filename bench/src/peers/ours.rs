// The crate zstd of this repository, in workspaces that are allocated once. Included twice: `codec`
// is the build with `arch`, and the one without.

use codec::{
    Compressor, DECOMPRESS_WORKSPACE_SIZE, DecodeOptions, Decoder, Encoder, Finish, LEVEL_MAX, Params, Status,
    Workspace, stream_workspace_size, workspace_size_up_to,
};

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
}

impl Decode for OurDecoder {
    fn decode(&mut self, frame: &[u8], output: &mut [u8]) -> Result<usize, String> {
        codec::decompress(output, frame, &mut self.once[..]).map_err(fault)
    }

    fn decode_stream(
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

/// The largest block that a frame is made of at once.
const CONTENT_MAX: u64 = 16 << 20;

pub(crate) struct OurEncoder {
    once: Compressor<&'static mut [u8]>,
    /// The encoder of the last level.
    stream: Option<(i32, Encoder<'static, &'static mut [u8]>)>,
}

impl OurEncoder {
    pub(crate) fn new() -> Self {
        // One per run, kept to its end.
        let workspace = vec![0; workspace_size_up_to(LEVEL_MAX, Some(CONTENT_MAX))].leak();
        Self { once: Compressor::new(workspace), stream: None }
    }
}

impl Encode for OurEncoder {
    fn encode(
        &mut self,
        level: i32,
        content: &[u8],
        output: &mut [u8],
    ) -> Result<usize, String> {
        let params = Params::for_level(level, Some(content.len() as u64));
        self.once.compress(output, content, &params).map_err(fault)
    }

    fn encode_stream(&mut self, level: i32, content: &[u8], output: &mut [u8]) -> Result<usize, String> {
        if self.stream.as_ref().is_none_or(|(made_for, _)| *made_for != level) {
            let params = Params::for_level(level, None);
            let workspace = vec![0; stream_workspace_size(&params)].leak();
            self.stream = Some((level, Encoder::new(&params, workspace).map_err(fault)?));
        }
        let (_, encoder) = self.stream.as_mut().ok_or("just made")?;
        encoder.reset(None);
        let mut written = 0;
        let mut pieces = content.chunks(PIECE).peekable();
        while let Some(mut piece) = pieces.next() {
            let finish = if pieces.peek().is_none() { Finish::Frame } else { Finish::Nothing };
            loop {
                let room = output.len().min(written + PIECE);
                let progress = encoder.step(piece, &mut output[written..room], finish).map_err(fault)?;
                piece = &piece[progress.read..];
                written += progress.written;
                if piece.is_empty() && (progress.held == 0 || finish == Finish::Nothing) {
                    break;
                }
            }
        }
        Ok(written)
    }
}

fn fault(error: codec::Error) -> String {
    format!("ours: {error}")
}
