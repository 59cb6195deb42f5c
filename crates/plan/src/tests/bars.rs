//! Whether error bars hold: predictions with many seeds, compared with the truth. Each part is
//! encoded once with each candidate, or its lengths are made up; the samples are drawn from these.
#![expect(clippy::print_stdout, reason = "the campaign shows its counts")]

use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use codec::{Settings, Wrapper};
use testkit::{MemoryFs, Rng, cases};
use tree::{Duplicates, HostDir, Inventory, Parallel, Result};

use crate::archive::{Archive, archive_bytes};
use crate::candidate::{Candidate, Coding, Container};
use crate::choose::{Limits, Reason, choose};
use crate::cut::{Clock, Cut, FIRST, Trial, TrialWork, Tried, measure};
use crate::images::{Btrfs, Squashfs};
use crate::population::Unit;
use crate::predict::{PlanOptions, Question, predict_cut};
use crate::stream::CutStream;

/// Gives the size of the result from the candidate and the lengths of its parts.
type Whole<'a> = dyn Fn(&Candidate, &[u32]) -> u64 + Sync + 'a;

/// A cut with known lengths.
struct Recorded<'a> {
    units: Vec<Unit>,
    /// The candidates, of which the first one is that of the first pass.
    candidates: Vec<Candidate>,
    /// By candidate and part.
    lens: Vec<Vec<u32>>,
    whole: &'a Whole<'a>,
    step_bytes: u32,
}

struct RecordedTrial<'a> {
    cut: &'a Recorded<'a>,
    number: usize,
}

impl Cut for Recorded<'_> {
    fn units(&self) -> &[Unit] {
        &self.units
    }

    fn first(&self) -> Candidate {
        self.candidates[0].clone()
    }

    fn step_bytes(&self) -> u32 {
        self.step_bytes
    }

    fn with<'a>(&'a self, candidate: &Candidate) -> Result<Box<dyn Trial + 'a>> {
        let number = self.candidates.iter().position(|known| known == candidate);
        Ok(Box::new(RecordedTrial {
            cut: self,
            number: number.unwrap(),
        }))
    }
}

impl Trial for RecordedTrial<'_> {
    fn worker(&self) -> Result<Box<dyn TrialWork + '_>> {
        Ok(Box::new(RecordedTrial { ..*self }))
    }

    fn whole(&self, lens: &[u32], _: Parallel) -> Result<u64> {
        Ok((self.cut.whole)(&self.cut.candidates[self.number], lens))
    }
}

impl TrialWork for RecordedTrial<'_> {
    fn run(&mut self, unit: usize, _: Clock<'_>) -> Result<Tried> {
        Ok(Tried {
            len: self.cut.lens[self.number][unit],
            // Later candidates are slower.
            encode: self.number as f64,
            decode: 0.0,
        })
    }
}

/// How trials ended that did not try everything: else the size is exact.
#[derive(Clone, Copy, Default)]
struct Count {
    trials: u32,
    /// The truth was within the bar.
    held: u32,
    /// Sums of parts of the truth: half bars, and squares of the errors.
    bars: f64,
    squares: f64,
    /// Choices with a limit of one byte less than a candidate has, and those that keep it.
    limits: u32,
    kept: u32,
}

impl Count {
    fn add(self, other: Count) -> Count {
        Count {
            trials: self.trials + other.trials,
            held: self.held + other.held,
            bars: self.bars + other.bars,
            squares: self.squares + other.squares,
            limits: self.limits + other.limits,
            kept: self.kept + other.kept,
        }
    }

    fn words(&self) -> String {
        let trials = f64::from(self.trials.max(1));
        format!(
            "{:>5} of {:>5} held, bars {:>5.2} %, errors {:>5.2} %, {:>5} of {:>5} limits kept",
            self.held,
            self.trials,
            100.0 * self.bars / trials,
            100.0 * (self.squares / trials).sqrt(),
            self.kept,
            self.limits
        )
    }

    /// Whether bars and limits hold in 95 of 100 trials.
    fn is_good(&self) -> bool {
        self.held * 100 >= self.trials * 95 && self.kept * 100 >= self.limits * 95
    }
}

/// Predicts all candidates with this many seeds.
fn count(cut: &mut Recorded<'_>, options: &PlanOptions, seeds: u64) -> Count {
    let tree = MemoryFs::new();
    let inventory = Inventory::of(&tree, &tree::Limits::default()).unwrap();
    let truths: Vec<f64> = (cut.candidates.iter().zip(&cut.lens))
        .map(|(candidate, lens)| (cut.whole)(candidate, lens) as f64)
        .collect();
    let mut count = Count::default();
    for seed in 0..seeds {
        let options = options
            .clone()
            .candidates(cut.candidates.clone())
            .seed(seed)
            .parallel(Parallel::new(1));
        let question = Question {
            inventory: &inventory,
            options: &options,
            clock: &|| Duration::ZERO,
            stage: &|_| {},
        };
        let mut rows = vec![None; cut.candidates.len()];
        predict_cut(&question, cut, 0.0, &|_| true, &mut rows).unwrap();
        let rows: Vec<_> = rows.into_iter().map(Option::unwrap).collect();
        for (row, truth) in rows.iter().zip(&truths) {
            let error = row.bytes.value - truth;
            if row.bytes.error > 0.0 {
                count.held += u32::from(error.abs() <= row.bytes.error);
                count.trials += 1;
                count.bars += row.bytes.error / truth;
                count.squares += (error / truth) * (error / truth);
            } else {
                assert_eq!(error, 0.0, "{:?} is not exact", row.candidate);
            }
            let limits = Limits {
                bytes_max: Some(truth - 1.0),
                ..Limits::default()
            };
            let choice = choose(&rows, &limits).unwrap();
            count.limits += 1;
            // If it keeps none, that is said.
            let is_kept = truths[choice.row] < *truth || choice.reason == Reason::Nearest;
            count.kept += u32::from(is_kept);
        }
    }
    count
}

/// A number between 0 and 1.
fn even(rng: &mut Rng) -> f64 {
    rng.below(1 << 32) as f64 / 4_294_967_296.0
}

/// A number whose logarithm is normal, with this spread and a mean of 0.
fn lognormal(rng: &mut Rng, spread: f64) -> f64 {
    let normal: f64 = (0..12).map(|_| even(rng)).sum::<f64>() - 6.0;
    (spread * normal).exp()
}

/// Parts, and their lengths with the first pass and two candidates.
fn simulated(name: &str, parts: usize) -> (Vec<Unit>, Vec<Vec<u32>>) {
    let mut rng = Rng::new(parts as u64);
    let mut lens = vec![Vec::new(); 3];
    let mut units = Vec::new();
    for _ in 0..parts {
        let len = match name {
            "blocks" | "noise" | "pictures" | "repeats" => 131_072.0,
            "files" => (3000.0 * lognormal(&mut rng, 1.5)).clamp(1.0, 131_072.0),
            "mixed files" => (1000.0 * lognormal(&mut rng, 2.5)).clamp(1.0, 131_072.0),
            // Few have most of the bytes.
            _ => (500.0 / even(&mut rng).max(1e-9)).min(131_072.0),
        };
        let kind = rng.index(6);
        let is_noise = name == "noise" && rng.index(10) > 1;
        let usual = if is_noise {
            1.0
        } else {
            [0.15, 0.25, 0.3, 0.4, 0.6, 0.9][kind]
        };
        let first = (usual * lognormal(&mut rng, 0.2)).min(1.0);
        // Noise that no candidate makes smaller, but for one part in 30.
        let is_stored = name == "pictures" && rng.index(30) > 0;
        let first = if is_stored { 1.0 } else { first };
        // What compresses well does better with slow encoders, and some repeats from afar.
        let slow = 0.75 + 0.25 * first;
        let is_repeated = name == "repeats" && rng.index(8) == 0;
        let repeated = if is_repeated { 0.5 } else { 1.0 };
        let lengths = [
            first,
            first * slow * lognormal(&mut rng, 0.1) * repeated,
            first * 1.3 * lognormal(&mut rng, 0.1),
        ];
        let lengths = if is_stored { [1.0; 3] } else { lengths };
        for (lens, part) in lens.iter_mut().zip(lengths) {
            lens.push((len * part.min(1.0)).max(1.0) as u32);
        }
        units.push(Unit {
            kind: kind as u16,
            ..Unit::of_len((len as u32).max(1))
        });
    }
    (units, lens)
}

#[test]
fn bars_and_limits_hold_for_simulated_populations() {
    let candidates: Vec<Candidate> = (1..4)
        .map(|level| Candidate {
            coding: Coding::Blocks(Settings::Zstd { level }),
            ..FIRST
        })
        .collect();
    let mut is_good = true;
    for name in [
        "blocks",
        "noise",
        "pictures",
        "repeats",
        "files",
        "mixed files",
        "few",
    ] {
        for parts in [60, 600] {
            let (units, lens) = simulated(name, parts);
            let total: u64 = units.iter().map(|unit| u64::from(unit.len)).sum();
            let mut all = Count::default();
            // A part of the tree in the first pass, and all.
            for (first, sample) in [(1, 2), (1, 8), (1, 30), (2, 8), (4, 30)] {
                let mut cut = Recorded {
                    units: units.clone(),
                    candidates: candidates.clone(),
                    lens: lens.clone(),
                    whole: &|_, lens| lens.iter().copied().map(u64::from).sum(),
                    step_bytes: 1,
                };
                let options = PlanOptions::new(Container::Tar)
                    .first_bytes(total / first)
                    .sample_bytes(total / sample);
                all = all.add(count(&mut cut, &options, cases(20)));
            }
            println!("{name}, {parts} parts: {}", all.words());
            is_good &= all.is_good();
        }
    }
    assert!(is_good);
}

/// Encodes everything once: the candidates, that of the first pass first, and their lengths.
fn recorded(cut: &mut dyn Cut, tried: Vec<Candidate>) -> (Vec<Candidate>, Vec<Vec<u32>>) {
    let clock = || Duration::ZERO;
    let parallel = Parallel::available();
    let all: Vec<usize> = (0..cut.units().len()).collect();
    let lens = |tried: Vec<Tried>| tried.iter().map(|part| part.len).collect();
    let mut candidates = vec![cut.first()];
    let mut recorded = vec![lens(cut.first_pass(&all, parallel, &clock).unwrap())];
    cut.load(&all, &clock).unwrap();
    for candidate in tried {
        if candidate.coding != cut.first().coding {
            let trial = cut.with(&candidate).unwrap();
            recorded.push(lens(measure(&*trial, &all, parallel, &clock).unwrap()));
            candidates.push(candidate);
        }
    }
    (candidates, recorded)
}

/// The sizes of the sample.
const SAMPLES: [u64; 4] = [1 << 20, 4 << 20, 12 << 20, 24 << 20];

/// Counts for one cut of a tree, with all of it and a quarter of it in the first pass, and prints
/// the counts.
fn judge(
    name: &str,
    container: Container,
    cut: &mut dyn Cut,
    words: &[&str],
    block_bytes: Option<u32>,
) -> (bool, Count) {
    let mut tried = Candidate::usual(container);
    tried.retain(|it| {
        let is_of_block = block_bytes.is_none() || it.block_bytes == block_bytes;
        is_of_block && words.contains(&&*it.words(container))
    });
    let (candidates, lens) = recorded(cut, tried);
    let mut cut = Recorded {
        units: cut.units().to_vec(),
        candidates,
        lens,
        whole: &|candidate, lens| {
            let trial = cut.with(candidate).unwrap();
            trial.whole(lens, Parallel::new(1)).unwrap()
        },
        step_bytes: cut.step_bytes(),
    };
    let total: u64 = cut.units.iter().map(|unit| u64::from(unit.len)).sum();
    let (mut is_good, mut of_cut) = (true, Count::default());
    for first in [1, 4] {
        let mut all = Count::default();
        for sample in SAMPLES {
            let options = PlanOptions::new(container)
                .sample_bytes(sample)
                .first_bytes(total / first);
            let count = count(&mut cut, &options, cases(5));
            println!("{name:18} 1/{first} {:>3}M {}", sample >> 20, count.words());
            all = all.add(count);
        }
        println!("{name:18} 1/{first}  all {}", all.words());
        is_good &= all.is_good();
        of_cut = of_cut.add(all);
    }
    (is_good, of_cut)
}

/// Trees in `RESTOW_TREES`: `cargo xtask campaign plan-bars`. Without, a small one.
#[test]
fn bars_and_limits_hold_for_real_trees() {
    let small = Path::new(env!("CARGO_MANIFEST_DIR")).join("../btrfs/src");
    let trees: Vec<PathBuf> = match env::var_os("RESTOW_TREES") {
        Some(trees) => env::split_paths(&trees).collect(),
        None => vec![small],
    };
    let mut is_good = true;
    let mut counts: [(Container, Count); 4] = [
        Container::Squashfs,
        Container::Btrfs,
        Container::Stream,
        Container::Tar,
    ]
    .map(|container| (container, Count::default()));
    for tree in &trees {
        println!("{}", tree.display());
        let directory = HostDir::open(tree).unwrap();
        let inventory = Inventory::of(&directory, &tree::Limits::default()).unwrap();
        let parallel = Parallel::available();
        let clock = || Duration::ZERO;
        let duplicates = Duplicates::find(&inventory, parallel).unwrap();
        let mut judge = |name: &str, container, cut: &mut dyn Cut, words: &[&str], block_bytes| {
            let (is_held, count) = judge(name, container, cut, words, block_bytes);
            is_good &= is_held;
            let all = counts.iter_mut().find(|(known, _)| *known == container);
            let all = &mut all.expect("every container is counted").1;
            *all = all.add(count);
        };
        for block_bytes in [128 << 10, 1 << 20] {
            judge(
                &format!("squashfs, {} KiB", block_bytes >> 10),
                Container::Squashfs,
                &mut Squashfs::new(&inventory, &duplicates, block_bytes).unwrap(),
                &["lz4", "gzip:6", "zstd:9", "xz:6"],
                Some(block_bytes),
            );
        }
        let words = ["lzo", "zlib:6", "zstd:9"];
        let mut cut = Btrfs::new(&inventory, &duplicates, parallel).unwrap();
        judge("btrfs", Container::Btrfs, &mut cut, &words, None);
        let mut cut = CutStream::new(&inventory, &clock).unwrap();
        judge("stream", Container::Stream, &mut cut, &words, None);
        let bytes = archive_bytes(&inventory, &clock).unwrap().0;
        for (wrapper, words) in [
            (Wrapper::Gzip, &["gzip:1", "gzip:6"][..]),
            (Wrapper::Zstd, &["zstd:1", "zstd:9"]),
            (Wrapper::Xz, &["xz:1"]),
        ] {
            let mut cut = Archive::new(&inventory, wrapper, bytes);
            let name = format!("tar, {}", wrapper.name());
            judge(&name, Container::Tar, &mut cut, words, None);
        }
    }
    println!("campaign: {} trees", trees.len());
    let is_campaign = env::var_os("RESTOW_TREES").is_some();
    for (container, count) in counts {
        println!("campaign: {}: {}", container.name(), count.words());
        assert!(
            count.trials > 0 || !is_campaign,
            "the trees are so small that nothing of {} was left out",
            container.name()
        );
    }
    assert!(is_good, "bars or limits hold in less than 95 of 100 trials");
}
