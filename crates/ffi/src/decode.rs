//! Contexts that decode.

use core::ffi::c_void;
#[cfg(feature = "allocator")]
use core::mem::MaybeUninit;

#[cfg(feature = "legacy")]
use zstd::PieceDecoder;
use zstd::{DECOMPRESS_WORKSPACE_SIZE, DecodeOptions, Decoder, Status};

#[cfg(feature = "allocator")]
use crate::allocator::{AllocatedBytes, CustomMem, create};
#[cfg(feature = "legacy")]
use crate::buffers::destination;
use crate::buffers::{InBuffer, OutBuffer};
use crate::failure::Failure;
use crate::memory::{ContextMemory, place, with};

/// A caller that makes this number of calls in a row without effect would go on for ever.
const IDLE_CALLS_MAX: u8 = 16;

/// A context that decodes: frames in one call, or a stream.
///
/// `zstd_dctx` and `zstd_dstream`, `ZSTD_DCtx` and `ZSTD_DStream`. It lies at the start of the
/// caller's workspace.
pub struct DCtx {
    memory: ContextMemory,
    coder: Coder,
    /// Calls in a row within a frame that took and gave nothing, up to the maximum.
    idle_calls: u8,
    /// That of a context that was not made in a workspace.
    #[cfg(feature = "allocator")]
    block: Option<AllocatedBytes>,
}

/// The use of the memory.
#[allow(
    clippy::large_enum_variant,
    reason = "there is no allocator, and the workspace has room for the largest"
)]
enum Coder {
    /// Nothing between calls that decode whole frames.
    Nothing,
    /// Made here: it is too large for a kernel's stack.
    Stream(Option<Decoder<'static, 'static>>),
    #[cfg(feature = "legacy")]
    Pieces(PiecewiseDecoder),
}

/// A frame that comes piece by piece, or blocks without a frame.
#[cfg(feature = "legacy")]
pub(crate) struct PiecewiseDecoder {
    pub(crate) decoder: PieceDecoder<'static, 'static>,
    /// Where the content so far lies, which blocks refer to.
    start: *mut c_void,
    size: usize,
}

impl DCtx {
    /// Bytes of workspace for whole frames.
    pub(crate) const WORKSPACE_SIZE: usize = with::<DCtx>(DECOMPRESS_WORKSPACE_SIZE);

    /// Bytes of workspace for streams whose windows have up to `window` bytes; `usize::MAX` if no
    /// workspace is large enough.
    pub(crate) fn with_stream(window: usize) -> usize {
        let bytes = Decoder::workspace_size(window as u64);
        bytes.map_or(usize::MAX, with::<DCtx>)
    }

    /// A context at the start of the workspace, `None` if that is NULL or too small for it.
    ///
    /// # Safety
    ///
    /// There are `size` bytes at `workspace` that no other code uses while the context is used,
    /// unless `workspace` is NULL.
    pub(crate) unsafe fn place(workspace: *mut c_void, size: usize) -> Option<&'static mut DCtx> {
        // SAFETY: the caller promises it.
        let (place, memory) = unsafe { place::<DCtx>(workspace, size) }?;
        Some(place.write(DCtx {
            memory: ContextMemory::new(memory),
            coder: Coder::Nothing,
            idle_calls: 0,
            #[cfg(feature = "allocator")]
            block: None,
        }))
    }

    /// A context for whole frames in a block of its own.
    ///
    /// # Safety
    ///
    /// As for [`CustomMem::block`].
    #[cfg(feature = "allocator")]
    pub(crate) unsafe fn create(custom: &CustomMem) -> Option<&'static mut DCtx> {
        let make = |place: &'static mut MaybeUninit<DCtx>, memory| {
            Some(place.write(DCtx {
                memory: ContextMemory::new(memory),
                coder: Coder::Nothing,
                idle_calls: 0,
                block: None,
            }))
        };
        let own = |made: &mut DCtx, block| made.block = Some(block);
        // SAFETY: the caller promises it.
        unsafe { create(custom, DECOMPRESS_WORKSPACE_SIZE, make, own) }
    }

    /// Gives the memory of a context back, if it was created with memory of its own.
    ///
    /// # Safety
    ///
    /// It is a context, which is not used any more.
    #[cfg(feature = "allocator")]
    pub(crate) unsafe fn free(dctx: *mut DCtx) -> Result<(), Failure> {
        // SAFETY: the caller promises it.
        let block = unsafe { &mut (*dctx).block }.take();
        // SAFETY: as above.
        unsafe { block.ok_or(Failure::NotOwned)?.free() };
        Ok(())
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
        self.coder = Coder::Stream(None);
        if let Coder::Stream(place) = &mut self.coder {
            Decoder::place(place, options, memory)?;
        }
        Ok(())
    }

    fn stream(&mut self) -> Result<&mut Decoder<'static, 'static>, Failure> {
        match &mut self.coder {
            Coder::Stream(Some(decoder)) => Ok(decoder),
            _ => Err(Failure::InitMissing),
        }
    }

    /// Begins another frame, abandoning this one if it is incomplete.
    pub(crate) fn reset(&mut self) -> Result<(), Failure> {
        self.stream()?.reset();
        self.idle_calls = 0;
        Ok(())
    }

    /// Decodes; gives 0 when a frame is complete and given out, otherwise how many bytes of input
    /// would do for the next step.
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
        let is_idle = progress.read + progress.written == 0 && !decoder.is_before_header();
        self.idle_calls = if is_idle {
            IDLE_CALLS_MAX.min(self.idle_calls + 1)
        } else {
            0
        };
        Ok(match progress.status {
            Status::Done => 0,
            Status::Input { hint } => hint.max(1),
            Status::Output => 1,
        })
    }

    /// An error if the last of many calls in a row made no progress, until a call makes progress.
    pub(crate) fn check_progress(&self, output: &OutBuffer) -> Result<(), Failure> {
        match (self.idle_calls < IDLE_CALLS_MAX, output.pos == output.size) {
            (true, _) => Ok(()),
            (false, true) => Err(Failure::OutputFull),
            (false, false) => Err(Failure::InputEmpty),
        }
    }

    /// Bytes of memory.
    #[cfg(feature = "legacy")]
    pub(crate) fn memory_size(&self) -> usize {
        self.memory.size()
    }

    /// Begins a frame that comes piece by piece.
    #[cfg(feature = "legacy")]
    #[inline(never)]
    pub(crate) fn begin_pieces(&mut self, options: DecodeOptions<'static>) -> Result<(), Failure> {
        self.coder = Coder::Nothing;
        // SAFETY: the coder that used it is gone.
        let memory = unsafe { self.memory.lend() };
        self.coder = Coder::Pieces(PiecewiseDecoder {
            decoder: PieceDecoder::new(options, memory)?,
            start: core::ptr::null_mut(),
            size: 0,
        });
        Ok(())
    }

    /// The frame that comes piece by piece.
    #[cfg(feature = "legacy")]
    pub(crate) fn pieces(&mut self) -> Result<&mut PiecewiseDecoder, Failure> {
        match &mut self.coder {
            Coder::Pieces(pieces) => Ok(pieces),
            _ => Err(Failure::InitMissing),
        }
    }

    /// Goes on as `other` does, behind the same content.
    #[cfg(feature = "legacy")]
    pub(crate) fn begin_as(&mut self, other: &DCtx) -> Result<(), Failure> {
        let Coder::Pieces(other) = &other.coder else {
            return Err(Failure::InitMissing);
        };
        self.begin_pieces(DecodeOptions::new())?;
        let pieces = self.pieces()?;
        pieces.decoder.copy_from(&other.decoder);
        (pieces.start, pieces.size) = (other.start, other.size);
        Ok(())
    }
}

#[cfg(feature = "legacy")]
impl PiecewiseDecoder {
    /// Continues the content at `dst`. If that is not its end, earlier content cannot be referred
    /// to.
    fn go_on(&mut self, dst: *mut c_void) {
        if self.start.wrapping_byte_add(self.size) != dst {
            (self.start, self.size) = (dst, 0);
        }
    }

    /// Decodes into the `capacity` bytes at `dst`. `decode` gets the content so far with the room
    /// behind it, and where that room begins.
    ///
    /// # Safety
    ///
    /// There are `capacity` bytes at `dst` that no other code uses during the call, unless `dst` is
    /// NULL. If `dst` is where the last call's content has ended, that content is still there.
    pub(crate) unsafe fn decode(
        &mut self,
        dst: *mut c_void,
        capacity: usize,
        decode: impl FnOnce(
            &mut PieceDecoder<'static, 'static>,
            &mut [u8],
            usize,
        ) -> Result<usize, zstd::Error>,
    ) -> Result<usize, Failure> {
        if capacity == 0 {
            return Ok(decode(&mut self.decoder, &mut [], 0)?);
        }
        self.go_on(dst);
        let at = self.size;
        // SAFETY: the content lies right before `dst`, and the caller promises both.
        let output = unsafe { destination(self.start, at.saturating_add(capacity)) }?;
        let written = decode(&mut self.decoder, output, at)?;
        self.size = at + written;
        Ok(written)
    }

    /// Declares a block that was stored as it is.
    pub(crate) fn insert(&mut self, start: *mut c_void, size: usize) -> Result<(), Failure> {
        self.decoder.insert_block(size)?;
        self.go_on(start);
        self.size = self.size.saturating_add(size);
        Ok(())
    }
}
