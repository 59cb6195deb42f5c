//! Arbitrary bytes as the JSON lines of a stream. Asserts: no panic; the stream that they build has
//! these lines.
//!
//! `cargo +nightly fuzz run undump fuzz/corpus/undump fuzz/seeds/undump`
#![cfg_attr(not(test), no_main)]

use libfuzzer_sys::fuzz_target;
use sendstream::{StreamReader, json};

fuzz_target!(|data: &[u8]| {
    let mut stream = Vec::new();
    if json::build(data, &mut stream).is_err() {
        return;
    }
    let mut reader = StreamReader::new(&stream[..]).command_bytes_max(1 << 20);
    let (mut lines, mut again) = (String::new(), Vec::new());
    while let Ok(Some(version)) = reader.next_stream() {
        lines += &(json::header(version, 0) + "\n");
        loop {
            match reader.next_command() {
                Ok(Some(record)) => lines += &(json::command(&record, true) + "\n"),
                Ok(None) => break,
                // Lines can name what a stream must not have, such as a path that leads outside.
                Err(_) => return,
            }
        }
    }
    json::build(lines.as_bytes(), &mut again).expect("they are ours");
    assert!(again == stream);
});
