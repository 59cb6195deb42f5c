//! Layers of overlayfs: how an address names them, and whether their marks can be read.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use crate::error::refuse;
use crate::{Result, text};

/// The word before the layers, as for a mount without options, and with `userxattr`.
const WORDS: [(&[u8], bool); 2] = [(b"overlay:", false), (b"overlay,userxattr:", true)];

/// The layers of an overlay, as an address names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OverlayLayers {
    /// Addresses, the lowest layer first.
    pub(crate) layers: Vec<PathBuf>,
    /// Whether marks are attributes of the namespace `user`.
    pub(crate) userxattr: bool,
}

impl OverlayLayers {
    /// The rest of an address behind the word, and whether that has the option.
    fn after_word(address: &[u8]) -> Option<(&[u8], bool)> {
        let mut words = WORDS.iter();
        words.find_map(|(word, userxattr)| Some((address.strip_prefix(*word)?, *userxattr)))
    }

    /// Whether an address begins with the word.
    pub(crate) fn is_named(address: &[u8]) -> bool {
        OverlayLayers::after_word(address).is_some()
    }

    /// Takes `overlay:LOWER:UPPER` apart: layers between colons, the lowest first; a backslash
    /// quotes a colon or backslash, as in the options of a mount. `None` for another address.
    ///
    /// # Errors
    /// It has fewer than two layers, or an empty one.
    pub(crate) fn parse(address: &[u8]) -> Result<Option<OverlayLayers>> {
        let Some((rest, userxattr)) = OverlayLayers::after_word(address) else {
            return Ok(None);
        };
        let mut layers = vec![Vec::new()];
        let mut bytes = rest.iter();
        while let Some(&byte) = bytes.next() {
            match (byte, layers.last_mut()) {
                (b':', _) => layers.push(Vec::new()),
                (b'\\', Some(layer)) => layer.extend(bytes.next()),
                (_, Some(layer)) => layer.push(byte),
                (_, None) => {}
            }
        }
        if layers.len() < 2 || layers.iter().any(Vec::is_empty) {
            let name = text::of_name(address);
            refuse!(
                r"open {name}: an overlay is overlay:LOWER:UPPER, with `\:` for a colon in a layer"
            );
        }
        let layers = layers.into_iter().map(|it| OsString::from_vec(it).into());
        let layers = layers.collect();
        Ok(Some(OverlayLayers { layers, userxattr }))
    }
}

/// Whether this process sees attributes of the namespace `trusted`: with `CAP_SYS_ADMIN`, outside
/// of user namespaces.
pub(crate) fn reads_trusted_attributes() -> bool {
    const SYS_ADMIN: u64 = 1 << 21;
    let read = |name: &str| fs::read_to_string(Path::new("/proc/self").join(name));
    let Ok((map, status)) = read("uid_map").and_then(|map| Ok((map, read("status")?))) else {
        return false;
    };
    let mut lines = status.lines();
    let effective = lines.find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|it| u64::from_str_radix(it.trim(), 16).ok());
    let is_initial = map.split_whitespace().eq(["0", "0", "4294967295"]);
    is_initial && effective.is_some_and(|it| it & SYS_ADMIN != 0)
}
