//! The sizes and digests of our frames of fixed content.
//!
//! Frames that decode may still be larger than need be: the choice of a table or of a code length
//! that goes wrong is seen here alone. A change that is meant is reviewed as the change of
//! `testdata/digests.txt`.

use crate::catalogue;
use crate::encode::{hard, mixture, uuencoded};
use std::fmt::Write;
use zstd::{
    Compressor, Dictionary, LEVEL_MAX, Params, compress_bound, dictionary_workspace_size,
    workspace_size,
};

/// The levels whose sizes are shown; the digest is that of all frames.
const SHOWN: [i32; 6] = [-5, 1, 3, 6, 12, 19];

/// A line of the file: sizes at some levels, and the digest of the frames of all levels.
fn line(name: &str, mut frame_at: impl FnMut(i32) -> Vec<u8>) -> String {
    let (mut all, mut line) = (Vec::new(), String::new());
    for level in (-7..=LEVEL_MAX).filter(|level| *level != 0) {
        let frame = frame_at(level);
        if SHOWN.contains(&level) {
            write!(line, " {:7}", frame.len()).unwrap();
        }
        all.extend(frame);
    }
    format!("{:016x}{line} {name}\n", xxhash::xxh64(&all, 0))
}

#[test]
fn the_digests_of_fixed_frames_stay() {
    let mut contents = Vec::new();
    for size in [300, 5000, 60_000] {
        let content = hard(size).into_iter();
        contents.extend(content.map(|(name, content)| (format!("{name}, {size}"), content)));
    }
    contents.push(("mixture, 200000".to_owned(), mixture(21, 200_000)));
    contents.push(("uuencode, 60000".to_owned(), uuencoded(60_000)));
    // One after the other, so that tables in force fit the next block, or do not.
    for size in [700, 9000] {
        let parts = hard(size).into_iter().map(|(_, content)| content);
        let (parts, again) = (parts.collect::<Vec<_>>(), mixture(3, size));
        let all = [parts.concat(), again, parts.concat()].concat();
        contents.push((format!("all in turn, {size}"), all));
    }
    let mut lines = String::new();
    let mut workspace = Vec::new();
    for (name, content) in &contents {
        lines += &line(name, |level| {
            let params = Params::for_level(level, Some(content.len() as u64));
            workspace.resize(workspace_size(&params).max(workspace.len()), 0);
            let mut frame = vec![0; compress_bound(content.len())];
            let mut compressor = Compressor::new(&mut workspace[..]);
            let n = compressor.compress(&mut frame, content, &params).unwrap();
            frame.truncate(n);
            frame
        });
    }
    for kind in [catalogue::Dictionary::Raw, catalogue::Dictionary::Formatted] {
        let bytes = kind.bytes();
        let dictionary = Dictionary::new(&bytes).unwrap();
        for size in [50, 700] {
            let content = [
                &bytes[bytes.len().saturating_sub(size)..],
                &mixture(5, size),
            ]
            .concat();
            let size = content.len();
            lines += &line(&format!("{}, {size}", kind.name()), |level| {
                let params = Params::for_level(level, None);
                let need = dictionary_workspace_size(&params, bytes.len(), size);
                let mut workspace = vec![0; need];
                let mut frame = vec![0; compress_bound(size)];
                let n = Compressor::new(&mut workspace[..])
                    .compress_with_dictionary(&mut frame, &content, &params, &dictionary)
                    .unwrap();
                frame.truncate(n);
                frame
            });
        }
    }
    let expected = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/digests.txt");
    testkit::golden(expected, lines);
}
