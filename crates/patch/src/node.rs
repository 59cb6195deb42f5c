//! Nodes of btrfs, reduced to the parts that do not follow from others: the checksum, and in a leaf
//! the places of the items, which all move when an earlier item grows.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use crc32c::crc32c_append;

/// `struct btrfs_header`.
const HEADER_BYTES: usize = 101;
/// `struct btrfs_item`: a key, the place of the data behind the header, and their length.
const ITEM_BYTES: usize = 25;
/// Bytes before those that the checksum covers.
const CHECKSUM_BYTES: usize = 32;
/// The lengths of a superblock and of nodes.
const LENGTHS: [usize; 5] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];

/// The length of the node or superblock with a CRC-32C at the beginning of `bytes`.
pub fn btrfs_node(bytes: &[u8]) -> Option<usize> {
    let (checksum, covered) = bytes.split_first_chunk::<CHECKSUM_BYTES>()?;
    let (sum, padding) = checksum.split_first_chunk::<4>()?;
    if padding.iter().any(|byte| *byte != 0) {
        return None;
    }
    let (mut found, mut done) = (0, 0);
    LENGTHS.into_iter().find(|len| {
        let to = len.saturating_sub(CHECKSUM_BYTES);
        let Some(more) = covered.get(done..to) else {
            return false;
        };
        (found, done) = (crc32c_append(found, more), to);
        found.to_le_bytes() == *sum
    })
}

/// Reduces a node to `content` of its length. Returns whether it is one.
pub(crate) fn reduce(content: &mut [u8], node: &[u8]) -> bool {
    if content.len() != node.len() || node.len() < HEADER_BYTES {
        return false;
    }
    content.copy_from_slice(node);
    let mut end = data_bytes(node);
    for item in items(content) {
        let (offset, bytes) = place_of(item);
        set_offset(item, end.wrapping_sub(bytes).wrapping_sub(offset));
        end = offset;
    }
    if let Some(sum) = content.first_chunk_mut::<4>() {
        *sum = [0; 4];
    }
    true
}

/// Makes the node of its content in the beginning of `node`, and returns its length.
#[cfg(any(feature = "encode", test))]
pub(crate) fn restore(node: &mut [u8], content: &[u8]) -> Option<usize> {
    let node = node.get_mut(..content.len())?;
    if node.len() < HEADER_BYTES {
        return None;
    }
    node.copy_from_slice(content);
    let mut end = data_bytes(content);
    for item in items(node) {
        let (difference, bytes) = place_of(item);
        let offset = end.wrapping_sub(bytes).wrapping_sub(difference);
        set_offset(item, offset);
        end = offset;
    }
    let (checksum, covered) = node.split_first_chunk_mut::<CHECKSUM_BYTES>()?;
    *checksum.first_chunk_mut::<4>()? = crc32c::crc32c(covered).to_le_bytes();
    Some(content.len())
}

/// Bytes behind the header: the data of the first item end there.
fn data_bytes(node: &[u8]) -> u32 {
    u32::try_from(node.len().saturating_sub(HEADER_BYTES)).unwrap_or(0)
}

/// The items of a leaf, if all have room.
fn items(node: &mut [u8]) -> impl Iterator<Item = &mut [u8; ITEM_BYTES]> {
    let (header, items) = node.split_at_mut(HEADER_BYTES);
    let count = match *header {
        [.., a, b, c, d, 0] => u32::from_le_bytes([a, b, c, d]),
        _ => 0,
    };
    let (items, _) = items.as_chunks_mut();
    let count = tree::to_usize(count);
    let count = if count > items.len() { 0 } else { count };
    items.iter_mut().take(count)
}

fn place_of(item: &[u8; ITEM_BYTES]) -> (u32, u32) {
    let [.., a, b, c, d, e, f, g, h] = *item;
    (
        u32::from_le_bytes([a, b, c, d]),
        u32::from_le_bytes([e, f, g, h]),
    )
}

fn set_offset(item: &mut [u8; ITEM_BYTES], offset: u32) {
    let [.., a, b, c, d, _, _, _, _] = item;
    [*a, *b, *c, *d] = offset.to_le_bytes();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes without a pattern.
    fn bytes(seed: u32, len: usize) -> Vec<u8> {
        let next = |state: &u32| Some(state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
        let states = std::iter::successors(Some(seed), next);
        states.map(|state| (state >> 24) as u8).take(len).collect()
    }

    /// A leaf of items without gaps between their data.
    fn leaf(lengths: &[u32]) -> Vec<u8> {
        let mut node = bytes(4, 16 << 10);
        node[..CHECKSUM_BYTES].fill(0);
        node[96..100].copy_from_slice(&(lengths.len() as u32).to_le_bytes());
        node[100] = 0;
        let mut end = (16 << 10) - HEADER_BYTES as u32;
        for (number, bytes) in lengths.iter().enumerate() {
            end -= bytes;
            let at = HEADER_BYTES + number * ITEM_BYTES + 17;
            node[at..at + 4].copy_from_slice(&end.to_le_bytes());
            node[at + 4..at + 8].copy_from_slice(&bytes.to_le_bytes());
        }
        let sum = crc32c::crc32c(&node[CHECKSUM_BYTES..]);
        node[..4].copy_from_slice(&sum.to_le_bytes());
        node
    }

    #[test]
    fn places_follow_from_lengths() {
        let nodes = [leaf(&[160, 30, 2000, 53]), leaf(&[160, 37, 2000, 53])];
        let mut reduced = nodes.clone();
        for (node, content) in nodes.iter().zip(&mut reduced) {
            assert_eq!(btrfs_node(node), Some(16 << 10));
            assert!(reduce(content, node));
            let mut restored = vec![9; 20_000];
            assert_eq!(restore(&mut restored, content), Some(16 << 10));
            assert!(restored[..16 << 10] == node[..]);
        }
        let [first, second] = &reduced;
        let differ = first.iter().zip(second).filter(|(a, b)| a != b).count();
        assert_eq!(differ, 1);
        assert_eq!(btrfs_node(first), None);
        // Any bytes come back but for the checksum, whatever their number of items is.
        for len in [101, 126, 4096] {
            let mut bytes = bytes(5, len);
            bytes[97..101].fill(0);
            let (mut content, mut restored) = (bytes.clone(), bytes.clone());
            assert!(reduce(&mut content, &bytes));
            assert_eq!(restore(&mut restored, &content), Some(len));
            assert!(restored[4..] == bytes[4..]);
            assert!(!reduce(&mut content[1..], &bytes));
        }
    }
}
