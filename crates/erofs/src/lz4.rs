//! The beginning of an LZ4 block: the library decodes only whole ones.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

/// Bytes that Linux wants behind the length of a match: the last literals of a block.
const LAST_LITERALS: usize = 5;

/// Decodes an LZ4 block until `dst` is full or the block ends, and returns the length; bytes of
/// `src` after that are not looked at. `None` if the block is corrupt before that.
pub(crate) fn decode_beginning(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let (mut src, mut len) = (src, 0_usize);
    loop {
        let (&token, rest) = src.split_first()?;
        src = rest;
        let literals = length(token >> 4, &mut src, 0)?;
        let room = dst.len().saturating_sub(len);
        let copied = literals.min(room);
        let (bytes, rest) = src.split_at_checked(copied)?;
        let end = len.checked_add(copied)?;
        dst.get_mut(len..end)?.copy_from_slice(bytes);
        (src, len) = (rest, end);
        // The last sequence has literals only. As in Linux, a distance is none at the end.
        if len == dst.len() || src.len() <= 2 {
            return Some(len);
        }
        let (distance, rest) = src.split_first_chunk()?;
        src = rest;
        let distance = usize::from(u16::from_le_bytes(*distance));
        let matched = length(token & 15, &mut src, LAST_LITERALS)?.checked_add(4)?;
        let end = len.checked_add(matched)?.min(dst.len());
        let from = len.checked_sub(distance).filter(|_| distance > 0)?;
        while len < end {
            // A match can overlap itself: each turn doubles the copied bytes.
            let part = len.checked_sub(from)?.min(end.checked_sub(len)?);
            dst.copy_within(from..from.checked_add(part)?, len);
            len = len.checked_add(part)?;
        }
        if len == dst.len() {
            return Some(len);
        }
    }
}

/// Looks at the distances of an LZ4 block without decoding it. `None` if one of them is 0, whose
/// content is undefined, or if the block is corrupt.
pub(crate) fn check_distances(mut src: &[u8]) -> Option<()> {
    while let Some((&token, rest)) = src.split_first() {
        src = rest;
        let literals = length(token >> 4, &mut src, 0)?;
        (_, src) = src.split_at_checked(literals)?;
        let Some((distance, rest)) = src.split_first_chunk() else {
            break;
        };
        src = rest;
        length(token & 15, &mut src, 0).filter(|_| *distance != [0; 2])?;
    }
    Some(())
}

/// A length of 15 goes on in further bytes, as long as they are 255, with others behind them.
fn length(nibble: u8, src: &mut &[u8], behind: usize) -> Option<usize> {
    let mut len = usize::from(nibble);
    if nibble < 15 {
        return Some(len);
    }
    loop {
        let (&byte, rest) = src.split_first()?;
        *src = Some(rest).filter(|rest| rest.len() >= behind)?;
        len = len.checked_add(byte.into())?;
        if byte < 255 {
            return Some(len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a block that is cut, Linux decodes no match at its end.
    #[test]
    fn a_match_has_bytes_behind_it() {
        let (short, long) = (b"\x84abcdefgh\x08\0", b"\x8fabcdefgh\x08\0\x01");
        for (block, behind, len, found) in [
            (&short[..], 0, 16, Some(8)),
            (short, 1, 16, Some(16)),
            (long, 4, 28, None),
            (long, 5, 28, Some(28)),
        ] {
            let block = [block, &vec![0; behind]].concat();
            assert_eq!(decode_beginning(&block, &mut vec![0; len]), found);
        }
    }

    #[test]
    fn the_beginning_is_that_of_the_whole_block() {
        let mut rng = testkit::Rng::new(3);
        let mut content = Vec::new();
        while content.len() < 5000 {
            let from = rng.below(content.len() as u64 + 1) as usize;
            let len = 1 + rng.below(300) as usize;
            for at in 0..len {
                let byte = content.get(from + at).copied();
                content.push(byte.filter(|_| len > 8).unwrap_or(rng.below(256) as u8));
            }
        }
        let mut block = vec![0; 8000];
        let mut encoder = codec::Encoder::new(&codec::Settings::Lz4Hc { level: 9 }).unwrap();
        let len = encoder.compress(&mut block, &content).unwrap();
        // Zeros behind it, as in a cluster without padding before it.
        for wanted in [1, 2, 15, 16, 100, 4095, 4999, content.len()] {
            let mut part = vec![0; wanted];
            assert_eq!(
                decode_beginning(&block[..len + 100], &mut part),
                Some(wanted)
            );
            assert_eq!(part, content[..wanted]);
        }
        let mut more = vec![0; content.len() + 9];
        assert_eq!(
            decode_beginning(&block[..len], &mut more),
            Some(content.len())
        );
        for _ in 0..2000 {
            let mut changed = block[..len].to_vec();
            let at = rng.below(len as u64) as usize;
            changed[at] = rng.below(256) as u8;
            decode_beginning(&changed, &mut more);
        }
    }
}
