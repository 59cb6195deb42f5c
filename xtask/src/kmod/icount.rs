//! Instructions in the kernel: Linux's own zstd and ours behind the same devices, in a machine
//! whose clock counts instructions.

use std::array;
use std::fmt::Write;
use std::fs;
use std::process::Command;

use super::build::Modules;
use super::measure::{Bench, COMPRESS, Counts, DECOMPRESS, Job, LINUX, OURS, PLAIN};
use super::packages::out_folder;
use super::page::contents;
use crate::outcome::Outcome;

/// The levels that are compared.
const LEVELS: [i32; 5] = [1, 3, 5, 10, 15];

/// Bytes that are taken of each file: counting makes the machine slow.
const SAMPLE: usize = 2 << 20;

/// The level whose windows are at least as large as those of all frames that are decoded.
const WINDOW_LEVEL: i32 = 19;

/// Longer than all levels of ten files take, in seconds.
const SECONDS_MAX: u64 = 3600;

/// The most instructions that ours should need, as a ratio to Linux's.
const GOAL: f64 = 1.15;

/// Whose codecs are compared.
const CODECS: [&str; 3] = [LINUX, OURS, PLAIN];

/// Counts of each codec for one file.
type Trio = [Counts; CODECS.len()];

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
    device: &'static str,
    level: i32,
    /// Of each file.
    trios: Vec<Trio>,
}

fn measured(modules: &Modules, paths: &[String]) -> Result<Vec<Row>, String> {
    let mut files = contents(paths, SAMPLE)?;
    let names: Vec<String> = files.iter().map(|(name, _)| name.clone()).collect();
    let mut frames = Vec::new();
    for (name, content) in &files {
        for level in LEVELS {
            frames.push((format!("{name}.{level}.zst"), frame(content, level)?));
        }
    }
    files.extend(frames);
    let mut jobs = Vec::new();
    for who in CODECS {
        for level in LEVELS {
            for name in &names {
                jobs.push(job(who, COMPRESS, level, name.clone()));
                let frame = format!("{name}.{level}.zst");
                jobs.push(job(who, DECOMPRESS, WINDOW_LEVEL, frame));
            }
        }
    }
    let bench = Bench {
        modules,
        files: &files,
        counts_instructions: true,
        seconds_max: SECONDS_MAX,
    };
    let counts = bench.run(&jobs)?;
    let each = counts.len() / CODECS.len();
    let trios: Vec<Trio> = (0..each)
        .map(|at| array::from_fn(|who| counts[who * each + at]))
        .collect();
    let mut rows = Vec::new();
    for (device, skipped) in [(COMPRESS, 0), (DECOMPRESS, 1)] {
        for (level, of_it) in LEVELS.into_iter().zip(trios.chunks(2 * names.len())) {
            let trios = of_it.iter().skip(skipped).step_by(2).copied().collect();
            rows.push(Row {
                device,
                level,
                trios,
            });
        }
    }
    Ok(rows)
}

fn job(who: &'static str, device: &'static str, level: i32, file: String) -> Job {
    Job {
        who,
        device,
        method: "zstd",
        level,
        content_size: 0,
        file: Some(file),
    }
}

/// A frame of the zstd command.
fn frame(content: &[u8], level: i32) -> Result<Vec<u8>, String> {
    let path = out_folder().join("sample");
    fs::create_dir_all(out_folder())
        .and_then(|()| fs::write(&path, content))
        .map_err(|error| format!("write {}: {error}", path.display()))?;
    let mut zstd = Command::new("zstd");
    zstd.args(["-q", &format!("-{level}"), "--no-check", "-c"])
        .arg(&path);
    let output = zstd.output().map_err(|error| format!("zstd: {error}"))?;
    Ok(output.stdout)
}

/// Instructions for each byte of content, and the ratios.
fn text(version: &str, rows: &[Row]) -> String {
    let mut text = format!(
        "\nLinux {version}:\n\n| work | level | Linux | ours | ratio | without BMI2 | of each file | size |\n|---|---|---|---|---|---|---|---|\n"
    );
    for row in rows {
        let sum = |field: fn(&Counts) -> u64| -> [f64; CODECS.len()] {
            array::from_fn(|who| row.trios.iter().map(|trio| field(&trio[who])).sum::<u64>() as f64)
        };
        let instructions = sum(|counts| counts.cycles);
        let [bytes, ..] = sum(|counts| counts.uncompressed);
        let sizes = sum(|counts| counts.compressed);
        let of_files: Vec<String> = (row.trios.iter())
            .map(|[linux, ours, _]| format!("{:.2}", ours.cycles as f64 / linux.cycles as f64))
            .collect();
        let ratio = |who: usize| {
            let ratio = instructions[who] / instructions[0];
            let over = if ratio > GOAL { " (over)" } else { "" };
            format!("{ratio:.3}{over}")
        };
        let (work, size) = if row.device == COMPRESS {
            ("compress", format!("{:.4}", sizes[1] / sizes[0]))
        } else {
            ("decompress", "-".to_owned())
        };
        let _ = writeln!(
            text,
            "| {work} | {} | {:.1} | {:.1} | {} | {} | {} | {size} |",
            row.level,
            instructions[0] / bytes,
            instructions[1] / bytes,
            ratio(1),
            ratio(2),
            of_files.join(" "),
        );
    }
    text
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
            device: COMPRESS,
            level: 3,
            trios: vec![
                [counts(1000, 50), counts(1200, 49), counts(1100, 49)],
                [counts(3000, 50), counts(3800, 50), counts(3100, 50)],
            ],
        };
        let text = text("6.1", &[row]);
        let last = text.lines().last().unwrap();
        let expected = "| compress | 3 | 20.0 | 25.0 | 1.250 (over) | 1.050 | 1.20 1.27 | 0.9900 |";
        assert_eq!(last, expected);
    }
}
