//! Many small files, for what happens once in a thousand extents: written by the kernel and read by
//! us, and the other way round.

use std::fs;
use std::path::Path;

use codec::Settings;
use testkit::{FsType, Mount, Rng, TempDir, cases};
use tree::{FileSystem, HostDir, Ino};

use crate::check::findings;
use crate::images::{make, open, with};
use crate::kernel::Kernel;

/// Files in one directory.
const FILES_MAX: u64 = 1000;

/// The content of a file: text, noise, zeros and repetitions in turns, so that stored lengths take
/// every value.
fn content(seed: u64, number: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let len = match rng.index(8) {
        0 => 1 + rng.index(4096),
        1 => 128 * 1024 - 2048 + rng.index(4096),
        2..=4 => 4097 + rng.index(8192),
        _ => 4097 + rng.index(40_000),
    };
    let words: Vec<Vec<u8>> = (0..50).map(|n| rng.bytes(3 + n / 6)).collect();
    let mut content = Vec::with_capacity(len + 4096);
    while content.len() < len {
        let run = 1 + rng.index(3000);
        let end = content.len() + run;
        match rng.index(5) {
            0 => content.extend(rng.bytes(run)),
            1 => content.resize(end, 0),
            2 => {
                let byte = rng.bytes(1)[0];
                content.resize(end, byte);
            }
            _ => {
                while content.len() < end {
                    content.extend_from_slice(&words[rng.index(words.len())]);
                }
            }
        }
    }
    content.truncate(len);
    content
}

/// Compares every file of a tree with what was written.
fn compare(tree: &dyn FileSystem, seed: u64, count: u64, whose: &str) {
    let enter = |dir: Ino, name: u64| tree.lookup(dir, name.to_string().as_bytes()).unwrap().ino;
    for dir in 0..count.div_ceil(FILES_MAX) {
        let parent = enter(tree.root(), dir);
        for number in dir * FILES_MAX..count.min((dir + 1) * FILES_MAX) {
            let file = enter(parent, number);
            let expected = content(seed, number);
            let mut found = vec![0; expected.len() + 1];
            let read = tree.read_at(file, 0, &mut found);
            let read = read.unwrap_or_else(|error| panic!("{whose}, {seed}, {number}: {error}"));
            assert!(found[..read] == expected, "{whose}, {seed}, {number}");
        }
    }
}

fn write(at: &Path, seed: u64, count: u64) {
    for number in 0..count {
        let dir = at.join((number / FILES_MAX).to_string());
        if number % FILES_MAX == 0 {
            fs::create_dir(&dir).unwrap();
        }
        fs::write(dir.join(number.to_string()), content(seed, number)).unwrap();
    }
}

#[test]
#[ignore = "needs root"]
fn small_files_of_every_length_are_read_as_they_were_written() {
    let count = cases(600);
    let algorithms = [
        ("lzo", Settings::Lzo),
        ("zlib", Settings::Zlib { level: 3 }),
        ("zstd", Settings::Zstd { level: 3 }),
    ];
    for (seed, (name, settings)) in (1..).zip(algorithms) {
        let options = format!("compress-force={name}");
        let Some(kernel) = Kernel::of_bytes(16 << 30, &[], &options) else {
            return;
        };
        write(kernel.path(), seed, count);
        let backing = kernel.unmount();
        let theirs = open(backing.path());
        let (summary, lines) = findings(&theirs);
        assert!(lines.is_empty(), "{name}: {lines:#?}");
        assert!(summary.decoded_bytes > count * 1000, "{summary:?}");
        let theirs = theirs.subvolume(5).unwrap();
        compare(&theirs, seed, count, &format!("Linux's {name}"));
        // And encoded by us.
        let dir = TempDir::new();
        let image = dir.join("image");
        let options = with(Some(settings), true).keep_extents(false);
        make(&theirs, &image, &options, 2);
        drop(theirs);
        drop(backing);
        let mount = Mount::read_only(&image, FsType::Btrfs);
        let linux = HostDir::open(mount.path()).unwrap();
        compare(&linux, seed, count, &format!("our {name}, read by Linux"));
    }
}
