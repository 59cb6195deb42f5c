//! Names in an incremental stream: files in the way of a name, directories that wait for others,
//! and the order of removals.

use std::collections::{HashSet, VecDeque};
use std::io::Write;

use tree::{Error, Result};

use super::incremental::ChangeSender;
use super::receiver::{FileName, NodeId, ROOT_NODE};
use crate::command::Command;

impl<W: Write> ChangeSender<'_, W> {
    /// Creates a file under a temporary name.
    pub(super) fn create_node(&mut self, node: NodeId) -> Result<()> {
        let place = self.receiver.temporary_place(node);
        self.create_at(node, &self.receiver.path(&place)?)?;
        self.moves.has_used_root = true;
        self.moves.temporary.insert(node, place.clone());
        self.receiver.add(node, place)
    }

    /// Whether a new file exists already, because another one got a name in it.
    pub(super) fn is_created(&self, node: NodeId) -> bool {
        self.receiver.name_count(node) > 0
    }

    /// Gives a file the names that it shall have.
    pub(super) fn change_names(&mut self, node: NodeId) -> Result<()> {
        let (old, new) = (
            self.receiver.names_in_parent(node)?,
            self.receiver.names_in_child(node)?,
        );
        let key = |place: &FileName| (place.dir, place.name.clone());
        let old_names: HashSet<_> = old.iter().map(key).collect();
        let new_names: HashSet<_> = new.iter().map(key).collect();
        let added = new.iter().filter(|place| !old_names.contains(&key(place)));
        let removed = old.iter().filter(|place| !new_names.contains(&key(place)));
        for place in added.clone() {
            self.clear(node, place)?;
        }
        let mut changed = Vec::new();
        let is_dir = self.receiver.is_dir(node);
        for place in added {
            if !self.receiver.has_dir(place.dir) {
                self.create_node(place.dir)?;
            }
            changed.push(place.dir);
            if is_dir {
                match self.obstacle(node, place) {
                    Some(dir) => self.moves.wait(node, dir),
                    None => self.rename(node, place.clone())?,
                }
            } else if self.moves.temporary.contains_key(&node) {
                self.rename(node, place.clone())?;
            } else {
                self.link(node, place)?;
            }
        }
        for place in removed {
            changed.push(place.dir);
            if !is_dir && self.has(node, place) {
                self.unlink(node, place)?;
            }
        }
        if !is_dir {
            self.unlink_temporary(node)?;
        }
        self.after_changes(&changed)
    }

    /// Removes a file that must not exist, or makes it ready to be removed.
    pub(super) fn delete(&mut self, node: NodeId) -> Result<()> {
        let places = self.receiver.names_in_parent(node)?;
        if self.receiver.is_dir(node) {
            if self.receiver.count(node) == 0 {
                self.remove_dir(node)?;
            } else {
                if !self.moves.temporary.contains_key(&node) {
                    for place in &places {
                        self.rename_to_temporary(node, place)?;
                    }
                }
                self.moves.removed.insert(node);
            }
        } else {
            for place in &places {
                if self.has(node, place) {
                    self.unlink(node, place)?;
                }
            }
            self.unlink_temporary(node)?;
        }
        let changed: Vec<NodeId> = places.iter().map(|place| place.dir).collect();
        self.after_changes(&changed)
    }

    /// Moves the directories that wait for this one, and then those that wait for these.
    pub(super) fn move_waiters(&mut self, node: NodeId) -> Result<()> {
        let mut next: VecDeque<NodeId> =
            self.moves.waiters.remove(&node).unwrap_or_default().into();
        while let Some(dir) = next.pop_front() {
            self.moves.waiting.remove(&dir);
            let place = self.receiver.place_in_child(dir).ok_or(LOST)?;
            if let Some(obstacle) = self.obstacle(dir, &place) {
                self.moves.wait(dir, obstacle);
                continue;
            }
            self.clear(dir, &place)?;
            let left = self.receiver.above(dir);
            let to = place.dir;
            self.rename(dir, place)?;
            if let Some(left) = left {
                self.remove_if_empty(left)?;
            }
            self.note_change(dir);
            if let Some(place) = &self.receiver.place_in_parent(dir) {
                self.note_change(place.dir);
            }
            self.note_change(to);
            next.extend(self.moves.waiters.remove(&dir).unwrap_or_default());
        }
        Ok(())
    }

    /// Moves the directories that wait for each other.
    pub(super) fn move_all_waiters(&mut self) -> Result<()> {
        while let Some(&dir) = self.moves.waiting.values().min() {
            // A directory in the root directory is in no other's way.
            if self.moves.is_waiting(dir) && !self.moves.temporary.contains_key(&dir) {
                let place = self.receiver.first_name(dir)?.ok_or(LOST)?;
                self.rename_to_temporary(dir, &place)?;
            }
            self.move_waiters(dir)?;
        }
        Ok(())
    }

    /// The directory that must get its place before this one can get its own.
    fn obstacle(&self, dir: NodeId, place: &FileName) -> Option<NodeId> {
        let receiver = &self.receiver;
        let mut above = place.dir;
        while above != ROOT_NODE {
            if self.moves.is_waiting(above) {
                return Some(above);
            }
            let after = receiver.place_in_child(above)?;
            match receiver.place_in_parent(above) {
                // A new one is below nothing that moves.
                None => break,
                Some(before) if above > self.node && before != after => return Some(above),
                Some(_) => above = after.dir,
            }
        }
        if receiver.is_within(place.dir, dir) {
            // Something between them moves later.
            let mut above = place.dir;
            while above != dir {
                if above > self.node || self.moves.is_waiting(above) {
                    return Some(above);
                }
                above = receiver.above(above)?;
            }
        }
        None
    }

    /// Takes a name from the file that has it, which gets a temporary one if it needs one.
    fn clear(&mut self, node: NodeId, place: &FileName) -> Result<()> {
        let Some(holder) = self.receiver.find(place.dir, &place.name) else {
            return Ok(());
        };
        if holder == node {
            return Ok(());
        }
        let is_first = || -> Result<bool> {
            let names = self.receiver.names_in_parent(holder)?;
            Ok(names.first() == Some(place) || self.receiver.name_count(holder) == 1)
        };
        if self.receiver.is_dir(holder) || is_first()? {
            self.rename_to_temporary(holder, place)
        } else {
            self.unlink(holder, place)
        }
    }

    /// The consequences of changes in these directories.
    fn after_changes(&mut self, dirs: &[NodeId]) -> Result<()> {
        let mut seen = HashSet::new();
        for &dir in dirs {
            if !seen.insert(dir) {
                continue;
            }
            self.remove_if_empty(dir)?;
            self.note_change(dir);
        }
        Ok(())
    }

    /// Sends the times of a directory later, if it is there at the end and its own turn is over.
    fn note_change(&mut self, dir: NodeId) {
        if dir <= self.node
            && let Some(file) = self.receiver.files(dir).child
        {
            self.changed.add(file);
        }
    }

    fn remove_if_empty(&mut self, dir: NodeId) -> Result<()> {
        if self.moves.removed.contains(&dir) && self.receiver.count(dir) == 0 {
            self.moves.removed.remove(&dir);
            self.remove_dir(dir)?;
        }
        Ok(())
    }

    fn has(&self, node: NodeId, place: &FileName) -> bool {
        self.receiver.find(place.dir, &place.name) == Some(node)
    }

    fn rename_to_temporary(&mut self, node: NodeId, place: &FileName) -> Result<()> {
        let temporary = self.receiver.temporary_place(node);
        let (path, path_to) = (self.receiver.path(place)?, self.receiver.path(&temporary)?);
        self.writer.command(&Command::Rename {
            path: &path,
            path_to: &path_to,
        })?;
        self.receiver.rename(node, place, temporary.clone())?;
        self.moves.has_used_root = true;
        self.moves.temporary.insert(node, temporary);
        Ok(())
    }

    /// Renames a directory, or a file with a temporary name.
    fn rename(&mut self, node: NodeId, to: FileName) -> Result<()> {
        let from = match self.moves.temporary.remove(&node) {
            Some(place) => place,
            None => self.receiver.first_name(node)?.ok_or(LOST)?,
        };
        let (path, path_to) = (self.receiver.path(&from)?, self.receiver.path(&to)?);
        self.writer.command(&Command::Rename {
            path: &path,
            path_to: &path_to,
        })?;
        self.receiver.rename(node, &from, to)
    }

    fn link(&mut self, node: NodeId, place: &FileName) -> Result<()> {
        let existing = self.receiver.first_name(node)?.ok_or(LOST)?;
        let (path, path_link) = (self.receiver.path(place)?, self.receiver.path(&existing)?);
        self.writer.command(&Command::Link {
            path: &path,
            path_link: &path_link,
        })?;
        self.receiver.add(node, place.clone())
    }

    fn unlink(&mut self, node: NodeId, place: &FileName) -> Result<()> {
        let path = &self.receiver.path(place)?;
        self.writer.command(&Command::Unlink { path })?;
        self.receiver.remove(node, place)
    }

    fn unlink_temporary(&mut self, node: NodeId) -> Result<()> {
        match self.moves.temporary.remove(&node) {
            Some(place) => self.unlink(node, &place),
            None => Ok(()),
        }
    }

    fn remove_dir(&mut self, dir: NodeId) -> Result<()> {
        let path = &self.receiver.dir_path(dir)?;
        self.writer.command(&Command::Rmdir { path })?;
        let place = self.receiver.first_name(dir)?.ok_or(LOST)?;
        self.moves.temporary.remove(&dir);
        self.receiver.remove(dir, &place)
    }
}

const LOST: Error = Error::Inconsistent("a file to be moved is not at the receiver");
