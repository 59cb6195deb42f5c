//! Writes layers of container images, and the headers of archives of them.

use std::io::Write;

use super::buffer::Buffer;
use super::layers::WHITEOUT;
use super::pax::PaxHeader;
use super::ustar::{NAME, TypeFlag, UstarHeader};
use super::write::{Summary, write};
use crate::{FileKind, Inventory, Metadata, Parallel, Progress, Result, Time, to_u64};

/// Whether a name hides files of lower layers, and so is not that of a file.
pub fn is_whiteout(name: &[u8]) -> bool {
    name.starts_with(WHITEOUT)
}

/// Writes a tree as [`write()`] does, behind whiteouts of the `removed` paths of lower layers, as
/// the OCI image specification wants them: before the entries beside them.
///
/// # Errors
/// As for [`write()`].
pub fn write_layer(
    inventory: &Inventory<'_>,
    removed: &[Vec<u8>],
    skip_unreadable: bool,
    parallel: Parallel,
    progress: &dyn Progress,
    out: &mut dyn Write,
) -> Result<Summary> {
    let root = inventory.file(inventory.root());
    let metadata = Metadata {
        kind: FileKind::Regular,
        permissions: 0o644,
        uid: 0,
        gid: 0,
        mtime: Time::default(),
        ..inventory.metadata(root)
    };
    let mut headers = Buffer::default();
    for path in removed {
        let slash = path.iter().rposition(|&byte| byte == b'/');
        let (dir, name) = path.split_at(slash.map_or(0, |slash| slash + 1));
        let header = PaxHeader {
            path: &[dir, WHITEOUT, name].concat(),
            link_target: Vec::new(),
            metadata: &metadata,
            type_flag: TypeFlag::Regular,
            stored_len: 0,
            xattrs: Vec::new(),
            sparse: None,
        };
        header.emit(&mut headers);
    }
    out.write_all(headers.as_slice())?;
    let mut summary = write(inventory, skip_unreadable, parallel, progress, out)?;
    summary.entries += to_u64(removed.len());
    summary.archive_bytes += to_u64(headers.len());
    Ok(summary)
}

/// The header of a regular file in an archive, owned by root, with time 0. `None` for a path of
/// more than 100 bytes.
pub fn file_header(path: &[u8], size: u64) -> Option<[u8; 512]> {
    let mut header = UstarHeader::new(TypeFlag::Regular, 0o644, size);
    (path.len() <= NAME.len()).then(|| header.set_name(path))?;
    Some(header.finish())
}
