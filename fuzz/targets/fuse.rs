//! Requests that a kernel would not send: wrong lengths, numbers, names and orders.
//!
//! Asserts: no panic; each reply has its own length, an error number of Linux, and answers a
//! request.
//!
//! `cargo +nightly fuzz run fuse`
#![cfg_attr(not(test), no_main)]

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};

use fuse::{FuseDevice, Options, Server};
use libfuzzer_sys::fuzz_target;
use testkit::MemoryFs;
use tree::FileSystem;

const HEADER_BYTES: usize = 40;
const INIT: u32 = 26;
const ENODEV: i32 = 19;

struct Script {
    requests: Mutex<VecDeque<Vec<u8>>>,
    uniques: u64,
}

impl FuseDevice for Script {
    fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let request = self.requests.lock().expect("no thread panics").pop_front();
        let request = request.ok_or_else(|| io::Error::from_raw_os_error(ENODEV))?;
        buffer[..request.len()].copy_from_slice(&request);
        Ok(request.len())
    }

    fn send(&self, reply: &[u8]) -> io::Result<()> {
        let word = |at: usize| i32::from_le_bytes(reply[at..at + 4].try_into().expect("4 bytes"));
        assert_eq!(word(0) as usize, reply.len(), "the length of a reply");
        assert!(
            (-4095..=0).contains(&word(4)) || word(8) == 0,
            "an error number"
        );
        assert!(
            word(4) == 0 || reply.len() == 16 || word(8) == 0,
            "an error with a body"
        );
        let unique = u64::from_le_bytes(reply[8..16].try_into().expect("8 bytes"));
        assert!(unique <= self.uniques, "no request has that number");
        Ok(())
    }
}

fn request(opcode: u32, unique: u64, node: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = ((HEADER_BYTES + body.len()) as u32).to_le_bytes().to_vec();
    bytes.extend(opcode.to_le_bytes());
    bytes.extend(unique.to_le_bytes());
    bytes.extend(node.to_le_bytes());
    bytes.extend([0; 16]);
    bytes.extend(body);
    bytes
}

fuzz_target!(|data: &[u8]| {
    let mut greeting = [7u32, 45, 1 << 20, !0, !0].map(u32::to_le_bytes).concat();
    greeting.resize(64, 0);
    let mut requests = VecDeque::from([request(INIT, 1, 0, &greeting)]);
    let mut left = data;
    while let Some((&[opcode, node, len, change], rest)) = left.split_first_chunk() {
        let (body, rest) = rest.split_at(rest.len().min(usize::from(len)));
        left = rest;
        let unique = requests.len() as u64 + 1;
        let mut bytes = request(u32::from(opcode % 54), unique, u64::from(node % 8), body);
        match change {
            0 => bytes[0] ^= 1,
            1 => bytes.truncate(usize::from(len) % (HEADER_BYTES + 1)),
            2 => bytes[16..24].fill(node),
            _ => {}
        }
        requests.push_back(bytes);
    }
    let mut fs = MemoryFs::new();
    let dir = fs.add_dir(fs.root(), "a");
    fs.add_file(dir, "b", &[7; 10_000]);
    fs.add_file(fs.root(), "c", b"content");
    fs.add_symlink(dir, "d", b"../c");
    let options = Options::default().is_live(data.len() % 2 == 1);
    let server = Server::new(Arc::new(fs), options, |_| {}).expect("it has a root");
    let uniques = requests.len() as u64;
    let script = Script {
        requests: Mutex::new(requests),
        uniques,
    };
    server.greet(&script).expect("the first request is right");
    let _ = server.serve(&script);
});
