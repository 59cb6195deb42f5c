//! A tree with other trees in one of its directories.

use std::sync::Arc;

use tree::{
    Checksum, DirEntry, Error, Extent, FileKind, FileSystem, Ino, Metadata, Result, Storage, Xattr,
};

/// Numbers of grafted trees have this bit, and those of the tree below do not.
const GRAFTED: u64 = 1 << 63;
/// Bits for the number of a file in its grafted tree: it is below 2^52, or at least 2^64 - 2^52.
const INO_BITS: u32 = 53;
const INO_LIMIT: u64 = 1 << (INO_BITS - 1);
/// How many trees can be grafted.
pub(super) const GRAFTS_MAX: usize = 1 << (63 - INO_BITS);

/// A tree and the name that it gets.
pub(super) type Graft = (Box<[u8]>, Arc<dyn FileSystem>);

/// A tree with other trees in one of its directories. Extents and files have the identities that
/// they have in their trees, so all of them must be of one store, or use numbers that the others do
/// not.
pub(super) struct Grafted {
    base: Arc<dyn FileSystem>,
    dir: Ino,
    /// Sorted by name.
    grafts: Vec<Graft>,
}

impl Grafted {
    /// Puts trees into a directory, under names that it does not have yet.
    ///
    /// # Errors
    /// There are too many, or two with one name.
    pub(super) fn new(
        base: Arc<dyn FileSystem>,
        dir: Ino,
        mut grafts: Vec<Graft>,
    ) -> Result<Grafted> {
        if grafts.len() > GRAFTS_MAX {
            return Err(Error::Limit("subvolumes received at once"));
        }
        grafts.sort_by(|a, b| a.0.cmp(&b.0));
        if grafts.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err(Error::InvalidInput(
                "the stream has two subvolumes of one name",
            ));
        }
        Ok(Grafted { base, dir, grafts })
    }

    /// The tree of a file, its number there, and which graft that is.
    fn tree(&self, ino: Ino) -> Result<(&dyn FileSystem, Ino, Option<u64>)> {
        if ino.0 & GRAFTED == 0 {
            return Ok((&*self.base, ino, None));
        }
        let index = (ino.0 & !GRAFTED) >> INO_BITS;
        let (_, tree) = self.grafts.get(index as usize).ok_or(Error::NotFound)?;
        let own = ino.0 & ((1 << INO_BITS) - 1);
        Ok((&**tree, Ino(own.wrapping_sub(INO_LIMIT)), Some(index)))
    }

    /// The number by which this tree knows a file of one of its trees.
    fn ino(graft: Option<u64>, ino: Ino) -> Result<Ino> {
        let number = match graft {
            None => Some(ino.0).filter(|ino| ino & GRAFTED == 0),
            Some(index) => {
                let own = Some(ino.0.wrapping_add(INO_LIMIT)).filter(|ino| ino >> INO_BITS == 0);
                own.map(|own| GRAFTED | index << INO_BITS | own)
            }
        };
        number
            .map(Ino)
            .ok_or(Error::Limit("file numbers of a btrfs image"))
    }

    /// The root of a graft as an entry.
    fn entry(&self, index: usize) -> Result<DirEntry> {
        let (name, tree) = &self.grafts[index];
        Ok(DirEntry {
            name: name.clone(),
            ino: Self::ino(Some(index as u64), tree.root())?,
            kind: FileKind::Directory,
        })
    }
}

impl FileSystem for Grafted {
    fn root(&self) -> Ino {
        self.base.root()
    }

    fn storage(&self) -> Storage {
        Storage {
            stored_extents: true,
            ..self.base.storage()
        }
    }

    fn metadata(&self, ino: Ino) -> Result<Metadata> {
        let (tree, ino, _) = self.tree(ino)?;
        tree.metadata(ino)
    }

    fn read_dir(&self, dir: Ino) -> Result<Vec<DirEntry>> {
        let (tree, ino, graft) = self.tree(dir)?;
        let mut entries = tree.read_dir(ino)?;
        for entry in &mut entries {
            entry.ino = Self::ino(graft, entry.ino)?;
        }
        if dir == self.dir {
            for index in 0..self.grafts.len() {
                entries.push(self.entry(index)?);
            }
            entries.sort_by(|a, b| a.name.cmp(&b.name));
        }
        Ok(entries)
    }

    fn read_dir_with_metadata(&self, dir: Ino) -> Result<Vec<(DirEntry, Metadata)>> {
        let (tree, ino, graft) = self.tree(dir)?;
        let mut entries = tree.read_dir_with_metadata(ino)?;
        for (entry, _) in &mut entries {
            entry.ino = Self::ino(graft, entry.ino)?;
        }
        if dir == self.dir {
            for (index, (_, tree)) in self.grafts.iter().enumerate() {
                entries.push((self.entry(index)?, tree.metadata(tree.root())?));
            }
            entries.sort_by(|a, b| a.0.name.cmp(&b.0.name));
        }
        Ok(entries)
    }

    fn list_readable(&self, dir: Ino) -> (Vec<DirEntry>, Vec<Error>) {
        tree::all_or_nothing(self.read_dir(dir))
    }

    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<DirEntry> {
        if dir == self.dir
            && let Some(index) = self.grafts.iter().position(|graft| *graft.0 == *name)
        {
            return self.entry(index);
        }
        let (tree, ino, graft) = self.tree(dir)?;
        let entry = tree.lookup(ino, name)?;
        Ok(DirEntry {
            ino: Self::ino(graft, entry.ino)?,
            ..entry
        })
    }

    fn read_link(&self, link: Ino) -> Result<Vec<u8>> {
        let (tree, ino, _) = self.tree(link)?;
        tree.read_link(ino)
    }

    fn xattrs(&self, ino: Ino) -> Result<Vec<Xattr>> {
        let (tree, ino, _) = self.tree(ino)?;
        tree.xattrs(ino)
    }

    fn extents(&self, file: Ino, from: u64) -> Result<Vec<Extent>> {
        let (tree, ino, _) = self.tree(file)?;
        tree.extents(ino, from)
    }

    fn read_at(&self, file: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let (tree, ino, _) = self.tree(file)?;
        tree.read_at(ino, offset, buf)
    }

    fn read_encoded(
        &self,
        file: Ino,
        extent: &Extent,
        stored: &mut Vec<u8>,
    ) -> Result<Option<Checksum>> {
        let (tree, ino, _) = self.tree(file)?;
        tree.read_encoded(ino, extent, stored)
    }
}

#[cfg(test)]
mod tests {
    use testkit::MemoryFs;

    use super::*;

    #[test]
    fn trees_appear_in_a_directory_with_numbers_of_their_own() {
        let mut base = MemoryFs::new();
        let dir = base.add_dir(base.root(), "dir");
        base.add_file(dir, "m", b"base");
        let grafts = ["z", "a"].map(|name| {
            let mut tree = MemoryFs::new();
            let sub = tree.add_dir(tree.root(), "sub");
            tree.add_file(sub, "f", name.as_bytes());
            let tree: Arc<dyn FileSystem> = Arc::new(tree);
            (Box::from(name.as_bytes()), tree)
        });
        let base: Arc<dyn FileSystem> = Arc::new(base);
        let grafted = Grafted::new(Arc::clone(&base), dir, grafts.to_vec()).unwrap();
        let names: Vec<_> = grafted.read_dir(dir).unwrap();
        let names: Vec<&[u8]> = names.iter().map(|entry| &*entry.name).collect();
        assert_eq!(names, [b"a", b"m", b"z"]);
        let mut seen = vec![grafted.lookup(dir, b"m").unwrap().ino];
        for name in [&b"a"[..], b"z"] {
            let root = grafted.lookup(dir, name).unwrap().ino;
            let sub = grafted.lookup(root, b"sub").unwrap().ino;
            let file = grafted.read_dir(sub).unwrap()[0].ino;
            let mut content = [0; 9];
            assert_eq!(grafted.read_at(file, 0, &mut content).unwrap(), 1);
            assert_eq!(content[0], name[0]);
            seen.extend([root, sub, file]);
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 7);
        let twice = vec![grafts[0].clone(), grafts[0].clone()];
        assert!(Grafted::new(base, dir, twice).is_err());
        // Those of overlays are near 2^64.
        for ino in [Ino(0), Ino(INO_LIMIT - 1), Ino(0u64.wrapping_sub(1 << 33))] {
            let known = Grafted::ino(Some(1), ino).unwrap();
            assert_eq!(grafted.tree(known).unwrap().1, ino);
        }
        assert!(Grafted::ino(Some(1), Ino(INO_LIMIT)).is_err());
        assert!(Grafted::ino(None, Ino(GRAFTED)).is_err());
    }
}
