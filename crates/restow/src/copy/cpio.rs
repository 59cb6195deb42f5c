//! Copies to archives of cpio.

use std::io::{self, Write};

use codec::{Encoder, Settings};
use tree::Progress;
use tree::tar::write_newc;

use super::job::CopyJob;
use super::summary::CopySummary;
use super::tar;
use crate::{Error, Format, Result};

/// Content of a frame: no less, but at the end.
const FRAME_BYTES_MIN: usize = 2 << 20;

/// Maximum content of a frame, which is in memory: the largest window that Linux has for one.
const FRAME_BYTES_MAX: usize = 128 << 20;

/// The usual level of zstd.
const LEVEL: u8 = 3;

/// Writes an archive of cpio, compressed or not.
///
/// # Errors
/// The source cannot be read, or has a file that the archive cannot hold, or the destination cannot
/// be written.
pub(super) fn write(job: &CopyJob<'_>, progress: &dyn Progress) -> Result<CopySummary> {
    let (parallel, skips) = (job.parallel, job.options.skips());
    let mut output = job.output()?;
    let fill = |out: &mut dyn Write| write_newc(&job.inventory, skips, parallel, progress, out);
    let written = if job.format == Format::CpioZst {
        let level = job.options.level.unwrap_or(LEVEL);
        let mut frames = MemberFrames::new(level, &mut output)?;
        fill(&mut frames).and_then(|summary| Ok((summary, frames.finish()?)))
    } else {
        fill(&mut output).map(|summary| {
            let bytes = summary.archive_bytes;
            (summary, bytes)
        })
    };
    let (written, bytes) = job.finish(written, output)?;
    Ok(tar::summary(job, written, bytes))
}

/// Frames of zstd that end between members: Linux unpacks an initramfs frame by frame, and takes
/// one that ends elsewhere for damage.
struct MemberFrames<'o> {
    encoder: Encoder,
    /// The content of the next frame.
    content: Vec<u8>,
    packed: Vec<u8>,
    bytes: u64,
    out: &'o mut dyn Write,
}

impl<'o> MemberFrames<'o> {
    fn new(level: u8, out: &'o mut dyn Write) -> Result<MemberFrames<'o>> {
        let settings = Settings::Zstd {
            level: level.into(),
        };
        let encoder = Encoder::new(&settings);
        Ok(MemberFrames {
            encoder: encoder.map_err(|error| Error::refused(error.as_str()))?,
            content: Vec::new(),
            packed: Vec::new(),
            bytes: 0,
            out,
        })
    }

    fn pack(&mut self) -> io::Result<()> {
        let len = self.content.len();
        // Noise becomes longer by a few bytes for each block of it.
        self.packed.resize(len + (len >> 7) + 1024, 0);
        let packed = self.encoder.compress(&mut self.packed, &self.content);
        let packed = packed.ok_or_else(|| io::Error::other("zstd made no frame"))?;
        self.out.write_all(&self.packed[..packed])?;
        self.bytes += packed as u64;
        self.content.clear();
        Ok(())
    }

    /// Writes the last frame, and returns the bytes of all.
    fn finish(mut self) -> io::Result<u64> {
        if !self.content.is_empty() {
            self.pack()?;
        }
        Ok(self.bytes)
    }
}

impl Write for MemberFrames<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.content.len() + bytes.len() > FRAME_BYTES_MAX {
            let what = "a file of more than 126 MiB in a cpio archive that is compressed: \
                        write it without compression";
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
        self.content.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    /// Between members, a frame can end.
    fn flush(&mut self) -> io::Result<()> {
        if self.content.len() >= FRAME_BYTES_MIN {
            self.pack()?;
        }
        Ok(())
    }
}
