//! Use by directory, as a tree of sums.

use std::cmp::Reverse;

use super::{Amount, Visitor};
use crate::Result;
use crate::{DirEntry, FileKind, Metadata};

/// The kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// A directory with everything below it.
    Directory,
    /// A regular file.
    File,
    /// The smaller files of a directory together.
    Others,
}

/// A directory, or files in it.
#[derive(Clone, Debug)]
pub struct UsageNode {
    /// The name; empty for the first node and for [`NodeKind::Others`].
    pub name: Box<[u8]>,
    /// Its kind.
    pub kind: NodeKind,
    /// The number of the node that holds it: smaller than its own. The first node has 0.
    pub parent: u32,
    /// 0 for the first node.
    pub depth: u32,
    /// Names of regular files.
    pub files: u64,
    /// Their amount, as it adds to the totals.
    pub amount: Amount,
}

/// Collects the use by directory.
///
/// Nodes are in the order in which directories were entered: a directory comes before the nodes
/// that it holds.
#[derive(Debug)]
pub struct UsageTree {
    nodes: Vec<UsageNode>,
    open: Vec<UnclosedDirectory>,
    files_max: usize,
    depth_max: u32,
}

/// A directory that was entered and not left.
#[derive(Debug)]
struct UnclosedDirectory {
    node: u32,
    files: Vec<(Amount, Box<[u8]>)>,
    others: (u64, Amount),
}

impl UsageTree {
    /// A collector that keeps the largest files of each directory, up to `files_max`, and
    /// directories down to `depth_max` below the first one. Other files are part of the sums.
    pub fn new(files_max: usize, depth_max: u32) -> UsageTree {
        UsageTree {
            nodes: Vec::new(),
            open: Vec::new(),
            files_max,
            depth_max,
        }
    }

    /// All nodes.
    pub fn all(&self) -> &[UsageNode] {
        &self.nodes
    }

    /// The path of a node below the first one.
    pub fn path(&self, node: usize) -> Vec<u8> {
        let mut names: Vec<&[u8]> = Vec::new();
        let mut at = node;
        while let Some(node) = self.nodes.get(at).filter(|node| node.depth > 0) {
            names.push(&node.name);
            at = node.parent as usize;
        }
        names.reverse();
        names.join(&b'/')
    }

    /// The directories down to a depth below the first one, those with the most stored bytes first,
    /// and which does not list the first one itself.
    pub fn directories(&self, depth_max: u32) -> Vec<usize> {
        let is_listed = |node: &UsageNode| {
            node.kind == NodeKind::Directory && (1..=depth_max).contains(&node.depth)
        };
        let mut listed: Vec<usize> = (0..self.nodes.len())
            .filter(|&at| is_listed(&self.nodes[at]))
            .collect();
        // The numbers follow the order of the paths.
        listed.sort_by_key(|&at| Reverse(self.nodes[at].amount.stored));
        listed
    }

    fn push(&mut self, node: UsageNode) -> u32 {
        self.nodes.push(node);
        u32::try_from(self.nodes.len() - 1).expect("as many nodes do not fit in memory")
    }

    /// Adds to a node and all that hold it.
    fn add(&mut self, node: u32, files: u64, amount: &Amount) {
        let sum = &mut self.nodes[node as usize];
        sum.files += files;
        sum.amount.add(amount);
    }
}

impl Visitor for UsageTree {
    fn enter(&mut self, entry: &DirEntry, _: &Metadata) -> Result<()> {
        let depth = u32::try_from(self.open.len()).unwrap_or(u32::MAX);
        let parent = self.open.last().map_or(0, |open| open.node);
        let node = if depth > self.depth_max {
            parent
        } else {
            let is_first = depth == 0;
            self.push(UsageNode {
                name: if is_first {
                    Box::default()
                } else {
                    entry.name.clone()
                },
                kind: NodeKind::Directory,
                parent,
                depth,
                files: 0,
                amount: Amount::default(),
            })
        };
        self.open.push(UnclosedDirectory {
            node,
            files: Vec::new(),
            others: (0, Amount::default()),
        });
        Ok(())
    }

    fn file(&mut self, entry: &DirEntry, _: &Metadata, amount: &Amount) -> Result<()> {
        if entry.kind != FileKind::Regular {
            return Ok(());
        }
        let files_max = self.files_max;
        let Some(open) = self.open.last_mut() else {
            // The walk began at a file.
            self.push(UsageNode {
                name: entry.name.clone(),
                kind: NodeKind::File,
                parent: 0,
                depth: 0,
                files: 1,
                amount: *amount,
            });
            return Ok(());
        };
        if files_max > 0 {
            open.files.push((*amount, entry.name.clone()));
            if open.files.len() >= files_max.saturating_mul(2) {
                open.keep(files_max);
            }
        }
        let node = open.node;
        self.add(node, 1, amount);
        Ok(())
    }

    fn leave(&mut self) -> Result<()> {
        let Some(mut open) = self.open.pop() else {
            return Ok(());
        };
        open.keep(self.files_max);
        let parent = open.node;
        let depth = self.nodes[parent as usize].depth + 1;
        for (amount, name) in open.files {
            let kind = NodeKind::File;
            self.push(UsageNode {
                name,
                kind,
                parent,
                depth,
                files: 1,
                amount,
            });
        }
        let (files, amount) = open.others;
        if files > 0 {
            let (name, kind) = (Box::default(), NodeKind::Others);
            self.push(UsageNode {
                name,
                kind,
                parent,
                depth,
                files,
                amount,
            });
        }
        // A directory that has no node of its own was added to its parent at once.
        if let Some(above) = self
            .open
            .last()
            .map(|open| open.node)
            .filter(|&it| it != parent)
        {
            let UsageNode { files, amount, .. } = self.nodes[parent as usize];
            self.add(above, files, &amount);
        }
        Ok(())
    }
}

impl UnclosedDirectory {
    /// Keeps the largest files, and adds up the others.
    fn keep(&mut self, files_max: usize) {
        if self.files.len() <= files_max {
            return;
        }
        self.files
            .sort_unstable_by(|a, b| (b.0.stored, &a.1).cmp(&(a.0.stored, &b.1)));
        for (amount, _) in self.files.drain(files_max..) {
            self.others.0 += 1;
            self.others.1.add(&amount);
        }
    }
}
