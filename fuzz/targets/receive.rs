//! A full stream and its increments, received into a directory and into a new image.
//!
//! Asserts: nothing outside of the target changes; an image that is received is without findings.
//!
//! `cargo +nightly fuzz run receive`
#![cfg_attr(not(test), no_main)]

use std::fs;

use libfuzzer_sys::fuzz_target;
use restow::{ImageReceiver, Input, ReceiveOptions, receive_into_directory};
use restow_fuzz::streams;
use testkit::TempDir;
use tree::{NoProgress, Parallel};

fuzz_target!(|data: &[u8]| {
    let dir = TempDir::new();
    let (to, outside, image) = (
        dir.join("a/to"),
        dir.join("outside"),
        dir.join("image.btrfs"),
    );
    fs::create_dir_all(&to).unwrap();
    fs::create_dir(&outside).unwrap();
    let options = ReceiveOptions::new(Parallel::new(1));
    for stream in streams(data) {
        let input = Input::of(stream.clone());
        let _ = receive_into_directory(input, &to, &options, &NoProgress, &mut |_| {});
        let receiver = ImageReceiver::open(Input::of(stream), &image, options.clone());
        let _ = receiver.and_then(|receiver| {
            receiver.verify(&NoProgress)?;
            receiver.receive(&NoProgress, &mut |_| {})
        });
    }
    assert_eq!(
        fs::read_dir(&outside).unwrap().count(),
        0,
        "written outside"
    );
    let names = fs::read_dir(dir.join("a"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["to"], "written outside");
    if image.exists() {
        let findings = restow::check(&image, &NoProgress, &mut |finding| panic!("{finding:?}"));
        assert_eq!(findings.expect("it is an image"), 0);
    }
});
