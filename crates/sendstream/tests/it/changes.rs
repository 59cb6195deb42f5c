//! Incremental streams of trees in memory: replayed over the parent, they make what a full stream
//! makes.

use std::collections::BTreeMap;

use sendstream::{
    Command, KnownSubvolume, SendData, SendOptions, StoredFiles, StreamWriter, Version, send,
    send_changes,
};
use testkit::{Rng, cases};
use tree::{
    Checksum, DirEntry, Error, Extent, ExtentId, ExtentKind, FileIdentity, FileKind, FileSystem,
    Ino, Inventory, Limits, Metadata, NoProgress, Result, Storage, StoreId, Time, Xattr,
    all_or_nothing, with_metadata,
};

use crate::model::{Model, replay};

const ROOT: u64 = 256;
const SECTOR: u64 = 4096;

/// A file of a subvolume.
#[derive(Clone)]
struct File {
    metadata: Metadata,
    generation: u64,
    transaction: u64,
    flags: u64,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The extent that each sector shows, if any, and at which of its sectors.
    sectors: Vec<Option<(u64, u64)>>,
    /// Directory, and name in it, in the order of directories.
    names: Vec<(u64, Vec<u8>)>,
}

/// A subvolume in memory, as an image holds it.
#[derive(Clone)]
struct Files {
    store: StoreId,
    files: BTreeMap<u64, File>,
    now: u64,
    next_extent: u64,
}

impl Files {
    fn new() -> Files {
        let mut files = Files {
            store: StoreId::new(),
            files: BTreeMap::new(),
            now: 5,
            next_extent: 1,
        };
        files.insert(ROOT, FileKind::Directory, None);
        files
    }

    fn insert(&mut self, number: u64, kind: FileKind, name: Option<(u64, Vec<u8>)>) {
        let file = File {
            metadata: Metadata::new(kind, 0o644),
            generation: self.now,
            transaction: self.now,
            flags: 0,
            xattrs: BTreeMap::new(),
            sectors: Vec::new(),
            names: name.into_iter().collect(),
        };
        self.files.insert(number, file);
        self.touch(number);
    }

    fn file(&self, ino: Ino) -> Result<&File> {
        self.files.get(&ino.0).ok_or(Error::NotFound)
    }

    /// Notes a change of a file.
    fn touch(&mut self, number: u64) {
        let now = self.now;
        let file = self.files.get_mut(&number).unwrap();
        file.transaction = now;
        file.metadata.mtime = Time {
            seconds: now.cast_signed(),
            nanoseconds: 1,
        };
    }

    fn find(&self, dir: u64, name: &[u8]) -> Option<u64> {
        let has = |file: &File| file.names.iter().any(|it| it.0 == dir && it.1 == name);
        let mut found = self.files.iter().filter(|(_, file)| has(file));
        found.next().map(|(number, _)| *number)
    }

    /// Whether a file is a directory, or below it.
    fn is_within(&self, mut number: u64, dir: u64) -> bool {
        while number != dir {
            match self.files[&number].names.first() {
                Some((above, _)) => number = *above,
                None => return false,
            }
        }
        true
    }

    /// Takes a name, and the file with its last one, with all that is below it.
    fn remove(&mut self, number: u64, dir: u64, name: &[u8]) {
        let file = self.files.get_mut(&number).unwrap();
        file.names.retain(|it| it.0 != dir || it.1 != name);
        let is_gone = file.names.is_empty();
        self.touch(dir);
        self.touch(number);
        if is_gone {
            let below = self.files.iter().flat_map(|(inner, file)| {
                let names = file.names.iter().filter(|name| name.0 == number);
                names.map(|name| (*inner, name.1.clone()))
            });
            for (inner, name) in below.collect::<Vec<_>>() {
                self.remove(inner, number, &name);
            }
            self.files.remove(&number);
        }
    }

    fn link(&mut self, number: u64, dir: u64, name: Vec<u8>) {
        let file = self.files.get_mut(&number).unwrap();
        file.names.push((dir, name));
        file.names.sort_by_key(|it| it.0);
        self.touch(dir);
        self.touch(number);
    }

    /// One random change; none if it is impossible.
    fn change(&mut self, rng: &mut Rng) {
        let all: Vec<u64> = self.files.keys().copied().collect();
        let dirs = all
            .iter()
            .filter(|it| self.files[it].metadata.kind == FileKind::Directory);
        let dirs: Vec<u64> = dirs.copied().collect();
        let regular = all
            .iter()
            .filter(|it| self.files[it].metadata.kind == FileKind::Regular);
        let regular: Vec<u64> = regular.copied().collect();
        let dir = dirs[rng.index(dirs.len())];
        let name = match rng.below(8) {
            // A name that a file may have meanwhile.
            0 => format!("o{}-{}-0", ROOT + rng.below(20), 5 + rng.below(12)).into_bytes(),
            _ => vec![b'a' + rng.below(6) as u8],
        };
        let taken = self.find(dir, &name);
        let one = all[rng.index(all.len())];
        match rng.below(16) {
            0..=3 if taken.is_none() => {
                // Sometimes the number of a file that is gone.
                let free = (ROOT + 1..).filter(|it| !self.files.contains_key(it));
                let last = all.last().unwrap() + 1;
                let number = if rng.chance(2) {
                    last
                } else {
                    free.take(1).sum()
                };
                let kind = match rng.below(6) {
                    0..=2 => FileKind::Directory,
                    3 => FileKind::Fifo,
                    _ => FileKind::Regular,
                };
                self.insert(number, kind, Some((dir, name)));
                self.touch(dir);
            }
            4..=7 if one != ROOT && taken.is_none() && !self.is_within(dir, one) => {
                let (from, old) = self.files[&one].names[0].clone();
                self.link(one, dir, name);
                self.remove(one, from, &old);
            }
            8 if taken.is_some_and(|taken| taken != one) && one != ROOT => {
                // Two files swap their places.
                let other = taken.unwrap();
                if self.is_within(one, other)
                    || self.is_within(other, one)
                    || self.is_within(dir, one)
                {
                    return;
                }
                let (from, old) = self.files[&one].names[0].clone();
                for (number, place, new) in [
                    (one, (&from, &old), (dir, &name)),
                    (other, (&dir, &name), (from, &old)),
                ] {
                    let file = self.files.get_mut(&number).unwrap();
                    file.names
                        .retain(|it| it.0 != *place.0 || it.1 != **place.1);
                    file.names.push((new.0, new.1.clone()));
                    file.names.sort_by_key(|it| it.0);
                    self.touch(number);
                }
                self.touch(from);
                self.touch(dir);
            }
            9 if taken.is_some() => self.remove(taken.unwrap(), dir, &name),
            10 if taken.is_none() && !regular.is_empty() => {
                let number = regular[rng.index(regular.len())];
                self.link(number, dir, name);
            }
            11..=13 if !regular.is_empty() => {
                let number = regular[rng.index(regular.len())];
                self.change_content(number, &regular, rng);
                self.touch(number);
            }
            14 => {
                let file = self.files.get_mut(&one).unwrap();
                match rng.below(4) {
                    0 => file.metadata.permissions = rng.below(0o10000) as u16,
                    1 => file.metadata.uid = rng.below(3) as u32,
                    2 => file.flags = rng.below(1 << 12),
                    _ => file.metadata.atime = Some(Time::default()),
                }
                self.touch(one);
            }
            15 => {
                let file = self.files.get_mut(&one).unwrap();
                let name = [&b"user.x"[..], b"user.y", b"security.capability"][rng.index(3)];
                if rng.chance(3) {
                    file.xattrs.remove(name);
                } else {
                    file.xattrs.insert(name.to_vec(), vec![rng.below(3) as u8]);
                }
                self.touch(one);
            }
            _ => {}
        }
    }

    fn change_content(&mut self, number: u64, regular: &[u64], rng: &mut Rng) {
        let from = rng.index(12);
        let len = 1 + rng.index(8);
        let other = self.files[&regular[rng.index(regular.len())]]
            .sectors
            .clone();
        let extent = self.next_extent;
        self.next_extent += 1;
        let file = self.files.get_mut(&number).unwrap();
        let kind = rng.below(6);
        let new = |at: usize| match kind {
            0..=2 => Some((extent, at as u64)),
            3 => other.get(at).copied().flatten(),
            _ => None,
        };
        if kind == 5 {
            let size = rng.below(20 * SECTOR);
            file.sectors.resize(size.div_ceil(SECTOR) as usize, None);
            // Linux zeroes the end of the last sector in a new place.
            if let Some(Some(last)) = file.sectors.last_mut() {
                *last = (extent, 0);
            }
            file.metadata.size = size;
            return;
        }
        file.sectors
            .resize(file.sectors.len().max(from + len), None);
        for at in 0..len {
            file.sectors[from + at] = new(if kind == 3 { from + at } else { at });
        }
        let end = (from + len) as u64 * SECTOR;
        let end = end - if rng.chance(3) { rng.below(SECTOR) } else { 0 };
        file.metadata.size = file.metadata.size.max(end);
        let sectors = file.metadata.size.div_ceil(SECTOR) as usize;
        file.sectors.resize(sectors, None);
    }
}

/// What a sector of an extent holds.
fn content(extent: u64, sector: u64) -> Vec<u8> {
    Rng::new(extent << 8 | sector).bytes(SECTOR as usize)
}

impl FileSystem for Files {
    fn root(&self) -> Ino {
        Ino(ROOT)
    }

    fn storage(&self) -> Storage {
        Storage {
            stored_extents: true,
            ..Storage::plain(self.store)
        }
    }

    fn metadata(&self, ino: Ino) -> Result<Metadata> {
        let file = self.file(ino)?;
        Ok(Metadata {
            nlink: file.names.len().max(1) as u32,
            identity: Some(FileIdentity {
                number: ino.0,
                generation: file.generation,
                transaction: file.transaction,
            }),
            ..file.metadata.clone()
        })
    }

    fn read_dir(&self, dir: Ino) -> Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for (number, file) in &self.files {
            for (_, name) in file.names.iter().filter(|name| name.0 == dir.0) {
                entries.push(DirEntry {
                    name: name.clone().into(),
                    ino: Ino(*number),
                    kind: file.metadata.kind,
                });
            }
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn read_dir_with_metadata(&self, dir: Ino) -> Result<Vec<(DirEntry, Metadata)>> {
        with_metadata(self, self.read_dir(dir)?)
    }

    fn list_readable(&self, dir: Ino) -> (Vec<DirEntry>, Vec<Error>) {
        all_or_nothing(self.read_dir(dir))
    }

    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<DirEntry> {
        let mut entries = self.read_dir(dir)?.into_iter();
        entries
            .find(|entry| *entry.name == *name)
            .ok_or(Error::NotFound)
    }

    fn read_link(&self, _: Ino) -> Result<Vec<u8>> {
        Err(Error::InvalidInput("not a symbolic link"))
    }

    fn xattrs(&self, ino: Ino) -> Result<Vec<Xattr>> {
        let xattrs = self.file(ino)?.xattrs.iter();
        let xattr = |(name, value): (&Vec<u8>, &Vec<u8>)| Xattr {
            name: name.clone().into(),
            value: value.clone().into(),
        };
        Ok(xattrs.map(xattr).collect())
    }

    fn extents(&self, ino: Ino, from: u64) -> Result<Vec<Extent>> {
        let file = self.file(ino)?;
        let mut extents: Vec<Extent> = Vec::new();
        for (offset, sector) in (0..).step_by(SECTOR as usize).zip(&file.sectors) {
            let len = SECTOR.min(file.metadata.size - offset);
            if let Some(last) = extents.last_mut() {
                let follows = match (last.kind, last.id, sector) {
                    (ExtentKind::Hole, _, None) => true,
                    (ExtentKind::Plain { stored_offset }, id, Some((extent, at))) => {
                        id == Some(ExtentId(*extent)) && stored_offset + last.len == at * SECTOR
                    }
                    _ => false,
                };
                if follows {
                    last.len += len;
                    continue;
                }
            }
            extents.push(Extent {
                offset,
                len,
                kind: match sector {
                    Some((_, at)) => ExtentKind::Plain {
                        stored_offset: at * SECTOR,
                    },
                    None => ExtentKind::Hole,
                },
                id: sector.map(|(extent, _)| ExtentId(extent)),
            });
        }
        extents.retain(|extent| extent.end() > from);
        Ok(extents)
    }

    fn read_at(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let file = self.file(ino)?;
        let end = file.metadata.size.min(offset + buf.len() as u64);
        let mut at = offset;
        while at < end {
            let within = (at % SECTOR) as usize;
            let len = (SECTOR - at % SECTOR).min(end - at) as usize;
            let part = &mut buf[(at - offset) as usize..][..len];
            match file.sectors[(at / SECTOR) as usize] {
                Some((extent, sector)) => {
                    part.copy_from_slice(&content(extent, sector)[within..within + len]);
                }
                None => part.fill(0),
            }
            at += len as u64;
        }
        Ok(end.saturating_sub(offset) as usize)
    }

    fn read_encoded(&self, _: Ino, _: &Extent, _: &mut Vec<u8>) -> Result<Option<Checksum>> {
        Err(Error::InvalidInput("nothing is encoded"))
    }
}

impl StoredFiles for Files {
    fn names(&self, ino: Ino) -> Result<Vec<(Ino, Box<[u8]>)>> {
        let names = self.file(ino)?.names.iter();
        Ok(names
            .map(|(dir, name)| (Ino(*dir), name.clone().into()))
            .collect())
    }

    fn flags(&self, ino: Ino) -> Result<u64> {
        Ok(self.file(ino)?.flags)
    }

    fn preallocated(&self, _: Ino, _: u64) -> Result<Option<(ExtentId, u64, u64)>> {
        Ok(None)
    }
}

/// The options of the subvolume number `turn`.
fn options(files: &Files, turn: u8) -> SendOptions<'_> {
    SendOptions::new(b"s")
        .uuid([turn; 16])
        .ctransid(files.now)
        .data(SendData::Plain)
        .sector_bytes(SECTOR as u32)
        .stored(Some(files))
}

fn inventory(files: &Files) -> Inventory<'_> {
    Inventory::of(files, &Limits::default()).unwrap()
}

fn full(files: &Files, turn: u8, version: Version) -> Vec<u8> {
    let mut writer = StreamWriter::new(Vec::new(), version);
    writer.header().unwrap();
    let options = options(files, turn);
    send(&inventory(files), &options, &NoProgress, &mut writer).unwrap();
    writer.command(&Command::End).unwrap();
    writer.into_inner()
}

fn changes(old: &Files, new: &Files, version: Version) -> Result<Vec<u8>> {
    let mut writer = StreamWriter::new(Vec::new(), version);
    writer.header()?;
    let (before, after) = (inventory(old), inventory(new));
    let parent = KnownSubvolume {
        inventory: &before,
        stored: old,
        uuid: [1; 16],
        ctransid: old.now,
    };
    let options = options(new, 2);
    send_changes(&after, &parent, &[], &options, &NoProgress, &mut writer)?;
    writer.command(&Command::End)?;
    Ok(writer.into_inner())
}

fn only(stream: &[u8], parent: Option<&Model>) -> Model {
    replay(stream, parent).pop().unwrap().1
}

#[test]
fn changes_over_the_parent_make_the_subvolume() {
    for seed in 0..cases(200_u64) {
        let mut rng = Rng::new(seed);
        let version = if rng.chance(2) {
            Version::V1
        } else {
            Version::V2
        };
        let mut old = Files::new();
        for _ in 0..rng.below(60) {
            old.change(&mut rng);
        }
        old.now += 1;
        let mut new = old.clone();
        for _ in 0..rng.below(60) {
            if rng.chance(9) {
                new.now += 1;
            }
            new.change(&mut rng);
        }
        new.now += 1;
        for (from, to) in [(&old, &new), (&new, &old)] {
            let parent = only(&full(from, 1, version), None);
            let expected = only(&full(to, 2, version), None).lines();
            let stream = changes(from, to, version);
            let stream = stream.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            let found = only(&stream, Some(&parent)).lines();
            for (found, expected) in found.iter().zip(&expected) {
                assert_eq!(found, expected, "seed {seed}");
            }
            assert_eq!(found.len(), expected.len(), "seed {seed}");
        }
    }
}

#[test]
fn subvolumes_of_another_store_are_no_parents() {
    let (old, new) = (Files::new(), Files::new());
    let refused = changes(&old, &new, Version::V1).unwrap_err();
    assert!(refused.to_string().contains("another image"), "{refused}");
}

#[test]
fn files_that_contradict_their_parent_are_refused() {
    // The same file, in the same transaction, by another name.
    let mut old = Files::new();
    old.insert(257, FileKind::Regular, Some((ROOT, b"a".to_vec())));
    let mut new = old.clone();
    new.files.get_mut(&257).unwrap().names[0].1 = b"b".to_vec();
    let refused = changes(&old, &new, Version::V1).unwrap_err();
    assert!(refused.to_string().contains("contradict"), "{refused}");
}
