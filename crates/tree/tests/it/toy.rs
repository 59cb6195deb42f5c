//! A brand-new container: a tree copied through it is unchanged.

use testkit::{MemoryFs, Rng, Toy, write_toy};
use tree::manifest::Manifest;
use tree::tar::{self, Tar};
use tree::{
    Aspects, Device, Error, FileKind, FileSystem, Inventory, Limits, NoProgress, Parallel, Result,
};

fn source() -> MemoryFs {
    let mut fs = MemoryFs::new();
    let root = fs.root();
    let dir = fs.add_dir(root, "dir");
    let file = fs.add_file(dir, "file", &Rng::new(1).bytes(70_000));
    fs.link(root, "a name that comes first", file);
    fs.add_xattr(file, b"user.one", b"1");
    fs.add_xattr(dir, b"user.two", b"");
    fs.add_symlink(dir, [0xff; 255], b"../nowhere");
    let rdev = Device {
        major: 8,
        minor: 17,
    };
    fs.add_special(dir, "device", FileKind::BlockDevice, rdev);
    fs.add_special(dir, "pipe", FileKind::Fifo, Device::default());
    let empty = fs.add_file(dir, "empty", b"");
    let metadata = fs.metadata_mut(empty);
    metadata.permissions = 0o6755;
    (metadata.uid, metadata.gid) = (1000, u32::MAX - 1);
    metadata.mtime.seconds = -1;
    fs
}

fn manifest(fs: &dyn FileSystem) -> Manifest {
    Manifest::of(fs, &Aspects::ALL).unwrap()
}

#[test]
fn a_tree_goes_through_a_toy_into_a_tar() -> Result<()> {
    let source = source();
    let bytes = write_toy(&source)?;
    let toy = Toy::open(&bytes)?;
    assert_eq!(manifest(&toy), manifest(&source));
    assert_eq!(write_toy(&toy)?, bytes);

    let inventory = Inventory::of(&toy, &Limits::default())?;
    let mut archive = Vec::new();
    tar::write(
        &inventory,
        false,
        Parallel::new(2),
        &NoProgress,
        &mut archive,
    )?;
    let tar = Tar::open(Box::new(archive), Limits::default())?;
    assert_eq!(manifest(&tar), manifest(&source));
    Ok(())
}

#[test]
fn a_toy_that_is_cut_off_is_an_error_or_a_shorter_toy() {
    let bytes = write_toy(&source()).unwrap();
    for len in 0..bytes.len().min(2000) {
        match Toy::open(&bytes[..len]) {
            Ok(toy) => drop(manifest(&toy)),
            Err(error) => assert!(matches!(error, Error::Corrupt(_)), "{len}: {error}"),
        }
    }
}
