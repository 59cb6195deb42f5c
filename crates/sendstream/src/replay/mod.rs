//! A stream, or a chain of streams, as trees of files.

mod ahead;
mod apply;
mod known;
mod parts;
mod tree;

use std::io::{self, Read};
use std::sync::Arc;

use ::tree::{Error, FileSystem, ReadAt, Result, Scratch, StoreId};

use self::apply::Applying;
use self::known::KnownTree;
use self::tree::ReplayInput;
use crate::reader::StreamReader;
use crate::subvolume::SentSubvolume;

pub use self::tree::SentTree;

/// The subvolumes that one or more streams build, each of them a [`FileSystem`].
///
/// Nothing but names and metadata is held in memory: content is read from the streams when it is
/// asked for, and encoded extents can be taken as they are. The streams must not change meanwhile.
///
/// An incremental stream needs its parent: a subvolume of a stream that was [added](Replay::add)
/// before, or a tree that is [known](Replay::know) by the UUID that the stream names.
#[derive(Default)]
pub struct Replay {
    store: Option<StoreId>,
    /// The store of the first tree that was made known.
    outside: Option<StoreId>,
    streams: u32,
    known: Vec<KnownTree>,
    subvolumes: Vec<Arc<SentTree>>,
    scratch: Scratch,
}

impl Replay {
    /// Nothing yet.
    pub fn new() -> Replay {
        Replay::default()
    }

    /// Nothing yet, with most of the metadata of large trees in a temporary file.
    pub fn in_scratch(scratch: Scratch) -> Replay {
        Replay {
            scratch,
            ..Replay::default()
        }
    }

    /// Makes a tree known that streams name by this UUID, as parent or as source of clones.
    /// `ctransid` is the transaction of its last change where it was sent; `None` accepts any.
    pub fn know(&mut self, uuid: [u8; 16], ctransid: Option<u64>, tree: Arc<dyn FileSystem>) {
        self.outside.get_or_insert(tree.storage().store);
        let known = KnownTree {
            uuid,
            ctransid,
            tree,
            depth: 0,
        };
        self.known.push(known);
    }

    /// Replays all streams of an input, one after the other, and returns how many subvolumes it
    /// added.
    ///
    /// # Errors
    /// The input cannot be read or is no send stream; a command breaks the format or asks for
    /// something impossible; a parent or the source of a clone is not known. Nothing is added then.
    pub fn add(&mut self, input: Arc<dyn ReadAt>) -> Result<usize> {
        let store = *self.store.get_or_insert_with(StoreId::new);
        let stream = self.streams;
        let next = stream.checked_add(1).filter(|&next| next < 1 << 12);
        self.streams = next.ok_or(Error::Limit("send streams"))?;
        let mut reader = StreamReader::new(Sequential {
            input: &*input,
            at: 0,
        });
        let (known_before, before) = (self.known.len(), self.subvolumes.len());
        let source = ReplayInput {
            input: Arc::clone(&input),
            number: stream,
            store,
            outside: self.outside,
        };
        let result = Scratch::catch(|| self.read(&mut reader, &source));
        if result.is_err() {
            self.known.truncate(known_before);
            self.subvolumes.truncate(before);
        }
        result.map(|()| self.subvolumes.len() - before)
    }

    fn read<R: Read>(&mut self, reader: &mut StreamReader<R>, source: &ReplayInput) -> Result<()> {
        while reader.next_stream()?.is_some() {
            let mut applying: Option<Applying> = None;
            while let Some(record) = reader.next_command()? {
                let number = record.number;
                let in_command = |error: Error| error.in_part("command", number);
                if let Some(sent) = SentSubvolume::started_by(&record.command) {
                    if let Some(done) = applying.take() {
                        self.finish(done);
                    }
                    let source = source.clone();
                    let scratch = &self.scratch;
                    let started = Applying::start(sent, &self.known, source, record.at, scratch);
                    applying = Some(started.map_err(in_command)?);
                    continue;
                }
                let Some(applying) = &mut applying else {
                    continue; // The end of a stream without subvolumes, which the reader refuses.
                };
                let data_at = record.data_at().unwrap_or(record.at);
                applying
                    .apply(&record.command, data_at, number, &self.known)
                    .map_err(|error| match error {
                        Error::NotFound => {
                            wrong("command names a file that does not exist", record.at)
                        }
                        Error::NotADirectory => {
                            wrong("path of a command leads through a file", record.at)
                        }
                        Error::IsADirectory => wrong("command writes to a directory", record.at),
                        error => error,
                    })
                    .map_err(in_command)?;
            }
            if let Some(done) = applying {
                self.finish(done);
            }
        }
        Ok(())
    }

    fn finish(&mut self, done: Applying) {
        let tree = Arc::new(done.into_tree());
        self.known.push(KnownTree {
            uuid: tree.sent().uuid,
            ctransid: Some(tree.sent().ctransid),
            depth: tree.depth(),
            tree: Arc::<SentTree>::clone(&tree),
        });
        self.subvolumes.push(tree);
    }

    /// The subvolumes, in the order in which they were sent.
    pub fn subvolumes(&self) -> &[Arc<SentTree>] {
        &self.subvolumes
    }
}

fn wrong(what: &'static str, at: u64) -> Error {
    Error::corrupt(what, at, 0)
}

/// Reads from the beginning to the end.
struct Sequential<'a> {
    input: &'a dyn ReadAt,
    at: u64,
}

impl Read for Sequential<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = self.input.size()?.saturating_sub(self.at);
        let len = left.min(buf.len() as u64) as usize;
        self.input.read_exact_at(&mut buf[..len], self.at)?;
        self.at += len as u64;
        Ok(len)
    }
}
