//! Predictions for real trees, compared with copies: sizes, times, and what is recommended. `cargo
//! xtask campaign plan` runs it for the trees in `RESTOW_TREES` and all containers, or those in
//! `RESTOW_PLAN_FOR`, on a machine that does nothing else; otherwise it compares sizes for a small
//! tree.
#![expect(clippy::print_stdout, reason = "the campaign shows its table")]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use restow::plan::{
    Candidate, CandidateRow, Container, Limits, Range, Sampled, choose, transfer_seconds,
};
use testkit::TempDir;

use super::plan::{number, rows};
use super::{restow, shown};

/// How far a predicted size may be from the real one, in parts of it.
const SIZE_MAX: f64 = 0.02;
/// How far a recommended row may be from the best that keeps the limit.
const BEST_MAX: f64 = 0.03;
/// Copies that take less than this, in seconds, are made three times, and the middle one counts.
const SHORT: f64 = 1.0;
/// Of 100 error bars of sizes, of times, and of recommendations, this many must be right.
const RIGHT_MIN: usize = 95;

/// A candidate, predicted and real.
struct Compared {
    words: String,
    block: String,
    predicted: CandidateRow,
    bytes: f64,
    seconds: f64,
    /// Processor time of the copy, in seconds.
    worked: f64,
}

/// Processor time in hundredths of a second.
#[derive(Clone, Copy)]
struct Ticks {
    /// Of all processors, and the part of it that something ran.
    all: u64,
    busy: u64,
    /// Of this process' children that ended.
    children: u64,
}

impl Ticks {
    fn now() -> Ticks {
        let numbers = |text: &str| -> Vec<u64> {
            let words = text.split_whitespace();
            words.map(|word| word.parse().unwrap_or(0)).collect()
        };
        let stat = fs::read_to_string("/proc/stat").unwrap();
        // user, nice, system, idle, iowait, irq, softirq, steal; guests are in the first.
        let cpu = numbers(stat.lines().next().unwrap());
        let all = cpu[1..9].iter().sum();
        let own = fs::read_to_string("/proc/self/stat").unwrap();
        let own = numbers(own.rsplit_once(')').unwrap().1);
        Ticks {
            all,
            busy: all - cpu[4] - cpu[5],
            children: own[13] + own[14],
        }
    }
}

/// The limits of all cases: seconds and bytes for each byte of content, and links in bytes a
/// second.
fn cases(content: f64) -> Vec<Limits> {
    let none = Limits::default();
    let of_time = [600e6, 250e6, 120e6, 50e6, 20e6].map(|rate| Limits {
        seconds_max: Some((content / rate).max(1.0)),
        ..none
    });
    let of_size = [1.01, 0.6, 0.4].map(|part| Limits {
        bytes_max: Some(content * part),
        ..none
    });
    let of_link = [10e6 / 8.0, 1e9 / 8.0].map(|rate| Limits {
        link_rate: Some(rate),
        ..none
    });
    [&of_time[..], &of_size, &of_link].concat()
}

#[test]
fn predictions_of_real_trees() {
    let Some(trees) = env::var_os("RESTOW_TREES") else {
        return compare_a_small_tree();
    };
    let containers =
        env::var("RESTOW_PLAN_FOR").unwrap_or("squashfs,btrfs,erofs,tar,stream".into());
    let mut misses = Vec::new();
    // Those that are right, and all.
    let [mut sizes, mut times, mut choices] = [(0, 0); 3];
    let begun = Ticks::now();
    for tree in env::split_paths(&trees) {
        for name in containers.split(',') {
            let container = match name {
                "btrfs" => Container::Btrfs,
                "erofs" => Container::Erofs,
                "tar" => Container::Tar,
                "stream" => Container::Stream,
                _ => Container::Squashfs,
            };
            let (content, compared) = compare(&tree, container, &[]);
            for one in &compared {
                let off = |(right, all): &mut (usize, usize), range: Range, real: f64| {
                    let is_right = (range.value - real).abs() <= range.error;
                    (*right, *all) = (*right + usize::from(is_right), *all + 1);
                    let [off, bar] = [range.value - real, range.error].map(|it| 100.0 * it / real);
                    let mark = if is_right { ' ' } else { '!' };
                    (off, format!("{off:+6.2} % of {bar:5.2} %{mark}"))
                };
                let (size, of_size) = off(&mut sizes, one.predicted.bytes, one.bytes);
                let (_, of_time) = off(&mut times, one.predicted.seconds, one.seconds);
                println!(
                    "{name:8} {:8} {:6} size {:>12} off {of_size} time {:>7.2} s \
                     ({:.2} s of processors) off {of_time}",
                    one.words, one.block, one.bytes, one.seconds, one.worked,
                );
                if size.abs() > 100.0 * SIZE_MAX {
                    misses.push(format!("{tree:?} {name} {} size {size:+.2} %", one.words));
                }
            }
            let (good, all) = judge(content, &compared);
            choices = (choices.0 + good, choices.1 + all);
        }
    }
    misses.iter().for_each(|miss| println!("missed: {miss}"));
    let right = [
        ("bars of sizes hold", sizes),
        ("bars of times hold", times),
        ("choices are good", choices),
    ];
    for (words, (right, all)) in right {
        println!("campaign: {right} of {all} {words}");
    }
    let now = Ticks::now();
    let others = (now.busy - begun.busy).saturating_sub(now.children - begun.children);
    let others = 100.0 * others as f64 / (now.all - begun.all) as f64;
    println!("campaign: other processes had {others:.1} % of the processors' time");
    assert!(misses.is_empty(), "{} misses", misses.len());
    for (words, (right, all)) in right {
        assert!(
            right * 100 >= all * RIGHT_MIN,
            "only {right} of {all} {words}"
        );
    }
}

/// The same without times, which decide nothing in a test.
fn compare_a_small_tree() {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (content, compared) = compare(&tree, Container::Squashfs, &["lz4", "gzip"]);
    assert!(compared.len() >= 5 && content > 100_000.0);
    for one in compared {
        let off = one.predicted.bytes.value / one.bytes - 1.0;
        assert!(off.abs() < SIZE_MAX, "{} {off}", one.words);
    }
}

/// Predicts a tree, and copies it with every candidate, or those that `only` names. A codec is
/// copied with right after it is predicted: processors are not equally fast at all times.
fn compare(tree: &Path, container: Container, only: &[&str]) -> (f64, Vec<Compared>) {
    let dir = TempDir::new();
    // Prediction and copies find the tree in the page cache.
    copied(&dir, tree, container, "none", "");
    let mut families: Vec<String> = only.iter().map(|&name| name.to_owned()).collect();
    if only.is_empty() {
        let all = Candidate::usual(container);
        families.extend(all.iter().map(|it| it.family(container)));
        families.sort();
        families.dedup();
    }
    let (mut content, mut seconds, mut compared) = (0.0, 0.0, Vec::new());
    for family in families {
        let start = Instant::now();
        let mut plan = restow([
            "plan",
            "--json",
            "--for",
            container.name(),
            "--try",
            &family,
        ]);
        let output = plan.arg(tree).current_dir(dir.path()).output().unwrap();
        let (code, json, errors) = shown(&output);
        assert_eq!(code, 0, "{errors}");
        seconds += start.elapsed().as_secs_f64();
        content = number(&json, "content_bytes");
        for (words, row) in rows(&json) {
            compared.push(compare_row(&dir, tree, container, (content, words, &row)));
        }
    }
    println!(
        "{}: {:.0} MB, predicted in {seconds:.1} s",
        tree.display(),
        content / 1e6,
    );
    (content, compared)
}

/// Copies a tree with a candidate of which `row` is the prediction.
fn compare_row(
    dir: &TempDir,
    tree: &Path,
    container: Container,
    (content, words, row): (f64, String, &str),
) -> Compared {
    let block = row.split_once("\"block_bytes\":");
    let block = block.map_or("", |(_, rest)| rest.split(',').next().unwrap_or(""));
    let copy = || copied(dir, tree, container, &words, block);
    let mut copies = vec![copy()];
    if copies[0].1 < SHORT {
        copies.extend([copy(), copy()]);
        copies.sort_by(|a, b| a.1.total_cmp(&b.1));
    }
    let (bytes, seconds, worked) = copies[copies.len() / 2];
    let range = |name: &str| Range {
        value: number(row, name),
        error: number(row, &format!("{name}_error")),
    };
    Compared {
        block: block.to_owned(),
        predicted: CandidateRow {
            candidate: Candidate::usual(container)[0].clone(),
            content_bytes: content,
            bytes: range("bytes"),
            seconds: range("seconds"),
            encode_seconds: number(row, "encode_cpu_seconds"),
            decode_seconds: number(row, "decode_cpu_seconds"),
            read_seconds: number(row, "read_seconds"),
            memory_bytes: number(row, "memory_bytes") as u64,
            sampled: Sampled::default(),
        },
        words,
        bytes,
        seconds,
        worked,
    }
}

/// Copies a tree; gives the size of the result, the seconds, and those of processors.
fn copied(
    dir: &TempDir,
    tree: &Path,
    container: Container,
    words: &str,
    block: &str,
) -> (f64, f64, f64) {
    let ending = match (container, words.split_once(':').map_or(words, |it| it.0)) {
        (Container::Tar, "gzip") => "tar.gz",
        (Container::Tar, "zstd") => "tar.zst",
        (Container::Tar, "xz") => "tar.xz",
        _ => container.name(),
    };
    let to: PathBuf = dir.join(format!("plan.{ending}"));
    let mut copy = restow(["copy", "-q", "--overwrite", "--recompress"]);
    if matches!(container, Container::Tar | Container::Stream) {
        copy = restow(["copy", "-q", "--overwrite"]);
    }
    if ending != "tar" {
        copy.args(["--compress", words]);
    }
    if !block.is_empty() {
        copy.args(["--block-size", block]);
    }
    let (start, begun) = (Instant::now(), Ticks::now());
    let status = copy.arg(tree).arg(&to).status().unwrap();
    let seconds = start.elapsed().as_secs_f64();
    assert!(status.success(), "{copy:?}");
    let bytes = fs::metadata(&to).unwrap().len() as f64;
    fs::remove_file(&to).unwrap();
    let worked = (Ticks::now().children - begun.children) as f64 / 100.0;
    (bytes, seconds, worked)
}

/// How many recommendations keep their limit in the real copy and are nearly the best, and how many
/// there are.
fn judge(content: f64, compared: &[Compared]) -> (usize, usize) {
    let predicted: Vec<CandidateRow> = compared.iter().map(|one| one.predicted.clone()).collect();
    let (mut good, mut all) = (0, 0);
    for limits in cases(content) {
        let keeps = |one: &Compared| {
            limits.seconds_max.is_none_or(|max| one.seconds <= max)
                && limits.bytes_max.is_none_or(|max| one.bytes <= max)
        };
        let value = |one: &Compared| match limits {
            Limits {
                link_rate: Some(rate),
                ..
            } => {
                let real = CandidateRow {
                    bytes: Range {
                        value: one.bytes,
                        error: 0.0,
                    },
                    ..one.predicted.clone()
                };
                transfer_seconds(&real, rate)
            }
            Limits {
                seconds_max: Some(_),
                ..
            } => one.bytes,
            _ => one.seconds,
        };
        let best = compared.iter().filter(|one| keeps(one)).map(value);
        let best = best.fold(f64::INFINITY, f64::min);
        let choice = choose(&predicted, &limits).unwrap();
        let chosen = &compared[choice.row];
        // Where nothing keeps the limit, that must be said.
        let is_good = if best.is_finite() {
            keeps(chosen) && value(chosen) <= best * (1.0 + BEST_MAX)
        } else {
            choice.reason == restow::plan::Reason::Nearest
        };
        all += 1;
        good += usize::from(is_good);
        if !is_good {
            println!(
                "not good: {limits:?}: {} {} with {} B in {:.2} s; best {best:.2}",
                chosen.words, chosen.block, chosen.bytes, chosen.seconds
            );
        }
    }
    (good, all)
}
