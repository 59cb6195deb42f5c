//! Failures of a source while it is being read: each gives an error that names the file, and leaves
//! nothing at the destination.

use std::fs::{self, File, FileTimes};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use codec::Settings;
use squashfs::{Options, Squashfs, create};
use testkit::{HookedFs, MemoryFs, TempDir};
use tree::{
    Error, FileSystem, HostDir, Inventory, Limits, NoProgress, Output, Parallel, Result, Xattr,
};

use crate::sources::{make, text};

const BLOCK: usize = 4096;

fn options() -> Options {
    Options::default()
        .compression(Some(Settings::Lz4))
        .block_bytes(BLOCK as u32)
}

/// Creates an image of what `open` opens, with an inventory taken from it earlier.
fn image_of(fs: &dyn FileSystem, options: &Options, threads: usize) -> Result<Vec<u8>> {
    let out = TempDir::new();
    let result = make(fs, &out.join("image"), options, threads);
    let names = fs::read_dir(out.path()).unwrap().count();
    match result {
        Ok(_) => Ok(fs::read(out.join("image")).unwrap()),
        Err(error) => {
            assert_eq!(names, 0, "nothing is left behind");
            Err(error)
        }
    }
}

/// A directory with a victim among other files, some of them equal to it.
fn source(victim: &[u8]) -> TempDir {
    let dir = TempDir::new();
    fs::create_dir(dir.join("sub")).unwrap();
    for n in 0..20 {
        fs::write(dir.join(format!("{n}")), text(n, 3000 * n as usize)).unwrap();
    }
    fs::write(dir.join("equal"), victim).unwrap();
    fs::write(dir.join("sub/victim"), victim).unwrap();
    for name in ["equal", "sub/victim"] {
        let old = FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000_000));
        let file = File::options().write(true).open(dir.join(name)).unwrap();
        file.set_times(old).unwrap();
    }
    dir
}

/// Number of reads of the victim until `befall` happens to it.
fn befalls(
    dir: &TempDir,
    at_read: u32,
    befall: impl Fn(&Path) -> Result<()> + Send + Sync + 'static,
) -> HookedFs<HostDir> {
    let fs = HostDir::open(dir.path()).unwrap();
    let sub = fs.lookup(fs.root(), b"sub").unwrap();
    let victim = fs.lookup(sub.ino, b"victim").unwrap().ino;
    let path = dir.join("sub/victim");
    let reads = AtomicU32::new(0);
    HookedFs::new(fs, move |file, _| {
        if file == victim && reads.fetch_add(1, Ordering::SeqCst) == at_read {
            befall(&path)?;
        }
        Ok(())
    })
}

/// Something that happens to a file, and part of the resulting error.
type Accident = (fn(&Path) -> Result<()>, &'static str);

const ACCIDENTS: &[Accident] = &[
    (
        |_| Err(Error::Io(std::io::Error::from_raw_os_error(5))),
        "Input/output error",
    ),
    (
        |path| {
            let file = File::options().write(true).open(path).unwrap();
            file.set_len(file.metadata().unwrap().len() / 2).unwrap();
            Ok(())
        },
        "the file changed while it was read",
    ),
    (
        |path| {
            let mut file = File::options().append(true).open(path).unwrap();
            file.write_all(b"more").unwrap();
            Ok(())
        },
        "the file changed while it was read",
    ),
    (
        |path| {
            let mut file = File::options().write(true).open(path).unwrap();
            file.write_all(b"other").unwrap();
            Ok(())
        },
        "the file changed while it was read",
    ),
];

#[test]
fn a_file_that_cannot_be_read_or_changes_is_named_and_nothing_is_made() {
    for size in [100, 3 * BLOCK, 3 * BLOCK + 100] {
        for (accident, words) in ACCIDENTS {
            // While duplicates are searched, and while blocks are read.
            for (at_read, duplicates) in [(0, true), (0, false), (1, true)] {
                for threads in [1, 3] {
                    let dir = source(&text(99, size));
                    let fs = befalls(&dir, at_read, accident);
                    let options = options().duplicates(duplicates);
                    let what = format!("{size}, {words}, read {at_read}, {duplicates}, {threads}");
                    match image_of(&fs, &options, threads) {
                        Err(error) => {
                            let error = error.to_string();
                            let named = error.contains("sub/victim: ");
                            assert!(named && error.contains(words), "{what}: {error}");
                        }
                        // It is known to equal a file that was read completely, and is not read
                        // again.
                        Ok(_) => assert!(at_read > 0, "{what}: nobody noticed"),
                    }
                }
            }
        }
    }
}

#[test]
fn a_file_that_goes_away_is_named() {
    for replace in [None, Some("a directory"), Some("a link")] {
        let dir = source(&text(99, 100));
        let fs = HostDir::open(dir.path()).unwrap();
        let inventory = Inventory::of(&fs, &Limits::default()).unwrap();
        fs::remove_file(dir.join("sub/victim")).unwrap();
        match replace {
            None => {}
            Some("a directory") => fs::create_dir(dir.join("sub/victim")).unwrap(),
            Some(_) => std::os::unix::fs::symlink("../0", dir.join("sub/victim")).unwrap(),
        }
        // Reopened, so that nothing is held open.
        let fs = HostDir::open(dir.path()).unwrap();
        let _ = fs.read_dir(fs.root());
        let out = TempDir::new();
        let mut output = Output::create(&out.join("image"), false).unwrap();
        let parallel = Parallel::new(2);
        let made = create(&inventory, &options(), parallel, &NoProgress, &mut output);
        let error = made.unwrap_err().to_string();
        assert!(
            error.contains("sub/victim: ") || error.contains("no such file"),
            "{error}"
        );
        drop(output);
        assert_eq!(fs::read_dir(out.path()).unwrap().count(), 0);
    }
}

#[test]
fn more_than_the_format_holds_is_said_with_the_file() {
    let tree = |change: &dyn Fn(&mut MemoryFs)| {
        let mut fs = MemoryFs::new();
        change(&mut fs);
        image_of(&fs, &options(), 2)
            .map(|_| ())
            .map_err(|error| error.to_string())
    };
    let error = tree(&|fs| {
        let root = fs.root();
        fs.add_symlink(root, "long", &[b'l'; 4096]);
    });
    assert_eq!(
        error.unwrap_err(),
        "read long: limit reached: the target of a symbolic link is longer than Linux follows"
    );
    let error = tree(&|fs| {
        let root = fs.root();
        let device = tree::Device {
            major: 4096,
            minor: 0,
        };
        fs.add_special(root, "disk", tree::FileKind::BlockDevice, device);
    });
    assert_eq!(
        error.unwrap_err(),
        "store disk: limit reached: a device number with more than 12 and 20 bits"
    );
    // Whatever can be left out is left out and reported.
    let mut fs = MemoryFs::new();
    let root = fs.root();
    let file = fs.add_file(root, "file", b"");
    fs.add_xattr(file, b"system.posix_acl_access", b"an access control list");
    fs.add_xattr(file, b"user.kept", b"value");
    let image = image_of(&fs, &options(), 2).unwrap();
    let image = Squashfs::open(image).unwrap();
    let file = image.lookup(image.root(), b"file").unwrap().ino;
    let kept = Xattr {
        name: b"user.kept"[..].into(),
        value: b"value"[..].into(),
    };
    assert_eq!(image.xattrs(file).unwrap(), [kept]);
}

/// The largest number of owners with which Linux mounts an image, and one more.
#[test]
fn owners_up_to_the_limit() {
    let with = |owners: u32| {
        let mut fs = MemoryFs::new();
        let root = fs.root();
        // The root directory's owner comes first.
        for owner in 1..owners {
            let file = fs.add_file(root, format!("{owner:05}"), b"");
            let metadata = fs.metadata_mut(file);
            // In pairs, so that each file has two IDs.
            metadata.uid = owner;
            metadata.gid = owner - 1;
        }
        image_of(&fs, &options(), 2)
    };
    let image = Squashfs::open(with(65_535).unwrap()).unwrap();
    assert_eq!(image.superblock().id_count, 65_535);
    let last = image.lookup(image.root(), b"65534").unwrap().ino;
    let metadata = image.metadata(last).unwrap();
    assert_eq!((metadata.uid, metadata.gid), (65_534, 65_533));
    let error = with(65_536).unwrap_err().to_string();
    assert!(
        error.contains("more than 65,535 different owners and groups"),
        "{error}"
    );
}
