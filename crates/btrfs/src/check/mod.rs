//! Checks a whole file system for consistency between its trees.
//!
//! Reading verifies only what it touches. The check reads everything, and compares everything that is stored twice:
//! references to blocks and extents with the extent tree, directory entries with the names in inodes, block groups with
//! their content, checksums with data. Its verdict should equal that of `btrfs check --check-data-csum`.

mod data;
mod decode;
mod extents;
mod files;
mod log;
mod references;
mod space;
mod state;
mod walk;

use std::collections::HashSet;

use tree::{CheckOptions, Corrupt, DataCheck, Finding, Findings, Parallel, Progress, Result};

use self::decode::Encoded;
use self::extents::{Extents, References};
use self::state::{Check, wrong};
use crate::chunk::Stripe;
use crate::dir::{self, Target};
use crate::key::{Key, Logical, is_file_tree, item, object};
use crate::read::Btrfs;
use crate::subvolume::{self, Root};
use crate::superblock::{SUPERBLOCK_PLACES, Superblock};

pub use self::state::CheckSummary;

impl Btrfs {
    /// Checks the whole file system and calls `report` with each finding, in the same order for any number of threads.
    ///
    /// Memory grows with the number of extents and of inodes per subvolume: some hundred bytes each.
    ///
    /// # Errors
    /// Fails if the medium cannot be read. Damage in the image is not an error but a finding.
    pub fn check(
        &self,
        options: CheckOptions,
        parallel: Parallel,
        progress: &dyn Progress,
        report: &mut dyn FnMut(Finding),
    ) -> Result<CheckSummary> {
        let mut check = Check {
            btrfs: self,
            options,
            parallel,
            progress,
            findings: Findings::new(report),
            summary: CheckSummary::default(),
            references: References::default(),
            extents: Extents::default(),
            encoded: HashSet::new(),
        };
        check.run()?;
        check.summary.findings = check.findings.count();
        Ok(check.summary)
    }
}

impl Check<'_> {
    fn run(&mut self) -> Result<()> {
        self.superblocks()?;
        self.devices()?;
        let result = self.log();
        self.tolerate(object::TREE_LOG, result)?;
        let roots = self.roots()?;
        let find = |id| {
            roots
                .iter()
                .find(|root| root.tree.id == id)
                .map(|root| root.tree)
        };
        for id in [
            object::EXTENT_TREE,
            object::DEV_TREE,
            object::FS_TREE,
            object::CSUM_TREE,
        ] {
            if find(id).is_none() {
                let corrupt = Corrupt {
                    what: "tree is missing",
                    at: 0,
                    got: id,
                };
                self.corrupt(id, corrupt)?;
            }
        }
        if let Some(tree) = find(object::EXTENT_TREE) {
            let result = self.read_extent_tree(&tree);
            self.tolerate(tree.id, result)?;
        }
        if let Some(tree) = find(object::BLOCK_GROUP_TREE) {
            let result = self.read_block_groups(&tree);
            self.tolerate(tree.id, result)?;
        }
        self.extents.finish();
        let data = self
            .extents
            .list
            .iter()
            .filter(|extent| !extent.is_tree_block);
        self.summary.extents = data.count() as u64;
        self.expect();
        // Visit each block of each tree once.
        let (chunk_tree, root_tree) = (self.btrfs.chunk_tree, self.btrfs.roots);
        for tree in [chunk_tree, root_tree] {
            self.walk(&tree, None)?;
        }
        for root in &roots {
            self.walk(
                &root.tree,
                (root.drop_progress != Key::MIN).then_some(root.drop_progress),
            )?;
        }
        self.compare_references()?;
        self.space(&roots)?;
        for root in &roots {
            let is_whole = root.refs > 0 && root.drop_progress == Key::MIN;
            let holds_files = is_file_tree(root.tree.id) || root.tree.id == object::DATA_RELOC_TREE;
            if holds_files && is_whole {
                self.subvolume(&root.tree)?;
            }
        }
        self.expect();
        let result = self.subvolume_references(&roots);
        self.tolerate(object::ROOT_TREE, result)?;
        if let Some(tree) = find(object::CSUM_TREE) {
            let result = self.checksums(&tree);
            self.tolerate(tree.id, result)?;
        }
        self.decode()
    }

    /// Says how many bytes will be read, as far as that is known.
    fn expect(&self) {
        let decoded = self.encoded.iter().map(Encoded::len);
        let mut bytes = decoded.fold(0u64, u64::saturating_add);
        for extent in &self.extents.list {
            if extent.is_tree_block || self.options.data >= DataCheck::Checksums {
                bytes = bytes.saturating_add(extent.len);
            }
        }
        self.progress.expect(None, Some(bytes));
    }

    /// Checks that every superblock copy on every device agrees.
    fn superblocks(&mut self) -> Result<()> {
        for open in self.btrfs.volume.space.devices() {
            let size = open.source.size()?;
            for place in SUPERBLOCK_PLACES {
                let mut bytes = [0; crate::raw::SUPERBLOCK_BYTES];
                if size.saturating_sub(bytes.len() as u64) < place.0
                    || open.device.total_bytes < place.0 + bytes.len() as u64
                {
                    continue;
                }
                open.source.read_exact_at(&mut bytes, place.0)?;
                let generation = self.btrfs.superblock().generation;
                match Superblock::parse(&bytes, place) {
                    Ok(found) if found.generation == generation => {}
                    Ok(found) => self.corrupt(
                        0,
                        Corrupt {
                            what: "copy of the superblock is old",
                            at: place.0,
                            got: found.generation.0,
                        },
                    )?,
                    Err(error) => self.found(0, error)?,
                }
            }
        }
        Ok(())
    }

    /// Checks that devices are present once, have their recorded size, and include every device that a chunk names.
    fn devices(&mut self) -> Result<()> {
        let btrfs = self.btrfs;
        let devices = btrfs.devices();
        let count = btrfs.superblock().num_devices;
        if devices.len() as u64 != count {
            let what = wrong("superblock's number of devices is wrong", Logical(0), count);
            self.corrupt(object::CHUNK_TREE, what)?;
        }
        for chunk in btrfs.chunks().chunks() {
            let is_known = |stripe: &Stripe| {
                let mut devices = devices.iter();
                devices
                    .any(|device| (device.id, device.uuid) == (stripe.device, stripe.device_uuid))
            };
            if let Some(stripe) = chunk.stripes.iter().find(|stripe| !is_known(stripe)) {
                let what = wrong("chunk is on an unknown device", chunk.start, stripe.device);
                self.corrupt(object::CHUNK_TREE, what)?;
            }
        }
        for open in btrfs.volume.space.devices() {
            let size = open.source.size()?;
            let known = devices.iter().find(|device| device.id == open.device.id);
            if known.is_some_and(|device| device.total_bytes > size) {
                let what = wrong(
                    "device is shorter than it should be",
                    Logical(open.device.id),
                    size,
                );
                self.corrupt(object::CHUNK_TREE, what)?;
            }
        }
        Ok(())
    }

    /// Checks all roots in the root tree.
    fn roots(&mut self) -> Result<Vec<Root>> {
        let mut roots = Vec::new();
        let result = self.read_roots(&mut roots);
        self.tolerate(object::ROOT_TREE, result)?;
        Ok(roots)
    }

    fn read_roots(&self, roots: &mut Vec<Root>) -> Result<()> {
        let volume = &self.btrfs.volume;
        let mut cursor = self.btrfs.roots.seek(volume, Key::MIN)?;
        while let Some(item) = cursor.item() {
            if item.key.kind == item::ROOT_ITEM {
                // Only snapshots and trees being moved have more in their key than an ID.
                let (id, offset) = (item.key.objectid, item.key.offset);
                let is_single = id < object::FIRST_FREE || id == object::DATA_RELOC_TREE;
                if is_single && offset != 0 {
                    return Err(item.corrupt("root item's key has an offset", offset));
                }
                roots.push(Root::parse(&item, &volume.superblock)?);
            }
            cursor.advance()?;
        }
        Ok(())
    }

    /// Checks that both ends of each subvolume reference agree with each other and with the directory that holds it.
    fn subvolume_references(&mut self, roots: &[Root]) -> Result<()> {
        let volume = &self.btrfs.volume;
        let mut forward = Vec::new();
        let mut backward = Vec::new();
        let mut cursor = self.btrfs.roots.seek(volume, Key::MIN)?;
        while let Some(item) = cursor.item() {
            if matches!(item.key.kind, item::ROOT_REF | item::ROOT_BACKREF) {
                let (dir, index, name) = subvolume::parse_ref(&item)?;
                let place = (dir, index, name.to_vec());
                match item.key.kind {
                    item::ROOT_REF => forward.push((item.key.objectid, item.key.offset, place)),
                    _ => backward.push((item.key.offset, item.key.objectid, place)),
                }
            }
            cursor.advance()?;
        }
        forward.sort_unstable();
        backward.sort_unstable();
        if forward != backward {
            self.corrupt(
                object::ROOT_TREE,
                Corrupt {
                    what: "places of subvolumes differ from those that they refer to",
                    at: self.btrfs.roots.root.0,
                    got: forward.len().abs_diff(backward.len()) as u64,
                },
            )?;
        }
        for root in roots {
            let id = root.tree.id;
            let is_seen = backward.iter().any(|(_, child, _)| *child == id);
            let is_nested = (object::FIRST_FREE..=object::LAST_FREE).contains(&id);
            let what = if is_nested && root.refs > 0 && !is_seen {
                "subvolume is seen nowhere"
            } else if is_nested && root.refs == 0 && is_seen {
                "deleted subvolume is still seen"
            } else if is_file_tree(id) && root.refs > 0 && root.dirid != object::FIRST_FREE {
                "subvolume's root directory has another number"
            } else {
                continue;
            };
            self.corrupt(id, wrong(what, root.tree.root, id))?;
        }
        for (parent, child, (dir, index, name)) in &forward {
            let mut trees = roots.iter().map(|root| &root.tree);
            let is_there = match trees.find(|tree| tree.id == *parent) {
                Some(tree) => {
                    let found = dir::find(volume, tree, *dir, name)?;
                    let at = dir::find_index(volume, tree, *dir, *index, name)?;
                    let target = Some(Target::Subvolume(*child));
                    found.map(|found| found.0) == target && at == target
                }
                None => false,
            };
            if !is_there {
                let what = "subvolume's name is not in its directory";
                self.corrupt(*parent, wrong(what, Logical(*dir), *child))?;
            }
        }
        Ok(())
    }
}
