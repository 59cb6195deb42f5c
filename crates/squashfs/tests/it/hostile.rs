//! Damaged images: an error or a right result, never a panic, in bounded time.

use std::ffi::OsStr;
use std::fs;

use squashfs::Squashfs;
use testkit::{Rng, TempDir, cases};
use tree::{ExtentKind, FileKind, FileSystem, Inventory, Limits};

/// Small, and with one of everything.
fn small_tree() -> Option<TempDir> {
    let setfattr = testkit::tool("setfattr")?;
    let dir = TempDir::new();
    fs::create_dir(dir.join("sub")).unwrap();
    fs::write(dir.join("sub/blocks"), crate::sources::text(1, 20_000)).unwrap();
    fs::write(dir.join("sub/tail"), "tail").unwrap();
    fs::write(dir.join("hole"), [vec![0; 9000], b"end".to_vec()].concat()).unwrap();
    std::os::unix::fs::symlink("sub/tail", dir.join("link")).unwrap();
    fs::hard_link(dir.join("sub/tail"), dir.join("hard")).unwrap();
    for n in 0..300 {
        fs::write(dir.join(format!("sub/{n}-{}", "x".repeat(40))), "").unwrap();
    }
    for (file, value) in [
        ("hole", "value"),
        ("sub", "another value"),
        ("hard", "another value"),
    ] {
        let file = dir.join(file);
        let args = ["-n", "user.name", "-v", value].map(OsStr::new);
        setfattr.run(args.into_iter().chain([file.as_os_str()]));
    }
    Some(dir)
}

/// Does with an image whatever can be done; gives how many bytes of content there were.
fn use_all(image: &[u8]) -> tree::Result<u64> {
    let limits = Limits {
        inodes_max: 5000,
        depth_max: 50,
        ..Limits::default()
    };
    let fs = Squashfs::open_at(image.to_vec(), 0, &limits)?;
    let inventory = Inventory::of(&fs, &limits)?;
    let mut total = 0;
    let mut buf = vec![0; 100_000];
    let mut stored = Vec::new();
    for file in inventory.files() {
        let ino = inventory.ino(file);
        fs.xattrs(ino)?;
        match inventory.kind(file) {
            FileKind::Symlink => drop(fs.read_link(ino)?),
            FileKind::Directory => {
                for entry in fs.read_dir(ino)? {
                    assert_eq!(fs.lookup(ino, &entry.name)?, entry);
                }
                assert!(fs.lookup(ino, b"no such name").is_err());
            }
            FileKind::Regular => {
                let size = inventory.size(file);
                // Hostile sizes reach 2^63; the first and the last bytes will do.
                for offset in [0, size.saturating_sub(5000)] {
                    total += fs.read_at(ino, offset, &mut buf)? as u64;
                }
                for extent in fs.extents(ino, 0)? {
                    if let ExtentKind::Encoded(_) = extent.kind {
                        fs.read_encoded(ino, &extent, &mut stored)?;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(total)
}

#[test]
fn damaged_images_do_no_harm() {
    let Some(mksquashfs) = testkit::tool("mksquashfs") else {
        return;
    };
    let Some(dir) = small_tree() else { return };
    let out = TempDir::new();
    let path = out.join("image");
    let mut whole = 0;
    let mut rng = Rng::new(1);
    for options in [
        "-noI -noId -noX -noD -noF -comp gzip",
        "-noI -noId -noX -comp zstd",
        "-noI -noId -noX -comp lz4",
        "-noI -noId -noX -comp lzo",
        "-noI -noId -noX -comp xz",
        "-comp lzo",
    ] {
        let mut args: Vec<&OsStr> = vec![dir.path().as_ref(), path.as_ref()];
        args.extend(["-noappend", "-quiet", "-no-progress", "-b", "4096"].map(OsStr::new));
        args.extend(options.split(' ').map(OsStr::new));
        mksquashfs.run(&args);
        let image = fs::read(&path).unwrap();
        let total = use_all(&image).unwrap();
        assert!(total > 29_000, "{total}");
        let used = u64::from_le_bytes(image[40..48].try_into().unwrap()) as usize;
        let tables = u64::from_le_bytes(image[64..72].try_into().unwrap()) as usize;
        for _ in 0..cases(600) {
            let mut damaged = image.clone();
            for _ in 0..1 + rng.below(3) {
                // Mostly in the tables, sometimes in the superblock or the data.
                let at = match rng.below(10) {
                    0 => rng.index(96),
                    1 => rng.index(used),
                    _ => tables + rng.index(used - tables),
                };
                match rng.below(4) {
                    0 => damaged[at] = rng.below(256) as u8,
                    1 => damaged[at] ^= 1 << rng.below(8),
                    2 => damaged[at..used.min(at + 4)].fill(0xff),
                    _ => damaged[at..used.min(at + 4)].fill(0),
                }
            }
            if rng.chance(20) {
                damaged.truncate(rng.index(used));
            }
            whole += u32::from(use_all(&damaged).is_ok());
        }
    }
    assert!(whole > 100, "damage must not always be found out: {whole}");
}
