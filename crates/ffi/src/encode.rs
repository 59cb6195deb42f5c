//! Contexts that encode.

use core::ffi::c_void;
#[cfg(feature = "allocator")]
use core::mem::MaybeUninit;

use zstd::{Compressor, EncodeProgress, Encoder, Finish, Params, stream_workspace_size};

#[cfg(feature = "allocator")]
use crate::allocator::{AllocatedBytes, CustomMem, create};
use crate::buffers::{InBuffer, OutBuffer};
use crate::failure::Failure;
use crate::memory::{ContextMemory, place, with};

/// A context that encodes: frames in one call, or a stream.
///
/// `zstd_cctx` and `zstd_cstream`, `ZSTD_CCtx` and `ZSTD_CStream`. It lies at the start of the
/// caller's workspace.
pub struct CCtx {
    memory: ContextMemory,
    coder: Coder,
    /// Whether a sequence producer is registered, which no encoder here supports.
    pub(crate) has_producer: bool,
    #[cfg(feature = "allocator")]
    owned: Option<OwnedBlocks>,
}

/// The blocks of a context that was not made in a workspace.
#[cfg(feature = "allocator")]
struct OwnedBlocks {
    context: AllocatedBytes,
    memory: Option<AllocatedBytes>,
}

/// The use of the memory.
#[allow(
    clippy::large_enum_variant,
    reason = "there is no allocator, and the workspace has room for the largest"
)]
enum Coder {
    Nothing,
    Once(Compressor<&'static mut [u8]>),
    Stream(StreamEncoder),
}

struct StreamEncoder {
    /// Made here: it is too large for a kernel's stack.
    encoder: Option<Encoder<'static, &'static mut [u8]>>,
    #[cfg(feature = "legacy")]
    params: Params,
    /// The frame was given out as a whole.
    is_over: bool,
}

/// A size in the C interfaces, where 0 and the largest number stand for an unknown one.
pub(crate) fn known(size: u64) -> Option<u64> {
    (size > 0 && size < u64::MAX).then_some(size)
}

/// The parameters of a frame of `size` bytes in one call. Where the header does not tell the size,
/// a decoder needs memory for the window.
pub(crate) fn of_whole(params: Params, size: usize) -> Params {
    if params.content_size {
        return params;
    }
    let needed = usize::BITS - size.saturating_sub(1).leading_zeros();
    params.with_window_log_max(needed as u8)
}

impl CCtx {
    /// Bytes of workspace for a context with `bytes` of memory.
    pub(crate) const fn with(bytes: usize) -> usize {
        with::<CCtx>(bytes)
    }

    /// Bytes of workspace for streams with these parameters.
    pub(crate) fn with_stream(params: &Params) -> usize {
        CCtx::with(stream_workspace_size(params))
    }

    /// A context at the start of the workspace, `None` if that is NULL or too small for it.
    ///
    /// # Safety
    ///
    /// There are `size` bytes at `workspace` that no other code uses while the context is used,
    /// unless `workspace` is NULL.
    pub(crate) unsafe fn place(workspace: *mut c_void, size: usize) -> Option<&'static mut CCtx> {
        // SAFETY: the caller promises it.
        let (place, memory) = unsafe { place::<CCtx>(workspace, size) }?;
        Some(place.write(CCtx {
            memory: ContextMemory::new(memory),
            coder: Coder::Nothing,
            has_producer: false,
            #[cfg(feature = "allocator")]
            owned: None,
        }))
    }

    /// A context in a block of its own, which takes memory as it needs it.
    ///
    /// # Safety
    ///
    /// As for [`CustomMem::block`].
    #[cfg(feature = "allocator")]
    pub(crate) unsafe fn create(custom: &CustomMem) -> Option<&'static mut CCtx> {
        let make = |place: &'static mut MaybeUninit<CCtx>, memory| {
            Some(place.write(CCtx {
                memory: ContextMemory::new(memory),
                coder: Coder::Nothing,
                has_producer: false,
                owned: None,
            }))
        };
        let own = |made: &mut CCtx, context| {
            let memory = None;
            made.owned = Some(OwnedBlocks { context, memory });
        };
        // SAFETY: the caller promises it.
        unsafe { create(custom, 0, make, own) }
    }

    /// Gives the memory of a context back, if it was created with memory of its own.
    ///
    /// # Safety
    ///
    /// It is a context, which is not used any more.
    #[cfg(feature = "allocator")]
    pub(crate) unsafe fn free(cctx: *mut CCtx) -> Result<(), Failure> {
        // SAFETY: the caller promises it.
        let owned = unsafe { &mut (*cctx).owned }.take();
        let OwnedBlocks { context, memory } = owned.ok_or(Failure::NotOwned)?;
        for block in memory.into_iter().chain([context]) {
            // SAFETY: the context is not used any more, and only it used the memory.
            unsafe { block.free() };
        }
        Ok(())
    }

    /// The encoder of whole frames that need `bytes` of memory, which a context in a workspace has
    /// or has not.
    pub(crate) fn once_in(
        &mut self,
        bytes: usize,
    ) -> Result<&mut Compressor<&'static mut [u8]>, Failure> {
        #[cfg(feature = "allocator")]
        self.grow(bytes)?;
        #[cfg(not(feature = "allocator"))]
        let _ = bytes;
        self.once()
    }

    /// Takes more memory if there is an allocator and that is needed.
    #[cfg(feature = "allocator")]
    fn grow(&mut self, bytes: usize) -> Result<(), Failure> {
        let Some(owned) = &mut self.owned else {
            return Ok(());
        };
        if self.memory.size() >= bytes {
            return Ok(());
        }
        self.coder = Coder::Nothing;
        self.memory = ContextMemory::new(&mut []);
        if let Some(block) = owned.memory.take() {
            // SAFETY: its user is gone.
            unsafe { block.free() };
        }
        // SAFETY: the creator of the context promised the behaviour of its functions.
        owned.memory = unsafe { owned.context.another(bytes) };
        // SAFETY: the block is new.
        let memory = owned.memory.as_ref().and_then(|it| unsafe { it.bytes() });
        self.memory = ContextMemory::new(memory.ok_or(zstd::Error::WorkspaceTooSmall)?);
        Ok(())
    }

    /// The encoder of whole frames. A stream is given up.
    pub(crate) fn once(&mut self) -> Result<&mut Compressor<&'static mut [u8]>, Failure> {
        self.check()?;
        if !matches!(self.coder, Coder::Once(_)) {
            self.coder = Coder::Nothing;
            // SAFETY: the coder that used it is gone.
            let memory = unsafe { self.memory.lend() };
            self.coder = Coder::Once(Compressor::new(memory));
        }
        match &mut self.coder {
            Coder::Once(compressor) => Ok(compressor),
            _ => Err(Failure::InitMissing),
        }
    }

    /// Whether everything that was asked for is there.
    fn check(&self) -> Result<(), Failure> {
        if self.has_producer {
            return Err(Failure::Unsupported);
        }
        Ok(())
    }

    /// Begins a stream.
    #[inline(never)]
    pub(crate) fn begin(
        &mut self,
        params: &Params,
    ) -> Result<&mut Encoder<'static, &'static mut [u8]>, Failure> {
        self.coder = Coder::Nothing;
        // SAFETY: the coder that used it is gone.
        let memory = unsafe { self.memory.lend() };
        self.coder = Coder::Stream(StreamEncoder {
            encoder: None,
            #[cfg(feature = "legacy")]
            params: *params,
            is_over: false,
        });
        match &mut self.coder {
            Coder::Stream(stream) => Ok(Encoder::place(&mut stream.encoder, params, memory)?),
            _ => Err(Failure::InitMissing),
        }
    }

    /// The encoder of a stream that was begun.
    pub(crate) fn encoder(&mut self) -> Result<&mut Encoder<'static, &'static mut [u8]>, Failure> {
        self.stream()?.encoder.as_mut().ok_or(Failure::InitMissing)
    }

    fn stream(&mut self) -> Result<&mut StreamEncoder, Failure> {
        self.check()?;
        match &mut self.coder {
            Coder::Stream(stream) => Ok(stream),
            _ => Err(Failure::InitMissing),
        }
    }

    /// Begins another frame, of a size that may be unknown.
    pub(crate) fn reset(&mut self, pledged: u64) -> Result<(), Failure> {
        self.stream()?.is_over = false;
        self.encoder()?.reset(known(pledged));
        Ok(())
    }

    /// Takes input; gives how many bytes of input would complete a block.
    ///
    /// # Safety
    ///
    /// As [`InBuffer::rest`] and [`OutBuffer::rest`] for both buffers.
    pub(crate) unsafe fn compress(
        &mut self,
        output: &mut OutBuffer,
        input: &mut InBuffer,
    ) -> Result<usize, Failure> {
        if self.stream()?.is_over {
            self.reset(0)?;
        }
        let encoder = self.encoder()?;
        // SAFETY: the caller promises it.
        let taken = unsafe { input.rest() }?;
        // SAFETY: as above.
        let room = unsafe { output.rest() }?;
        let progress = encoder.step(taken, room, Finish::Nothing)?;
        input.pos += progress.read;
        output.pos += progress.written;
        Ok(match progress.wanted {
            0 => encoder.block_size_max(),
            wanted => wanted,
        })
    }

    /// Completes a block or the frame; gives how many bytes wait for room, at least.
    ///
    /// # Safety
    ///
    /// As [`OutBuffer::rest`].
    pub(crate) unsafe fn finish(
        &mut self,
        output: &mut OutBuffer,
        finish: Finish,
    ) -> Result<usize, Failure> {
        let encoder = self.encoder()?;
        // SAFETY: the caller promises it.
        let room = unsafe { output.rest() }?;
        let EncodeProgress { written, held, .. } = encoder.step(&[], room, finish)?;
        output.pos += written;
        self.stream()?.is_over |= finish == Finish::Frame && held == 0;
        Ok(held)
    }

    /// Begins a frame as `other` has begun one.
    #[cfg(feature = "legacy")]
    pub(crate) fn begin_as(&mut self, other: &CCtx, pledged: u64) -> Result<(), Failure> {
        let Coder::Stream(StreamEncoder {
            encoder: Some(original),
            params,
            ..
        }) = &other.coder
        else {
            return Err(Failure::InitMissing);
        };
        let encoder = self.begin(params)?;
        encoder.copy_from(original)?;
        encoder.reset(known(pledged));
        Ok(())
    }
}
