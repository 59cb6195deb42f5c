//! Arbitrary bytes as a disk file of a virtual machine: the first one chooses the format, whose
//! magic number is put in place, and the checksums of VHD are made right.
//!
//! Asserts: no panic; a part of the disk is as in the whole.
//!
//! `cargo +nightly fuzz run disk_files`
#![cfg_attr(not(test), no_main)]

use libfuzzer_sys::fuzz_target;
use restow::{Input, OpenOptions};
use tree::ReadAt;

/// Bytes of the beginning of a disk that are read.
const BYTES_MAX: u64 = 256 << 10;

/// Puts the complement of the sum of all other bytes at `sum_at`.
fn sum(header: &mut [u8], sum_at: usize) {
    header[sum_at..sum_at + 4].fill(0);
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[sum_at..sum_at + 4].copy_from_slice(&(!sum).to_be_bytes());
}

fn mend(file: &mut [u8], format: u8) {
    let magic: &[u8] = match format % 4 {
        0 | 1 => b"QFI\xfb\0\0\0",
        2 => b"KDMV",
        _ => b"conectix",
    };
    file[..magic.len()].copy_from_slice(magic);
    if magic == b"conectix" {
        file[16..24].copy_from_slice(&512u64.to_be_bytes());
        file[60..64].copy_from_slice(&3u32.to_be_bytes());
        file[512..520].copy_from_slice(b"cxsparse");
        sum(&mut file[..512], 64);
        sum(&mut file[512..1536], 36);
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&format, content)) = data.split_first() else {
        return;
    };
    let mut file = content.to_vec();
    file.resize(file.len().max(2048), 0);
    mend(&mut file, format);
    let mut input = Input::of(file);
    if input.open_disk_file(&OpenOptions::default()).is_err() {
        return;
    }
    let disk = input.disk_file().expect("it has a magic number");
    let size = disk.size().expect("the header has it").min(BYTES_MAX) as usize;
    let mut whole = vec![0; size];
    if disk.read_exact_at(&mut whole, 0).is_ok() {
        let mut part = vec![0; size / 2];
        let at = size - part.len();
        disk.read_exact_at(&mut part, at as u64)
            .expect("the whole can be read");
        assert!(part == whole[at..], "a part is as in the whole");
    }
});
