//! The loop that answers requests.

use std::io;
use std::sync::{Arc, OnceLock};

use linux::errno;
use tree::{Error, FileKind, FileSystem};

use crate::ahead::Ahead;
use crate::counters::{Counters, name_of};
use crate::device::FuseDevice;
use crate::greeting::{self, Agreed};
use crate::raw::{REQUEST_BYTES_MAX, Request, ability, opcode};
use crate::reply::{Errno, Reply};
use crate::served::{Options, Problem, Served};

/// Flags of `struct fuse_open_out`: keep the cached parts of a file or directory.
const KEEP_CACHE: u32 = 2;
const CACHE_DIR: u32 = 8;

/// Serves a tree. Any number of threads may call [`Server::serve`] once [`Server::greet`] has
/// returned.
pub struct Server {
    served: Served,
    agreed: OnceLock<Agreed>,
}

/// The outcome of a request.
enum Handled {
    Reply(Option<Errno>),
    /// The kernel expects no reply.
    Silence,
}

impl Server {
    /// Serves `fs`. `report` is called for each file that cannot be read.
    ///
    /// # Errors
    /// The root is not a directory, or cannot be read.
    pub fn new(
        fs: Arc<dyn FileSystem>,
        options: Options,
        report: impl Fn(&Problem<'_>) + Send + Sync + 'static,
    ) -> tree::Result<Server> {
        let served = Served::new(fs, options, Box::new(report));
        if served.attributes(served.root)?.metadata.kind != FileKind::Directory {
            return Err(Error::NotADirectory);
        }
        served.directory(served.root, true)?;
        Ok(Server {
            served,
            agreed: OnceLock::new(),
        })
    }

    /// Counts of requests and replies.
    pub fn counters(&self) -> &Counters {
        &self.served.counters
    }

    /// Answers the first request of the kernel. When this returns, the mount answers.
    ///
    /// # Errors
    /// The device cannot be read or written, or the kernel is older than Linux 4.20.
    pub fn greet(&self, device: &impl FuseDevice) -> io::Result<()> {
        let mut buffer = vec![0; REQUEST_BYTES_MAX];
        let mut reply = Reply::new();
        while self.agreed.get().is_none() {
            let Some(bytes) = receive(device, &mut buffer)? else {
                return Err(io::Error::from_raw_os_error(errno::ENODEV));
            };
            self.answer_greeting(device, bytes, &mut reply)?;
        }
        Ok(())
    }

    fn answer_greeting(
        &self,
        device: &impl FuseDevice,
        bytes: &[u8],
        reply: &mut Reply,
    ) -> io::Result<()> {
        let request = Request::parse(bytes).ok_or(io::ErrorKind::InvalidData)?;
        reply.clear();
        self.served.counters.count(request.opcode);
        let options = &self.served.options;
        let wanted = greeting::wanted(options.is_live, options.has_xattrs);
        let answered = if request.opcode == opcode::INIT {
            greeting::answer(&request, wanted, reply)
        } else {
            Err(Errno(errno::EIO))
        };
        send(device, reply.finish(request.unique, answered.err()))?;
        match answered {
            Ok(Some(agreed)) => {
                let _ = self.agreed.set(agreed);
                Ok(())
            }
            Err(Errno(number)) if request.opcode == opcode::INIT => {
                Err(io::Error::from_raw_os_error(number))
            }
            _ => Ok(()),
        }
    }

    /// Answers requests until the file system is unmounted.
    ///
    /// # Errors
    /// The device cannot be read or written.
    pub fn serve(&self, device: &impl FuseDevice) -> io::Result<()> {
        let mut buffer = vec![0; REQUEST_BYTES_MAX];
        let mut reply = Reply::new();
        while let Some(bytes) = receive(device, &mut buffer)? {
            // The kernel sends whole requests; a shorter one has no number to reply to.
            let Some(request) = Request::parse(bytes) else {
                continue;
            };
            reply.clear();
            self.served.counters.count(request.opcode);
            let outcome = self.answer(&request, &mut reply);
            match request.opcode {
                opcode::READ => self.served.send_siblings(&request, device),
                // There are no more names.
                opcode::READDIRPLUS
                    if reply.body_len() == 0 && matches!(outcome, Handled::Reply(None)) =>
                {
                    self.served.send_listed(&request, device);
                }
                _ => {}
            }
            if let Handled::Reply(error) = outcome
                && !send(device, reply.finish(request.unique, error))?
            {
                break;
            }
        }
        Ok(())
    }

    /// The number of threads that should call [`Server::read_ahead`].
    pub fn ahead_threads(&self) -> usize {
        self.served.ahead.as_ref().map_or(0, Ahead::threads)
    }

    /// Reads ahead in files that are read in sequence, for as long as the process lives.
    pub fn read_ahead(&self) {
        let Some(ahead) = &self.served.ahead else {
            return;
        };
        loop {
            let (ino, at) = ahead.next();
            // One byte of a block makes the tree decode and keep it. What is wrong with it is found
            // when it is asked for.
            let _ = self.served.fs.read_at(ino, at, &mut [0]);
        }
    }

    fn answer(&self, request: &Request<'_>, reply: &mut Reply) -> Handled {
        let served = &self.served;
        let answer = match request.opcode {
            opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT => return Handled::Silence,
            _ if self.is_forbidden(request) => Err(Errno(errno::EACCES)),
            opcode::LOOKUP => served.answer_lookup(request, reply),
            opcode::GETATTR => served.answer_getattr(request, reply),
            opcode::STATX => served.answer_statx(request, reply),
            opcode::READLINK => served.answer_readlink(request, reply),
            opcode::READ => served.answer_read(request, reply),
            opcode::READDIR => served.answer_readdir(request, false, reply),
            opcode::READDIRPLUS => served.answer_readdir(request, true, reply),
            opcode::LSEEK => served.answer_lseek(request, reply),
            opcode::GETXATTR => served.answer_getxattr(request, reply),
            opcode::LISTXATTR => served.answer_listxattr(request, reply),
            opcode::STATFS => {
                served.answer_statfs(reply);
                Ok(())
            }
            opcode::OPEN => self.answer_open(ability::NO_OPEN_SUPPORT, KEEP_CACHE, reply),
            opcode::OPENDIR => {
                let flags = KEEP_CACHE | CACHE_DIR;
                self.answer_open(ability::NO_OPENDIR_SUPPORT, flags, reply)
            }
            opcode::RELEASE | opcode::RELEASEDIR | opcode::DESTROY => Ok(()),
            request if changes_something(request) => Err(Errno(errno::EROFS)),
            _ => Err(Errno(errno::ENOSYS)),
        };
        if let Some(trace) = &served.options.trace {
            let error = answer.err().map_or(0, |Errno(number)| number);
            trace(
                name_of(request.opcode),
                served.nodes.ino(request.node).0,
                error,
            );
        }
        Handled::Reply(answer.err())
    }

    /// `OPEN` and `OPENDIR`: the kernel does not ask again if the answer is that this is not
    /// needed.
    fn answer_open(&self, unneeded: u64, flags: u32, reply: &mut Reply) -> Result<(), Errno> {
        let abilities = self.agreed.get().map_or(0, |agreed| agreed.abilities);
        if abilities & unneeded != 0 {
            return Err(Errno(errno::ENOSYS));
        }
        reply.u64(0);
        reply.u32(if self.served.options.is_live {
            0
        } else {
            flags
        });
        reply.u32(0);
        Ok(())
    }

    /// Whether the user who asks may not, because only root and another user may.
    fn is_forbidden(&self, request: &Request<'_>) -> bool {
        let only = self.served.options.only_user;
        // Open files stay readable, as in libfuse: their opener had the right to read them.
        let is_open = [
            opcode::READ,
            opcode::RELEASE,
            opcode::RELEASEDIR,
            opcode::STATFS,
        ];
        only.is_some_and(|uid| request.uid != uid && request.uid != 0)
            && !is_open.contains(&request.opcode)
    }
}

/// Requests that the kernel does not send to a file system that is mounted read-only.
fn changes_something(request: u32) -> bool {
    [
        opcode::SETATTR,
        opcode::SYMLINK,
        opcode::MKNOD,
        opcode::MKDIR,
        opcode::UNLINK,
        opcode::RMDIR,
        opcode::RENAME,
        opcode::RENAME2,
        opcode::LINK,
        opcode::WRITE,
        opcode::SETXATTR,
        opcode::REMOVEXATTR,
        opcode::CREATE,
        opcode::FALLOCATE,
        opcode::TMPFILE,
    ]
    .contains(&request)
}

/// The next request; `None` if there are no more, because the file system was unmounted.
fn receive<'a>(device: &impl FuseDevice, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
    loop {
        match device.receive(buffer) {
            Ok(0) => return Ok(None),
            Ok(len) => return Ok(buffer.get(..len)),
            Err(error) if error.raw_os_error() == Some(errno::ENODEV) => return Ok(None),
            // A signal, or the program that asked was killed before the request was read.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::Interrupted
                        | io::ErrorKind::WouldBlock
                        | io::ErrorKind::NotFound
                ) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

/// Sends a reply; returns whether the file system is still mounted.
fn send(device: &impl FuseDevice, reply: &[u8]) -> io::Result<bool> {
    match device.send(reply) {
        Ok(()) => Ok(true),
        // The program that asked was killed.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) if error.raw_os_error() == Some(errno::ENODEV) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => Ok(false),
        Err(error) => Err(error),
    }
}
