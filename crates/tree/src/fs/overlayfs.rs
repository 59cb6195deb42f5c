//! The marks by which overlayfs hides files of lower layers (in Linux,
//! Documentation/filesystems/overlayfs.rst).

use super::{Device, DirEntry, FileKind, FileSystem, Metadata, Xattr};
use crate::{Error, Result};

/// The meaning of an entry of an overlayfs layer for the layers below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// Nothing.
    Plain,
    /// The name does not exist.
    Whiteout,
    /// The directory has only its own entries.
    Opaque,
}

/// The attributes of overlayfs that have a meaning, of one of two namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OverlayAttributes {
    prefix: &'static [u8],
}

impl OverlayAttributes {
    /// Those of the namespace `trusted`, or `user` with the mount option `userxattr`.
    pub(super) fn new(userxattr: bool) -> OverlayAttributes {
        let prefix: &[u8] = if userxattr {
            b"user.overlay."
        } else {
            b"trusted.overlay."
        };
        OverlayAttributes { prefix }
    }

    /// The mark of an entry of a layer. Linux hides whiteouts also where they hide nothing: in the
    /// lowest layer, and in directories of one layer.
    ///
    /// # Errors
    /// It cannot be read, or refers to files of lower layers under other names.
    pub(super) fn mark(
        self,
        layer: &dyn FileSystem,
        entry: &DirEntry,
        metadata: Option<&Metadata>,
        is_lowest: bool,
    ) -> Result<Mark> {
        const WHITEOUT: Device = Device { major: 0, minor: 0 };
        let metadata = || match metadata {
            Some(metadata) => Ok(metadata.clone()),
            None => layer.metadata(entry.ino),
        };
        let may_have = match entry.kind {
            FileKind::CharDevice if metadata()?.rdev == WHITEOUT => return Ok(Mark::Whiteout),
            FileKind::Regular => !is_lowest || metadata()?.size == 0,
            FileKind::Directory => !is_lowest,
            _ => false,
        };
        if !may_have {
            return Ok(Mark::Plain);
        }
        let mut mark = Mark::Plain;
        for xattr in layer.xattrs(entry.ino)? {
            let what = match xattr.name.strip_prefix(self.prefix) {
                Some(b"opaque") if *xattr.value == *b"y" => {
                    mark = Mark::Opaque;
                    continue;
                }
                Some(b"whiteout") if metadata()?.size == 0 => return Ok(Mark::Whiteout),
                Some(b"redirect") if !is_lowest => {
                    "a directory that overlayfs renamed (overlay.redirect); mount the overlay and read the mount"
                }
                Some(b"metacopy") if !is_lowest => {
                    "a file whose content overlayfs left in a lower layer (overlay.metacopy); mount the overlay and read the mount"
                }
                _ => continue,
            };
            return Err(Error::Unsupported(what).in_file("read", &entry.name));
        }
        // Of other files, the attribute has no meaning.
        Ok(match entry.kind {
            FileKind::Directory => mark,
            _ => Mark::Plain,
        })
    }

    /// The attributes that a mount shows: not those of overlayfs itself, and those of an overlay
    /// within the overlay without the prefix that protects them.
    pub(super) fn shown(self, xattrs: Vec<Xattr>) -> Vec<Xattr> {
        let mut shown: Vec<Xattr> = (xattrs.into_iter())
            .filter_map(|xattr| match xattr.name.strip_prefix(self.prefix) {
                None => Some(xattr),
                Some(private) => {
                    let name = private.strip_prefix(b"overlay.")?;
                    Some(Xattr {
                        name: [self.prefix, name].concat().into(),
                        value: xattr.value,
                    })
                }
            })
            .collect();
        shown.sort_unstable();
        shown
    }
}
