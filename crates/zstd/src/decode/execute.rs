//! Executing sequences: content from literals and history (RFC 8878, section 3.1.1.4).
//!
//! Two loops share the work. The fast one copies in chunks that may write beyond the end of a copy;
//! it runs while there is room for that. The exact one does the rest. Of the fast loop there are
//! twins: one in safe code, here, which is the definition, and one in [`arch`](crate::arch).

use super::output::{BlockOutput, CHUNK, Extent, FullOutput, Literals};
use crate::Error;
use crate::sequences::{DecodedSequence, SequenceReader};

/// Executes sequences until none are left or the output is full.
#[inline(never)]
pub(crate) fn execute(
    reader: &mut SequenceReader<'_, '_>,
    literals: &mut Literals<'_>,
    output: &mut BlockOutput<'_, '_>,
) -> Result<Extent, Error> {
    while reader.left > 0 {
        // The fast loop reads the states after each sequence, and the last one has none.
        let fast = reader.left.saturating_sub(output.tail.max(1));
        let hard = if fast > 0 {
            run_fast(reader, literals, output, fast)
        } else {
            None
        };
        let sequence = match hard {
            Some(sequence) => sequence,
            None => reader.read(),
        };
        // A sequence read beyond the stream's start has no meaning.
        if reader.bits.is_overrun() {
            return Err(Error::Corruption);
        }
        if execute_exact(sequence, literals, output)? == Extent::Truncated {
            return Ok(Extent::Truncated);
        }
    }
    Ok(Extent::Whole)
}

/// Reads and executes up to `count` sequences, as long as they are easy. Gives one that was read
/// but is not easy.
///
/// There must be more than `count` sequences.
fn run_fast(
    reader: &mut SequenceReader<'_, '_>,
    literals: &mut Literals<'_>,
    output: &mut BlockOutput<'_, '_>,
    count: usize,
) -> Option<DecodedSequence> {
    #[cfg(all(test, feature = "arch"))]
    if crate::arch::twin() == crate::arch::Twin::Safe {
        return run_portable(reader, literals, output, count);
    }
    #[cfg(all(feature = "arch", target_pointer_width = "64"))]
    return crate::arch::sequences::run(reader, literals, output, count);
    #[allow(unreachable_code, reason = "unless there is no kernel")]
    run_portable(reader, literals, output, count)
}

/// The safe twin of `arch::sequences::run`.
#[allow(dead_code, reason = "where there is a kernel, only tests use it")]
pub(crate) fn run_portable(
    reader: &mut SequenceReader<'_, '_>,
    literals: &mut Literals<'_>,
    output: &mut BlockOutput<'_, '_>,
    count: usize,
) -> Option<DecodedSequence> {
    for _ in 0..count {
        let sequence = reader.read();
        if !execute_easy(sequence, literals, output) {
            return Some(sequence);
        }
    }
    None
}

/// Executes a sequence if its copies have room to spare. Gives whether.
#[inline(always)]
fn execute_easy(
    sequence: DecodedSequence,
    literals: &mut Literals<'_>,
    output: &mut BlockOutput<'_, '_>,
) -> bool {
    let count = sequence.literals as usize;
    let offset = sequence.offset as usize;
    let length = sequence.length as usize;
    let at = output.at;
    let match_at = at + count;
    let scratch_end = match *literals {
        Literals::Slice { .. } => output.scratch_end,
        Literals::InPlace { at, .. } => output.scratch_end.min(at + count),
    };
    let fits = match_at + length + CHUNK <= scratch_end.min(output.end + CHUNK)
        && offset.wrapping_sub(1) < output.window.min(match_at - output.start);
    match literals {
        Literals::Slice {
            bytes,
            at: from,
            end,
        } => {
            if !fits || *end - *from < count || bytes.len() - *from < count + CHUNK {
                return false;
            }
            copy_literals(&mut output.bytes[at..], &bytes[*from..], count);
            *from += count;
        }
        Literals::InPlace { at: from, end } => {
            if !fits || *end - *from < count {
                return false;
            }
            output.bytes.copy_within(*from..*from + count, at);
            *from += count;
        }
    }
    copy_match(
        &mut output.bytes[..match_at + length + CHUNK],
        match_at,
        offset,
        length,
    );
    output.at = match_at + length;
    true
}

/// Copies `count` bytes in chunks; both slices have a chunk more.
#[inline(always)]
fn copy_literals(to: &mut [u8], from: &[u8], count: usize) {
    let mut done = 0;
    loop {
        if let (Some(to), Some(from)) = (
            to.get_mut(done..).and_then(|to| to.first_chunk_mut::<16>()),
            from.get(done..).and_then(|from| from.first_chunk::<16>()),
        ) {
            *to = *from;
        }
        done += 16;
        if done >= count {
            break;
        }
    }
}

/// Copies `length` bytes from `offset` bytes back, in chunks; there is a chunk more after them.
#[inline(always)]
fn copy_match(bytes: &mut [u8], at: usize, offset: usize, length: usize) {
    let (before, after) = bytes.split_at_mut(at);
    if offset >= length + 16 || (offset >= 16 && length <= 16) {
        // Source and destination chunks do not overlap.
        copy_literals(after, &before[before.len() - offset..], length);
        return;
    }
    if offset >= 16 {
        let mut done = 0;
        while done < length {
            let from = at + done - offset;
            if let Some(&chunk) = bytes.get(from..).and_then(|from| from.first_chunk::<16>())
                && let Some(to) = bytes
                    .get_mut(at + done..)
                    .and_then(|to| to.first_chunk_mut::<16>())
            {
                *to = chunk;
            }
            done += 16;
        }
        return;
    }
    for index in at..at + length {
        bytes[index] = bytes[index - offset];
    }
}

/// Executes one sequence, writing nothing but its content. This is the definition.
fn execute_exact(
    sequence: DecodedSequence,
    literals: &mut Literals<'_>,
    output: &mut BlockOutput<'_, '_>,
) -> Result<Extent, Error> {
    let count = sequence.literals as usize;
    match literals {
        Literals::Slice { bytes, at, end } => {
            if *end - *at < count {
                return Err(Error::Corruption);
            }
            let now = bytes.get(*at..*at + count).ok_or(Error::Corruption)?;
            if output.push_slice(now)? == Extent::Truncated {
                return Ok(Extent::Truncated);
            }
            *at += count;
        }
        Literals::InPlace { at, end } => {
            let fits = output.fit(count)?;
            let now = fits.min(*end - *at);
            output.push_within(*at, now)?;
            *at += now;
            if now < count {
                return match output.full {
                    FullOutput::Truncates if output.room() == 0 => Ok(Extent::Truncated),
                    _ => Err(Error::Corruption),
                };
            }
            // Literals that are still needed would be overwritten: the content is longer than it
            // should be.
            if *at < *end && output.fit(sequence.length as usize)? > *at - output.at {
                return Err(match output.full {
                    FullOutput::Fails(error) => error,
                    FullOutput::Truncates => Error::Corruption,
                });
            }
        }
    }
    let length = output.fit(sequence.length as usize)?;
    output.push_match(sequence.offset as usize, length)?;
    Ok(if length < sequence.length as usize {
        Extent::Truncated
    } else {
        Extent::Whole
    })
}

/// Writes the literals after the last sequence.
pub(crate) fn push_literals(
    literals: Literals<'_>,
    output: &mut BlockOutput<'_, '_>,
) -> Result<Extent, Error> {
    match literals {
        Literals::Slice { bytes, at, end } => {
            output.push_slice(bytes.get(at..end).ok_or(Error::Corruption)?)
        }
        Literals::InPlace { at, end } => {
            let len = output.fit(end - at)?;
            output.push_within(at, len)?;
            Ok(if len == end - at {
                Extent::Whole
            } else {
                Extent::Truncated
            })
        }
    }
}
