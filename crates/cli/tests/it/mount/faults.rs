use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use testkit::{BtrfsImage, Rng, TempDir, cases, run, squashfs_vectors, tool};

use super::{Foreground, Mounted, counter, script};
use crate::{restow, run_in, shown};

/// Longest time that anything may take after a fault.
const PATIENCE: Duration = Duration::from_secs(1);

fn image(dir: &TempDir) -> std::path::PathBuf {
    script(
        dir.path(),
        "mkdir -p src/sub; head -c 1000000 /dev/urandom | base64 > src/sub/large; echo small > src/small",
    );
    let image = dir.join("x.squashfs");
    let mksquashfs = tool("mksquashfs").expect("mksquashfs makes the images of these tests");
    let mut command = mksquashfs.command();
    command.arg(dir.join("src")).arg(&image);
    run(command.args(["-comp", "zstd", "-quiet", "-no-progress"]));
    image
}

/// Changes 16 bytes.
fn flip(image: &Path, at: u64) {
    let mut file = File::options().read(true).write(true).open(image).unwrap();
    let mut bytes = [0; 16];
    file.seek(SeekFrom::Start(at)).unwrap();
    file.read_exact(&mut bytes).unwrap();
    for byte in &mut bytes {
        *byte ^= 0x5a;
    }
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(&bytes).unwrap();
}

/// Runs something that must not hang.
fn soon<T>(what: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = what();
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
    result
}

/// The error that reading a file gives, in the words of `cat`.
fn read_error(dir: &Path, file: &str) -> String {
    let mut cat = Command::new("timeout");
    cat.args(["5", "cat", file]).env("LC_ALL", "C");
    let (code, _, words) = shown(&cat.current_dir(dir).output().unwrap());
    assert_eq!(code, 1, "{words}");
    words.trim().to_owned()
}

#[test]
#[ignore = "needs root"]
fn a_damaged_block_is_one_error_and_one_line() {
    let dir = TempDir::new();
    script(
        dir.path(),
        "mkdir -p src/sub; seq 1 200000 > src/sub/large; echo small > src/small",
    );
    // Checksums find every change.
    let copy = ["copy", "-q", "src", "x.btrfs", "--compress", "none"];
    let (code, _, words) = run_in(dir.path(), copy);
    assert_eq!(code, 0, "{words}");
    let image = dir.join("x.btrfs");
    let (all, large) = (
        fs::read(&image).unwrap(),
        fs::read(dir.join("src/sub/large")).unwrap(),
    );
    let at = all
        .windows(64)
        .position(|bytes| bytes == &large[150_000..150_064]);
    flip(&image, at.unwrap() as u64);
    let mounted = Foreground::new(&image, [""; 0]);
    let words = soon(|| read_error(mounted.path(), "sub/large"));
    assert_eq!(words, "cat: sub/large: Input/output error");
    assert_eq!(fs::read(mounted.path().join("small")).unwrap(), b"small\n");
    let words = mounted.unmount();
    let about: Vec<&str> = words
        .lines()
        .filter(|line| line.contains("sub/large"))
        .collect();
    assert_eq!(about.len(), 1, "{words}");
    assert!(
        about[0].starts_with("restow: read sub/large at byte 147456 in "),
        "{words}"
    );
    assert!(about[0].contains(" at byte 0x"), "{words}");
    assert!(counter(&words, "problems:") > 0);
    // As a rescue, the file is read with the damage.
    let rescued = Mounted::new(&image, ["-o", "ignore_checksums"]);
    let damaged = fs::read(rescued.path().join("sub/large")).unwrap();
    let differing = damaged
        .iter()
        .zip(&large)
        .filter(|(one, other)| one != other);
    assert_eq!((damaged.len(), differing.count()), (large.len(), 16));
    rescued.unmount();
}

#[test]
#[ignore = "needs root"]
fn the_system_log_says_what_a_mount_in_the_background_cannot_read() {
    let dir = TempDir::new();
    let image = image(&dir);
    let mounted = Mounted::new(&image, [""; 0]);
    // Where the log of the system is, in a mount namespace of this test.
    let folder = dir.join("dev");
    fs::create_dir(&folder).unwrap();
    let log = UnixDatagram::bind(folder.join("log")).unwrap();
    log.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    if !Path::new("/dev/log").exists() {
        fs::write("/dev/log", "").unwrap();
    }
    run(Command::new("mount")
        .arg("--bind")
        .args([&folder.join("log"), Path::new("/dev/log")]));
    File::options()
        .write(true)
        .open(&image)
        .unwrap()
        .set_len(100_000)
        .unwrap();
    read_error(mounted.path(), "sub/large");
    let mut line = [0; 4096];
    let len = log.recv(&mut line).unwrap();
    let line = String::from_utf8_lossy(&line[..len]);
    assert!(line.starts_with("<27>restow["), "{line}");
    assert!(
        line.contains("]: read sub/large at byte 131072 in "),
        "{line}"
    );
    mounted.unmount();
    run(Command::new("umount").arg("/dev/log"));
}

#[test]
#[ignore = "needs root"]
fn damaged_metadata_truncation_and_replacement_are_errors() {
    let dir = TempDir::new();
    let image = image(&dir);
    let size = fs::metadata(&image).unwrap().len();
    // The inode of the last directory, while the image is mounted; then the end of the file.
    let mounted = Foreground::new(&image, [""; 0]);
    flip(&image, size - 4096 - 300);
    let _ = soon(|| {
        shown(
            &Command::new("ls")
                .arg("-lR")
                .arg(mounted.path())
                .output()
                .unwrap(),
        )
    });
    drop(mounted);
    flip(&image, size - 4096 - 300);
    let mounted = Foreground::new(&image, [""; 0]);
    File::options()
        .write(true)
        .open(&image)
        .unwrap()
        .set_len(100_000)
        .unwrap();
    let words = soon(|| read_error(mounted.path(), "sub/large"));
    assert!(words.ends_with("Input/output error"), "{words}");
    let words = mounted.unmount();
    let place = words.contains("read sub/large at byte 131072 in ");
    let found = words.contains(" of a file that ends at byte 100000");
    assert!(place && found, "{words}");
    // A file that takes the image's name is not the one that is mounted.
    let whole = dir.join("again");
    fs::create_dir(&whole).unwrap();
    let image = {
        script(dir.path(), "rm x.squashfs");
        self::image(&dir)
    };
    let mounted = Mounted::new(&image, [""; 0]);
    fs::write(dir.join("other"), [0; 5000]).unwrap();
    fs::rename(dir.join("other"), &image).unwrap();
    assert_eq!(fs::read(mounted.path().join("small")).unwrap(), b"small\n");
    mounted.unmount();
}

#[test]
#[ignore = "needs root"]
fn a_killed_program_leaves_errors_and_no_hang() {
    let dir = TempDir::new();
    let image = image(&dir);
    let mounted = Foreground::new(&image, [""; 0]);
    let _open = File::open(mounted.path().join("small")).unwrap();
    mounted.signal("KILL");
    let words = soon(|| read_error(mounted.path(), "sub/large"));
    assert!(
        words.contains("not connected") || words.contains("connection abort"),
        "{words}"
    );
    run(Command::new("umount").arg("-l").arg(mounted.path()));
    // With `fusermount3` waiting, the mount goes, too.
    if tool("fusermount3").is_some() {
        let mounted = Foreground::new(&image, ["-o", "auto_unmount"]);
        mounted.signal("KILL");
        let gone = || {
            script(
                mounted.path().parent().unwrap(),
                "while mountpoint -q point 2> /dev/null || ! ls point > /dev/null 2>&1; do :; done",
            )
        };
        soon(gone);
    }
}

#[test]
#[ignore = "needs root"]
fn signals_and_all_kinds_of_unmounting_end_the_program() {
    let dir = TempDir::new();
    let image = image(&dir);
    for signal in ["TERM", "INT", "HUP"] {
        // With and without an open file.
        for is_open in [false, true] {
            let mounted = Foreground::new(&image, [""; 0]);
            let open = is_open.then(|| File::open(mounted.path().join("small")).unwrap());
            mounted.signal(signal);
            let words = soon(|| mounted.ended());
            assert!(words.contains("requests: "), "{words}");
            drop(open);
        }
    }
    // Forced, although a file is open: its reader gets an error.
    let mounted = Foreground::new(&image, [""; 0]);
    let mut open = File::open(mounted.path().join("sub/large")).unwrap();
    let forced = Command::new("umount")
        .arg("-f")
        .arg(mounted.path())
        .status();
    assert!(!forced.unwrap().success());
    soon(|| assert!(open.read(&mut [0; 10]).is_err()));
    drop(open);
    let point = mounted.path().to_owned();
    soon(|| mounted.ended());
    let _ = Command::new("umount").arg("-l").arg(&point).status();
    // Lazily: it works until the file is closed.
    let mounted = Foreground::new(&image, [""; 0]);
    let mut open = File::open(mounted.path().join("sub/large")).unwrap();
    run(Command::new("umount").arg("-l").arg(mounted.path()));
    assert_eq!(open.read(&mut [0; 10]).unwrap(), 10);
    drop(open);
    soon(|| mounted.ended());
}

#[test]
#[ignore = "needs root"]
fn no_process_is_left_behind() {
    let dir = TempDir::new();
    let image = image(&dir);
    let marked = dir.join("no-process-is-left");
    fs::rename(&image, &marked).unwrap();
    for end in ["restow", "umount", "umount -l", "kill"] {
        let mounted = Mounted::new(&marked, [""; 0]);
        let point = mounted.path().display().to_string();
        let ids = || {
            let list = Command::new("pgrep")
                .args(["-f", "no-process-is-left"])
                .output();
            String::from_utf8(list.unwrap().stdout).unwrap()
        };
        assert_eq!(ids().lines().count(), 1);
        match end {
            "restow" => assert!(restow(["unmount", &point]).status().unwrap().success()),
            "kill" => drop(run(Command::new("kill").arg(ids().trim()))),
            umount => drop(script(dir.path(), &format!("{umount} {point}"))),
        }
        soon(|| while !ids().is_empty() {});
    }
}

#[test]
#[ignore = "needs root"]
fn a_full_temporary_folder_is_an_error_before_the_mount() {
    let dir = TempDir::new();
    script(
        dir.path(),
        "mkdir full point; head -c 3M /dev/urandom > file; tar czf x.tar.gz file",
    );
    run(Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1M", "tmpfs"])
        .arg(dir.join("full")));
    let output = restow(["mount", "x.tar.gz", "point"])
        .current_dir(dir.path())
        .env("TMPDIR", dir.join("full"))
        .output();
    let (code, _, words) = shown(&output.unwrap());
    assert_eq!(code, 2);
    assert!(words.contains("no space left on device"), "{words}");
}

/// Mounts a hostile image, if that is not refused in one line, and reads all of it. Returns whether
/// it was mounted.
fn walk_hostile(dir: &TempDir, name: &str, image: &[u8]) -> bool {
    let path = dir.join("hostile");
    fs::write(&path, image).unwrap();
    let point = dir.join("point");
    let _ = fs::create_dir(&point);
    let mut command = Command::new("timeout");
    command.arg("20").arg(restow([""; 0]).get_program());
    let output = command.arg("mount").args([&path, &point]).output().unwrap();
    let (code, _, words) = shown(&output);
    if code != 0 {
        assert_eq!((code, words.lines().count()), (2, 1), "{name}: {words}");
        return false;
    }
    let walk = "timeout 20 find . -ls > /dev/null 2>&1
                timeout 20 find . -type f -size -1024k -exec cat {} + > /dev/null 2>&1
                timeout 20 getfattr -R -d -m- . > /dev/null 2>&1; true";
    let mut bash = Command::new("bash");
    bash.args(["-c", walk])
        .current_dir(&point)
        .status()
        .unwrap();
    let peak = script(
        dir.path(),
        "grep VmHWM /proc/$(pgrep -f \"mount $PWD/hostile\" | head -1)/status",
    );
    assert!(counter(&peak, "VmHWM:") < 128 << 10, "{name}: {peak}");
    let done = restow(["unmount"]).arg(&point).status().unwrap();
    assert!(done.success(), "{name}");
    true
}

#[test]
#[ignore = "needs root"]
fn hostile_images_are_walked_in_bounded_memory() {
    let dir = TempDir::new();
    let vectors = squashfs_vectors(1, &|_| None);
    let mounted = vectors
        .iter()
        .filter(|vector| walk_hostile(&dir, vector.name, &vector.image));
    assert!(mounted.count() > 10);
}

/// Changes up to eight bytes.
fn scribble(bytes: &mut [u8], rng: &mut Rng) {
    for _ in 0..=rng.below(8) {
        let at = rng.index(bytes.len());
        bytes[at] = rng.next_u64() as u8;
    }
}

/// Changes some commands of a stream, and makes their checksums right.
fn scribble_commands(stream: &mut [u8], rng: &mut Rng) {
    let mut at = 17;
    while at + 10 <= stream.len() {
        let len = u32::from_le_bytes(stream[at..at + 4].try_into().unwrap()) as usize;
        let end = at + 10 + len;
        if len > 0 && rng.chance(10) {
            scribble(&mut stream[at + 10..end], rng);
            stream[at + 6..at + 10].fill(0);
            // That of a stream begins with 0 and is not inverted.
            let zeros = BtrfsImage::checksum(&vec![0; end - at]);
            let sum = BtrfsImage::checksum(&stream[at..end]) ^ zeros;
            stream[at + 6..at + 10].copy_from_slice(&sum.to_le_bytes());
        }
        at = end;
    }
}

#[test]
#[ignore = "needs root"]
fn hostile_btrfs_images_archives_and_streams_are_walked_in_bounded_memory() {
    let dir = TempDir::new();
    script(
        dir.path(),
        "mkdir -p src/sub; for n in $(seq 60); do seq $n 300 > src/sub/$n; setfattr -n user.n -v $n src/sub/$n; ln -s $n src/sub/link$n; done
         seq 1 100000 > src/large; tar cf x.tar --format=pax --xattrs -C src .",
    );
    for to in ["x.btrfs", "x.stream"] {
        let (code, _, words) = run_in(dir.path(), ["copy", "-q", "--compress", "zstd", "src", to]);
        assert_eq!(code, 0, "{words}");
    }
    let image = BtrfsImage::read_file(&dir.join("x.btrfs"));
    let blocks: Vec<u64> = [1, 2, 5, 7]
        .iter()
        .flat_map(|tree| image.blocks(*tree))
        .collect();
    let [archive, stream] = ["x.tar", "x.stream"].map(|name| fs::read(dir.join(name)).unwrap());
    let mut mounted = [0; 3];
    for seed in 0..cases(10) {
        let mut rng = Rng::new(seed);
        let mut image = image.clone();
        for _ in 0..=rng.below(3) {
            let block = blocks[rng.index(blocks.len())];
            image.edit_block(block, |block| scribble(&mut block[101..], &mut rng));
        }
        image.write_file(&dir.join("hostile.btrfs"));
        let image = fs::read(dir.join("hostile.btrfs")).unwrap();
        fs::remove_file(dir.join("hostile.btrfs")).unwrap();
        let mut archive = archive.clone();
        // Headers, which are whole blocks.
        for _ in 0..3 {
            let block = rng.index(archive.len() / 512) * 512;
            scribble(&mut archive[block..block + 512], &mut rng);
        }
        let mut stream = stream.clone();
        scribble_commands(&mut stream, &mut rng);
        for (kind, hostile) in [image, archive, stream].iter().enumerate() {
            let name = format!("kind {kind}, seed {seed}");
            mounted[kind] += u32::from(walk_hostile(&dir, &name, hostile));
        }
    }
    assert!(mounted[0] > 0, "{mounted:?}");
}
