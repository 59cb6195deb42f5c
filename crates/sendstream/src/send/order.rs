//! The order in which files are sent, and the names they have meanwhile.

use tree::{EntryId, Error, ExtentId, FileId, Ino, Inventory, Result};

/// The number of a subvolume's root directory, and the first one of a file.
pub(super) const ROOT: u64 = 256;
/// Linux knows no longer path, with a NUL at its end.
pub(super) const PATH_BYTES_MAX: usize = 4095;

/// The stored records of the files of a btrfs image, which [`tree::FileSystem`] does not show.
pub trait StoredFiles: Sync {
    /// The names of a file, in the order in which they are stored: each a directory and a name in
    /// it. The root directory has none.
    ///
    /// # Errors
    /// They cannot be read.
    fn names(&self, ino: Ino) -> Result<Vec<(Ino, Box<[u8]>)>>;

    /// The flags of an inode (`btrfs_inode_item.flags`).
    ///
    /// # Errors
    /// They cannot be read.
    fn flags(&self, ino: Ino) -> Result<u64>;

    /// The preallocated extent that begins at an offset of a regular file, even beyond the end of
    /// the file: its identity, where in it that part begins, and the part's length. `None` if none
    /// begins there.
    ///
    /// # Errors
    /// It cannot be read.
    fn preallocated(&self, ino: Ino, offset: u64) -> Result<Option<(ExtentId, u64, u64)>>;
}

/// The files of a tree by number, and how far sending has come.
pub(super) struct Order<'a> {
    pub(super) inventory: &'a Inventory<'a>,
    stored: Option<&'a dyn StoredFiles>,
    /// By file.
    numbers: Vec<u64>,
    /// By file: the transactions that created it and last changed it.
    generations: Vec<(u64, u64)>,
    /// All files to send, in ascending order of their numbers.
    files: Vec<FileId>,
    /// All names of files with several, by file.
    links: Vec<(FileId, EntryId)>,
    /// Files with lower numbers have their names; the others do not exist or have a temporary one.
    pub(super) progress: u64,
}

impl<'a> Order<'a> {
    /// The order of the numbers that files have in their image if `stored` gives their names there;
    /// otherwise files get numbers in the order of the inventory, and are all of this generation.
    pub(super) fn new(
        inventory: &'a Inventory<'a>,
        stored: Option<&'a dyn StoredFiles>,
        generation: u64,
    ) -> Result<Order<'a>> {
        let count = inventory.file_count() as usize;
        let mut order = Order {
            inventory,
            stored,
            numbers: Vec::with_capacity(count),
            generations: Vec::with_capacity(count),
            files: Vec::with_capacity(count),
            links: Vec::new(),
            progress: ROOT,
        };
        for file in inventory.files() {
            let (number, generations) = if stored.is_none() {
                (ROOT + u64::from(file.0), (generation, generation))
            } else {
                let metadata = inventory.tree().metadata(inventory.ino(file));
                let metadata = metadata.map_err(|error| order.name_error(file, error))?;
                match metadata.identity {
                    Some(identity) => {
                        (identity.number, (identity.generation, identity.transaction))
                    }
                    // Where a nested subvolume was.
                    None => (0, (0, 0)),
                }
            };
            order.numbers.push(number);
            order.generations.push(generations);
            if number != 0 {
                order.files.push(file);
            }
        }
        let numbers = &order.numbers;
        order.files.sort_by_key(|file| numbers[file.0 as usize]);
        let is_same = |pair: &[FileId]| numbers[pair[0].0 as usize] == numbers[pair[1].0 as usize];
        if order.files.windows(2).any(is_same) || numbers.first() != Some(&ROOT) {
            return Err(Error::Inconsistent("two files have one number"));
        }
        if stored.is_none() {
            for entry in inventory.names() {
                let file = inventory.file(entry);
                if inventory.name_count(file) > 1 {
                    order.links.push((file, entry));
                }
            }
            order.links.sort_by_key(|(file, _)| *file);
        }
        Ok(order)
    }

    /// How many files are sent.
    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    /// The file that is sent at this turn.
    pub(super) fn file(&self, turn: usize) -> FileId {
        self.files[turn]
    }

    /// The number of a file.
    pub(super) fn number(&self, file: FileId) -> u64 {
        self.numbers[file.0 as usize]
    }

    /// The transaction that created a file.
    pub(super) fn generation(&self, file: FileId) -> u64 {
        self.generations[file.0 as usize].0
    }

    /// The transaction that last changed a file.
    pub(super) fn transaction(&self, file: FileId) -> u64 {
        self.generations[file.0 as usize].1
    }

    /// Names the file of an error as the tree calls it.
    pub(super) fn name_error(&self, file: FileId, error: Error) -> Error {
        let path = self.inventory.path(self.inventory.first_name(file));
        error.in_file("read", &path)
    }

    /// All names of a file that is not the root, in the order in which they are sent: each a
    /// directory and a name in it.
    pub(super) fn names(&self, file: FileId) -> Result<Vec<(FileId, Box<[u8]>)>> {
        let inventory = self.inventory;
        let of_entry = |entry: EntryId| {
            (
                inventory.parent(entry),
                inventory.name(entry).into_owned().into(),
            )
        };
        let Some(stored) = self.stored else {
            let from = self.links.partition_point(|(it, _)| *it < file);
            let links = self.links[from..].iter();
            let links = links.take_while(|(it, _)| *it == file);
            let mut names: Vec<_> = links.map(|(_, entry)| of_entry(*entry)).collect();
            if names.is_empty() {
                names.push(of_entry(inventory.first_name(file)));
            }
            return Ok(names);
        };
        const DIFFER: Error = Error::Inconsistent("a file's own names differ from its entries");
        let mut names = Vec::new();
        for (dir, name) in stored.names(inventory.ino(file))? {
            let dir = self.file_of(dir).ok_or(DIFFER)?;
            let found = self.entry(dir, &name).ok_or(DIFFER)?;
            if inventory.file(found) != file {
                return Err(DIFFER);
            }
            names.push((dir, name));
        }
        if names.len() != inventory.name_count(file) as usize {
            return Err(DIFFER);
        }
        Ok(names)
    }

    /// The file with this number in the file system, which is its number in the image if that gives
    /// names.
    fn file_of(&self, ino: Ino) -> Option<FileId> {
        // Numbers in one subvolume differ from those of the file system by a constant.
        let number = ino.0.checked_sub(self.inventory.ino(FileId(0)).0)?;
        let number = number.checked_add(ROOT)?;
        let found = (self.files).binary_search_by_key(&number, |file| self.number(*file));
        let file = self.files[found.ok()?];
        (self.inventory.ino(file) == ino).then_some(file)
    }

    /// The name in a directory that is this one.
    pub(super) fn entry(&self, dir: FileId, name: &[u8]) -> Option<EntryId> {
        let mut entries = self.inventory.entries(dir);
        let mut len = entries.len() as u32;
        let mut from = entries.next()?.0;
        while len > 0 {
            let middle = EntryId(from + len / 2);
            match (*self.inventory.name(middle)).cmp(name) {
                std::cmp::Ordering::Equal => return Some(middle),
                std::cmp::Ordering::Less => {
                    from = middle.0 + 1;
                    len -= len / 2 + 1;
                }
                std::cmp::Ordering::Greater => len /= 2,
            }
        }
        None
    }

    /// The name in the root directory that a file has until it gets its own ones. Files that keep
    /// theirs never have it.
    pub(super) fn temporary_name(&self, file: FileId) -> Vec<u8> {
        let (number, generation) = (self.number(file), self.generation(file));
        let mut index = 0;
        loop {
            let name = format!("o{number}-{generation}-{index}").into_bytes();
            if self.entry(FileId(0), &name).is_none() {
                return name;
            }
            index += 1;
        }
    }

    /// The path of a directory as it is now: below a temporary name if it, or a directory above it,
    /// has not got its own.
    pub(super) fn dir_path(&self, dir: FileId) -> Vec<u8> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut dir = dir;
        while dir != FileId(0) {
            if self.number(dir) >= self.progress {
                names.push(self.temporary_name(dir));
                break;
            }
            let entry = self.inventory.first_name(dir);
            names.push(self.inventory.name(entry).to_vec());
            dir = self.inventory.parent(entry);
        }
        names.reverse();
        names.join(&b'/')
    }

    /// The path of a name in a directory as it is now.
    ///
    /// # Errors
    /// Linux knows no path that is so long.
    pub(super) fn path(&self, dir: FileId, name: &[u8]) -> Result<Vec<u8>> {
        let mut path = self.dir_path(dir);
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        if path.len() > PATH_BYTES_MAX {
            return Err(Error::Limit("paths of 4095 bytes in send streams"));
        }
        Ok(path)
    }

    /// The first of a file's names, as a path.
    pub(super) fn first_path(&self, file: FileId) -> Result<Vec<u8>> {
        if file == FileId(0) {
            return Ok(Vec::new());
        }
        let names = self.names(file)?;
        match names.first() {
            Some((dir, name)) => self.path(*dir, name),
            None => Err(Error::Inconsistent("a file has no name")),
        }
    }
}
