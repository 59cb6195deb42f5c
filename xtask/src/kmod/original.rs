//! The tables that the original commit of the kernel's zstd published, beside ours: compressed
//! sizes and requested memory.

use std::fmt::Write;

use super::build::Modules;
use super::measure::{Bench, COMPRESS, Counts, DECOMPRESS, Job, LINUX, OURS};
use super::page::{contents, megabytes, put};
use crate::outcome::Outcome;

/// A published row: method, level, bytes of silesia.tar compressed, and MB of memory to compress
/// and to decompress.
type Published = (&'static str, i32, u64, &'static str, &'static str);

/// Of the commit that added zstd to Linux 4.14, for silesia.tar.
const PUBLISHED: [Published; 10] = [
    ("zstd", 1, 73_645_762, "1.23", "0.84"),
    ("zstd", 3, 66_988_878, "2.47", "1.46"),
    ("zstd", 5, 65_001_259, "2.86", "1.46"),
    ("zstd", 10, 60_165_346, "13.22", "2.51"),
    ("zstd", 15, 58_009_756, "21.61", "4.61"),
    ("zstd", 19, 54_014_593, "60.15", "8.80"),
    ("zlib", 1, 77_260_026, "0.27", "0.04"),
    ("zlib", 3, 72_972_206, "0.27", "0.04"),
    ("zlib", 6, 68_190_360, "0.27", "0.04"),
    ("zlib", 9, 67_613_382, "0.27", "0.04"),
];

/// The length of silesia.tar there.
const SILESIA: u64 = 211_988_480;

/// The levels of btrfs, and what it compresses at a time, in bytes.
const BTRFS_LEVEL_MAX: i32 = 15;
const BTRFS_EXTENT: u64 = 128 << 10;

/// Longer than silesia.tar takes at level 19, in seconds.
const SECONDS_MAX: u64 = 4 * 3600;

/// Compresses a file with the devices, and writes the table.
pub(super) fn original(modules: &Modules, path: &str) -> Outcome {
    measured(modules, path)
        .and_then(|table| put("original", &table))
        .into()
}

/// What was measured of a published row.
struct Row {
    published: Published,
    /// The file compressed by us, then the memory of Linux's own codec and of ours to decompress
    /// it, and of Linux's to compress.
    ours: Counts,
    linux: Counts,
    decompress: [Counts; 2],
}

fn measured(modules: &Modules, path: &str) -> Result<String, String> {
    let files = contents(&[path.to_owned()], usize::MAX)?;
    let name = &files[0].0;
    let mut jobs = Vec::new();
    for who in [LINUX, OURS] {
        for (method, level, ..) in PUBLISHED {
            for device in [COMPRESS, DECOMPRESS] {
                let file = (who == OURS && device == COMPRESS).then(|| name.clone());
                jobs.push(Job {
                    who,
                    device,
                    method,
                    level,
                    content_size: 0,
                    frame_size: 0,
                    file,
                });
            }
        }
        for level in 1..=BTRFS_LEVEL_MAX {
            jobs.push(Job {
                who,
                device: COMPRESS,
                method: "zstd",
                level,
                content_size: BTRFS_EXTENT,
                frame_size: 0,
                file: None,
            });
        }
    }
    let bench = Bench {
        modules,
        files: &files,
        counts_instructions: false,
        seconds_max: SECONDS_MAX,
    };
    let counts = bench.run(&jobs)?;
    let (linux, ours) = counts.split_at(counts.len() / 2);
    let rows: Vec<Row> = (PUBLISHED.into_iter())
        .zip(linux.chunks(2).zip(ours.chunks(2)))
        .map(|(published, (linux, ours))| Row {
            published,
            ours: ours[0],
            linux: linux[0],
            decompress: [linux[1], ours[1]],
        })
        .collect();
    let extents: Vec<[u64; 2]> = (linux.iter().zip(ours))
        .skip(2 * PUBLISHED.len())
        .map(|(linux, ours)| [linux.workspace, ours.workspace])
        .collect();
    Ok(text(name, &modules.kernel.version, &rows) + &of_extents(&extents))
}

fn text(name: &str, version: &str, rows: &[Row]) -> String {
    let mut text = format!(
        "`cargo xtask kmod-original {name}` (Linux {version}; {} bytes)\n\n",
        rows.first().map_or(0, |row| row.ours.uncompressed)
    );
    text += "| method | original size | ratio | size | ratio | original MB | Linux | ours | original MB to decompress | Linux | ours |\n";
    text += "|---|---|---|---|---|---|---|---|---|---|---|\n";
    for row in rows {
        let (method, level, size, memory, to_decompress) = row.published;
        let _ = writeln!(
            text,
            "| {method} -{level} | {size} | {:.3} | {} | {:.3} | {memory} | {} | {} | {to_decompress} | {} | {} |",
            SILESIA as f64 / size as f64,
            row.ours.compressed,
            row.ours.uncompressed as f64 / row.ours.compressed as f64,
            megabytes(row.linux.workspace),
            megabytes(row.ours.workspace),
            megabytes(row.decompress[0].workspace),
            megabytes(row.decompress[1].workspace),
        );
    }
    text
}

/// What each level requests to compress an extent of btrfs: Linux's codec, then ours.
fn of_extents(levels: &[[u64; 2]]) -> String {
    let mut text = "\nBytes requested to compress 128 KiB, as btrfs does:\n\n".to_owned();
    text += "| level | Linux | ours | ratio |\n|---|---|---|---|\n";
    for (level, [linux, ours]) in (1..).zip(levels) {
        let ratio = *ours as f64 / *linux as f64;
        let _ = writeln!(text, "| {level} | {linux} | {ours} | {ratio:.3} |");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_beside_the_published_ones() {
        let counts = |workspace| Counts {
            uncompressed: 1000,
            compressed: 400,
            workspace,
            cycles: 0,
        };
        let row = Row {
            published: PUBLISHED[0],
            ours: counts(1_000_000),
            linux: counts(1_300_000),
            decompress: [counts(900_000), counts(800_000)],
        };
        let text = text("x", "6.1", &[row]);
        assert_eq!(
            text.lines().last().unwrap(),
            "| zstd -1 | 73645762 | 2.878 | 400 | 2.500 | 1.23 | 1.30 | 1.00 | 0.84 | 0.90 | 0.80 |"
        );
    }

    #[test]
    fn extents_have_a_row_for_each_level() {
        let text = of_extents(&[[1000, 800], [1000, 1250]]);
        assert!(text.ends_with("| 1 | 1000 | 800 | 0.800 |\n| 2 | 1000 | 1250 | 1.250 |\n"));
    }
}
