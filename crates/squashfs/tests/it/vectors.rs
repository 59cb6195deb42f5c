//! Images of the raw writer: the valid one shows its input, and each hostile one is rejected with
//! its own error.

use std::cell::RefCell;

use codec::{Encoder, Filters, Settings};
use squashfs::Squashfs;
use testkit::{MemoryFs, RawKind, RawNode, RawSquashfs, sample_tree, small_tree, squashfs_vectors};
use tree::Aspects;
use tree::manifest::Manifest;
use tree::{Device, FileKind, FileSystem, Ino, Time};

use crate::hostile::use_all;

/// The codecs of the images: the ID, and how blocks are encoded.
pub(crate) const CODECS: [(u16, Option<Settings>); 6] = [
    (1, None),
    (1, Some(Settings::Zlib { level: 6 })),
    (3, Some(Settings::Lzo)),
    (
        4,
        Some(Settings::Xz {
            level: 1,
            extreme: false,
            dictionary_bytes: 8192,
            filters: Filters(0),
        }),
    ),
    (5, Some(Settings::Lz4)),
    (6, Some(Settings::Zstd { level: 1 })),
];

/// Encodes blocks for the raw writer.
pub(crate) fn encoder(settings: Option<Settings>) -> impl Fn(&[u8]) -> Option<Vec<u8>> {
    let encoder = settings.map(|settings| RefCell::new(Encoder::new(&settings).unwrap()));
    move |content| {
        let mut encoded = vec![0; content.len().checked_sub(1)?];
        let len = (encoder.as_ref()?.borrow_mut()).compress(&mut encoded, content)?;
        encoded.truncate(len);
        Some(encoded)
    }
}

/// The tree in the images.
fn expected(image: &RawSquashfs) -> MemoryFs {
    let mut fs = MemoryFs::new();
    let root = fs.root();
    let mut number = 0;
    let mut known = Vec::new();
    fill(
        &mut fs,
        root,
        "",
        &image.root,
        image,
        &mut number,
        &mut known,
    );
    fs
}

fn fill(
    fs: &mut MemoryFs,
    ino: Ino,
    path: &str,
    node: &RawNode,
    image: &RawSquashfs,
    number: &mut u32,
    known: &mut Vec<(String, Ino)>,
) {
    *number += 1;
    let is_dir = matches!(node.kind, RawKind::Directory(_));
    let metadata = fs.metadata_mut(ino);
    metadata.permissions = if is_dir { 0o755 } else { 0o644 };
    metadata.mtime = Time {
        seconds: 1_700_000_000 + i64::from(*number),
        nanoseconds: 0,
    };
    for xattr in node
        .xattrs
        .iter()
        .flat_map(|&set| &image.xattrs[set as usize])
    {
        let prefix = ["user.", "trusted.", "security."][usize::from(xattr.namespace)];
        fs.add_xattr(
            ino,
            format!("{prefix}{}", xattr.name).as_bytes(),
            &xattr.value,
        );
    }
    known.push((path.to_owned(), ino));
    let RawKind::Directory(nodes) = &node.kind else {
        return;
    };
    for node in nodes {
        let name = &node.name;
        let device = |fs: &mut MemoryFs, kind, major, minor| {
            fs.add_special(ino, name, kind, Device { major, minor })
        };
        let path = match path {
            "" => name.clone(),
            path => format!("{path}/{name}"),
        };
        let child = match &node.kind {
            RawKind::Directory(_) => fs.add_dir(ino, name),
            RawKind::File(content, _) => fs.add_file(ino, name, content),
            RawKind::Symlink(target) => fs.add_symlink(ino, name, target.as_bytes()),
            RawKind::Device(true, rdev) => device(fs, FileKind::BlockDevice, rdev >> 8, rdev & 255),
            RawKind::Device(_, rdev) => device(fs, FileKind::CharDevice, rdev >> 8, rdev & 255),
            RawKind::Fifo => device(fs, FileKind::Fifo, 0, 0),
            RawKind::Socket => device(fs, FileKind::Socket, 0, 0),
            RawKind::Link(target) => {
                let (_, file) = known.iter().find(|(path, _)| path == target).unwrap();
                fs.link(ino, name, *file);
                continue;
            }
        };
        fill(fs, child, &path, node, image, number, known);
    }
}

#[test]
fn the_sample_shows_what_was_put_in() {
    for (codec, settings) in CODECS {
        let encode = encoder(settings);
        let sample = sample_tree(codec, &encode);
        let image = sample.sound();
        let ours = Squashfs::open(image.bytes.clone()).unwrap();
        let aspects = Aspects::default();
        let is = Manifest::of(&ours, &aspects).unwrap();
        let must = Manifest::of(&expected(&sample), &aspects).unwrap();
        assert!(is == must, "{settings:?}:\n{}", is.difference(&must));
        // Every name in a directory with an index is found through the index, and by number.
        let big = ours.lookup(ours.root(), b"big").unwrap().ino;
        for entry in ours.read_dir(big).unwrap() {
            assert_eq!(ours.lookup(big, &entry.name).unwrap(), entry);
            let number = ours.number(entry.ino).unwrap();
            assert_eq!(ours.by_number(number).unwrap(), Some(entry.ino));
        }
        for name in [&b"000"[..], b"123-xxa", b"300-y", b"zzz"] {
            assert!(ours.lookup(big, name).is_err());
        }
    }
}

#[test]
fn every_case_is_refused_in_its_words_or_read() {
    let mut wrong = Vec::new();
    let mut cases = 0;
    for (codec, settings) in CODECS {
        let encode = encoder(settings);
        for vector in squashfs_vectors(codec, &encode) {
            cases += 1;
            let name = format!("{}, {settings:?}", vector.name);
            match (use_all(&vector.image), vector.refused) {
                (Ok(_), None) => {}
                (Ok(_), Some(_)) => wrong.push(format!("{name}: is read")),
                (Err(error), None) => wrong.push(format!("{name}: {error}")),
                (Err(error), Some(words)) => {
                    if !error.to_string().contains(words) {
                        wrong.push(format!("{name}: {error}\n    instead of {words}"));
                    }
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {cases}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(cases > 700, "{cases}");
}

#[test]
#[ignore = "needs root"]
fn linux_reads_the_sample_as_we_do() {
    let out = testkit::TempDir::new();
    let image = out.join("image");
    for (codec, settings) in CODECS {
        let encode = encoder(settings);
        let sample = sample_tree(codec, &encode);
        // lz4 always has its options record.
        let sound = sample.build(&mut |part, bytes| {
            if codec == 5 && part == testkit::Part::Options {
                bytes.extend([8, 0x80, 1, 0, 0, 0, 0, 0, 0, 0]);
            }
        });
        std::fs::write(&image, &sound.bytes).unwrap();
        let aspects = Aspects::default();
        let ours = Manifest::of(&Squashfs::open(sound.bytes).unwrap(), &aspects).unwrap();
        let mount = testkit::Mount::read_only(&image, testkit::FsType::Squashfs);
        let linux = Manifest::of(&tree::HostDir::open(mount.path()).unwrap(), &aspects).unwrap();
        assert!(linux == ours, "{settings:?}:\n{}", linux.difference(&ours));
        mount.unmount();
    }
}

/// The fuzzer's seeds, one small image for each codec. `RESTOW_UPDATE=1` rewrites them.
#[test]
fn the_seeds_of_the_fuzzer_are_sound() {
    let seeds = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../fuzz/seeds/squashfs_read"
    );
    for (codec, settings) in CODECS {
        let name = settings.map_or("plain", |settings| settings.algorithm().name());
        let path = format!("{seeds}/{name}.squashfs");
        if testkit::updates() {
            let encode = encoder(settings);
            let mut image = small_tree(codec, &encode).sound().bytes;
            let used = u64::from_le_bytes(image[40..48].try_into().unwrap());
            image.truncate(used as usize);
            std::fs::create_dir_all(seeds).unwrap();
            std::fs::write(&path, image).unwrap();
        }
        let image = std::fs::read(&path).unwrap();
        assert!(image.len() < 16_000, "{path}: {}", image.len());
        assert!(use_all(&image).unwrap() > 4000, "{path}");
    }
}
