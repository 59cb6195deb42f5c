//! LZO extents whose last segment ends near the end of a sector, where the zeros that keep lengths
//! from crossing it are easily forgotten: stored and sent by Linux, and by us.

#![expect(clippy::print_stdout, reason = "campaigns print what was met")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command as Program;

use codec::{Algorithm, Decoder, Encoder, Settings};
use sendstream::{Command, StreamReader};
use testkit::{Access, FsType, LoopDevice, Mount, Rng, TempDir, cases, run, tool};

use super::receive::{mounted, send};
use super::{btrfs_in, run_in};

const SECTOR: usize = 4096;
/// How far around the end of a sector the segments end.
const AROUND: usize = 16;
/// How often the files are written until their lengths are those that are wanted.
const TURNS: usize = 8;

/// `len` bytes, of which the first ones of each sector are noise, `noise` in all, and the others
/// compress well.
fn content(seed: u64, len: usize, noise: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let text = format!("line {seed} of a text\n");
    let mut content = Vec::with_capacity(len);
    for start in (0..len).step_by(SECTOR) {
        let end = len.min(start + SECTOR);
        let noise = noise.saturating_sub(start / SECTOR * 3000).min(3000);
        content.extend(rng.bytes(noise.min(end - start)));
        let rest = text.bytes().cycle().take(end - content.len());
        content.extend(rest);
    }
    content
}

/// A file whose encoded length is to be near a whole number of sectors.
struct Wanted {
    number: u64,
    len: usize,
    encoded: usize,
    /// How much of it is noise, as far as it is known what that gives.
    noise: usize,
}

impl Wanted {
    fn new(number: u64) -> Wanted {
        let mut rng = Rng::new(number);
        let sectors = 3 + rng.index(3);
        let end = (1 + rng.index(sectors - 2)) * SECTOR;
        let encoded = end - AROUND / 2;
        Wanted {
            number,
            len: (sectors - 1) * SECTOR + 1 + rng.index(SECTOR),
            encoded,
            noise: encoded - 1500,
        }
    }

    fn content(&self) -> Vec<u8> {
        content(self.number, self.len, self.noise)
    }

    /// Takes into account that its content has this length when it is encoded.
    fn learn(&mut self, encoded: usize) {
        self.noise = (self.noise + self.encoded).saturating_sub(encoded);
    }
}

/// Writes `count` files. Our encoder gives half of them the wanted lengths, and that of Linux the
/// others; then their ends are moved by one byte each.
fn write(at: &Path, count: u64) {
    let mut encoder = Encoder::new(&Settings::Lzo).unwrap();
    let mut all: Vec<Wanted> = (0..count).map(Wanted::new).collect();
    let path = |file: &Wanted| at.join(file.number.to_string());
    let mut encoded = vec![0; 1 << 17];
    for turn in 1..=TURNS {
        for file in &mut all {
            if turn == TURNS {
                file.noise += (file.number / 2) as usize % AROUND;
            }
            fs::write(path(file), file.content()).unwrap();
        }
        run(Program::new("sync").arg("-f").arg(at));
        for file in all.iter_mut().filter(|_| turn < TURNS) {
            let total = if file.number % 2 == 0 {
                let content = file.content();
                encoder.compress_extent(SECTOR as u32, &mut encoded, &content)
            } else {
                let opened = File::open(path(file)).unwrap();
                linux::read_encoded(&opened, 0, 1 << 17, &mut encoded).unwrap();
                encoded
                    .first_chunk()
                    .map(|it| u32::from_le_bytes(*it) as usize)
            };
            file.learn(total.unwrap());
            encoded.resize(1 << 17, 0);
        }
    }
}

/// Checks the lengths in an extent, as btrfs.rst of the kernel's documentation and fs/btrfs/lzo.c
/// define them; gives how many zeros follow its last segment.
fn zeros_behind(data: &[u8]) -> usize {
    let length = |at: usize| {
        let bytes: [u8; 4] = data[at..at + 4].try_into().unwrap();
        u32::from_le_bytes(bytes) as usize
    };
    let total = length(0);
    assert_eq!(data.len(), total);
    let (mut at, mut zeros) = (4, 0);
    while at < total {
        at += 4 + length(at);
        let left = at.next_multiple_of(SECTOR) - at;
        zeros = if left < 4 { left } else { 0 };
        assert!(data[at..at + zeros].iter().all(|&byte| byte == 0));
        at += zeros;
    }
    assert_eq!(at, total);
    zeros
}

/// The LZO extents of a stream, by path and offset, without the zeros behind the length that they
/// state.
fn extents(stream: &[u8]) -> BTreeMap<(Vec<u8>, u64), Vec<u8>> {
    let mut extents = BTreeMap::new();
    let mut reader = StreamReader::new(stream);
    let (mut decoder, mut buffer) = (Decoder::new(), Vec::new());
    while reader.next_stream().unwrap().is_some() {
        while let Some(record) = reader.next_command().unwrap() {
            if let Command::EncodedWrite(write) = record.command {
                let sector_bytes = SECTOR as u32;
                assert_eq!(write.compression, Algorithm::LzoBtrfs { sector_bytes });
                write.decode_exactly(&mut decoder, &mut buffer).unwrap();
                let total = u32::from_le_bytes(*write.data.first_chunk().unwrap());
                let (data, zeros) = write.data.split_at(total as usize);
                assert!(zeros.iter().all(|&byte| byte == 0));
                extents.insert((write.path.to_vec(), write.file_offset), data.to_vec());
            }
        }
    }
    extents
}

/// Checks all extents of a stream; gives how many there are, and how many have 0, 1, 2 and 3 zeros
/// behind the last segment.
fn counted(stream: &[u8]) -> (usize, [u64; 4]) {
    let mut counts = [0; 4];
    let extents = extents(stream);
    for data in extents.values() {
        counts[zeros_behind(data)] += 1;
    }
    (extents.len(), counts)
}

/// Runs what must succeed.
fn done(dir: &Path, args: &[&str]) {
    let (code, out, words) = run_in(dir, args);
    assert_eq!(code, 0, "{args:?}: {words}{out}");
}

#[test]
#[ignore = "needs root"]
fn every_end_of_a_sector_is_as_linux_has_it() {
    let (Some(btrfs), Some(mkfs)) = (tool("btrfs"), tool("mkfs.btrfs")) else {
        return;
    };
    let count = cases(320_u64);
    let source = mounted(&mkfs, "noatime,compress-force=lzo");
    let at = source.path();
    btrfs_in(&btrfs, at, &["subvolume", "create", "s"]);
    write(&at.join("s"), count);
    btrfs_in(&btrfs, at, &["subvolume", "snapshot", "-r", "s", "a"]);
    let compressed = ["-q", "--compressed-data"];
    let linux = send(&btrfs, at, &compressed, "a");
    let (extents_of_linux, counts) = counted(&linux);
    println!(
        "campaign: Linux: {extents_of_linux} extents, zeros behind the last segment: {counts:?}"
    );
    assert!(extents_of_linux as u64 >= count - count / 100 && counts.iter().all(|&it| it > 0));
    let dir = TempDir::new();
    let manifest = |at: &Path, tree: &str| run_in(at, ["manifest", tree]);
    let expected = manifest(&at.join("a"), ".");
    assert_eq!(expected.0, 0);
    // Read, and encoded by us.
    fs::write(dir.join("linux"), &linux).unwrap();
    done(dir.path(), &["stream", "verify", "linux"]);
    let convert = |more: &[&str]| {
        done(dir.path(), &[&["stream", "convert", "-q"], more].concat());
    };
    convert(&["--decompress", "linux", "plain"]);
    convert(&["--compress", "lzo", "plain", "ours"]);
    let ours = fs::read(dir.join("ours")).unwrap();
    let (extents_of_ours, counts) = counted(&ours);
    println!(
        "campaign: ours: {extents_of_ours} extents, zeros behind the last segment: {counts:?}"
    );
    assert!(extents_of_ours as u64 >= count - count / 100 && counts.iter().all(|&it| it > 0));
    // Each stream, received by Linux and by us, and sent again by Linux.
    for (name, stream) in [("linux", &linux), ("ours", &ours)] {
        let targets = [mounted(&mkfs, "noatime"), mounted(&mkfs, "noatime")];
        let file = dir.join(name);
        run(btrfs
            .command()
            .args(["receive", "-q", "-f"])
            .args([&*file, targets[0].path()]));
        let to = targets[1].path().to_str().unwrap();
        done(dir.path(), &["receive", "-q", "-f", name, to]);
        for (turn, target) in targets.into_iter().enumerate() {
            let again = send(&btrfs, target.path(), &compressed, "a");
            assert!(extents(&again) == extents(stream), "{name}, {turn}");
            // Read from the disk.
            let device = LoopDevice::attach(target.unmount(), Access::ReadWrite);
            let target = Mount::new(device, FsType::Btrfs, "noatime");
            let found = manifest(&target.path().join("a"), ".");
            assert!(found == expected, "{name}, {turn}");
        }
        let image = format!("{name}.btrfs");
        let args = ["receive", "-q", "--to", "image", "-f", name, &image];
        done(dir.path(), &args);
        let subvolume = format!("{image}:a");
        assert!(manifest(dir.path(), &subvolume) == expected, "{name}");
        let args = ["send", "-q", "--compressed-data", "-f", "again", &subvolume];
        done(dir.path(), &args);
        let again = fs::read(dir.join("again")).unwrap();
        assert!(extents(&again) == extents(stream), "{name}, image");
        let image = Mount::read_only(dir.join(&image), FsType::Btrfs);
        assert!(manifest(&image.path().join("a"), ".") == expected, "{name}");
    }
}
