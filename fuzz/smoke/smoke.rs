//! Each fuzz target on its seeds and on changes of them: the same inputs each time, without
//! libFuzzer and in the profile of all tests, so that nothing is compiled again for it.
//!
//! What an input reaches is not looked at. The campaigns do, and the nightly workflow, under
//! AddressSanitizer.
#![cfg(test)]

// What the targets import.
extern crate self as libfuzzer_sys;
extern crate self as restow_fuzz;

use std::path::{Path, PathBuf};
use std::{env, fs, panic, process};

use testkit::{Rng, cases, processor_seconds};

#[path = "../src/lib.rs"]
pub mod inputs;
use inputs::{limits, streams};

mod stand_in {
    /// Makes a test of a target, where libFuzzer's macro makes a program.
    macro_rules! fuzz_target {
        (|$data:ident: &[u8]| $body:block) => {
            fn target($data: &[u8]) $body

            #[test]
            fn smoke() {
                crate::smoke(module_path!(), target);
            }
        };
    }
    pub(crate) use fuzz_target;
}
use stand_in::fuzz_target;

#[path = "../targets"]
mod targets {
    mod btrfs;
    mod disk;
    mod disk_files;
    mod erofs;
    mod fuse;
    mod lzo;
    mod merge;
    mod oci;
    mod patch;
    mod receive;
    mod replay;
    mod resume;
    mod reuse;
    mod seekable;
    mod sendstream;
    mod squashfs_read;
    mod squashfs_records;
    mod tar;
    mod undump;
    mod wrapper;
    mod xxhash;
    mod zstd_decode;
    mod zstd_encode;
}

/// The limits of libFuzzer in campaigns.
const MEMORY_KIB_MAX: u64 = 1 << 20;
const SECONDS_MAX: u64 = 10;

/// How many changed inputs a target takes: as many as it does in a second or two.
const CHANGES: u64 = 2000;
const CHANGES_OF: &[(&str, u64)] = &[
    ("btrfs", 100),
    ("merge", 60),
    ("receive", 30),
    ("resume", 300),
    ("reuse", 50),
    ("squashfs_records", 300),
];

/// Where more seeds lie than in the folder of the target's name.
const MORE_SEEDS: &[(&str, &str)] = &[
    ("disk", "../seeds/squashfs_read"),
    ("disk", "../seeds/tar"),
    ("zstd_decode", "../../crates/zstd/testdata"),
];

/// Longer inputs take time and seldom say more.
const INPUT_BYTES_MAX: usize = 16 << 10;

/// Gives a target nothing, its seeds, and changes of these.
fn smoke(module: &str, target: fn(&[u8])) {
    let name = module.rsplit("::").next().expect("it is a module");
    let mut seeds = seeds(name);
    seeds.push(Vec::new());
    for seed in &seeds {
        run(name, target, seed);
    }
    let mut rng = Rng::new(1);
    let slow = CHANGES_OF.iter().find(|(target, _)| *target == name);
    for _ in 0..cases(slow.map_or(CHANGES, |(_, count)| *count)) {
        run(name, target, &changed(&seeds, &mut rng));
    }
    let status = fs::read_to_string("/proc/self/status").expect("read /proc/self/status");
    let peak = status.lines().find_map(|it| it.strip_prefix("VmHWM:"));
    let peak = peak.and_then(|it| it.trim().strip_suffix(" kB"));
    let peak: u64 = peak.expect("it has a peak").parse().expect("a number");
    assert!(peak <= MEMORY_KIB_MAX, "{peak} KiB of memory");
}

fn seeds(name: &str) -> Vec<Vec<u8>> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let own = here.join("../seeds").join(name);
    let more = MORE_SEEDS.iter().filter(|(target, _)| *target == name);
    let more = more.map(|(_, folder)| here.join(folder));
    let mut paths: Vec<PathBuf> = Vec::new();
    // Some targets need none.
    for folder in more.chain(own.is_dir().then_some(own)) {
        let files = fs::read_dir(folder).expect("read a folder of seeds");
        paths.extend(files.map(|file| file.expect("read a folder of seeds").path()));
    }
    paths.sort();
    let read = |path| fs::read(path).expect("read a seed");
    paths.iter().map(read).collect()
}

/// An input that fails is written to a file, with which libFuzzer's program can be called.
fn run(name: &str, target: fn(&[u8]), input: &[u8]) {
    let start = processor_seconds();
    let result = panic::catch_unwind(|| target(input));
    let seconds = processor_seconds() - start;
    if result.is_err() || seconds > SECONDS_MAX {
        let file = env::temp_dir().join(format!("restow-{name}-{}", process::id()));
        fs::write(&file, input).expect("write the input");
        panic!("after {seconds} s; the input is {}", file.display());
    }
}

/// A seed, or noise, with some changes.
fn changed(seeds: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut input = if rng.chance(8) {
        noise(rng)
    } else {
        seeds[rng.index(seeds.len())].clone()
    };
    for _ in 0..=rng.below(8) {
        let at = rng.index(input.len() + 1);
        let len = rng.index(input.len() - at + 1) >> rng.below(8);
        match rng.below(6) {
            0 => drop(input.splice(at..at, noise(rng))),
            1 => drop(input.drain(at..at + len)),
            2 => {
                let to = rng.index(input.len() - len + 1);
                input.copy_within(at..at + len, to);
            }
            3 => {
                let other = &seeds[rng.index(seeds.len())];
                let from = rng.index(other.len() + 1);
                input.splice(at..at + len, other[from..].iter().copied());
            }
            4 => {
                let number = (1_u64 << rng.below(64)).wrapping_sub(rng.below(3));
                let bytes = &number.to_le_bytes()[..1 << rng.below(4)];
                input.splice(at..input.len().min(at + bytes.len()), bytes.iter().copied());
            }
            _ => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << rng.below(8);
                }
            }
        }
    }
    input.truncate(INPUT_BYTES_MAX);
    input
}

/// Bytes of any value, or of a few: choices among few things are made of those.
fn noise(rng: &mut Rng) -> Vec<u8> {
    let len_max = 1 << rng.below(9);
    let len = rng.index(len_max);
    let values = 1 << (1 + rng.below(8));
    (0..len).map(|_| rng.below(values) as u8).collect()
}

/// Cargo builds no target that its manifest does not list, with no crate that only this one has.
#[test]
fn every_target_is_here_and_in_the_manifest() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).expect("read the manifest");
    for file in fs::read_dir(folder.join("targets")).expect("read the folder of targets") {
        let path = file.expect("read the folder of targets").path();
        let target = path.file_stem().expect("it has a name").to_string_lossy();
        let path = format!("path = \"targets/{target}.rs\"");
        assert!(manifest.contains(&path), "{target}");
        let module = format!("    mod {target};\n");
        assert!(include_str!("smoke.rs").contains(&module), "{target}");
    }
    let (_, crates) =
        (include_str!("Cargo.toml").split_once("[dev-dependencies]\n")).expect("it has some");
    for line in crates.lines() {
        let name = line.split(['.', ' ']).next().expect("it has a beginning");
        assert!(manifest.contains(&format!("\n{name} = ")), "{name}");
    }
}
