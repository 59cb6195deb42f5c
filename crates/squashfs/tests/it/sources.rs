//! Source trees for the tests, and how the tests create images.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use squashfs::{CreateSummary, Options, create};
use testkit::{Rng, TempDir};
use tree::{FileSystem, Inventory, Limits, NoProgress, Output, Parallel, Result};

/// Creates an image of a tree, replacing an existing one.
pub(crate) fn make(
    fs: &dyn FileSystem,
    image: &Path,
    options: &Options,
    threads: usize,
) -> Result<CreateSummary> {
    let inventory = Inventory::of(fs, &Limits::default())?;
    let mut output = Output::create(image, true)?;
    let parallel = Parallel::new(threads);
    let summary = create(&inventory, options, parallel, &NoProgress, &mut output)?;
    output.commit()?;
    Ok(summary)
}

/// Compressible content of `len` bytes that differs with `seed`.
pub(crate) fn text(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let words: Vec<String> = (0..200)
        .map(|_| format!("{:x} ", rng.next_u64() >> 40))
        .collect();
    let mut text = Vec::with_capacity(len + 16);
    while text.len() < len {
        text.extend(words[rng.index(words.len())].as_bytes());
    }
    text.truncate(len);
    text
}

/// A tree of difficult cases for readers and writers, for blocks of `block` bytes: sizes around the
/// block size, duplicates, holes, links, odd names, a large directory, a deep one, and extended
/// attributes where the file system supports them.
///
/// Any user can create all of it, and all its times are whole seconds. `None` if a tool is missing.
pub(crate) fn nasty(block: usize) -> Option<TempDir> {
    nasty_with(block, 3000)
}

/// Like [`nasty`], with this many files in the large directory.
pub(crate) fn nasty_with(block: usize, many: usize) -> Option<TempDir> {
    let (setfattr, touch) = (testkit::tool("setfattr")?, testkit::tool("touch")?);
    let dir = TempDir::new();
    let root = dir.path();
    let noise = |seed: u64, len: usize| Rng::new(seed).bytes(len);
    let put = |name: &str, content: &[u8]| fs::write(root.join(name), content).unwrap();
    for len in [
        0,
        1,
        block - 1,
        block,
        block + 1,
        2 * block - 1,
        2 * block,
        3 * block + 777,
    ] {
        put(&format!("text-{len}"), &text(len as u64, len));
        put(&format!("noise-{len}"), &noise(len as u64, len));
        put(&format!("zeros-{len}"), &vec![0; len]);
    }
    fs::create_dir(root.join("equal")).unwrap();
    for n in 0..3 {
        put(&format!("equal/large-{n}"), &text(1, 2 * block + 99));
        put(&format!("equal/small-{n}"), &text(2, 99));
        put(&format!("equal/blocks-{n}"), &noise(3, 2 * block));
        put(
            &format!("equal/almost-{n}"),
            &[&text(4, block + 50)[..], &[n]].concat(),
        );
    }
    // Holes at the start, inside and at the end, and a hole of many blocks.
    for (name, places) in [
        ("front", &[(3usize, 50usize)][..]),
        ("inside", &[(0, block), (4, block), (9, 10)]),
        ("behind", &[(0, 100)]),
    ] {
        let mut content = vec![0; 12 * block + 5];
        for &(at, len) in places {
            content[at * block..at * block + len].copy_from_slice(&noise(5, len));
        }
        put(&format!("hole-{name}"), &content);
    }
    let file = fs::File::create(root.join("hole-large")).unwrap();
    file.set_len(40 * block as u64 + 17).unwrap();

    fs::create_dir(root.join("links")).unwrap();
    fs::hard_link(root.join("text-1"), root.join("links/hard")).unwrap();
    fs::hard_link(root.join("text-1"), root.join("links/hard again")).unwrap();
    fs::hard_link(
        root.join(format!("noise-{block}")),
        root.join("links/hard-block"),
    )
    .unwrap();
    symlink("../text-1", root.join("links/soft")).unwrap();
    symlink("no/such/file", root.join("links/dangling")).unwrap();
    symlink("x".repeat(4000), root.join("links/long")).unwrap();
    fs::hard_link(root.join("links/soft"), root.join("links/soft too")).unwrap();
    drop(UnixListener::bind(root.join("links/socket")));

    fs::create_dir(root.join("names")).unwrap();
    for byte in (1..=255u8).filter(|&byte| byte != b'/') {
        let name = [b'n', byte, b'-'];
        fs::write(root.join("names").join(OsStr::from_bytes(&name)), [byte]).unwrap();
    }
    put(&format!("names/{}", "l".repeat(255)), b"long name");
    fs::create_dir(root.join("many")).unwrap();
    for n in 0..many {
        put(
            &format!("many/{n}-{}", "m".repeat(n % 70)),
            format!("{n}").as_bytes(),
        );
    }
    fs::create_dir(root.join("empty")).unwrap();
    fs::create_dir_all(root.join("deep/".repeat(60))).unwrap();
    put("modes", b"modes");
    fs::set_permissions(root.join("modes"), fs::Permissions::from_mode(0o4751)).unwrap();
    fs::set_permissions(root.join("empty"), fs::Permissions::from_mode(0o1777)).unwrap();

    let shared = "s".repeat(3000);
    for (file, name, value) in [
        ("text-1", "user.mime_type", "text/plain"),
        ("text-0", "user.mime_type", "text/plain"),
        ("empty", "user.on-directory", &shared),
        ("modes", "user.same-value", &shared),
        ("modes", "user.z", ""),
        ("modes", "user.a", "first"),
        ("many", "user.large", &"v".repeat(2000)),
    ] {
        let file = root.join(file);
        setfattr.run([
            OsStr::new("-n"),
            name.as_ref(),
            "-v".as_ref(),
            value.as_ref(),
            file.as_ref(),
        ]);
    }
    whole_seconds(root, &touch);
    Some(dir)
}

/// Gives every file a different whole second, children before their directories.
fn whole_seconds(root: &Path, touch: &testkit::Tool) {
    let mut paths = vec![root.to_owned()];
    let mut at = 0;
    let mut odd: Vec<PathBuf> = Vec::new();
    while at < paths.len() {
        let path = paths[at].clone();
        at += 1;
        let kind = fs::symlink_metadata(&path).unwrap().file_type();
        if kind.is_dir() {
            paths.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        } else if !kind.is_file() {
            odd.push(path);
        }
    }
    let odd = odd.iter().map(|path| path.as_os_str());
    touch.run(
        [OsStr::new("-h"), "-d".as_ref(), "@1400000000".as_ref()]
            .into_iter()
            .chain(odd),
    );
    for (n, path) in paths.iter().enumerate().rev() {
        let kind = fs::symlink_metadata(path).unwrap().file_type();
        if kind.is_file() || kind.is_dir() {
            let time = UNIX_EPOCH + Duration::from_secs(1_500_000_000 + n as u64);
            let file = fs::File::open(path).unwrap();
            let times = fs::FileTimes::new().set_modified(time).set_accessed(time);
            file.set_times(times).unwrap();
        }
    }
}
