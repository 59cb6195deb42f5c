//! The files of a host directory that were listed, by number.

use std::hash::{BuildHasher, RandomState};

use linux::Stat;

use crate::fs::Ino;
use crate::fs::inode_index::InodeIndex;
use crate::{Error, Result, high_u32, low_u32, wide_u64};

pub(super) const ROOT: Ino = Ino(0);

fn full() -> Error {
    Error::Limit("more files than a host directory can number")
}

/// Every listed file, by number: an `Ino` is an index into this. 16 bytes per file, plus the name.
#[derive(Debug, Default)]
pub(super) struct InodeTable {
    inodes: Vec<HostInode>,
    /// For each inode, a length byte and the name.
    names: Vec<u8>,
    volumes: Vec<Volume>,
    /// Most files of a directory share one.
    places: Vec<HostPlace>,
    /// The size of each inode when it was listed first, if changes are accepted.
    pub(super) sizes: Option<Vec<u64>>,
    /// For each volume.
    by_number: Vec<InodeIndex>,
    hasher: RandomState,
}

/// A device, as one of its mounts shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Volume {
    pub(super) device: (u32, u32),
    mount: u64,
}

impl Volume {
    pub(super) fn of(stat: &Stat) -> Volume {
        Volume {
            device: stat.dev,
            mount: stat.mount,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct HostInode {
    ino_low: u32,
    /// An index into [`InodeTable::places`].
    place: u32,
    name_at: u32,
    /// A hash of size and change time.
    pub(super) stamp: u32,
}

const _: () = assert!(size_of::<HostInode>() == 16);

/// The parts of an inode that other files in its directory have, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HostPlace {
    parent: u32,
    /// An index into [`InodeTable::volumes`].
    volume: u32,
    ino_high: u32,
}

impl HostInode {
    fn ino(self, places: &[HostPlace]) -> u64 {
        wide_u64(self.ino_low, places[self.place as usize].ino_high)
    }
}

impl InodeTable {
    /// The number of the file that `stat` describes: a new one, unless the inode has one already.
    pub(super) fn add(&mut self, parent: u32, name: &[u8], stat: &Stat) -> Result<Ino> {
        let found = Volume::of(stat);
        let volume = match self.volumes.iter().position(|&known| known == found) {
            Some(volume) => volume as u32,
            None => {
                self.volumes.push(found);
                self.by_number.push(InodeIndex::default());
                self.volumes.len() as u32 - 1
            }
        };
        let place = HostPlace {
            parent,
            volume,
            ino_high: high_u32(stat.ino),
        };
        let listed = (0u32..).zip(&self.inodes).filter_map(|(index, inode)| {
            let place = self.places[inode.place as usize];
            (place.volume == volume).then_some(index)
        });
        let known = self.by_number[volume as usize].meet(stat.ino, listed, |index| {
            self.inodes[index as usize].ino(&self.places)
        });
        if let Some(known) = known {
            let inode = self.inodes[known as usize];
            let is_elsewhere = self.parent(inode) != parent || self.name(inode) != name;
            // A file with only one name was renamed, or reuses the number of a removed file. A
            // directory keeps the path under which it was found first, so that renaming cannot turn
            // the path to the root into a loop.
            if is_elsewhere && stat.nlink <= 1 && !stat.is_dir() {
                let name_at = self.add_name(name)?;
                self.inodes[known as usize] = HostInode {
                    place: self.add_place(place),
                    name_at,
                    ..inode
                };
            }
            let ino = Ino(known.into());
            self.refresh(ino, stat);
            return Ok(ino);
        }
        let index = u32::try_from(self.inodes.len()).map_err(|_| full())?;
        let name_at = self.add_name(name)?;
        let inode = HostInode {
            ino_low: low_u32(stat.ino),
            place: self.add_place(place),
            name_at,
            stamp: self.stamp(stat),
        };
        self.inodes.push(inode);
        if let Some(sizes) = &mut self.sizes {
            sizes.resize(index as usize, 0);
            sizes.push(stat.size);
        }
        let has_names = stat.nlink > 1 && !stat.is_dir();
        self.by_number[volume as usize].add(index, has_names, |index| {
            self.inodes[index as usize].ino(&self.places)
        });
        Ok(Ino(index.into()))
    }

    /// The index of this place: the last one if possible, since a directory is listed at once.
    fn add_place(&mut self, place: HostPlace) -> u32 {
        if self.places.last() != Some(&place) {
            self.places.push(place);
        }
        self.places.len() as u32 - 1 // one for each file at most
    }

    pub(super) fn parent(&self, inode: HostInode) -> u32 {
        self.places[inode.place as usize].parent
    }

    pub(super) fn volume(&self, inode: HostInode) -> Volume {
        self.volumes[self.places[inode.place as usize].volume as usize]
    }

    pub(super) fn ino(&self, inode: HostInode) -> u64 {
        inode.ino(&self.places)
    }

    fn add_name(&mut self, name: &[u8]) -> Result<u32> {
        let name_at = u32::try_from(self.names.len()).map_err(|_| full())?;
        self.names.push(name.len() as u8); // the kernel gives at most 255
        self.names.extend_from_slice(name);
        Ok(name_at)
    }

    pub(super) fn refresh(&mut self, ino: Ino, stat: &Stat) {
        let stamp = self.stamp(stat);
        // The first listing counts if changes are accepted.
        if self.sizes.is_none()
            && let Some(inode) = self.inodes.get_mut(ino.0 as usize)
        {
            inode.stamp = stamp;
        }
    }

    pub(super) fn listed_size(&self, ino: Ino) -> Option<u64> {
        self.sizes.as_ref()?.get(ino.0 as usize).copied()
    }

    pub(super) fn stamp(&self, stat: &Stat) -> u32 {
        let changed = (stat.mtime.seconds, stat.mtime.nanoseconds);
        self.hasher.hash_one((stat.size, changed)) as u32
    }

    pub(super) fn index(&self, ino: Ino) -> Result<u32> {
        let index = u32::try_from(ino.0).ok();
        let index = index.filter(|&index| (index as usize) < self.inodes.len());
        index.ok_or(Error::NotFound)
    }

    pub(super) fn inode(&self, ino: Ino) -> Result<HostInode> {
        Ok(self.inodes[self.index(ino)? as usize])
    }

    pub(super) fn name(&self, inode: HostInode) -> &[u8] {
        let at = inode.name_at as usize;
        let len = usize::from(self.names[at]);
        &self.names[at + 1..at + 1 + len]
    }

    /// The path from the root under which the file was found first.
    pub(super) fn path(&self, mut ino: Ino) -> Result<Vec<u8>> {
        let mut names = Vec::new();
        while ino != ROOT {
            let inode = self.inode(ino)?;
            names.push(self.name(inode));
            ino = Ino(self.parent(inode).into());
        }
        names.reverse();
        Ok(names.join(&b'/'))
    }
}
