//! Patches between made images.

mod apply;
mod hostile;

use delta::{DeltaInput, DeltaOptions, DeltaSummary};
use patch::{ApplyOptions, Destination, Patch, PatchError};
use testkit::Rng;
use tree::{MemoryResult, NoProgress, Parallel};

/// Bytes like text, the same for the same number.
fn text(number: u64, bytes: usize) -> Vec<u8> {
    let mut rng = Rng::new(number);
    let words: Vec<Vec<u8>> = (0..200).map(|_| rng.bytes(6)).collect();
    let mut text = Vec::new();
    while text.len() < bytes {
        let word = rng.below(200) as usize;
        text.extend(&words[word]);
        text.extend(rng.below(1000).to_string().as_bytes());
    }
    text.truncate(bytes);
    text
}

/// An image of blocks that are encoded at a level, as they lie in a file system: behind each other,
/// with plain bytes between them, zeros, and small blocks at the end.
fn image(content: &[u8], block_bytes: usize, level: i32) -> Vec<u8> {
    image_of(content, block_bytes, &mut |block| {
        zstd::compress_to_vec(block, level)
    })
}

/// A frame that no level gives: each tenth match of one at level 9 is left out.
fn unusual(content: &[u8]) -> Vec<u8> {
    let (frame, mut number, mut left) = (zstd::compress_to_vec(content, 9), 0, 0);
    let mut steps = Vec::new();
    let each = &mut |step| {
        if let zstd::FrameStep::Match {
            literals, length, ..
        } = step
        {
            number += 1;
            if number % 10 == 0 {
                left += literals + length;
                return;
            }
        }
        steps.push(match step {
            zstd::FrameStep::Match {
                literals,
                length,
                offset,
                is_new,
            } => zstd::FrameStep::Match {
                literals: literals + std::mem::take(&mut left),
                length,
                offset,
                is_new,
            },
            zstd::FrameStep::BlockEnd { literals } => zstd::FrameStep::BlockEnd {
                literals: literals + std::mem::take(&mut left),
            },
            step => step,
        });
    };
    zstd::read_steps(&frame, &mut vec![0; zstd::READ_STEPS_WORKSPACE_SIZE], each).unwrap();
    let params = zstd::Params::for_level(9, Some(content.len() as u64));
    let mut frame = vec![0; zstd::compress_bound(content.len())];
    let mut workspace = vec![0; zstd::COMPRESS_STEPS_WORKSPACE_SIZE];
    let steps = &mut steps.into_iter();
    let len = zstd::compress_steps(&mut frame, content, &params, steps, &mut workspace);
    frame.truncate(len.unwrap());
    frame
}

fn image_of(
    content: &[u8],
    block_bytes: usize,
    encode: &mut dyn FnMut(&[u8]) -> Vec<u8>,
) -> Vec<u8> {
    let mut image = b"superblock".to_vec();
    image.resize(96, 7);
    for block in content.chunks(block_bytes) {
        image.extend(encode(block));
    }
    image.extend(Rng::new(9).bytes(5000));
    image.resize(image.len() + 10_000, 0);
    for block in content.chunks(8192).take(6) {
        image.extend([1, 2]);
        image.extend(encode(block));
    }
    image
}

fn made(old: &[u8], new: &[u8], options: &DeltaOptions) -> (Vec<u8>, DeltaSummary) {
    let patch = MemoryResult::default();
    let mut output = patch.output();
    let summary = delta::make(
        &DeltaInput::new(&old.to_vec()),
        &DeltaInput::new(&new.to_vec()),
        &mut output,
        options,
        &NoProgress,
    );
    output.commit().unwrap();
    let patch = patch.take();
    let summary = summary.unwrap();
    assert_eq!(summary.patch_bytes, patch.len() as u64);
    (patch, summary)
}

fn applied(old: &[u8], patch: &[u8]) -> Result<Vec<u8>, PatchError> {
    applied_by(3, old, patch)
}

fn applied_by(threads: usize, old: &[u8], patch: &[u8]) -> Result<Vec<u8>, PatchError> {
    let result = MemoryResult::default();
    let destination = Destination::of(result.output());
    let options = ApplyOptions::default().parallel(Parallel::new(threads));
    let patch = Patch::open(patch)?;
    patch.apply(&old.to_vec(), destination, &options, &NoProgress)?;
    Ok(result.take())
}

fn options(threads: usize) -> DeltaOptions {
    DeltaOptions::default().parallel(Parallel::new(threads))
}
