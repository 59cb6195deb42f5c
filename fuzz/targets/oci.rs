//! Arbitrary bytes as a container image: the first part as JSON of a layout, the others as layers.
//!
//! Parts end at `~`. A part that begins with a slash is a layer in the notation of
//! `testkit::layer`, its members separated by line feeds, and any other one a layer as it is.
//!
//! Asserts: no panic; hidden bytes are a part of all; equal answers to equal questions; and, by the
//! limits below, bounded time and memory.
//!
//! `cargo +nightly fuzz run oci fuzz/corpus/oci fuzz/seeds/oci`
#![cfg_attr(not(test), no_main)]

use std::path::Path;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use oci::LayoutKind;
use restow_fuzz::limits;
use testkit::{ImageLayout, layer};
use tree::Limits;
use tree::tar::{Tar, TarOptions};

fn read(layout: &ImageLayout, kind: LayoutKind) {
    let archive = Tar::open(Box::new(layout.archive()), Limits::default()).expect("it is whole");
    let Ok(layout) = oci::ImageLayout::open(Arc::new(archive), kind) else {
        return;
    };
    for listed in layout.images().iter().take(4) {
        let Ok(image) = layout.image(listed) else {
            continue;
        };
        let (spool_dir, how) = (Path::new("/tmp"), TarOptions::default());
        let Ok(layers) = layout.open_layers(&image, None, spool_dir, limits(), how) else {
            continue;
        };
        let Some(tree) = layers.archives else {
            continue;
        };
        let usage = tree.layer_usage().expect("it is in memory");
        assert!(usage.iter().all(|it| it.hidden_bytes <= it.bytes));
        let _ = testkit::use_all(&tree, &limits());
    }
}

/// Members whose names and targets fit a header.
fn of_notation(text: &[u8]) -> Option<Vec<u8>> {
    let text = str::from_utf8(text).ok()?;
    let members = text.lines().filter(|line| {
        let at = line.find(['=', '>', '^', '|']).unwrap_or(line.len());
        at < 100 && line.len() - at < 100 && !line.contains('@')
    });
    Some(layer(members))
}

fuzz_target!(|data: &[u8]| {
    let mut parts = data.split(|&byte| byte == b'~').take(8);
    let json = parts.next().unwrap_or_default();
    let layers: Vec<Vec<u8>> = parts
        .map(|part| match part.split_first() {
            Some((b'/', text)) => of_notation(text).unwrap_or_default(),
            _ => part.to_vec(),
        })
        .collect();
    if json.is_empty() {
        read(&ImageLayout::of(layers), LayoutKind::Oci);
        return;
    }
    // The JSON may name these.
    let mut docker = ImageLayout::docker("app", layers.iter().map(|it| (it.clone(), it.clone())));
    docker
        .files
        .insert("manifest.json".to_owned(), json.to_vec());
    read(&docker, LayoutKind::Docker);
    let mut oci = ImageLayout::of(layers);
    oci.files.insert("index.json".to_owned(), json.to_vec());
    read(&oci, LayoutKind::Oci);
});
