//! Images that keep blocks of an older one.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use codec::{Filters, Settings};
use squashfs::{CreateSummary, Fragments, Options, Squashfs};
use testkit::{FsType, MemoryFs, Mount, Rng, TempDir};
use tree::manifest::Manifest;
use tree::{Aspects, FileSystem, Ino, OldImage, Time};

use crate::sources::{make, text};

const BLOCK: usize = 4096;
/// How many small files a directory has, and how many directories there are.
const SMALL: (u64, u64) = (40, 12);

/// What becomes of the files in a later version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// One small file in a hundred has other content of another length, and a block of the large
    /// file differs.
    Few,
    /// As many small files have other content of the same length and time.
    SameLength,
    /// A directory has another name.
    Moved,
    /// Half of the files are gone, and new ones are there.
    Half,
}

fn time(fs: &mut MemoryFs, ino: Ino, seconds: i64) {
    fs.metadata_mut(ino).mtime = Time {
        seconds,
        nanoseconds: 0,
    };
}

/// A tree, before or after a change.
fn version(change: Option<Change>) -> MemoryFs {
    let mut fs = MemoryFs::new();
    let root = fs.root();
    let mut large = [text(1, 60 * BLOCK + 100), Rng::new(9).bytes(3 * BLOCK)].concat();
    if change == Some(Change::Few) {
        large[20 * BLOCK + 7] ^= 0x55;
    }
    let ino = fs.add_file(root, "large", &large);
    time(&mut fs, ino, 1000);
    let ino = fs.add_file(root, "equal", &large);
    time(&mut fs, ino, 1000);
    let mut whole = vec![root];
    whole.push(fs.add_sparse(root, "sparse", 64 << 20, &[(1 << 20, &text(2, 3 * BLOCK))]));
    for dir in 0..SMALL.1 {
        let name = match change {
            Some(Change::Moved) if dir == 3 => "moved".to_owned(),
            _ => format!("d{dir}"),
        };
        let folder = fs.add_dir(root, name);
        whole.push(folder);
        for n in 0..SMALL.0 {
            let seed = 1000 + dir * SMALL.0 + n;
            let mut content = text(seed, 50 + (seed * 37 % 900) as usize);
            match change {
                Some(Change::Few) if seed.is_multiple_of(100) => content.extend(b" and more"),
                Some(Change::SameLength) if seed.is_multiple_of(100) => content[3] ^= 1,
                Some(Change::Half) if seed.is_multiple_of(2) => continue,
                _ => {}
            }
            let ino = fs.add_file(folder, format!("f{n}"), &content);
            time(&mut fs, ino, 1000 + seed as i64);
        }
        if change == Some(Change::Half) {
            whole.push(fs.add_file(folder, "new", &text(dir, 700)));
        }
    }
    for ino in whole {
        time(&mut fs, ino, 1000);
    }
    fs
}

fn open(image: &Path) -> Squashfs {
    Squashfs::open(File::open(image).unwrap()).unwrap()
}

fn reusing(options: &Options, old: &Path, exact: bool) -> Options {
    options
        .clone()
        .old(Some(OldImage {
            tree: Arc::new(open(old)),
            trust_mtime: false,
        }))
        .reuse_exact(exact)
}

/// The manifest without what SquashFS does not keep.
fn manifest(tree: &dyn FileSystem) -> Manifest {
    let aspects = Aspects {
        owner: false,
        ..Aspects::default()
    };
    Manifest::of(tree, &aspects).unwrap()
}

fn assert_same(image: &Path, tree: &dyn FileSystem, what: &str) {
    let (ours, expected) = (manifest(&open(image)), manifest(tree));
    assert!(ours == expected, "{what}:\n{}", ours.difference(&expected));
}

fn codecs() -> Vec<Settings> {
    vec![
        Settings::Zstd { level: 1 },
        Settings::Zstd { level: 15 },
        Settings::Zlib { level: 6 },
        Settings::Lzo,
        Settings::Lz4,
        Settings::Xz {
            level: 1,
            extreme: false,
            dictionary_bytes: 8192,
            filters: Filters(0),
        },
    ]
}

const PACKINGS: [Fragments; 3] = [Fragments::SmallFiles, Fragments::Always, Fragments::None];

/// The image of the version before a change, and options to make it.
fn first(dir: &TempDir, settings: Settings, fragments: Fragments) -> Options {
    let options = Options::default()
        .compression(Some(settings))
        .block_bytes(BLOCK as u32)
        .fragments(fragments);
    make(&version(None), &dir.join("old"), &options, 2).unwrap();
    options
}

fn with_old(dir: &TempDir, options: &Options, change: Change, exact: bool) -> CreateSummary {
    let options = reusing(options, &dir.join("old"), exact);
    make(&version(Some(change)), &dir.join("new"), &options, 2).unwrap()
}

#[test]
fn a_new_image_shows_the_new_files_whatever_it_kept() {
    let dir = TempDir::new();
    let unsquashfs = testkit::tool("unsquashfs");
    for settings in codecs() {
        for fragments in PACKINGS {
            let options = first(&dir, settings, fragments);
            for change in [Change::Few, Change::SameLength, Change::Moved, Change::Half] {
                let what = format!("{settings:?} {fragments:?} {change:?}");
                let image = with_old(&dir, &options, change, false).image;
                assert!(image.reused > image.encoded, "{what}: {image:?}");
                let source = version(Some(change));
                assert_same(&dir.join("new"), &source, &what);
                if let Some(unsquashfs) = &unsquashfs
                    && fragments == Fragments::SmallFiles
                {
                    let there = dir.join("there");
                    let (there, new) = (there.to_str().unwrap(), dir.join("new"));
                    unsquashfs.run(["-q", "-n", "-d", there, new.to_str().unwrap()]);
                    let theirs = tree::HostDir::open(there.as_ref()).unwrap();
                    let (theirs, expected) = (manifest(&theirs), manifest(&source));
                    assert!(theirs == expected, "{what}");
                    fs::remove_dir_all(there).unwrap();
                }
            }
        }
    }
}

#[test]
fn a_change_of_few_files_costs_few_blocks_and_little_room() {
    let dir = TempDir::new();
    for fragments in [Fragments::SmallFiles, Fragments::Always] {
        let options = first(&dir, Settings::Zstd { level: 3 }, fragments);
        let kept = with_old(&dir, &options, Change::Few, false).image;
        let again = options.clone().old(None);
        let full = make(&version(Some(Change::Few)), &dir.join("full"), &again, 2);
        let full = full.unwrap().image;
        assert_eq!((full.reused, full.old_differs), (0, false));
        // The block that differs, those of the files that do, and those that do not become smaller.
        assert!(kept.encoded <= 12, "{kept:?}");
        assert!(
            kept.image_bytes * 100 <= full.image_bytes * 102,
            "{} and {}",
            kept.image_bytes,
            full.image_bytes
        );
        // What was not changed at all comes out as it was.
        let unchanged = reusing(&options, &dir.join("old"), false);
        make(&version(None), &dir.join("same"), &unchanged, 3).unwrap();
        let (old, same) = (fs::read(dir.join("old")), fs::read(dir.join("same")));
        assert!(old.unwrap() == same.unwrap(), "{fragments:?}");
    }
}

#[test]
fn small_files_that_moved_are_found() {
    let dir = TempDir::new();
    let options = first(&dir, Settings::Zstd { level: 3 }, Fragments::SmallFiles);
    let image = with_old(&dir, &options, Change::Moved, false).image;
    // Only noise is not kept.
    assert!(image.encoded <= 4, "{image:?}");
}

#[test]
fn exact_reuse_gives_the_bytes_of_a_full_build() {
    let dir = TempDir::new();
    for settings in codecs() {
        for fragments in PACKINGS {
            let options = first(&dir, settings, fragments);
            for change in [Change::Few, Change::SameLength, Change::Moved, Change::Half] {
                let what = format!("{settings:?} {fragments:?} {change:?}");
                let image = with_old(&dir, &options, change, true).image;
                assert!(image.reused > 20 && !image.old_differs, "{what}: {image:?}");
                make(&version(Some(change)), &dir.join("full"), &options, 2).unwrap();
                let (new, full) = (fs::read(dir.join("new")), fs::read(dir.join("full")));
                assert!(new.unwrap() == full.unwrap(), "{what}");
            }
        }
    }
}

#[test]
fn exact_reuse_keeps_nothing_of_another_level() {
    let dir = TempDir::new();
    first(&dir, Settings::Zstd { level: 1 }, Fragments::SmallFiles);
    let options = Options::default()
        .compression(Some(Settings::Zstd { level: 15 }))
        .block_bytes(BLOCK as u32);
    let image = with_old(&dir, &options, Change::Few, true).image;
    assert_eq!((image.reused, image.old_differs), (0, true));
    make(&version(Some(Change::Few)), &dir.join("full"), &options, 2).unwrap();
    let (new, full) = (fs::read(dir.join("new")), fs::read(dir.join("full")));
    assert!(new.unwrap() == full.unwrap());
    // Otherwise the level does not matter, and is reported.
    let image = with_old(&dir, &options, Change::Few, false).image;
    assert!(image.reused > 20 && image.old_differs, "{image:?}");
}

#[test]
fn the_number_of_threads_does_not_matter() {
    let dir = TempDir::new();
    let options = first(&dir, Settings::Zstd { level: 3 }, Fragments::SmallFiles);
    for exact in [false, true] {
        let options = reusing(&options, &dir.join("old"), exact);
        let source = version(Some(Change::Few));
        let of = |threads| {
            make(&source, &dir.join("new"), &options, threads).unwrap();
            fs::read(dir.join("new")).unwrap()
        };
        let one = of(1);
        for threads in [2, 7] {
            assert!(of(threads) == one, "{threads}");
        }
    }
}

#[test]
fn a_block_of_another_size_is_not_kept() {
    let dir = TempDir::new();
    let options = first(&dir, Settings::Zstd { level: 3 }, Fragments::SmallFiles);
    for other in [
        options.clone().block_bytes(2 * BLOCK as u32),
        options.clone().compression(Some(Settings::Lz4)),
        options.clone().compression(None),
    ] {
        let image = with_old(&dir, &other, Change::Few, false).image;
        assert_eq!(image.reused, 0);
        assert_same(&dir.join("new"), &version(Some(Change::Few)), "other");
    }
}

#[test]
fn times_count_only_if_they_are_trusted() {
    let dir = TempDir::new();
    let options = first(&dir, Settings::Zstd { level: 3 }, Fragments::SmallFiles);
    let change = Change::SameLength;
    with_old(&dir, &options, change, false);
    assert_same(&dir.join("new"), &version(Some(change)), "compared");
    let mut options = reusing(&options, &dir.join("old"), false);
    options.old.as_mut().unwrap().trust_mtime = true;
    let summary = make(&version(Some(change)), &dir.join("new"), &options, 2).unwrap();
    assert!(summary.image.reused > 20, "{summary:?}");
    assert_same(&dir.join("new"), &version(None), "trusted");
    // A file of another length is read.
    make(&version(Some(Change::Half)), &dir.join("new"), &options, 2).unwrap();
    assert_same(&dir.join("new"), &version(Some(Change::Half)), "length");
}

/// Whatever is damaged in the old image, the new one is as if it were made without it.
#[test]
fn a_damaged_image_costs_nothing_but_time() {
    let dir = TempDir::new();
    let options = first(&dir, Settings::Zstd { level: 3 }, Fragments::SmallFiles);
    let sound = fs::read(dir.join("old")).unwrap();
    let source = version(Some(Change::Few));
    make(&source, &dir.join("full"), &options, 2).unwrap();
    let full = fs::read(dir.join("full")).unwrap();
    let mut rng = Rng::new(3);
    let mut opened = 0;
    for case in 0..testkit::cases(60) {
        fs::write(dir.join("old"), &sound).unwrap();
        let file = File::options().write(true).open(dir.join("old")).unwrap();
        for _ in 0..1 << rng.index(9) {
            let at = 96 + rng.below(sound.len() as u64 - 96);
            file.write_all_at(&[rng.next_u64() as u8], at).unwrap();
        }
        if Squashfs::open(File::open(dir.join("old")).unwrap()).is_err() {
            continue;
        }
        opened += 1;
        for exact in [false, true] {
            let options = reusing(&options, &dir.join("old"), exact);
            make(&source, &dir.join("new"), &options, 2).unwrap();
            assert_same(&dir.join("new"), &source, &format!("case {case}"));
            let new = fs::read(dir.join("new")).unwrap();
            assert!(!exact || new == full, "case {case}");
        }
    }
    assert!(opened > 10, "{opened}");
}

#[test]
#[ignore = "needs root"]
fn linux_reads_what_was_kept() {
    let dir = TempDir::new();
    for fragments in [Fragments::SmallFiles, Fragments::Always] {
        let options = first(&dir, Settings::Zstd { level: 3 }, fragments);
        with_old(&dir, &options, Change::Few, false);
        let mount = Mount::read_only(dir.join("new"), FsType::Squashfs);
        let linux = tree::HostDir::open(mount.path()).unwrap();
        let (found, expected) = (manifest(&linux), manifest(&version(Some(Change::Few))));
        assert!(found == expected, "{}", found.difference(&expected));
        drop(linux);
        mount.unmount();
    }
}
