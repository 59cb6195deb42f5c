//! Whole frames into vectors.

use alloc::{vec, vec::Vec};

/// Compresses `src` into one frame, with the parameters of
/// [`Params::for_level`](crate::Params::for_level).
#[cfg(feature = "compress")]
pub fn compress_to_vec(src: &[u8], level: i32) -> Vec<u8> {
    let params = crate::Params::for_level(level, u64::try_from(src.len()).ok());
    let mut workspace = vec![0; crate::workspace_size(&params)];
    let mut frame = vec![0; crate::compress_bound(src.len())];
    let len = crate::compress(&mut frame, src, &params, &mut workspace)
        .expect("workspace and destination have the sizes that are promised to suffice");
    frame.truncate(len);
    frame
}

/// Decompresses all frames in `src`, which together hold at most `limit` bytes.
///
/// Allocates no more than `limit` bytes for the content. Frames that do not state their content
/// size are decoded again into twice the room until they fit.
///
/// # Errors
///
/// [`Error::DstSizeTooSmall`](crate::Error::DstSizeTooSmall) if the content is longer than `limit`;
/// otherwise as [`decompress`](crate::decompress).
#[cfg(feature = "decompress")]
pub fn decompress_to_vec(src: &[u8], limit: usize) -> Result<Vec<u8>, crate::Error> {
    use crate::Error;
    let mut workspace = vec![0; crate::DECOMPRESS_WORKSPACE_SIZE];
    let stated = crate::total_content_size(src)?;
    let mut room = match stated.map(usize::try_from) {
        Some(Ok(size)) if size <= limit => size,
        Some(_) => return Err(Error::DstSizeTooSmall),
        None => limit.min(src.len().saturating_mul(4).max(1 << 16)),
    };
    loop {
        let mut content = vec![0; room];
        match crate::decompress(&mut content, src, &mut workspace) {
            Ok(len) => {
                content.truncate(len);
                return Ok(content);
            }
            Err(Error::DstSizeTooSmall) if stated.is_none() && room < limit => {
                room = limit.min(room.saturating_mul(2));
            }
            Err(error) => return Err(error),
        }
    }
}
