//! `restow receive` where Linux does not take compressed data as it is.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command as Program;

use testkit::{Access, BackingFile, FsType, LoopDevice, Mount, Rng, TempDir, run, tool};

use super::receive::{mounted, send};
use super::{btrfs_in, shown};

/// Runs a program whose calls of `BTRFS_IOC_ENCODED_WRITE` fail with `ENOTTY`, as before Linux 6.0.
const WITHOUT_ENCODED_WRITES: &str = r"
import ctypes, os, struct, sys
number = {'x86_64': 16, 'aarch64': 29}[os.uname().machine]
step = lambda *it: struct.pack('=HBBI', *it)
program = b''.join([
    step(0x20, 0, 0, 0),                 # A = number of the call
    step(0x15, 0, 3, number),
    step(0x20, 0, 0, 24),                # A = its second argument
    step(0x15, 0, 1, 0x40809440),
    step(0x06, 0, 0, 0x00050000 | 25),   # SECCOMP_RET_ERRNO, ENOTTY
    step(0x06, 0, 0, 0x7fff0000),        # SECCOMP_RET_ALLOW
])
buffer = ctypes.create_string_buffer(program)
class Filter(ctypes.Structure):
    _fields_ = [('len', ctypes.c_ushort), ('steps', ctypes.c_void_p)]
rules = Filter(len(program) // 8, ctypes.addressof(buffer))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(rules), 0, 0) == 0, os.strerror(ctypes.get_errno())
os.execv(sys.argv[1], sys.argv[1:])
";

/// Fills a file system but for single blocks, between which others are in use.
fn fill(at: &Path) {
    let make = |name: &str| File::create(at.join(name)).unwrap();
    let (rest, kept, gone) = (make("rest"), make("kept"), make("gone"));
    for block in 0..2048 {
        for file in [&kept, &gone] {
            linux::allocate(file, 0, block * 4096, 4096).unwrap();
        }
    }
    let (mut filled, mut step) = (0, 8 << 20);
    while step >= 4096 {
        match linux::allocate(&rest, 0, filled, step) {
            Ok(()) => filled += step,
            Err(_) => step /= 2,
        }
    }
    gone.set_len(0).unwrap();
    run(Program::new("sync").arg("-f").arg(at));
}

#[test]
#[ignore = "needs root"]
fn data_is_written_decompressed_where_linux_does_not_take_it() {
    let (Some(btrfs), Some(mkfs)) = (tool("btrfs"), tool("mkfs.btrfs")) else {
        return;
    };
    let source = mounted(&mkfs, "noatime,compress-force=zstd");
    let at = source.path();
    btrfs_in(&btrfs, at, &["subvolume", "create", "s"]);
    let mut content = Rng::new(1).bytes(1 << 20);
    content.iter_mut().for_each(|byte| *byte &= 15);
    fs::write(at.join("s/file"), &content).unwrap();
    btrfs_in(&btrfs, at, &["subvolume", "snapshot", "-r", "s", "a"]);
    let dir = TempDir::new();
    let stream = dir.join("stream");
    fs::write(&stream, send(&btrfs, at, &["--compressed-data"], "a")).unwrap();
    let target = mounted(&mkfs, "noatime");
    let backing = BackingFile::create(256 << 20);
    run(mkfs.command().args(["-q", "-m", "dup"]).arg(backing.path()));
    let device = LoopDevice::attach(backing, Access::ReadWrite);
    let full = Mount::new(device, FsType::Btrfs, "noatime");
    fill(full.path());
    let restow = env!("CARGO_BIN_EXE_restow");
    let filtered = ["python3", "-c", WITHOUT_ENCODED_WRITES, restow];
    for (words, program, to) in [
        ("", &[restow][..], target.path()),
        ("inappropriate ioctl for device", &filtered, target.path()),
        ("no space left on device", &[restow], full.path()),
    ] {
        for how in ["btrfs", "directory"] {
            let to = to.join(format!("{how} {words}"));
            fs::create_dir(&to).unwrap();
            let mut receive = Program::new(program[0]);
            receive
                .args(&program[1..])
                .args(["receive", "--to", how, "-f"]);
            let (code, _, said) = shown(&receive.args([&stream, &to]).output().unwrap());
            assert_eq!(code, 0, "{said}");
            let told = format!("8 compressed extents written decompressed: {words}");
            let is_told = !words.is_empty() && how == "btrfs";
            assert_eq!(said.contains(&told), is_told, "{said}");
            assert!(
                fs::read(to.join("a/file")).unwrap() == content,
                "{how} {words}"
            );
            run(Program::new("sync").arg("-f").arg(&to));
            let extents = run(Program::new("filefrag").arg("-v").arg(to.join("a/file"))).stdout;
            let is_encoded = String::from_utf8_lossy(&extents).contains("encoded");
            assert_eq!(is_encoded, words.is_empty(), "{how} {words}");
        }
    }
}
