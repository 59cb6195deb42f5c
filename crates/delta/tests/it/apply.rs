//! Patches that are right.

use patch::format::APPLY_MEMORY_BYTES;
use testkit::Rng;

use codec::{Encoder, Filters, Settings};

use super::{applied, applied_by, image, image_of, made, options, text};

/// Two versions: a block in the middle changes, and later ones move.
fn versions() -> (Vec<u8>, Vec<u8>) {
    let old = text(1, 2_000_000);
    let mut new = old.clone();
    new[500_000..500_010].fill(b'x');
    new.splice(900_000..900_000, text(2, 70_000));
    (old, new)
}

#[test]
fn changed_blocks_are_encoded_again() {
    let (old, new) = versions();
    for (block, level) in [(131_072, 15), (65_536, 3), (1 << 20, 15)] {
        let (old, new) = (image(&old, block, level), image(&new, block, level));
        let (patch, summary) = made(&old, &new, &options(2));
        assert!(applied(&old, &patch).unwrap() == new, "{block} {level}");
        assert_eq!(summary.foreign_blocks, 0, "{block} {level}: {summary:?}");
        assert!(summary.encoded_blocks > 0, "{block} {level}");
        // The new text is about 35,000 bytes.
        assert!(patch.len() < 75_000, "{block} {level}: {summary:?}");
        assert!(summary.memory_bytes <= APPLY_MEMORY_BYTES);
    }
}

#[test]
fn blocks_of_other_codecs_are_encoded_again() {
    let (old, new) = versions();
    let xz = |level, extreme| Settings::Xz {
        level,
        extreme,
        dictionary_bytes: 131_072,
        filters: Filters(0),
    };
    for (settings, filter) in [
        (Settings::Zlib { level: 9 }, Filters(0)),
        (Settings::Zlib { level: 1 }, Filters(0)),
        (xz(6, false), Filters(0)),
        (xz(9, true), Filters::X86),
    ] {
        let mut encoder = Encoder::new(&settings).unwrap();
        let mut encode = |block: &[u8]| {
            let mut stored = vec![0; block.len() + 1024];
            let len = encoder.compress_filtered(filter, &mut stored, block);
            stored.truncate(len.unwrap());
            stored
        };
        let old = image_of(&old, 131_072, &mut encode);
        let new = image_of(&new, 131_072, &mut encode);
        let (patch, summary) = made(&old, &new, &options(2));
        assert!(applied(&old, &patch).unwrap() == new, "{settings:?}");
        let is_small = summary.foreign_blocks == 0 && patch.len() < 60_000;
        assert!(is_small, "{settings:?}: {summary:?}");
        assert!(summary.memory_bytes <= APPLY_MEMORY_BYTES, "{summary:?}");
    }
}

#[test]
fn the_patch_does_not_depend_on_threads() {
    let (old, new) = versions();
    let (old, new) = (image(&old, 131_072, 3), image(&new, 131_072, 3));
    let (patch, _) = made(&old, &new, &options(1));
    assert!(patch == made(&old, &new, &options(3)).0);
    for threads in 1..5 {
        assert!(
            applied_by(threads, &old, &patch).unwrap() == new,
            "{threads}"
        );
    }
}

#[test]
fn files_of_any_kind_are_made() {
    let (old, new) = versions();
    let noise = Rng::new(5).bytes(300_000);
    let moved = [&noise[100_000..], &noise[..100_000]].concat();
    let holes = [vec![0; 40_000_000], old.clone(), vec![0; 5_000_000]].concat();
    let empty: &[u8] = &[];
    for (old, new, patch_bytes_max) in [
        (&old[..], &new[..], 60_000),
        (&new, &old, 3_000),
        (empty, empty, 512),
        (empty, b"a", 700),
        (b"a", empty, 512),
        (&noise, &noise, 800),
        (&noise, &moved, 900),
        (&old, &holes, 1500),
        (empty, &noise, 301_000),
    ] {
        let (patch, summary) = made(old, new, &options(2));
        assert!(applied(old, &patch).unwrap() == new, "{summary:?}");
        assert!(patch.len() <= patch_bytes_max, "{summary:?}");
    }
}

#[test]
fn blocks_of_another_encoder_are_made_from_their_matches() {
    let (old, new) = versions();
    let foreign = |content: &[u8]| {
        let mut params = zstd::Params::for_level(3, Some(131_072));
        // As no level has it.
        params.window_log = 11;
        params.content_size = true;
        let mut image = Vec::new();
        for block in content.chunks(131_072) {
            let mut frame = vec![0; zstd::compress_bound(block.len())];
            let mut workspace = vec![0; zstd::workspace_size(&params)];
            let len = zstd::compress(&mut frame, block, &params, &mut workspace).unwrap();
            image.extend(&frame[..len]);
        }
        image
    };
    let mut changed = old.clone();
    changed[500_000..500_010].fill(b'x');
    let (old, new, changed) = (foreign(&old), foreign(&new), foreign(&changed));
    let (patch, summary) = made(&old, &new, &options(2));
    assert!(applied(&old, &patch).unwrap() == new);
    assert_eq!(summary.foreign_blocks, 0);
    let stored = summary.encoded_bytes;
    assert!(stored > 5 * patch.len() as u64 && summary.copied_bytes > 100_000);
    let (patch, summary) = made(&old, &changed, &options(2));
    assert!(applied(&old, &patch).unwrap() == changed);
    assert!(
        summary.encoded_blocks == 1 && summary.encoded_bytes > 10 * patch.len() as u64,
        "{summary:?}"
    );
    // Those of other content are sent, after the same content as they are.
    let other = foreign(&text(7, 300_000));
    let (patch, summary) = made(&other, &new, &options(2));
    assert!(applied(&other, &patch).unwrap() == new);
    assert!(
        summary.encoded_blocks == 0 && summary.foreign_blocks > 5,
        "{summary:?}"
    );
}

#[test]
fn more_memory_than_allowed_is_not_needed() {
    let (old, new) = versions();
    // A block of 1 MiB takes 21 MB to encode at this level, but less from its steps.
    let (old, new) = (image(&old, 1 << 20, 19), image(&new, 1 << 20, 19));
    let (patch, summary) = made(&old, &new, &options(2));
    assert!(applied(&old, &patch).unwrap() == new);
    assert!(summary.foreign_blocks == 0 && summary.encoded_blocks > 1);
    // The blocks of this one are like no old ones.
    let (old, new) = (image(&text(7, 300_000), 1 << 20, 19), new);
    let (patch, summary) = made(&old, &new, &options(2));
    assert!(applied(&old, &patch).unwrap() == new);
    assert!(summary.foreign_blocks > 0, "{summary:?}");
    let (patch, more) = made(&old, &new, &options(2).memory_bytes(64 << 20));
    assert!(more.memory_bytes > 20 << 20 && more.patch_bytes < summary.patch_bytes);
    let refused = applied(&old, &patch).unwrap_err();
    assert!(refused.to_string().contains("--memory"), "{refused}");
}
