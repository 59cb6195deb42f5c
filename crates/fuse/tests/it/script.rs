//! A device that sends the requests of a test, and keeps the replies.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};

use fuse::{FuseDevice, Options, Server};
use testkit::MemoryFs;
use tree::FileSystem;

/// Numbers of requests (`enum fuse_opcode` in linux/fuse.h).
pub(crate) const LOOKUP: u32 = 1;
pub(crate) const FORGET: u32 = 2;
pub(crate) const GETATTR: u32 = 3;
pub(crate) const READLINK: u32 = 5;
pub(crate) const MKDIR: u32 = 9;
pub(crate) const OPEN: u32 = 14;
pub(crate) const READ: u32 = 15;
pub(crate) const STATFS: u32 = 17;
pub(crate) const GETXATTR: u32 = 22;
pub(crate) const LISTXATTR: u32 = 23;
pub(crate) const INIT: u32 = 26;
pub(crate) const OPENDIR: u32 = 27;
pub(crate) const READDIR: u32 = 28;
pub(crate) const READDIRPLUS: u32 = 44;
pub(crate) const LSEEK: u32 = 46;
pub(crate) const STATX: u32 = 52;

/// All abilities that a current kernel offers.
pub(crate) const ALL: u32 = 0x47ff_ffff;

/// A reply: the error number, positive, or the body.
pub(crate) type Reply = Result<Vec<u8>, i32>;

pub(crate) struct Script {
    requests: Mutex<VecDeque<Vec<u8>>>,
    replies: Mutex<Vec<Vec<u8>>>,
}

impl Script {
    pub(crate) fn of(requests: impl IntoIterator<Item = Vec<u8>>) -> Script {
        Script {
            requests: Mutex::new(requests.into_iter().collect()),
            replies: Mutex::default(),
        }
    }

    pub(crate) fn replies(self) -> Vec<Vec<u8>> {
        self.replies.into_inner().unwrap()
    }
}

impl FuseDevice for Script {
    fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.requests.lock().unwrap().pop_front() {
            Some(request) => {
                buffer[..request.len()].copy_from_slice(&request);
                Ok(request.len())
            }
            None => Err(io::Error::from_raw_os_error(linux::errno::ENODEV)),
        }
    }

    fn send(&self, reply: &[u8]) -> io::Result<()> {
        self.replies.lock().unwrap().push(reply.to_vec());
        Ok(())
    }
}

pub(crate) fn request(opcode: u32, node: u64, body: &[u8]) -> Vec<u8> {
    of_user(0, opcode, node, body)
}

/// The first request of a current kernel.
pub(crate) fn greeting() -> Vec<u8> {
    init(7, 45, ALL)
}

fn init(major: u32, minor: u32, flags: u32) -> Vec<u8> {
    let mut body = [major, minor, 128 << 10, flags]
        .map(u32::to_ne_bytes)
        .concat();
    body.resize(64, 0);
    request(INIT, 0, &body)
}

pub(crate) fn of_user(uid: u32, opcode: u32, node: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = (40 + body.len() as u32).to_ne_bytes().to_vec();
    bytes.extend(opcode.to_ne_bytes());
    bytes.extend(77u64.to_ne_bytes());
    bytes.extend(node.to_ne_bytes());
    bytes.extend([uid, 0, 1, 0].map(u32::to_ne_bytes).concat());
    bytes.extend(body);
    bytes
}

/// A tree that is served, and the problems that were reported.
pub(crate) struct Served {
    pub(crate) server: Server,
    pub(crate) problems: Arc<Mutex<Vec<String>>>,
}

pub(crate) fn options() -> Options {
    Options::default()
        .size_bytes(5000)
        .files(3)
        .numbers(Box::new(|ino| Ok(ino.0 + 1000)))
}

impl Served {
    pub(crate) fn new(fs: MemoryFs) -> Served {
        Served::with(Arc::new(fs), options())
    }

    /// Serves a tree to a kernel with all abilities.
    pub(crate) fn with(fs: Arc<dyn FileSystem>, options: Options) -> Served {
        let problems = Arc::new(Mutex::new(Vec::new()));
        let list = Arc::clone(&problems);
        let server = Server::new(fs, options, move |problem| {
            let path = problem.path.as_deref().unwrap_or(b"?").escape_ascii();
            let words = format!(
                "{} {path} {:?}: {}",
                problem.verb, problem.offset, problem.error
            );
            list.lock().unwrap().push(words);
        });
        let served = Served {
            server: server.unwrap(),
            problems,
        };
        let reply = served.greeted(7, 45, ALL).unwrap();
        assert_eq!(u32_at(&reply, 0), 7);
        served
    }

    /// The reply to `INIT`.
    pub(crate) fn greeted(&self, major: u32, minor: u32, flags: u32) -> Reply {
        let script = Script::of([init(major, minor, flags)]);
        let _ = self.server.greet(&script);
        let replies = script.replies();
        parse(replies.first().map_or(&[], Vec::as_slice))
    }

    /// All that is sent while requests are answered.
    pub(crate) fn messages(&self, requests: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let script = Script::of(requests);
        self.server.serve(&script).unwrap();
        script.replies()
    }

    /// The replies to all requests.
    pub(crate) fn replies(&self, requests: Vec<Vec<u8>>) -> Vec<Reply> {
        let replies = self.messages(requests);
        replies.iter().map(|reply| parse(reply)).collect()
    }

    pub(crate) fn ask(&self, opcode: u32, node: u64, body: &[u8]) -> Reply {
        let mut replies = self.replies(vec![request(opcode, node, body)]);
        assert_eq!(replies.len(), 1);
        replies.remove(0)
    }

    /// The number of a name in a directory, and the attributes behind it; 0 if there is none.
    pub(crate) fn lookup(&self, dir: u64, name: &[u8]) -> Result<(u64, Vec<u8>), i32> {
        let reply = self.ask(LOOKUP, dir, &[name, b"\0"].concat())?;
        assert_eq!(reply.len(), 128);
        Ok((u64_at(&reply, 0), reply[40..].to_vec()))
    }

    /// The names in a directory, asked for in replies of `size` bytes, with their numbers in the
    /// protocol and for programs.
    pub(crate) fn list(&self, dir: u64, size: u32, plus: bool) -> Vec<(Vec<u8>, u64, u64)> {
        let mut list = Vec::new();
        let mut offset = 0;
        loop {
            let opcode = if plus { READDIRPLUS } else { READDIR };
            let reply = self.ask(opcode, dir, &read_body(offset, size)).unwrap();
            assert!(reply.len() <= size as usize);
            let mut rest = &reply[..];
            if rest.is_empty() {
                return list;
            }
            while !rest.is_empty() {
                let node = if plus { u64_at(rest, 0) } else { 0 };
                let entry = &rest[if plus { 128 } else { 0 }..];
                let len = u32_at(entry, 16) as usize;
                list.push((entry[24..24 + len].to_vec(), node, u64_at(entry, 0)));
                offset = u64_at(entry, 8);
                rest = &entry[(24 + len).next_multiple_of(8)..];
            }
        }
    }

    pub(crate) fn problems(&self) -> Vec<String> {
        self.problems.lock().unwrap().clone()
    }
}

/// The body of `READ`, `READDIR` and, with another last field, of `LSEEK`.
pub(crate) fn read_body(offset: u64, size: u32) -> Vec<u8> {
    let mut body = [0, offset].map(u64::to_ne_bytes).concat();
    body.extend(size.to_ne_bytes());
    body.resize(40, 0);
    body
}

pub(crate) fn parse(reply: &[u8]) -> Reply {
    assert!(reply.len() >= 16, "no reply");
    assert_eq!(u32_at(reply, 0) as usize, reply.len());
    assert_eq!(u64_at(reply, 8), 77);
    match u32_at(reply, 4).cast_signed() {
        0 => Ok(reply[16..].to_vec()),
        error => {
            assert_eq!(reply.len(), 16);
            Err(-error)
        }
    }
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}
