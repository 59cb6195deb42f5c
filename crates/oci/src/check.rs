//! Checks of layers: all of their digests.

use std::io;

use tree::{Error, Result, SequentialReader};

use crate::layers::{Summed, refuse_garbage};
use crate::{ImageLayout, Layer};

impl ImageLayout {
    /// Reads a layer from its beginning to its end: it must have its length and digest, decompress,
    /// and then have the digest in the configuration. Returns the length of its archive.
    ///
    /// # Errors
    /// It is missing or wrong, or is no tar archive. The error names its blob.
    pub fn check_layer(&self, layer: &Layer) -> Result<u64> {
        let check = || {
            let (stored, wrapper) = self.blob(layer)?.stored();
            let mut input = Summed::new(SequentialReader::new(stored), layer.digest.is_some());
            let mut archive = Summed::new(io::sink(), layer.diff_id.is_some());
            let bytes = match wrapper {
                None => io::copy(&mut input, &mut archive)?,
                Some(wrapper) => {
                    let unpacked = wrapper.decompress(&mut input, &mut archive)?;
                    input.drain()?;
                    refuse_garbage(unpacked)?;
                    unpacked.bytes
                }
            };
            layer.check(Some(input.sum), Some(archive.sum))?;
            Ok(bytes)
        };
        check().map_err(|error: Error| error.in_file("read", &layer.path))
    }
}
