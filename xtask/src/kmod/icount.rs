//! Instructions in the kernel: Linux's own zstd and ours behind the same devices, in a machine
//! whose clock counts instructions.

use std::array;
use std::fmt::Write;
use std::fs;
use std::io::ErrorKind;
use std::process::Command;

use super::build::{Modules, run_quietly};
use super::measure::{Bench, COMPRESS, Counts, DECOMPRESS, Job, LINUX, OURS};
use super::packages::out_folder;
use super::page::contents;
use crate::outcome::Outcome;

/// The levels that are compared: of those of btrfs.
const LEVELS: &[i32] = &[1, 3, 5, 7, 9, 10, 15];

/// How frames are cut, and the levels at which that is compared.
struct Cut {
    name: &'static str,
    /// Bytes of a frame, 0 for one of unknown size.
    frame_size: usize,
    levels: &'static [i32],
}

const CUTS: [Cut; 4] = [
    Cut {
        name: "4 KiB",
        frame_size: PAGE,
        levels: LEVELS,
    },
    Cut {
        name: "128 KiB",
        frame_size: 128 << 10,
        levels: LEVELS,
    },
    Cut {
        name: "1 MiB",
        frame_size: 1 << 20,
        levels: LEVELS,
    },
    Cut {
        name: "unknown",
        frame_size: 0,
        levels: &[1, 3, 10],
    },
];

/// Bytes of a page. A frame of one is taken at once, and its device is given two.
const PAGE: usize = 4096;

/// Bytes that are taken of each file: counting makes the machine slow.
const SAMPLE: usize = 1 << 20;

/// The level whose windows are at least as large as those of all frames that are decoded.
const WINDOW_LEVEL: i32 = 19;

/// Longer than all levels of ten files take, in seconds.
const SECONDS_MAX: u64 = 3 * 3600;

/// The most instructions that ours should need, as ratios to Linux's.
const COMPRESS_GOAL: f64 = 1.10;
const DECOMPRESS_GOAL: f64 = 0.95;

/// Whose codecs are compared.
const CODECS: [&str; 2] = [LINUX, OURS];

/// Counts of each codec for one file.
type Pair = [Counts; CODECS.len()];

/// Measures the start of each file, and adds lines to `table`.
pub(super) fn icount(modules: &Modules, paths: &[String], table: &mut String) -> Outcome {
    match measured(modules, paths) {
        Ok(rows) => {
            table.push_str(&text(&modules.kernel.version, &rows));
            Outcome::passed()
        }
        Err(reason) => Outcome::failed(reason),
    }
}

/// A level of a direction.
struct Row {
    cut: &'static str,
    device: &'static str,
    level: i32,
    /// Of each file.
    pairs: Vec<Pair>,
}

fn measured(modules: &Modules, paths: &[String]) -> Result<Vec<Row>, String> {
    let mut files = contents(paths, SAMPLE)?;
    if let Some((name, _)) = files.iter().find(|(_, content)| content.len() < SAMPLE) {
        return Err(format!("{name} has less than {SAMPLE} bytes"));
    }
    let names: Vec<String> = files.iter().map(|(name, _)| name.clone()).collect();
    let mut rows = Vec::new();
    let mut jobs = Vec::new();
    for cut in &CUTS {
        for &level in cut.levels {
            for at in 0..names.len() {
                let (name, content) = &files[at];
                files.push((framed(name, cut, level), frames(content, cut, level)?));
            }
        }
        for device in [COMPRESS, DECOMPRESS] {
            for &level in cut.levels {
                rows.push(Row {
                    cut: cut.name,
                    device,
                    level,
                    pairs: Vec::new(),
                });
                jobs.extend(names.iter().map(|name| job(cut, device, level, name)));
            }
        }
    }
    let all: Vec<Job> = (CODECS.iter())
        .flat_map(|who| jobs.iter().map(|job| Job { who, ..job.clone() }))
        .collect();
    let bench = Bench {
        modules,
        files: &files,
        counts_instructions: true,
        seconds_max: SECONDS_MAX,
    };
    let counts = bench.run(&all)?;
    let pairs: Vec<Pair> = (0..jobs.len())
        .map(|at| array::from_fn(|who| counts[who * jobs.len() + at]))
        .collect();
    for (row, pairs) in rows.iter_mut().zip(pairs.chunks(names.len())) {
        row.pairs = pairs.to_vec();
    }
    Ok(rows)
}

/// The job for each codec.
fn job(cut: &Cut, device: &'static str, level: i32, name: &str) -> Job {
    let is_read = device == DECOMPRESS;
    Job {
        who: "",
        device,
        method: "zstd",
        level: if is_read { WINDOW_LEVEL } else { level },
        content_size: 0,
        frame_size: cut.frame_size,
        file: Some(if is_read {
            framed(name, cut, level)
        } else {
            name.to_owned()
        }),
    }
}

/// The name of the frames of a file.
fn framed(name: &str, cut: &Cut, level: i32) -> String {
    format!("{name}.{}.{level}.zst", cut.frame_size)
}

/// The frames of the zstd command for a file.
fn frames(content: &[u8], cut: &Cut, level: i32) -> Result<Vec<u8>, String> {
    let folder = out_folder().join("frames");
    let failed = |error| format!("{}: {error}", folder.display());
    // Those of another cut.
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
        _ => fs::create_dir_all(&folder).map_err(failed)?,
    }
    let mut paths = Vec::new();
    let size = if cut.frame_size == 0 {
        content.len()
    } else {
        cut.frame_size
    };
    for (at, part) in content.chunks(size).enumerate() {
        let path = folder.join(at.to_string());
        fs::write(&path, part).map_err(failed)?;
        paths.push(path);
    }
    let mut zstd = Command::new("zstd");
    run_quietly(
        zstd.args(["-q", &format!("-{level}"), "--no-check"])
            .args(&paths),
    )?;
    let mut frames = Vec::new();
    for path in &mut paths {
        frames.extend(fs::read(path.with_extension("zst")).map_err(failed)?);
        if cut.frame_size == PAGE {
            frames.resize(frames.len().next_multiple_of(2 * PAGE), 0);
        }
    }
    Ok(frames)
}

/// Instructions for each byte of content, and the ratios.
fn text(version: &str, rows: &[Row]) -> String {
    let mut text = format!(
        "\nLinux {version}:\n\n| a frame | work | level | Linux | ours | ratio | of each file | size |\n|---|---|---|---|---|---|---|---|\n"
    );
    for row in rows {
        let sum = |field: fn(&Counts) -> u64| -> [f64; CODECS.len()] {
            array::from_fn(|who| row.pairs.iter().map(|pair| field(&pair[who])).sum::<u64>() as f64)
        };
        let instructions = sum(|counts| counts.cycles);
        let [bytes, ..] = sum(|counts| counts.uncompressed);
        let sizes = sum(|counts| counts.compressed);
        let of_files: Vec<String> = (row.pairs.iter())
            .map(|[linux, ours]| format!("{:.2}", ours.cycles as f64 / linux.cycles as f64))
            .collect();
        let (work, goal, size) = if row.device == COMPRESS {
            let size = over(sizes[1] / sizes[0], 1.0, 4);
            ("compress", COMPRESS_GOAL, size)
        } else {
            ("decompress", DECOMPRESS_GOAL, "-".to_owned())
        };
        let _ = writeln!(
            text,
            "| {} | {work} | {} | {:.1} | {:.1} | {} | {} | {size} |",
            row.cut,
            row.level,
            instructions[0] / bytes,
            instructions[1] / bytes,
            over(instructions[1] / instructions[0], goal, 3),
            of_files.join(" "),
        );
    }
    text
}

/// A ratio, and whether it is over its goal.
fn over(ratio: f64, goal: f64, digits: usize) -> String {
    let word = if ratio > goal { " (over)" } else { "" };
    format!("{ratio:.digits$}{word}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_compare_sums_and_files() {
        let counts = |cycles, compressed| Counts {
            uncompressed: 100,
            compressed,
            workspace: 0,
            cycles,
        };
        let row = Row {
            cut: "4 KiB",
            device: COMPRESS,
            level: 3,
            pairs: vec![
                [counts(1000, 50), counts(1200, 49)],
                [counts(3000, 50), counts(3800, 50)],
            ],
        };
        let text = text("6.1", &[row]);
        let last = text.lines().last().unwrap();
        let expected = "| 4 KiB | compress | 3 | 20.0 | 25.0 | 1.250 (over) | 1.20 1.27 | 0.9900 |";
        assert_eq!(last, expected);
    }
}
