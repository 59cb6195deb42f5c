//! The bytes that subvolumes share, and those that one or several of them have alone.

use std::collections::{BTreeMap, HashMap};

use tree::{Error, Result};

use crate::disk::extent::{ExtentBody, FileExtent};
use crate::disk::key::{Logical, item};
use crate::disk::node::{Expected, TreeBlock};
use crate::disk::subvolume;
use crate::read::Btrfs;

/// Bytes of all sets of subvolumes together: a thousand snapshots have some thousand sets of 125
/// bytes.
const SET_BYTES_MAX: usize = 256 << 20;

/// The bytes of data extents and tree blocks by the subvolumes that refer to them, in one copy: the
/// numbers of quota groups (`struct btrfs_qgroup_info_item`), without quotas.
#[derive(Clone, Debug)]
pub struct Sharing {
    subvolumes: Vec<u64>,
    sets: Sets,
    /// The bytes to which exactly the subvolumes of a set refer.
    bytes: Vec<u64>,
}

/// Sets of subvolumes, each stored once, as bits.
#[derive(Clone, Debug, Default)]
struct Sets {
    all: Vec<Box<[u64]>>,
    numbers: HashMap<Box<[u64]>, usize>,
    unions: HashMap<(usize, usize), usize>,
}

impl Sharing {
    /// The subvolumes, by ID, without those that are being deleted.
    pub fn subvolumes(&self) -> &[u64] {
        &self.subvolumes
    }

    /// The bytes that a subvolume refers to.
    pub fn referenced(&self, id: u64) -> u64 {
        let bit = self.bits(&[id]);
        self.sum(|set| set.iter().zip(&*bit).any(|(a, b)| a & b != 0))
    }

    /// The bytes that only these subvolumes refer to: deleting all of them frees as many.
    pub fn exclusive(&self, ids: &[u64]) -> u64 {
        let bits = self.bits(ids);
        self.sum(|set| set.iter().zip(&*bits).all(|(a, b)| a & !b == 0))
    }

    fn bits(&self, ids: &[u64]) -> Box<[u64]> {
        let mut bits = vec![0; self.subvolumes.len().div_ceil(64)];
        for (index, id) in self.subvolumes.iter().enumerate() {
            if ids.contains(id)
                && let Some(word) = bits.get_mut(index / 64)
            {
                *word |= 1 << (index % 64);
            }
        }
        bits.into()
    }

    fn sum(&self, counts: impl Fn(&[u64]) -> bool) -> u64 {
        let sets = self.sets.all.iter().zip(&self.bytes);
        sets.filter(|(set, _)| counts(set))
            .fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }
}

impl Sets {
    fn insert(&mut self, set: Box<[u64]>) -> Result<usize> {
        if let Some(&number) = self.numbers.get(&set) {
            return Ok(number);
        }
        let number = self.all.len();
        let bytes = size_of_val(&*set).saturating_add(size_of::<Box<[u64]>>());
        if number.saturating_mul(bytes) > SET_BYTES_MAX {
            return Err(Error::Limit("sets of subvolumes that share data"));
        }
        self.all.push(set.clone());
        self.numbers.insert(set, number);
        Ok(number)
    }

    /// Adds the subvolumes of the set `with` to those that `of` names.
    fn unite(&mut self, of: &mut usize, with: usize) -> Result<()> {
        let pair = ((*of).min(with), (*of).max(with));
        if pair.0 == pair.1 {
            return Ok(());
        }
        if let Some(&union) = self.unions.get(&pair) {
            *of = union;
            return Ok(());
        }
        let (Some(a), Some(b)) = (self.all.get(pair.0), self.all.get(pair.1)) else {
            return Ok(());
        };
        let union = a.iter().zip(b).map(|(a, b)| a | b).collect();
        *of = self.insert(union)?;
        self.unions.insert(pair, *of);
        Ok(())
    }
}

impl Btrfs {
    /// Measures the data and tree blocks that subvolumes share, as of the last commit. Reads each
    /// tree block once, however many snapshots refer to it; memory grows by about 100 bytes for
    /// each leaf and 40 for each extent.
    ///
    /// # Errors
    /// A tree cannot be read; the subvolumes share in too many combinations.
    pub fn sharing(&self) -> Result<Sharing> {
        let mut trees = Vec::new();
        subvolume::for_each(&self.volume, &self.roots, |root| {
            // One that is being deleted frees its bytes in any case.
            if root.refs > 0 {
                trees.push(root.tree);
            }
            Ok(())
        })?;
        trees.dedup_by_key(|tree| tree.id);
        let mut sharing = Sharing {
            subvolumes: trees.iter().map(|tree| tree.id).collect(),
            sets: Sets::default(),
            bytes: Vec::new(),
        };
        // All blocks of a level are known when those above it have been read.
        let mut levels: Vec<BTreeMap<Logical, (usize, Expected)>> = Vec::new();
        levels.resize_with(usize::from(u8::MAX).saturating_add(1), BTreeMap::new);
        for tree in &trees {
            let set = sharing.sets.insert(sharing.bits(&[tree.id]))?;
            let expected = tree.expected();
            sharing.refer(&mut levels, tree.root, set, expected)?;
        }
        let mut extents = HashMap::new();
        while let Some(blocks) = levels.pop() {
            for (at, (set, expected)) in blocks {
                let node = self.volume.node(at, &expected)?;
                sharing.add(set, self.superblock().nodesize.into());
                for index in 0..node.len() {
                    if node.level == 0 {
                        self.share_extent(&node, index, set, (&mut sharing, &mut extents))?;
                    } else {
                        let below = node.expected_below(index, expected.tree, expected.end);
                        sharing.refer(&mut levels, node.pointer(index).at, set, below)?;
                    }
                }
            }
        }
        for (set, len) in extents.into_values() {
            sharing.add(set, len);
        }
        Ok(sharing)
    }

    /// Adds the subvolumes of `set` to those of the extent that an item of a leaf refers to.
    fn share_extent(
        &self,
        leaf: &TreeBlock,
        index: usize,
        set: usize,
        (sharing, extents): (&mut Sharing, &mut HashMap<Logical, (usize, u64)>),
    ) -> Result<()> {
        let item = leaf.item(index);
        if item.key.kind != item::EXTENT_DATA {
            return Ok(());
        }
        let file_extent = FileExtent::parse(&item, self.superblock().sectorsize)?;
        let ExtentBody::Stored { extent, .. } = file_extent.body else {
            return Ok(());
        };
        let (of, _) = extents.entry(extent.at).or_insert((set, extent.len));
        sharing.sets.unite(of, set)
    }
}

impl Sharing {
    fn refer(
        &mut self,
        levels: &mut [BTreeMap<Logical, (usize, Expected)>],
        at: Logical,
        set: usize,
        expected: Expected,
    ) -> Result<()> {
        let Some(level) = levels.get_mut(usize::from(expected.level)) else {
            return Ok(());
        };
        let (of, _) = level.entry(at).or_insert((set, expected));
        self.sets.unite(of, set)
    }

    fn add(&mut self, set: usize, bytes: u64) {
        if self.bytes.len() <= set {
            self.bytes.resize(set.saturating_add(1), 0);
        }
        if let Some(sum) = self.bytes.get_mut(set) {
            *sum = sum.saturating_add(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_a_naive_count() {
        let mut rng = testkit::Rng::new(7);
        let subvolumes: Vec<u64> = (0..70).map(|at| 256 + at).collect();
        let mut sharing = Sharing {
            subvolumes: subvolumes.clone(),
            sets: Sets::default(),
            bytes: Vec::new(),
        };
        let mut naive: Vec<(Vec<u64>, u64)> = Vec::new();
        for _ in 0..300 {
            let len = 1 + rng.below(9);
            let members: Vec<u64> = (0..1 + rng.below(5))
                .map(|_| subvolumes[usize::try_from(rng.below(70)).unwrap()])
                .collect();
            let single = |id| sharing.bits(&[id]);
            let bits: Vec<_> = members.iter().map(|&id| single(id)).collect();
            let mut set = sharing.sets.insert(bits[0].clone()).unwrap();
            for bit in bits {
                let with = sharing.sets.insert(bit).unwrap();
                sharing.sets.unite(&mut set, with).unwrap();
            }
            sharing.add(set, len);
            naive.push((members, len));
        }
        for pair in subvolumes.windows(2) {
            let sum = |counts: &dyn Fn(&[u64]) -> bool| -> u64 {
                let counted = naive.iter().filter(|(members, _)| counts(members));
                counted.map(|(_, len)| len).sum()
            };
            let of = pair[0];
            assert_eq!(sharing.referenced(of), sum(&|it| it.contains(&of)));
            assert_eq!(
                sharing.exclusive(pair),
                sum(&|it| it.iter().all(|id| pair.contains(id)))
            );
        }
    }
}
