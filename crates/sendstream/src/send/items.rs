//! Whether a subvolume has items of a file behind those of its names.
//!
//! Linux goes through the items of each file in the order of their keys. Names come first. At the
//! first attribute, directory entry or extent it sends the consequences of the names.

use tree::{Extent, ExtentKind, Extents, FileId, FileKind, Inventory, Result};

use super::attributes::stored_xattrs;
use super::data::CloneRoot;

/// Whether a file has such items.
pub(super) fn has_items(inventory: &Inventory<'_>, file: FileId) -> Result<bool> {
    Ok(match inventory.metadata(file).kind {
        // The target of a symbolic link is an extent.
        FileKind::Symlink => true,
        FileKind::Directory => inventory.entries(file).len() > 0,
        FileKind::Regular => next_stored(&mut extents(inventory, file))?.is_some(),
        _ => false,
    } || !stored_xattrs(inventory.tree(), inventory.ino(file))?.is_empty())
}

/// Whether such items of a file differ from those of the same file in another subvolume.
pub(super) fn have_items_changed(roots: [&CloneRoot<'_>; 2], files: [FileId; 2]) -> Result<bool> {
    let [xattrs, old_xattrs] = in_both(roots, files, |root, file| {
        stored_xattrs(root.inventory.tree(), root.inventory.ino(file))
    })?;
    if xattrs != old_xattrs {
        return Ok(true);
    }
    let [metadata, old] = in_both(roots, files, |root, file| Ok(root.inventory.metadata(file)))?;
    match metadata.kind {
        FileKind::Directory => {
            let [entries, old] = in_both(roots, files, |root, dir| {
                let entries = root.inventory.entries(dir);
                let entries = entries.map(|entry| {
                    let number = root.order.number(root.inventory.file(entry));
                    (root.inventory.name(entry).to_vec(), number)
                });
                Ok(entries.collect::<Vec<_>>())
            })?;
            Ok(entries != old)
        }
        FileKind::Regular => {
            let [mut extents, mut old_extents] =
                in_both(roots, files, |root, file| Ok(extents(root.inventory, file)))?;
            loop {
                let both = (next_stored(&mut extents)?, next_stored(&mut old_extents)?);
                match both {
                    (None, None) => return Ok(false),
                    (new, before) if new != before => return Ok(true),
                    // Inline data has no identity.
                    (Some(Extent { id: None, .. }), _) if metadata.mtime != old.mtime => {
                        return Ok(true);
                    }
                    _ => {}
                }
            }
        }
        _ => Ok(false),
    }
}

fn in_both<'a, T>(
    [root, other]: [&CloneRoot<'a>; 2],
    [file, of_other]: [FileId; 2],
    look: impl Fn(&CloneRoot<'a>, FileId) -> Result<T>,
) -> Result<[T; 2]> {
    Ok([look(root, file)?, look(other, of_other)?])
}

fn extents<'a>(inventory: &Inventory<'a>, file: FileId) -> Extents<'a> {
    let size = inventory.metadata(file).size;
    Extents::new(inventory.tree(), inventory.ino(file), size)
}

fn next_stored(extents: &mut Extents<'_>) -> Result<Option<Extent>> {
    loop {
        match extents.next()? {
            Some(extent) if extent.kind == ExtentKind::Hole => {}
            other => return Ok(other),
        }
    }
}
