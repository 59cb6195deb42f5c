//! Contexts that decode.

use core::ffi::c_void;

use zstd::{DECOMPRESS_WORKSPACE_SIZE, DecodeOptions, Decoder, Status};

use crate::buffers::{InBuffer, OutBuffer};
use crate::failure::Failure;
use crate::memory::{Memory, place, with};

/// A context that decodes: frames in one call, or a stream.
///
/// `zstd_dctx` and `zstd_dstream`, `ZSTD_DCtx` and `ZSTD_DStream`. It lies at the start of the caller's workspace.
pub struct DCtx {
    memory: Memory,
    coder: Coder,
}

/// What the memory is used for.
#[expect(
    clippy::large_enum_variant,
    reason = "there is no allocator, and the workspace has room for the largest"
)]
enum Coder {
    /// Nothing between calls that decode whole frames.
    Nothing,
    Stream(Decoder<'static, 'static>),
}

impl DCtx {
    /// Bytes of workspace for whole frames.
    pub(crate) const WORKSPACE_SIZE: usize = with::<DCtx>(DECOMPRESS_WORKSPACE_SIZE);

    /// Bytes of workspace for streams whose windows have up to `window` bytes; `usize::MAX` if no workspace is large enough.
    pub(crate) fn with_stream(window: usize) -> usize {
        let bytes = Decoder::workspace_size(window as u64);
        bytes.map_or(usize::MAX, with::<DCtx>)
    }

    /// A context at the start of the workspace, `None` if that is NULL or too small for it.
    ///
    /// # Safety
    ///
    /// There are `size` bytes at `workspace` that nobody else uses while the context is used, unless `workspace` is NULL.
    pub(crate) unsafe fn place(workspace: *mut c_void, size: usize) -> Option<&'static mut DCtx> {
        // SAFETY: the caller promises it.
        let (place, memory) = unsafe { place::<DCtx>(workspace, size) }?;
        Some(place.write(DCtx {
            memory: Memory::new(memory),
            coder: Coder::Nothing,
        }))
    }

    /// Whether there is memory for whole frames.
    pub(crate) fn has_memory(&self) -> bool {
        self.memory.size() >= DECOMPRESS_WORKSPACE_SIZE
    }

    /// Decodes whole frames. A stream is given up.
    pub(crate) fn decompress(
        &mut self,
        options: &DecodeOptions<'_>,
        dst: &mut [u8],
        src: &[u8],
    ) -> Result<usize, Failure> {
        self.coder = Coder::Nothing;
        // SAFETY: the coder that used it is gone.
        let memory = unsafe { self.memory.lend() };
        Ok(options.decompress(dst, src, memory)?)
    }

    /// Begins a stream.
    #[inline(never)]
    pub(crate) fn begin(&mut self, options: DecodeOptions<'static>) -> Result<(), Failure> {
        self.coder = Coder::Nothing;
        // SAFETY: the coder that used it is gone.
        let memory = unsafe { self.memory.lend() };
        self.coder = Coder::Stream(Decoder::new(options, memory)?);
        Ok(())
    }

    fn stream(&mut self) -> Result<&mut Decoder<'static, 'static>, Failure> {
        match &mut self.coder {
            Coder::Stream(decoder) => Ok(decoder),
            Coder::Nothing => Err(Failure::InitMissing),
        }
    }

    /// Begins another frame, whatever became of this one.
    pub(crate) fn reset(&mut self) -> Result<(), Failure> {
        self.stream()?.reset();
        Ok(())
    }

    /// Decodes; gives 0 when a frame is complete and given out, otherwise how many bytes of input would do for the next step.
    ///
    /// # Safety
    ///
    /// As [`InBuffer::rest`] and [`OutBuffer::rest`] for both buffers.
    pub(crate) unsafe fn decompress_stream(
        &mut self,
        output: &mut OutBuffer,
        input: &mut InBuffer,
    ) -> Result<usize, Failure> {
        let decoder = self.stream()?;
        // SAFETY: the caller promises it.
        let given = unsafe { input.rest() }?;
        // SAFETY: as above.
        let room = unsafe { output.rest() }?;
        let progress = decoder.step(given, room)?;
        input.pos += progress.read;
        output.pos += progress.written;
        Ok(match progress.status {
            Status::Done => 0,
            Status::Input { hint } => hint.max(1),
            Status::Output => 1,
        })
    }
}
