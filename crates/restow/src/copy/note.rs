//! The note of an object about its source, to know it again without reading anything.

use tree::{Metadata, Sha256};

use super::job::CopyJob;
use crate::{Address, Result, is_current, text};

impl CopyJob<'_> {
    /// Whether the object at the destination was made by the same version from the same files, as
    /// far as names, metadata, link targets and extended attributes show, and from the same
    /// `words`: options, and the state of the files that they name. An object that is written now
    /// says so, too.
    ///
    /// # Errors
    /// The source cannot be read; the store cannot be reached or denies access.
    pub fn is_current(&self, words: &[u8]) -> Result<bool> {
        if !Address::is_written_object(self.dst) {
            return Ok(false);
        }
        let note = match self.note.get() {
            Some(note) => note.clone(),
            None => self.source_note(words)?,
        };
        let note = self.note.get_or_init(|| note);
        self.name_error(is_current(self.dst, &self.options.remote, note))
    }

    fn source_note(&self, words: &[u8]) -> Result<String> {
        let (inventory, mut hash) = (&self.inventory, Sha256::new());
        let mut add = |bytes: &[u8]| {
            hash.update(&(bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        add(env!("CARGO_PKG_VERSION").as_bytes());
        add(format!("{:?}", self.format).as_bytes());
        add(words);
        for entry in inventory.names() {
            let path = inventory.path(entry);
            let file = inventory.file(entry);
            let metadata = Metadata {
                atime: None,
                ..inventory.metadata(file)
            };
            add(&path);
            add(&file.0.to_le_bytes());
            add(format!("{metadata:?}").as_bytes());
            if inventory.first_name(file) != entry {
                continue;
            }
            let (tree, ino) = (inventory.tree(), inventory.ino(file));
            let named = |error: tree::Error| self.source.name_error(error.in_file("read", &path));
            if metadata.kind == tree::FileKind::Symlink {
                add(&tree.read_link(ino).map_err(named)?);
            }
            for xattr in tree.xattrs(ino).map_err(named)? {
                add(&xattr.name);
                add(&xattr.value);
            }
        }
        Ok(text::of_digits(&hash.finish()))
    }
}
