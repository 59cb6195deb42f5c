//! The decoder.

use crate::{Error, MIDDLE_MAX};

/// Copies run in chunks of this size, and can write up to this many bytes past their end if there
/// is room.
const CHUNK: usize = 16;

/// A run of literals came before; see the table in the crate's documentation.
const AFTER_RUN: usize = 4;

/// Decodes one whole stream into the beginning of `dst` and returns the length of the content.
///
/// The stream must fill `src` exactly. Bytes of `dst` after the content can be overwritten.
///
/// # Errors
/// The stream breaks the format, does not fill `src`, or holds more than `dst`; the content of
/// `dst` is then unspecified.
pub fn decompress(dst: &mut [u8], src: &[u8]) -> Result<usize, Error> {
    let mut at = 0; // in src
    let mut to = 0; // in dst
    // How many literals directly preceded the instruction: 0 to 3, or AFTER_RUN.
    let mut literals = 0;

    match *src.first().ok_or(Error::Truncated)? {
        // A version mark (of a version that this format does not have), or an end mark.
        17 if src.len() > 3 => return Err(Error::DistanceTooLong),
        first @ 18.. => {
            let len = usize::from(first) - 17;
            at = 1;
            copy_literals(dst, to, src, at, len)?;
            (at, to) = (at + len, to + len);
            literals = len.min(AFTER_RUN);
        }
        _ => {}
    }

    loop {
        let first = usize::from(*src.get(at).ok_or(Error::Truncated)?);
        at += 1;
        let (len, distance, next_literals);
        if first >= 64 {
            let high = usize::from(*src.get(at).ok_or(Error::Truncated)?);
            at += 1;
            len = (first >> 5) + 1;
            distance = (high << 3) + ((first >> 2) & 7) + 1;
            next_literals = first & 3;
        } else if first >= 16 {
            let (bits, base) = if first >= 32 {
                (31, 1)
            } else {
                (7, MIDDLE_MAX + ((first & 8) << 11))
            };
            let short = first & bits;
            len = 2 + if short != 0 {
                short
            } else {
                bits + length_bytes(src, &mut at)?
            };
            let word = src.get(at..at + 2).ok_or(Error::Truncated)?;
            let word = usize::from(u16::from_le_bytes([word[0], word[1]]));
            at += 2;
            distance = base + (word >> 2);
            next_literals = word & 3;
            if distance == MIDDLE_MAX && first < 32 {
                return match (len, word, src.len() - at) {
                    (3, 0, 0) => Ok(to),
                    (3, 0, _) => Err(Error::TrailingBytes),
                    _ => Err(Error::EndMark),
                };
            }
        } else if literals == 0 {
            let len = 3 + if first != 0 {
                first
            } else {
                15 + length_bytes(src, &mut at)?
            };
            copy_literals(dst, to, src, at, len)?;
            (at, to) = (at + len, to + len);
            literals = AFTER_RUN;
            continue;
        } else {
            let high = usize::from(*src.get(at).ok_or(Error::Truncated)?);
            at += 1;
            (len, distance) = if literals == AFTER_RUN {
                (3, 2049)
            } else {
                (2, 1)
            };
            let distance = distance + (high << 2) + (first >> 2);
            copy_match(dst, to, distance, len)?;
            to += len;
            literals = first & 3;
            copy_few(dst, to, src, at, literals)?;
            (at, to) = (at + literals, to + literals);
            continue;
        }
        copy_match(dst, to, distance, len)?;
        to += len;
        literals = next_literals;
        copy_few(dst, to, src, at, literals)?;
        (at, to) = (at + literals, to + literals);
    }
}

/// The rest of a length that does not fit in its instruction: 255 for each zero byte, plus the byte
/// that ends them.
#[inline(never)]
#[cold]
fn length_bytes(src: &[u8], at: &mut usize) -> Result<usize, Error> {
    let rest = &src[*at..];
    let zeros = rest
        .iter()
        .position(|&byte| byte != 0)
        .ok_or(Error::Truncated)?;
    *at += zeros + 1;
    // A slice has at most isize::MAX bytes, but 255 times that would overflow.
    zeros
        .checked_mul(255)
        .and_then(|len| len.checked_add(usize::from(rest[zeros])))
        .filter(|&len| len < usize::MAX / 4)
        .ok_or(Error::DstSizeTooSmall)
}

/// Copies the 0 to 3 literals after a match.
#[inline(always)]
fn copy_few(dst: &mut [u8], to: usize, src: &[u8], at: usize, len: usize) -> Result<(), Error> {
    if let (Some(to), Some(from)) = (dst.get_mut(to..to + 4), src.get(at..at + 4)) {
        to.copy_from_slice(from);
        return Ok(());
    }
    let from = src.get(at..at + len).ok_or(Error::Truncated)?;
    dst.get_mut(to..to + len)
        .ok_or(Error::DstSizeTooSmall)?
        .copy_from_slice(from);
    Ok(())
}

/// Copies a run of literals.
#[inline(always)]
fn copy_literals(
    dst: &mut [u8],
    to: usize,
    src: &[u8],
    at: usize,
    len: usize,
) -> Result<(), Error> {
    if len <= 2 * CHUNK
        && let (Some(to), Some(from)) =
            (dst.get_mut(to..to + 2 * CHUNK), src.get(at..at + 2 * CHUNK))
    {
        to.copy_from_slice(from);
        return Ok(());
    }
    let from = src
        .get(at..)
        .and_then(|rest| rest.get(..len))
        .ok_or(Error::Truncated)?;
    dst.get_mut(to..)
        .and_then(|rest| rest.get_mut(..len))
        .ok_or(Error::DstSizeTooSmall)?
        .copy_from_slice(from);
    Ok(())
}

/// Copies `len` bytes from `distance` before `to`; the source can include bytes that this copy has
/// just written.
#[inline(always)]
fn copy_match(dst: &mut [u8], to: usize, distance: usize, len: usize) -> Result<(), Error> {
    let from = to.checked_sub(distance).ok_or(Error::DistanceTooLong)?;
    let room = dst.len() - to;
    if distance >= CHUNK && len + CHUNK <= room {
        let window = &mut dst[from..to + len + CHUNK];
        let mut done = 0;
        loop {
            let chunk: [u8; CHUNK] = window[done..done + CHUNK].try_into().expect("CHUNK bytes");
            window[done + distance..done + distance + CHUNK].copy_from_slice(&chunk);
            done += CHUNK;
            if done >= len {
                return Ok(());
            }
        }
    }
    if len > room {
        return Err(Error::DstSizeTooSmall);
    }
    copy_overlapping(dst, to, distance, len);
    Ok(())
}

/// [`copy_match`] near the end of `dst` or with a short distance. Both ranges are inside `dst`.
#[inline(never)]
fn copy_overlapping(dst: &mut [u8], to: usize, distance: usize, len: usize) {
    let window = &mut dst[to - distance..to + len];
    if distance == 1 {
        let byte = window[0];
        window[1..].fill(byte);
        return;
    }
    // The repeated part doubles with each round.
    let mut filled = distance;
    while filled < window.len() {
        let more = filled.min(window.len() - filled);
        window.copy_within(..more, filled);
        filled += more;
    }
}
