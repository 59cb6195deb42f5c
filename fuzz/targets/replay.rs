//! A full stream and its increments, replayed as a tree; each of them also as Linux restarts it.
//!
//! Asserts: no panic; every tree that a replay gives can be used in full; a stream that is started
//! again in the middle of a command has the same commands as one that is not.
//!
//! `cargo +nightly fuzz run replay`
#![cfg_attr(not(test), no_main)]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use restow_fuzz::{limits, streams};
use sendstream::{Replay, without_restarts};

fuzz_target!(|data: &[u8]| {
    let mut replay = Replay::new();
    for stream in streams(data) {
        let whole = without_restarts(&stream[..], |_| Ok(()));
        let cut = data.len() * 7 % stream.len();
        let restarted = [&stream[..cut], &stream[..]].concat();
        if let (Ok(whole), Ok(again)) = (whole, without_restarts(&restarted[..], |_| Ok(()))) {
            assert_eq!(whole.commands, again.commands);
        }
        let _ = replay.add(Arc::new(stream));
    }
    for tree in replay.subvolumes() {
        testkit::use_all(&**tree, &limits()).expect("what was replayed can be read");
    }
});
