//! What an extraction did besides writing all files.

use super::stored::StoredCopies;
use crate::Error;

/// Number of example files for each [`Aspect`].
const EXAMPLES_MAX: u64 = 5;

/// What an extraction did besides writing all files.
#[derive(Debug, Default)]
pub struct Extracted {
    /// What could not be restored.
    pub unrestored: Unrestored,
    /// Files that could not be read and are not in the target, with the reason, sorted by path.
    pub unreadable: Vec<(Vec<u8>, Error)>,
    /// Names of a merged tree that are not in the target, because of what is there, each with
    /// everything below it.
    pub refused: Vec<Refused>,
    /// The number of files in the target that were kept although the tree has files of the same
    /// names.
    pub kept: u64,
    /// The number of names that were deleted with a directory that was replaced, not counting its
    /// own.
    pub removed: u64,
    /// What was written as it is stored in the source: on a mounted btrfs, with privilege.
    pub stored: StoredCopies,
    /// The number of files that share their data with the source.
    pub cloned: u64,
}

/// A name that could not be merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The path in the tree.
    pub path: Box<[u8]>,
    /// Why, in words.
    pub reason: Box<str>,
}

/// Something that could not be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Aspect {
    /// The file itself: a device, which only root can create.
    Device,
    /// Owner and group.
    Owner,
    /// Mode bits, such as the set-ID bits, which are not set if the owner could not be.
    Mode,
    /// An extended attribute, access control lists included.
    Xattr,
    /// File attributes such as immutable.
    Attributes,
    /// A time that the file system cannot hold.
    Time,
}

const ASPECTS: [(Aspect, &str); 6] = [
    (Aspect::Device, "device files"),
    (Aspect::Owner, "owners"),
    (Aspect::Mode, "modes"),
    (Aspect::Xattr, "extended attributes"),
    (Aspect::Attributes, "file attributes"),
    (Aspect::Time, "times"),
];

/// What an extraction could not restore: the number of cases, and the first few of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unrestored {
    counts: [u64; ASPECTS.len()],
    examples: Vec<Example>,
}

/// An example of what could not be restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    /// What is missing.
    pub aspect: Aspect,
    /// The file's path in the tree.
    pub path: Box<[u8]>,
    /// Why, in words.
    pub reason: Box<str>,
}

impl Unrestored {
    /// Whether everything was restored.
    pub fn is_empty(&self) -> bool {
        self.counts == [0; ASPECTS.len()]
    }

    /// The number of cases.
    pub fn count(&self, aspect: Aspect) -> u64 {
        self.counts[aspect as usize]
    }

    /// Each aspect that has cases, with its name in the plural and the number of cases.
    pub fn counts(&self) -> impl Iterator<Item = (Aspect, &'static str, u64)> {
        let counts = self.counts;
        ASPECTS
            .into_iter()
            .map(move |(aspect, name)| (aspect, name, counts[aspect as usize]))
            .filter(|&(_, _, count)| count > 0)
    }

    /// The first cases of an aspect, in tree order.
    pub fn examples(&self, aspect: Aspect) -> impl Iterator<Item = &Example> {
        self.examples.iter().filter(move |e| e.aspect == aspect)
    }

    /// Adds a case, with the file's path and the reason in words.
    pub fn add(&mut self, aspect: Aspect, path: impl FnOnce() -> Vec<u8>, reason: &dyn ToString) {
        self.counts[aspect as usize] += 1;
        if self.counts[aspect as usize] <= EXAMPLES_MAX {
            self.examples.push(Example {
                aspect,
                path: path().into(),
                reason: reason.to_string().into(),
            });
        }
    }

    pub(super) fn append(&mut self, other: Unrestored) {
        for example in other.examples {
            if self.examples(example.aspect).count() < EXAMPLES_MAX as usize {
                self.examples.push(example);
            }
        }
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
    }
}
