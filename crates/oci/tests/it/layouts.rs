//! Images in directories and archives, of layers that are compressed and not.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use codec::{Packer, SeekTable, Wrapper};
use oci::{KnownLayers, LayoutKind};
use testkit::{CountedBytes, ImageLayout, TAR_LAYER, TempDir, layer};
use tree::diff::{Difference, diff};
use tree::tar::{Tar, TarOptions};
use tree::{Aspects, ByPath, Error, HostDir, NoProgress, Parallel};

use crate::{limits, notation, open, tree_of};

/// A file compressed as a whole.
pub(crate) fn packed(wrapper: Wrapper, bytes: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    let mut packer = Packer::new(wrapper, None).unwrap();
    packer.pack(bytes, &mut packed).unwrap();
    packed
}

const GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const ZSTD: &str = "application/vnd.oci.image.layer.v1.tar+zstd";

#[test]
fn layers_are_compressed_in_any_way() {
    let lower = layer(["a=1", "b=1"]);
    let (middle, upper) = (layer([".wh.a=", "c=2"]), layer(["d/", "d/x=3"]));
    let gzip = packed(Wrapper::Gzip, &middle);
    let zstd = packed(Wrapper::Zstd, &upper);
    let layers = [
        (TAR_LAYER, lower.clone(), lower.clone()),
        (GZIP, gzip.clone(), middle.clone()),
        (ZSTD, zstd.clone(), upper.clone()),
        // The same again, which is decompressed once.
        (ZSTD, zstd.clone(), upper.clone()),
    ];
    let layout = ImageLayout::default().with("latest", "amd64", layers);
    let expected = ["b=1", "c=2", "d/", "d/x=3"];
    assert_eq!(notation(&tree_of(&layout).unwrap()), expected);

    let layers = [(lower.clone(), lower), (gzip, middle), (zstd, upper)];
    let docker = ImageLayout::docker("app:1", layers);
    let opened = open(&docker).unwrap();
    assert_eq!(opened.kind(), LayoutKind::Docker);
    assert_eq!(opened.images()[0].names, ["app:1"]);
    assert_eq!(notation(&tree_of(&docker).unwrap()), expected);

    let dir = TempDir::new();
    layout.write_to(dir.path());
    let host = Arc::new(HostDir::open(dir.path()).unwrap());
    let layout = oci::ImageLayout::open(host, LayoutKind::Oci).unwrap();
    let image = layout.image(&layout.images()[0]).unwrap();
    let layers = layout.open_layers(&image, None, dir.path(), limits(), TarOptions::default());
    assert_eq!(notation(&layers.unwrap().archives.unwrap()), expected);
    // Unnamed files only.
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
}

#[test]
fn a_seek_table_is_used() {
    let archive = layer(["a=1", "b=2"]);
    let mut stored = Vec::new();
    let mut table = SeekTable::default();
    let mut packer = Packer::new(Wrapper::Zstd, None).unwrap();
    for piece in archive.chunks(1000) {
        let mut frame = Vec::new();
        packer.pack(piece, &mut frame).unwrap();
        table.push(&frame, piece);
        stored.extend(frame);
    }
    stored.extend(table.emit());
    let layers = [(ZSTD, stored, archive)];
    let layout = ImageLayout::default().with("latest", "amd64", layers);
    assert_eq!(notation(&tree_of(&layout).unwrap()), ["a=1", "b=2"]);
}

#[test]
fn blobs_are_checked_and_named() {
    let (plain, archive) = (layer(["a=1"]), layer(["b=1"]));
    let gzip = packed(Wrapper::Gzip, &archive);
    let layers = [(TAR_LAYER, plain.clone(), plain), (GZIP, gzip, archive)];
    let layout = ImageLayout::default().with("latest", "amd64", layers);
    let blobs = layout
        .files
        .keys()
        .filter(|path| path.starts_with("blobs/"));
    let blobs: Vec<String> = blobs.cloned().collect();
    assert_eq!(blobs.len(), 4);
    for path in &blobs {
        let refused = |layout: &ImageLayout| tree_of(layout).err().unwrap().to_string();
        let mut missing = layout.clone();
        missing.files.remove(path);
        let words = refused(&missing);
        assert_eq!(words, format!("read {path}: no such file or directory"));

        let mut changed = layout.clone();
        let bytes = changed.files.get_mut(path).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        let words = refused(&changed);
        assert!(words.starts_with(&format!("read {path}: ")), "{words}");

        let mut longer = layout.clone();
        longer.files.get_mut(path).unwrap().push(0);
        let words = refused(&longer);
        assert!(words.contains("blob does not have the length"), "{words}");
        assert!(words.starts_with(&format!("read {path}: ")), "{words}");
    }
}

#[test]
fn layers_of_docker_archives_are_checked() {
    let archive = layer(["a=1"]);
    for stored in [archive.clone(), packed(Wrapper::Gzip, &archive)] {
        let layout = ImageLayout::docker("app", [(stored, layer(["a=2"]))]);
        let words = tree_of(&layout).err().unwrap().to_string();
        let part = "read 0/layer.tar: unpacked layer does not have its digest";
        assert!(words.starts_with(part), "{words}");
    }
}

#[test]
fn unpacked_layers_have_the_digests_in_the_configuration() {
    let (archive, other) = (layer(["a=1"]), layer(["a=2"]));
    let gzip = packed(Wrapper::Gzip, &archive);
    for (media_type, stored) in [(GZIP, gzip), (TAR_LAYER, archive)] {
        let layers = [(media_type, stored, other.clone())];
        let layout = ImageLayout::default().with("latest", "amd64", layers);
        let words = tree_of(&layout).err().unwrap().to_string();
        let part = "unpacked layer does not have its digest in the configuration";
        assert!(words.contains(part), "{words}");
    }
}

#[test]
fn garbage_behind_a_layer_is_an_error() {
    let archive = layer(["a=1"]);
    let mut stored = packed(Wrapper::Gzip, &archive);
    stored.extend(b"garbage");
    let layout = ImageLayout::default().with("latest", "amd64", [(GZIP, stored, archive)]);
    let words = tree_of(&layout).err().unwrap().to_string();
    assert!(
        words.contains("bytes follow the compressed content"),
        "{words}"
    );
}

#[test]
fn other_kinds_of_layers_are_refused_by_name() {
    let squashfs = "application/vnd.stacker.image.layer.squashfs+zstd+verity";
    let encrypted = "application/vnd.oci.image.layer.v1.tar+gzip+encrypted";
    let wrong = "layer does not have the file system that its media type says";
    let unread = "a layer that is neither a tar archive nor a SquashFS or EROFS image";
    for (media_type, words) in [(squashfs, wrong), (encrypted, unread)] {
        let archive = layer(["a=1"]);
        let layers = [(media_type, archive.clone(), archive)];
        let layout = ImageLayout::default().with("latest", "amd64", layers);
        let error = tree_of(&layout).err().unwrap();
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn images_have_names_and_platforms() {
    let image = |layout: ImageLayout, name, architecture| {
        let archive = layer([format!("arch={architecture}")]);
        layout.with(name, architecture, [(TAR_LAYER, archive.clone(), archive)])
    };
    let layout = image(ImageLayout::default(), "app:1", "amd64");
    let layout = image(image(layout, "app:1", "arm64"), "app:2", "amd64");
    let opened = open(&layout).unwrap();
    let listed: Vec<String> = (opened.images().iter())
        .map(|it| format!("{} {}", it.names.join(","), it.platform.as_ref().unwrap()))
        .collect();
    assert_eq!(
        listed,
        [
            "app:1 linux/amd64",
            "app:1 linux/arm64",
            "app:2 linux/amd64"
        ]
    );
    let arm = opened.image(&opened.images()[1]).unwrap();
    assert_eq!(arm.config.text("architecture"), Some("arm64"));
    let layers = opened.open_layers(&arm, None, "/tmp".as_ref(), limits(), TarOptions::default());
    let tree = layers.unwrap().archives.unwrap();
    assert_eq!(tree.read("arch").unwrap(), b"arm64");
}

#[test]
fn archives_are_recognised_by_their_content() {
    let kind_of = |archive: Vec<u8>| {
        let tar = Tar::open(Box::new(archive), limits()).unwrap();
        oci::ImageLayout::kind_of(&tar)
    };
    let docker = ImageLayout::docker("app", [(layer(["a=1"]), layer(["a=1"]))]);
    assert_eq!(kind_of(docker.archive()), Some(LayoutKind::Docker));
    let oci = ImageLayout::of([layer(["a=1"])]);
    assert_eq!(kind_of(oci.archive()), Some(LayoutKind::Oci));
    // Both, of which the index lists nothing, as the first docker save of version 25 has it.
    for (items, kind) in [
        ("null", LayoutKind::Docker),
        ("[]", LayoutKind::Docker),
        ("7", LayoutKind::Oci),
    ] {
        let mut both = ImageLayout::docker("app", [(layer(["a=1"]), layer(["a=1"]))]);
        let index = format!("{{\"schemaVersion\":2,\"manifests\":{items}}}");
        both.files.insert("index.json".into(), index.into());
        let version = &oci.files["oci-layout"];
        both.files.insert("oci-layout".into(), version.clone());
        assert_eq!(kind_of(both.archive()), Some(kind), "{items}");
    }
    for other in [
        "manifest.json={}",
        "manifest.json=[]",
        "manifest.json=[{\"Config\":\"x\"}]",
        "index.json={}",
        "manifest.json/",
    ] {
        assert_eq!(kind_of(layer([other])), None, "{other}");
    }
    assert!(matches!(
        open(&ImageLayout::default()),
        Err(Error::File { .. })
    ));
}

#[test]
fn images_are_compared_without_reading_what_they_share() {
    let base = layer([format!("big={}", "x".repeat(3_000_000)), "a=1".to_owned()]);
    let images = ["a=2", "a=3"]
        .iter()
        .fold(ImageLayout::default(), |layout, member| {
            let layers = [base.clone(), layer([*member])].map(|it| (TAR_LAYER, it.clone(), it));
            layout.with(member, "amd64", layers)
        });
    let reads = Arc::new(AtomicU64::new(0));
    let archive = CountedBytes(images.archive(), Arc::clone(&reads));
    let archive = Tar::open(Box::new(archive), limits()).unwrap();
    let layout = oci::ImageLayout::open(Arc::new(archive), LayoutKind::Oci).unwrap();
    let (known, options) = (KnownLayers::default(), TarOptions::default());
    let open = |listed| {
        let image = layout.image(listed).unwrap();
        let spool_dir = Path::new("/tmp");
        let layers = layout.open_layers(&image, Some(&known), spool_dir, limits(), options);
        layers.unwrap().archives.unwrap()
    };
    let counted = |what: &mut dyn FnMut()| {
        let before = reads.load(Ordering::Relaxed);
        what();
        reads.load(Ordering::Relaxed) - before
    };
    let (mut first, mut second) = (None, None);
    let of_first = counted(&mut || first = Some(open(&layout.images()[0])));
    // Its headers only: the lower layer was checked before.
    let of_second = counted(&mut || second = Some(open(&layout.images()[1])));
    assert!(of_first > 20 && of_second < 20, "{of_first} {of_second}");
    let (first, second) = (first.unwrap(), second.unwrap());
    let mut differences = Vec::new();
    let of_diff = counted(&mut || {
        let mut report = |difference: Difference| {
            differences.push(difference.path.to_vec());
            Ok(())
        };
        let (aspects, one) = (Aspects::default(), Parallel::new(1));
        diff(&first, &second, &aspects, one, &NoProgress, &mut report).unwrap();
    });
    assert_eq!((differences, of_diff), (vec![b"a".to_vec()], 2));
}
