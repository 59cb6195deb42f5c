//! Checks a whole file system for consistency between its trees.
//!
//! Reading verifies only the data that it touches. The check reads everything, and compares
//! everything that is stored twice: references to blocks and extents with the extent tree,
//! directory entries with the names in inodes, block groups with their content, checksums with
//! data. Its verdict should equal that of `btrfs check --check-data-csum`.

mod copies;
mod data;
mod decode;
mod devices;
mod extents;
mod files;
mod log;
mod quota;
mod ranges;
mod references;
mod roots;
mod space;
mod space_cache;
mod state;
mod walk;

use std::collections::HashSet;

use tree::{CheckOptions, DataCheck, Finding, Findings, Parallel, Progress, Result};

use self::decode::Decoding;
use self::extents::{ExtentTree, TreeReferences};
use self::ranges::Ranges;
use self::state::{BtrfsChecker, LogRanges, ReferenceEdges};
use crate::disk::flags::compat_ro;
use crate::disk::key::{Key, is_file_tree, object};
use crate::disk::raw;
use crate::disk::subvolume::tree_of;
use crate::read::Btrfs;

pub use self::state::{CheckSummary, Note};

impl Btrfs {
    /// Checks the whole file system and calls `report` with each finding, in the same order for any
    /// number of threads.
    ///
    /// Memory grows with the number of extents and of inodes per subvolume: some hundred bytes
    /// each.
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
        let mut check = BtrfsChecker {
            btrfs: self,
            options,
            parallel,
            progress,
            findings: Findings::new(report),
            summary: CheckSummary::default(),
            references: TreeReferences::default(),
            extents: ExtentTree::default(),
            encoded: HashSet::new(),
            without_checksums: Ranges::default(),
            log: LogRanges::default(),
            paths: None,
            notes: Vec::new(),
            lost_chunks: Vec::new(),
        };
        check.run()?;
        check.summary.findings = check.findings.count();
        check.summary.notes = check.notes;
        Ok(check.summary)
    }
}

impl BtrfsChecker<'_> {
    fn run(&mut self) -> Result<()> {
        let flags = self.superblocks()?;
        if flags & raw::SUPERBLOCK_METADATA_DUMP != 0 {
            self.notes.push(Note::MetadataDump);
            self.options.data = DataCheck::Skip;
        }
        self.devices()?;
        let result = self.log();
        self.tolerate(object::TREE_LOG, result)?;
        let roots = self.roots()?;
        let find = |id| tree_of(&roots, id);
        for id in [
            object::EXTENT_TREE,
            object::DEV_TREE,
            object::FS_TREE,
            object::CSUM_TREE,
        ] {
            if find(id).is_none() {
                self.corrupt("tree is missing", id, 0, id)?;
            }
        }
        if let Some(tree) = find(object::EXTENT_TREE) {
            let result = self.read_extent_tree(&tree);
            self.tolerate(tree.id, result)?;
        }
        let has_group_tree = self.btrfs.superblock().compat_ro & compat_ro::BLOCK_GROUP_TREE != 0;
        if let Some(tree) = find(object::BLOCK_GROUP_TREE).filter(|_| has_group_tree) {
            let result = self.read_block_groups(&tree);
            self.tolerate(tree.id, result)?;
        }
        for group in self.extents.finish() {
            self.corrupt(
                "block groups overlap",
                object::EXTENT_TREE,
                group.start,
                group.len,
            )?;
        }
        let data = self
            .extents
            .list
            .iter()
            .filter(|extent| !extent.is_tree_block);
        self.summary.extents = data.count() as u64;
        self.expect();
        let quota_tree = find(object::QUOTA_TREE);
        if let Some(tree) = &quota_tree
            && let Ok(Some((flags, _))) = self.quotas(tree)
            && flags & raw::QGROUP_SIMPLE == 0
        {
            self.paths = Some(ReferenceEdges::default());
        }
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
        if let Some(tree) = &quota_tree {
            let result = self.quota_groups(tree, &roots);
            self.tolerate(tree.id, result)?;
        }
        self.space(&roots)?;
        // Snapshots begin with a root block of their own; only a hostile image has several trees
        // with one.
        let mut known = HashSet::new();
        for root in &roots {
            let is_whole = root.refs > 0 && root.drop_progress == Key::MIN;
            let holds_files = is_file_tree(root.tree.id) || root.tree.id == object::DATA_RELOC_TREE;
            if holds_files && is_whole && known.insert(root.tree.root) {
                self.subvolume(&root.tree)?;
            }
        }
        self.expect();
        let result = self.subvolume_references(&roots);
        self.tolerate(object::ROOT_TREE, result)?;
        let result = self.default_entry(&roots);
        self.tolerate(object::ROOT_TREE, result)?;
        let result = self.dead_roots(&roots);
        self.tolerate(object::ROOT_TREE, result)?;
        self.log_checksums()?;
        let mut decoding = Decoding::new(std::mem::take(&mut self.encoded));
        if let Some(tree) = find(object::CSUM_TREE) {
            let result = self.checksums(&tree, &mut decoding);
            self.tolerate(tree.id, result)?;
        }
        self.copies_without_checksums()?;
        self.decode(decoding)
    }

    /// Reports how many bytes will be read, as far as known.
    fn expect(&self) {
        let decoded = self.encoded.iter().map(|extent| extent.len);
        let mut bytes = decoded.fold(0u64, u64::saturating_add);
        for extent in &self.extents.list {
            if extent.is_tree_block || self.options.data >= DataCheck::Checksums {
                bytes = bytes.saturating_add(extent.len);
            }
        }
        self.progress.expect(None, Some(bytes));
    }
}
