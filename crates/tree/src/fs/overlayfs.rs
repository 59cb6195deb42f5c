//! The marks by which overlayfs hides files of lower layers (in Linux,
//! Documentation/filesystems/overlayfs.rst).

use super::{Device, DirEntry, FileKind, FileSystem, Metadata, Xattr, is_valid_name};
use crate::{Error, Result, to_u64};

/// The device that stands for a name that does not exist.
pub(super) const WHITEOUT: Device = Device { major: 0, minor: 0 };

/// Maximum length of the path of a redirect, as of any path in Linux (`PATH_MAX`).
const REDIRECT_BYTES_MAX: usize = 4096;

/// The meaning of an entry of an overlayfs layer for the layers below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// Nothing.
    Plain,
    /// The name does not exist.
    Whiteout,
    /// The directory has only its own entries.
    Opaque,
    /// The directory has another place in lower layers.
    Moved(Redirect),
    /// The file has its content in lower layers, perhaps in another place.
    Metacopy(Option<Redirect>),
}

/// The place of a file in lower layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Redirect {
    /// Whether the path begins at the root; otherwise it is a name in the same directory.
    pub(super) is_absolute: bool,
    /// The names of the path.
    pub(super) names: Vec<Box<[u8]>>,
}

impl Redirect {
    fn parse(value: &[u8]) -> Result<Redirect> {
        let path = value.strip_prefix(b"/").unwrap_or(value);
        let is_absolute = path.len() < value.len();
        let names: Vec<Box<[u8]>> = path.split(|&byte| byte == b'/').map(Box::from).collect();
        let is_valid = names.iter().all(|name| is_valid_name(name));
        if !is_valid || value.len() > REDIRECT_BYTES_MAX || (!is_absolute && names.len() > 1) {
            let what = "redirect of overlayfs is no path in the lower layers";
            return Err(Error::corrupt(what, 0, to_u64(value.len())));
        }
        Ok(Redirect { is_absolute, names })
    }

    /// The place in layers below one that leads elsewhere from a name, which `rest` names follow.
    pub(super) fn redirected(mut self, rest: usize, to: Redirect) -> Redirect {
        let end = self.names.len().saturating_sub(rest);
        let first = if to.is_absolute {
            0
        } else {
            end.saturating_sub(1)
        };
        self.names.splice(first..end, to.names);
        self.is_absolute |= to.is_absolute;
        self
    }
}

const USER: &[u8] = b"user.overlay.";
const TRUSTED: &[u8] = b"trusted.overlay.";

/// The attributes of overlayfs that have a meaning, of one of two namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OverlayAttributes {
    prefix: &'static [u8],
}

impl OverlayAttributes {
    /// Those of the namespace `trusted`, or `user` with the mount option `userxattr`.
    pub(super) fn new(userxattr: bool) -> OverlayAttributes {
        let prefix = if userxattr { USER } else { TRUSTED };
        OverlayAttributes { prefix }
    }

    /// The mark of an entry of a layer. Linux hides whiteouts also where they hide nothing: in the
    /// lowest layer, and in directories of one layer.
    ///
    /// # Errors
    /// It cannot be read, or refers to files of lower layers in a way that Linux does not follow.
    pub(super) fn mark(
        self,
        layer: &dyn FileSystem,
        entry: &DirEntry,
        metadata: Option<&Metadata>,
        is_lowest: bool,
    ) -> Result<Mark> {
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
        let (mut is_opaque, mut is_metacopy, mut redirect) = (false, false, None);
        for xattr in layer.xattrs(entry.ino)? {
            match xattr.name.strip_prefix(self.prefix) {
                Some(b"opaque") if *xattr.value == *b"y" => is_opaque = true,
                Some(b"whiteout") if metadata()?.size == 0 => return Ok(Mark::Whiteout),
                Some(b"redirect") if !is_lowest => redirect = Some(xattr.value),
                Some(b"metacopy") if !is_lowest => is_metacopy = true,
                _ => {}
            }
        }
        // Of other files, the attributes have no meaning.
        let is_dir = entry.kind == FileKind::Directory;
        if is_dir && is_opaque {
            return Ok(Mark::Opaque);
        }
        if !is_metacopy && (!is_dir || redirect.is_none()) {
            return Ok(Mark::Plain);
        }
        if self.prefix == USER {
            let what = "a reference to another file of lower layers, which Linux does not follow with userxattr";
            return Err(Error::Unsupported(what).in_file("read", &entry.name));
        }
        let redirect = redirect.map(|value| Redirect::parse(&value)).transpose();
        let redirect = redirect.map_err(|error| error.in_file("read", &entry.name))?;
        Ok(match redirect {
            Some(redirect) if is_dir => Mark::Moved(redirect),
            _ if is_dir => Mark::Plain,
            redirect => Mark::Metacopy(redirect),
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

    /// The attributes that a layer holds so that a mount shows these: the reverse of
    /// [`OverlayAttributes::shown`].
    pub(super) fn quoted(self, mut xattrs: Vec<Xattr>) -> Vec<Xattr> {
        for xattr in &mut xattrs {
            if let Some(name) = xattr.name.strip_prefix(self.prefix) {
                xattr.name = [self.prefix, b"overlay.", name].concat().into();
            }
        }
        xattrs.sort_unstable();
        xattrs
    }
}
