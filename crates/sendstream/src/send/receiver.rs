//! The names that files have at the receiver of an incremental stream, after each command.

use std::collections::{BTreeMap, HashMap};

use tree::{Error, FileId, FileKind, Result};

use super::order::{Order, PATH_BYTES_MAX};

/// A file of the parent, of the subvolume that is sent, or of both: a number of
/// [`ReceiverNames::nodes`], in ascending order of inode numbers. Where both have different files
/// with one number, that of the parent comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct NodeId(pub(super) u32);

/// The root directory, which both have.
pub(super) const ROOT_NODE: NodeId = NodeId(0);

/// A name of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileName {
    pub(super) dir: NodeId,
    pub(super) name: Box<[u8]>,
}

/// Where a [`NodeId`] is found in the two trees.
#[derive(Clone, Copy, Debug)]
pub(super) struct FilePair {
    pub(super) number: u64,
    pub(super) parent: Option<FileId>,
    pub(super) child: Option<FileId>,
}

/// Names in a directory, each with its target; `None` if it no longer names anything.
type Entries = HashMap<Box<[u8]>, Option<(NodeId, u64)>>;

/// The names at the receiver: those of the parent, changed by the sent commands.
pub(super) struct ReceiverNames<'a> {
    pub(super) parent: &'a Order<'a>,
    pub(super) child: &'a Order<'a>,
    pub(super) nodes: Vec<FilePair>,
    /// By file; `None` for the directories where nested subvolumes were, which are not sent.
    of_parent: Vec<Option<NodeId>>,
    of_child: Vec<Option<NodeId>>,
    /// The names of files that changed, in order: a new name comes last, a renamed one stays where
    /// it is.
    names: HashMap<NodeId, BTreeMap<u64, FileName>>,
    /// The entries of directories that changed, or belong to a file that did: the file, and the
    /// number of its name.
    entries: HashMap<NodeId, Entries>,
    /// How many entries directories have, where that is no longer as in the parent.
    counts: HashMap<NodeId, u64>,
    /// How many names there are.
    total: u64,
}

const LOST: Error = Error::Inconsistent("a file that a stream changes has no name there");

impl<'a> ReceiverNames<'a> {
    /// Pairs the files of both trees. The same number, transaction of creation and kind is the same
    /// file.
    pub(super) fn new(parent: &'a Order<'a>, child: &'a Order<'a>) -> ReceiverNames<'a> {
        let mut receiver = ReceiverNames {
            parent,
            child,
            nodes: Vec::with_capacity(parent.len().max(child.len())),
            of_parent: vec![None; parent.inventory.file_count() as usize],
            of_child: vec![None; child.inventory.file_count() as usize],
            names: HashMap::new(),
            entries: HashMap::new(),
            counts: HashMap::new(),
            total: 0,
        };
        let (mut turn_p, mut turn_c) = (0, 0);
        loop {
            let old = (turn_p < parent.len()).then(|| parent.file(turn_p));
            let new = (turn_c < child.len()).then(|| child.file(turn_c));
            let number = |order: &Order<'_>, file: Option<FileId>| {
                file.map_or(u64::MAX, |file| order.number(file))
            };
            let (number_p, number_c) = (number(parent, old), number(child, new));
            if old.is_none() && new.is_none() {
                break;
            }
            if number_p <= number_c {
                turn_p += 1;
            }
            if number_c <= number_p {
                turn_c += 1;
            }
            let old = old.filter(|_| number_p <= number_c);
            let new = new.filter(|_| number_c <= number_p);
            let is_same = |old: FileId, new: FileId| {
                let kinds = (parent.inventory.kind(old), child.inventory.kind(new));
                old == FileId(0)
                    || parent.generation(old) == child.generation(new) && kinds.0 == kinds.1
            };
            match (old, new) {
                (Some(old), Some(new)) if !is_same(old, new) => {
                    receiver.add_node(number_p, Some(old), None);
                    receiver.add_node(number_c, None, Some(new));
                }
                (old, new) => receiver.add_node(number_p.min(number_c), old, new),
            }
        }
        receiver.total = (parent.inventory.names())
            .filter(|&entry| receiver.of_parent[parent.inventory.file(entry).0 as usize].is_some())
            .count() as u64;
        receiver
    }

    fn add_node(&mut self, number: u64, parent: Option<FileId>, child: Option<FileId>) {
        let node = Some(NodeId(self.nodes.len() as u32));
        if let Some(file) = parent {
            self.of_parent[file.0 as usize] = node;
        }
        if let Some(file) = child {
            self.of_child[file.0 as usize] = node;
        }
        self.nodes.push(FilePair {
            number,
            parent,
            child,
        });
    }

    pub(super) fn files(&self, node: NodeId) -> FilePair {
        self.nodes[node.0 as usize]
    }

    /// Whether the parent has another file with the number of this one.
    pub(super) fn is_recreated(&self, node: NodeId) -> bool {
        let before = (node.0.checked_sub(1)).map(|before| self.number(NodeId(before)));
        before == Some(self.number(node))
    }

    pub(super) fn number(&self, node: NodeId) -> u64 {
        self.files(node).number
    }

    /// The node of a file that is sent.
    pub(super) fn of_child(&self, file: FileId) -> Option<NodeId> {
        self.of_child[file.0 as usize]
    }

    pub(super) fn is_dir(&self, node: NodeId) -> bool {
        let FilePair { parent, child, .. } = self.files(node);
        let kind = match (child, parent) {
            (Some(file), _) => Some(self.child.inventory.kind(file)),
            (None, Some(file)) => Some(self.parent.inventory.kind(file)),
            (None, None) => None,
        };
        kind == Some(FileKind::Directory)
    }

    /// The names that a file had in the parent, as its image stores them.
    pub(super) fn names_in_parent(&self, node: NodeId) -> Result<Vec<FileName>> {
        match self.files(node).parent {
            Some(file) if node != ROOT_NODE => places(self.parent, &self.of_parent, file),
            _ => Ok(Vec::new()),
        }
    }

    /// The names that a file shall have, as its image stores them.
    pub(super) fn names_in_child(&self, node: NodeId) -> Result<Vec<FileName>> {
        match self.files(node).child {
            Some(file) if node != ROOT_NODE => places(self.child, &self.of_child, file),
            _ => Ok(Vec::new()),
        }
    }

    /// The place of a directory in the parent.
    pub(super) fn place_in_parent(&self, dir: NodeId) -> Option<FileName> {
        let file = self.files(dir).parent.filter(|_| dir != ROOT_NODE)?;
        place(self.parent, &self.of_parent, file)
    }

    /// The place that a directory shall have.
    pub(super) fn place_in_child(&self, dir: NodeId) -> Option<FileName> {
        let file = self.files(dir).child.filter(|_| dir != ROOT_NODE)?;
        place(self.child, &self.of_child, file)
    }

    /// The first name of a file now; `None` if it is not there.
    pub(super) fn first_name(&self, node: NodeId) -> Result<Option<FileName>> {
        match self.names.get(&node) {
            Some(names) => Ok(names.values().next().cloned()),
            None => Ok(self.names_in_parent(node)?.into_iter().next()),
        }
    }

    /// How many names a file has now.
    pub(super) fn name_count(&self, node: NodeId) -> u64 {
        match (self.names.get(&node), self.files(node).parent) {
            (Some(names), _) => names.len() as u64,
            (None, Some(file)) => self.parent.inventory.name_count(file).into(),
            (None, None) => 0,
        }
    }

    /// The place of a directory now.
    fn place(&self, dir: NodeId) -> Option<FileName> {
        match self.names.get(&dir) {
            Some(names) => names.values().next().cloned(),
            None => self.place_in_parent(dir),
        }
    }

    /// The names of a file, to change them.
    fn names_mut(&mut self, node: NodeId) -> Result<&mut BTreeMap<u64, FileName>> {
        if !self.names.contains_key(&node) {
            let mut names = BTreeMap::new();
            for (turn, place) in (0..).zip(self.names_in_parent(node)?) {
                let entries = self.entries.entry(place.dir).or_default();
                entries.insert(place.name.clone(), Some((node, turn)));
                names.insert(turn, place);
            }
            self.names.insert(node, names);
        }
        self.names.get_mut(&node).ok_or(LOST)
    }

    /// Whether a directory is there.
    pub(super) fn has_dir(&self, dir: NodeId) -> bool {
        dir == ROOT_NODE || self.place(dir).is_some()
    }

    /// The file that has a name now.
    pub(super) fn find(&self, dir: NodeId, name: &[u8]) -> Option<NodeId> {
        if let Some(changed) = self.entries.get(&dir)
            && let Some(found) = changed.get(name)
        {
            return found.map(|(node, _)| node);
        }
        let dir = self.files(dir).parent?;
        let entry = self.parent.entry(dir, name)?;
        self.of_parent[self.parent.inventory.file(entry).0 as usize]
    }

    /// How many entries a directory has now.
    pub(super) fn count(&self, dir: NodeId) -> u64 {
        if let Some(&count) = self.counts.get(&dir) {
            return count;
        }
        let Some(dir) = self.files(dir).parent else {
            return 0;
        };
        let inventory = self.parent.inventory;
        let is_there = |file: FileId| self.of_parent[file.0 as usize].is_some();
        let entries = inventory.entries(dir);
        entries
            .filter(|&entry| is_there(inventory.file(entry)))
            .count() as u64
    }

    /// Gives a file another name.
    pub(super) fn add(&mut self, node: NodeId, place: FileName) -> Result<()> {
        let names = self.names_mut(node)?;
        let turn = names.last_key_value().map_or(0, |(turn, _)| turn + 1);
        self.enter(node, turn, place)
    }

    /// Renames a file.
    pub(super) fn rename(&mut self, node: NodeId, from: &FileName, to: FileName) -> Result<()> {
        let turn = self.leave(node, from)?;
        self.enter(node, turn, to)
    }

    /// Takes a name from a file.
    pub(super) fn remove(&mut self, node: NodeId, place: &FileName) -> Result<()> {
        self.leave(node, place).map(drop)
    }

    fn enter(&mut self, node: NodeId, turn: u64, place: FileName) -> Result<()> {
        let dir = place.dir;
        if self.find(dir, &place.name).is_some() || !self.has_dir(dir) {
            return Err(Error::Inconsistent("a name that a stream gives is taken"));
        }
        let count = self.count(dir);
        self.counts.insert(dir, count + 1);
        let entries = self.entries.entry(dir).or_default();
        entries.insert(place.name.clone(), Some((node, turn)));
        self.names_mut(node)?.insert(turn, place);
        self.total += 1;
        Ok(())
    }

    /// Returns the number of the name.
    fn leave(&mut self, node: NodeId, place: &FileName) -> Result<u64> {
        self.names_mut(node)?;
        let count = self.count(place.dir);
        let entries = self.entries.get_mut(&place.dir).ok_or(LOST)?;
        let entry = entries.get_mut(&place.name).ok_or(LOST)?;
        let (_, turn) = entry.take_if(|(owner, _)| *owner == node).ok_or(LOST)?;
        self.names_mut(node)?.remove(&turn);
        self.counts.insert(place.dir, count.saturating_sub(1));
        self.total -= 1;
        Ok(turn)
    }

    /// Whether a directory is `dir` now, or below it.
    pub(super) fn is_within(&self, mut inner: NodeId, dir: NodeId) -> bool {
        while inner != dir {
            match self.place(inner) {
                Some(place) => inner = place.dir,
                None => return false,
            }
        }
        true
    }

    /// The directory that contains a directory now.
    pub(super) fn above(&self, dir: NodeId) -> Option<NodeId> {
        self.place(dir).map(|place| place.dir)
    }

    /// The path of a directory now.
    ///
    /// # Errors
    /// Linux knows no path that is so long.
    pub(super) fn dir_path(&self, dir: NodeId) -> Result<Vec<u8>> {
        match self.place(dir) {
            Some(place) => self.path(&place),
            None if dir == ROOT_NODE => Ok(Vec::new()),
            None => Err(LOST),
        }
    }

    /// The path of a name now.
    ///
    /// # Errors
    /// Linux knows no path that is so long.
    pub(super) fn path(&self, place: &FileName) -> Result<Vec<u8>> {
        let mut names = vec![place.name.clone()];
        let mut len = place.name.len();
        let mut dir = place.dir;
        while dir != ROOT_NODE {
            let above = self.place(dir).ok_or(LOST)?;
            len += above.name.len() + 1;
            if len > PATH_BYTES_MAX {
                return Err(Error::Limit("paths of 4095 bytes in incremental streams"));
            }
            names.push(above.name);
            dir = above.dir;
        }
        names.reverse();
        Ok(names.join(&b'/'))
    }

    /// The path of the file whose turn it is: by the first name that it had in the parent, or what
    /// that was renamed to; if that is gone, as [`ReceiverNames::file_path`].
    pub(super) fn current_path(&self, node: NodeId) -> Result<Vec<u8>> {
        let first = match self.names.get(&node) {
            Some(names) => names.get(&0).cloned(),
            None => self.first_name(node)?,
        };
        match first {
            Some(place) => self.path(&place),
            None => self.file_path(node),
        }
    }

    /// The path of a file now: by the first name that it shall have, if it has that one.
    pub(super) fn file_path(&self, node: NodeId) -> Result<Vec<u8>> {
        if node == ROOT_NODE {
            return Ok(Vec::new());
        }
        let wanted = self.names_in_child(node)?;
        let is_there = |place: &&FileName| self.find(place.dir, &place.name) == Some(node);
        match wanted.iter().find(is_there) {
            Some(place) => self.path(place),
            None => self.path(&self.first_name(node)?.ok_or(LOST)?),
        }
    }

    /// The name in the root directory that a file has until it gets its own ones.
    pub(super) fn temporary_place(&self, node: NodeId) -> FileName {
        let FilePair {
            number,
            parent,
            child,
        } = self.files(node);
        let generation = match (child, parent) {
            (Some(file), _) => self.child.generation(file),
            (None, Some(file)) => self.parent.generation(file),
            (None, None) => 0,
        };
        let mut index = 0;
        loop {
            let name = format!("o{number}-{generation}-{index}").into_bytes();
            let is_free = [self.parent, self.child]
                .iter()
                .all(|order| order.entry(FileId(0), &name).is_none());
            if is_free && self.find(ROOT_NODE, &name).is_none() {
                let (dir, name) = (ROOT_NODE, name.into());
                return FileName { dir, name };
            }
            index += 1;
        }
    }

    /// Checks that all names are those that shall be.
    ///
    /// # Errors
    /// They are not: the two trees contradict themselves or each other.
    pub(super) fn check(&self) -> Result<()> {
        const DIFFER: Error =
            Error::Inconsistent("the files of a subvolume and its parent contradict each other");
        let inventory = self.child.inventory;
        let mut wanted = 0;
        for entry in inventory.names() {
            let Some(node) = self.of_child(inventory.file(entry)) else {
                continue;
            };
            wanted += 1;
            if node == ROOT_NODE {
                continue;
            }
            let dir = self.of_child(inventory.parent(entry)).ok_or(DIFFER)?;
            if self.find(dir, &inventory.name(entry)) != Some(node) {
                return Err(DIFFER);
            }
        }
        if wanted == self.total {
            Ok(())
        } else {
            Err(DIFFER)
        }
    }
}

fn places(order: &Order<'_>, nodes: &[Option<NodeId>], file: FileId) -> Result<Vec<FileName>> {
    let names = order.names(file)?.into_iter();
    let place = |(dir, name): (FileId, Box<[u8]>)| {
        let dir = nodes[dir.0 as usize].ok_or(LOST)?;
        Ok(FileName { dir, name })
    };
    names.map(place).collect()
}

fn place(order: &Order<'_>, nodes: &[Option<NodeId>], file: FileId) -> Option<FileName> {
    let entry = order.inventory.first_name(file);
    let dir = nodes[order.inventory.parent(entry).0 as usize]?;
    let name = order.inventory.name(entry).into_owned().into();
    Some(FileName { dir, name })
}
