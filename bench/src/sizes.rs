//! Exact compressed sizes of the generated corpora, kept in `bench/sizes.csv`: a change of a level's results shows in
//! a diff, and is then either wanted or not.

use crate::generate;
use crate::options::Options;
use crate::peers::Encoder;
use std::fmt::Write;
use std::fs;
use std::path::Path;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/sizes.csv");

pub(crate) fn sizes(options: &Options) -> Result<(), String> {
    let peers = options.peers_or(&["c", "ours"]);
    let mut text = String::from("work,corpus,level");
    let mut encoders = Vec::new();
    for peer in &peers {
        let _ = write!(text, ",{peer}");
        encoders.push(Encoder::new(peer)?);
    }
    text += "\n";
    for corpus in generate::corpora() {
        for level in [
            -5, -1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 16, 17, 19, 22,
        ] {
            let mut row =
                |work: &str, size: &mut dyn FnMut(&mut Encoder) -> Result<usize, String>| {
                    let _ = write!(text, "{work},{},{level}", corpus.name);
                    for encoder in &mut encoders {
                        let _ = write!(text, ",{}", size(encoder)?);
                    }
                    text += "\n";
                    Ok::<(), String>(())
                };
            let mut output = vec![0; crate::blocks::bound(corpus.bytes.len())];
            row("128K", &mut |encoder| {
                let blocks = corpus.bytes.chunks(128 << 10).take(4);
                blocks
                    .map(|block| encoder.encode(level, block, &mut output))
                    .sum()
            })?;
            if [1, 3, 9].contains(&level) {
                let mut output = vec![0; crate::blocks::bound(corpus.bytes.len())];
                row("stream", &mut |encoder| {
                    encoder.encode_stream(level, &corpus.bytes, &mut output)
                })?;
            }
        }
    }
    if options.update {
        return fs::write(PATH, text).map_err(|error| format!("write {PATH}: {error}"));
    }
    let kept =
        fs::read_to_string(Path::new(PATH)).map_err(|error| format!("read {PATH}: {error}"))?;
    let mut changed = 0;
    for (old, new) in kept
        .lines()
        .zip(text.lines())
        .filter(|(old, new)| old != new)
    {
        println!("- {old}\n+ {new}");
        changed += 1;
    }
    if changed == 0 && kept.lines().count() == text.lines().count() {
        return Ok(());
    }
    Err(format!(
        "{changed} rows of bench/sizes.csv changed; --update accepts them"
    ))
}
