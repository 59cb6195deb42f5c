//! Ranges of files: shared, copied without their holes, or made holes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use tree::{Error, Result};

/// Bytes that are copied at once.
const COPY_BYTES: u64 = 1 << 20;
/// The largest offset in a file (`MAX_LFS_FILESIZE`).
pub(super) const FILE_BYTES_MAX: u64 = i64::MAX as u64;
/// Modes of `fallocate` (linux/falloc.h).
pub(super) const KEEP_SIZE: u32 = 1;
pub(super) const PUNCH_HOLE: u32 = 2;

/// Whether a range cannot be shared between these two files.
pub(super) fn is_not_shareable(error: &io::Error) -> bool {
    use linux::errno::{EINVAL, ENOTTY, EOPNOTSUPP, EXDEV};
    matches!(
        error.raw_os_error(),
        Some(EINVAL | ENOTTY | EOPNOTSUPP | EXDEV)
    )
}

/// The parts of a range of a file that are not holes.
fn for_each_data(
    file: &File,
    from: u64,
    end: u64,
    mut each: impl FnMut(u64, u64) -> Result<()>,
) -> Result<()> {
    let mut at = from;
    while at < end {
        let Some(data) = linux::seek_data(file, at)?.filter(|&data| data < end) else {
            break;
        };
        let hole = linux::seek_hole(file, data)?.unwrap_or(end).min(end);
        if hole <= data {
            break;
        }
        each(data, hole)?;
        at = hole;
    }
    Ok(())
}

/// Makes a hole, or zeros where the file system has no holes.
pub(super) fn punch(file: &File, from: u64, end: u64) -> Result<()> {
    if from >= end {
        return Ok(());
    }
    match linux::allocate(file, PUNCH_HOLE | KEEP_SIZE, from, end - from) {
        Err(error) if is_not_shareable(&error) => {}
        punched => return Ok(punched?),
    }
    let end = end.min(file.metadata()?.len());
    let zeros = vec![0; COPY_BYTES as usize];
    for_each_data(file, from, end, |mut at, end| {
        while at < end {
            let len = (end - at).min(COPY_BYTES);
            file.write_all_at(&zeros[..len as usize], at)?;
            at += len;
        }
        Ok(())
    })
}

/// Copies a range of one file to another, without its holes. Returns how many bytes these are.
pub(super) fn copy_range(
    source: &File,
    from: u64,
    len: u64,
    file: &File,
    offset: u64,
) -> Result<u64> {
    let end_to = offset.checked_add(len);
    let Some(end_to) = end_to.filter(|&end| end <= FILE_BYTES_MAX) else {
        return Err(Error::InvalidInput(
            "clone ends beyond the largest offset of a file",
        ));
    };
    punch(file, offset, end_to)?;
    let (mut buffer, mut copied) = (Vec::new(), 0);
    for_each_data(source, from, from + len, |mut at, end| {
        while at < end {
            buffer.resize((end - at).min(COPY_BYTES) as usize, 0);
            source.read_exact_at(&mut buffer, at)?;
            file.write_all_at(&buffer, at - from + offset)?;
            at += buffer.len() as u64;
            copied += buffer.len() as u64;
        }
        Ok(())
    })?;
    if file.metadata()?.len() < end_to {
        file.set_len(end_to)?;
    }
    Ok(copied)
}
