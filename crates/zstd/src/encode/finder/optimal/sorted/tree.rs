//! The tree of positions that have bytes in common.

use super::order::{LENGTH_MAX, POSITION_MASK};
use crate::checked::Checked;
use crate::workspace::Cells;

/// Most nodes from a leaf to the root.
const DEPTH_MAX: usize = LENGTH_MAX + 1;
/// Most nodes that are open at a time: those, and the root.
pub(super) const OPEN_MAX: usize = DEPTH_MAX + 1;

/// Makes the tree from `n` sorted positions with the lengths that neighbours have in common.
/// Returns the number of nodes.
///
/// There are fewer nodes than elements before: nodes take the places of elements that are done
/// with. Each position's leaf tells the deepest node that it shares, and `open` is room for the
/// nodes that are not closed yet.
#[inline(never)]
pub(super) fn grow(
    nodes: &mut [[u8; 8]],
    leaves: &mut [[u8; 4]],
    open: &mut [[u8; 8]; OPEN_MAX],
    n: usize,
) -> Checked<usize> {
    let mut count = 0_usize;
    // The open nodes: length and number, the root first.
    let mut top = 0_usize;
    open.put(0, 0);
    let (mut top_length, mut top_node) = (0, 0_u64);
    let mut before = if n > 0 {
        nodes.checked_at(0)? & POSITION_MASK
    } else {
        0
    };
    for i in 1..=n {
        let element = if i < n { nodes.checked_at(i)? } else { 0 };
        let length = element >> 56;
        if length > top_length {
            count += 1;
            nodes.checked_put(count - 1, top_node << 40 | length << 32)?;
            top = (top + 1).min(DEPTH_MAX);
            (top_length, top_node) = (length, count as u64);
            open.checked_put(top, length << 32 | top_node)?;
            leaves.checked_put(before as usize, top_node as u32)?;
        } else {
            leaves.checked_put(before as usize, top_node as u32)?;
            while length < top_length {
                let under = open.checked_at(top - 1)?;
                if under >> 32 < length {
                    // The node is a child of one that has just come to light.
                    count += 1;
                    nodes.checked_put(count - 1, (under & 0xffff_ffff) << 40 | length << 32)?;
                    nodes.checked_put(
                        top_node as usize - 1,
                        (count as u64) << 40 | top_length << 32,
                    )?;
                    (top_length, top_node) = (length, count as u64);
                    open.checked_put(top, length << 32 | top_node)?;
                    break;
                }
                top -= 1;
                (top_length, top_node) = (under >> 32, under & 0xffff_ffff);
            }
        }
        before = element & POSITION_MASK;
    }
    Ok(count)
}
