//! Damaged patches, and other old files.

use patch::{ApplyOptions, Destination, Patch, PatchFile};
use testkit::{Rng, TempDir, cases};
use tree::{NoProgress, Output, sha256};

use super::{applied, applied_by, image_of, made, options, text, unusual};

/// An old image, a new one and the patch, small enough for many mutants. It has the steps of blocks
/// at level 9, and their descriptions of [`unusual`] ones (level 0).
fn sample(level: i32) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let old = text(1, 60_000);
    let mut new = old.clone();
    new.splice(20_000..20_100, text(3, 3000));
    let encode = &mut |block: &[u8]| match level {
        0 => unusual(block),
        level => zstd::compress_to_vec(block, level),
    };
    let (old, new) = (
        image_of(&old, 16_384, encode),
        image_of(&new, 16_384, encode),
    );
    let (patch, summary) = made(&old, &new, &options(1));
    assert!(summary.encoded_blocks > 0 && summary.copied_bytes > 0);
    // The variant of the first encoder.
    let variant = match level {
        0 => 6,
        9 => 2,
        _ => 0,
    };
    assert_eq!(patch[113], variant, "{level}");
    (old, new, patch)
}

/// Corrects the digests of header and parts, so that the fields behind them are looked at.
fn with_right_digests(patch: &mut [u8]) {
    let digest = sha256(&patch[..480]);
    patch[480..512].copy_from_slice(&digest);
    let mut at = 512;
    while at + 88 <= patch.len() {
        let len = |from: usize| {
            u32::from_le_bytes(patch[at + from..at + from + 4].try_into().unwrap()) as usize
        };
        let end = at + 88 + len(72) + len(76);
        if end > patch.len() {
            break;
        }
        let digest = sha256(&patch[at + 32..end]);
        patch[at..at + 32].copy_from_slice(&digest);
        at = end;
    }
}

#[test]
fn damaged_patches_make_the_new_file_or_nothing() {
    let samples = [sample(3), sample(9), sample(0)];
    let mut rng = Rng::new(cases(400));
    for number in 0..cases(400) {
        let (old, new, patch) = &samples[number as usize / 2 % 3];
        let mut mutant = patch.clone();
        for _ in 0..=rng.below(3) {
            let at = match rng.below(3) {
                0 => rng.below(512),
                1 => 512 + rng.below(200),
                _ => rng.below(mutant.len() as u64),
            } as usize;
            mutant[at] = match rng.below(3) {
                0 => mutant[at] ^ 1 << rng.below(8),
                1 => 0xff,
                _ => rng.below(256) as u8,
            };
        }
        if rng.below(8) == 0 {
            mutant.truncate(rng.below(mutant.len() as u64) as usize);
        } else if rng.below(2) == 0 {
            with_right_digests(&mut mutant);
        }
        if let Ok(result) = applied_by(1 + number as usize % 2, old, &mutant) {
            assert!(result == *new, "mutant {number}");
        }
    }
}

#[test]
fn another_old_file_is_named() {
    let samples = [sample(3), sample(9), sample(0)];
    let mut rng = Rng::new(1);
    for number in 0..cases(200) {
        let (old, new, patch) = &samples[number as usize % 3];
        let mut other = old.clone();
        let at = rng.below(other.len() as u64) as usize;
        other[at] ^= 1 << rng.below(8);
        match applied(&other, patch) {
            // It is not read there.
            Ok(result) => assert!(result == *new, "byte {at}"),
            Err(error) => {
                assert_eq!(error.file(), PatchFile::Old, "{number}: {error}");
                assert!(error.to_string().contains("SHA-256"), "{error}");
            }
        }
    }
    let (old, _, patch) = &samples[0];
    let error = applied(&old[..old.len() - 1], patch).unwrap_err();
    assert!(
        error.to_string().contains("bytes, the patch needs"),
        "{error}"
    );
}

#[test]
fn an_encoder_of_another_version_is_refused_first() {
    for level in [3, 9, 0] {
        let (old, _, mut patch) = sample(level);
        // The digest of the first encoder's probe.
        patch[112 + 12] ^= 1;
        with_right_digests(&mut patch);
        let error = applied(&old, &patch).unwrap_err().to_string();
        let words = format!("zstd:{level} encodes differently");
        assert!(error.contains(&words), "{error}");
    }
}

#[test]
fn a_stopped_run_goes_on() {
    let (old, new, _) = sample(3);
    // Several parts.
    let old = [old, Rng::new(4).bytes(3_000_000)].concat();
    let new = [new, Rng::new(8).bytes(5_000_000)].concat();
    let (patch, _) = made(&old, &new, &options(2));
    let dir = TempDir::new();
    let to = dir.join("new");
    let run = |patch: &[u8]| {
        let destination = Destination::open(&to, false, true).unwrap();
        let patch = Patch::open(patch).unwrap();
        patch.apply(&old, destination, &ApplyOptions::default(), &NoProgress)
    };
    let stopped = run(&patch[..4_600_000]).unwrap_err();
    assert!(stopped.to_string().contains("ends too early"), "{stopped}");
    let partial = dir.join(".new.restow-partial");
    assert!(!to.exists() && partial.exists());
    // Bytes that did not reach the disk are zeros.
    let mut written = std::fs::read(&partial).unwrap();
    let len = written.len();
    written[len - 100_000..].fill(0);
    written.extend(vec![1; 4_000_000]);
    std::fs::write(&partial, written).unwrap();
    let done = run(&patch).unwrap();
    assert!(
        done.resumed_bytes > 1_000_000 && done.resumed_bytes < 3_000_000,
        "{done:?}"
    );
    assert!(std::fs::read(&to).unwrap() == new);
    assert!(!partial.exists());
}

#[test]
fn no_name_is_given_to_less_than_all() {
    let (old, _, patch) = sample(9);
    let dir = TempDir::new();
    let to = dir.join("new");
    for end in (0..patch.len()).step_by(patch.len() / 40) {
        let destination = Destination::of(Output::create(&to, false).unwrap());
        let Ok(patch) = Patch::open(&patch[..end]) else {
            continue;
        };
        let applied = patch.apply(&old, destination, &ApplyOptions::default(), &NoProgress);
        assert!(applied.is_err() && !to.exists());
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
