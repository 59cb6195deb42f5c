//! Numbers of files: in the tree, in the protocol, and as programs see them.

use tree::Ino;

use crate::raw;

/// The `st_ino` of a file.
pub type Numbers = Box<dyn Fn(Ino) -> tree::Result<u64> + Send + Sync>;

/// How numbers of the tree become those of the protocol, in which the root is 1 and no file is 0.
/// All others are the tree's number plus 1; the file that would be 1 then has the number of the
/// root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeNumbers {
    root: u64,
}

impl NodeNumbers {
    pub(crate) fn new(root: Ino) -> NodeNumbers {
        NodeNumbers {
            root: root.0.wrapping_add(1),
        }
    }

    /// The number in the protocol; `None` for the one file that has none: the last number.
    pub(crate) fn of(self, ino: Ino) -> Option<u64> {
        Some(self.swap(ino.0.wrapping_add(1))).filter(|&node| node != 0)
    }

    /// The file with this number in the protocol.
    pub(crate) fn ino(self, node: u64) -> Ino {
        Ino(self.swap(node).wrapping_sub(1))
    }

    fn swap(self, number: u64) -> u64 {
        match number {
            raw::ROOT => self.root,
            number if number == self.root => raw::ROOT,
            number => number,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_unique_and_the_root_is_1() {
        for root in [0, 1, 2, 256, u64::MAX - 1] {
            let nodes = NodeNumbers::new(Ino(root));
            assert_eq!(nodes.of(Ino(root)), Some(1));
            for ino in [0, 1, 2, 255, 256, 257, u64::MAX - 1] {
                let node = nodes.of(Ino(ino)).unwrap();
                assert_eq!(node == 1, ino == root);
                assert_eq!(nodes.ino(node), Ino(ino));
            }
            assert_eq!(nodes.of(Ino(u64::MAX)), None);
        }
    }
}
