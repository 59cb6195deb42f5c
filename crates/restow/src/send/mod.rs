//! Sending subvolumes of unmounted images and mounted ones.

mod image;
mod mounted;
mod nearest;
mod request;
mod resumed;

use std::io::{self, BufWriter, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use sendstream::{StreamWriter, Version};
use tree::Progress;

use self::image::ImageSender;
use self::mounted::MountedSender;
pub use self::request::SendRequest;
pub use self::resumed::ResumedOutput;
use crate::Result;
use crate::error::During;

const BUFFER_BYTES: usize = 256 << 10;

/// Subvolumes that are open and can be sent.
pub struct Sender {
    request: SendRequest,
    version: Version,
    subvolumes: OpenSubvolumes,
}

enum OpenSubvolumes {
    OfImages(Box<ImageSender>),
    Mounted(MountedSender),
}

/// Sizes of a stream that was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SendSummary {
    /// Bytes of the stream.
    pub bytes: u64,
    /// Restarts of Linux, as by a suspend. The stream has nothing twice.
    pub restarts: u64,
}

impl Sender {
    /// Opens the subvolumes. Mounted ones need root.
    ///
    /// # Errors
    /// A subvolume cannot be read, is not read-only, or is not on the file system of the others;
    /// the version is not one that can be sent.
    pub fn open(request: SendRequest) -> Result<Sender> {
        let is_mounted = request.subvolumes.iter().any(|path| path.is_dir());
        let (version, subvolumes) = if is_mounted {
            let version = mounted::version(&request)?;
            (
                version,
                OpenSubvolumes::Mounted(MountedSender::open(&request)?),
            )
        } else {
            let version = image::version(&request)?;
            (
                version,
                OpenSubvolumes::OfImages(Box::new(ImageSender::open(&request)?)),
            )
        };
        Ok(Sender {
            request,
            version,
            subvolumes,
        })
    }

    /// Bytes of file data to send, which a stream without data tells.
    ///
    /// # Errors
    /// As for [`Sender::write`].
    pub fn estimate(&self) -> Result<u64> {
        let bytes = FileBytes::default();
        let mut writer = StreamWriter::new(io::sink(), self.version);
        self.write_commands(true, &|_| {}, &bytes, &mut writer)?;
        Ok(bytes.0.into_inner())
    }

    /// Writes the streams, and calls `on_subvolume` with the name of each subvolume before it.
    ///
    /// # Errors
    /// A subvolume cannot be read, or the stream cannot be written.
    pub fn write(
        &self,
        output: &mut impl Write,
        on_subvolume: &dyn Fn(&str),
        progress: &dyn Progress,
    ) -> Result<SendSummary> {
        let output = BufWriter::with_capacity(BUFFER_BYTES, output);
        let mut writer = StreamWriter::new(output, self.version);
        let restarts =
            self.write_commands(self.request.no_data, on_subvolume, progress, &mut writer)?;
        let bytes = writer.position();
        let flushed = writer.into_inner().flush();
        flushed.during(|| "write the stream".to_owned())?;
        Ok(SendSummary { bytes, restarts })
    }

    fn write_commands<W: Write>(
        &self,
        no_data: bool,
        on_subvolume: &dyn Fn(&str),
        progress: &dyn Progress,
        writer: &mut StreamWriter<W>,
    ) -> Result<u64> {
        let request = &self.request;
        match &self.subvolumes {
            OpenSubvolumes::OfImages(all) => {
                all.write(request, no_data, on_subvolume, progress, writer)?;
                Ok(0)
            }
            OpenSubvolumes::Mounted(all) => {
                let version = self.version;
                all.write(request, version, no_data, on_subvolume, progress, writer)
            }
        }
    }
}

/// Counts the bytes of files that a stream names.
#[derive(Default)]
struct FileBytes(AtomicU64);

impl Progress for FileBytes {
    fn expect(&self, _files: Option<u64>, _bytes: Option<u64>) {}

    fn advance(&self, _files: u64, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}
