//! Exact compressed sizes of the generated corpora, kept in `bench/sizes.csv`: a change of a
//! level's results shows in a diff, and is then either wanted or not.

use crate::corpus::{self, Corpus};
use crate::options::Options;
use crate::peers::Encoder;
use std::fmt::Write;
use std::fs;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/sizes.csv");

/// Independent frames: their name, size, number, and levels.
const FRAMES: &[(&str, usize, usize, &[i32])] = &[
    (
        "128K",
        128 << 10,
        4,
        &[
            -15, -5, -1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
            22,
        ],
    ),
    ("16K", 16 << 10, 4, &[1, 3, 6, 9, 12, 15, 19]),
    ("256K", 256 << 10, 1, &[1, 3, 6, 9, 12, 15, 19]),
    ("1M", 1 << 20, 1, &[1, 3, 6, 9, 12, 15, 16, 19]),
];

/// Levels of one frame in pieces.
const STREAMS: &[i32] = &[1, 3, 9, 15];

pub(crate) fn sizes(options: &Options) -> Result<(), String> {
    compare(&table(&options.peers_or(&["c", "ours"]))?, options.update)
}

/// A line for each work, corpus and level, with the size that each peer makes of it.
fn table(peers: &[String]) -> Result<String, String> {
    let mut text = format!("work,corpus,level,{}\n", peers.join(","));
    let mut encoders = Vec::new();
    for peer in peers {
        encoders.push(Encoder::new(peer)?);
    }
    for corpus in corpus::generated() {
        for (work, block, count, levels) in FRAMES {
            for level in *levels {
                row(
                    &mut text,
                    (work, &corpus, *level),
                    &mut encoders,
                    |encoder| {
                        let mut output = vec![0; Encoder::bound(*block)];
                        let blocks = corpus.bytes.chunks(*block).take(*count);
                        blocks
                            .map(|block| encoder.encode(*level, block, &mut output))
                            .sum()
                    },
                )?;
            }
        }
        for level in STREAMS {
            row(
                &mut text,
                ("stream", &corpus, *level),
                &mut encoders,
                |encoder| {
                    let mut output = vec![0; Encoder::bound(corpus.bytes.len())];
                    encoder.encode_stream(*level, &corpus.bytes, &mut output)
                },
            )?;
        }
    }
    Ok(text)
}

fn row(
    text: &mut String,
    (work, corpus, level): (&str, &Corpus, i32),
    encoders: &mut [Encoder],
    size: impl Fn(&mut Encoder) -> Result<usize, String>,
) -> Result<(), String> {
    let _ = write!(text, "{work},{},{level}", corpus.name);
    for encoder in encoders {
        let _ = write!(text, ",{}", size(encoder)?);
    }
    text.push('\n');
    Ok(())
}

/// Compares with the committed sizes, or replaces them.
fn compare(text: &str, update: bool) -> Result<(), String> {
    if update {
        return fs::write(PATH, text).map_err(|error| format!("write {PATH}: {error}"));
    }
    let kept = fs::read_to_string(PATH).map_err(|error| format!("read {PATH}: {error}"))?;
    let differ: Vec<_> = kept
        .lines()
        .zip(text.lines())
        .filter(|(old, new)| old != new)
        .map(|(old, new)| format!("- {old}\n+ {new}\n"))
        .collect();
    if differ.is_empty() && kept.lines().count() == text.lines().count() {
        return Ok(());
    }
    Err(format!(
        "{}{} rows of bench/sizes.csv changed; `cargo xtask bench sizes --update` accepts them",
        differ.concat(),
        differ.len()
    ))
}

#[cfg(test)]
mod tests {
    use super::{compare, table};

    /// The gate: no level changes its sizes unnoticed.
    #[test]
    fn sizes_are_those_that_are_kept() {
        let update = std::env::var_os("RESTOW_UPDATE").is_some();
        let text = table(&["c".to_owned(), "ours".to_owned()]).unwrap();
        compare(&text, update).unwrap();
    }
}
