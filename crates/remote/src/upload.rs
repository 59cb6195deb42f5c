//! An object as an output: it goes to the store in parts as it is made, and its name appears with
//! the last of them.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use tree::{Error, Output, OutputKind, OutputTarget, ReadAt, Result, temporary};

use crate::access::{PartsByNumber, StoredPart};
use crate::error::{Fault, RemoteError};
use crate::options::{RemoteOptions, UploadOptions};
use crate::store::ObjectStore;
use crate::url::is_written;

/// The bytes of the first parts. Stores want at least 5 MiB.
const PART_BYTES: u64 = 8 << 20;
/// Parts of a size, after which it doubles: 10,000 parts hold 8 TiB, and none has more than 4 GiB.
const PARTS_OF_A_SIZE: u32 = 1000;
/// The part of an unfinished upload that says of which source it is. It never becomes a part of the
/// object.
const NOTE_PART: u32 = 10_000;
/// The bytes of all parts in memory, as long as a part has at most 16 MiB.
const WAITING_BYTES_MAX: u64 = 64 << 20;
/// Parts that are sent at the same time.
const SENDERS_MAX: usize = 3;

/// A part that the store has, and its memory.
type Sent = std::result::Result<(StoredPart, Vec<u8>), RemoteError>;

/// Begins an object, of which nothing is visible until the output is committed.
///
/// # Errors
/// `AlreadyExists`, unless it may be replaced; the store cannot be reached or denies access.
pub fn create(address: &str, options: &RemoteOptions, upload: &UploadOptions) -> Result<Output> {
    if !is_written(address.as_bytes()) {
        return Err(Error::Unsupported("writing files of web servers"));
    }
    let store = ObjectStore::of(address, options).and_then(|mut store| {
        let found = store.find()?;
        Ok((store, found))
    });
    let (store, found) = store.map_err(io::Error::from)?;
    // A note shows that the object was made to be replaced when its source changes.
    let is_outdated = upload.note.is_some() && found.as_ref().is_some_and(|it| !it.is_empty());
    let mut upload = upload.clone();
    upload.overwrite |= is_outdated;
    if found.is_some() && !upload.overwrite {
        return Err(Error::Io(io::ErrorKind::AlreadyExists.into()));
    }
    let shared = Arc::new(StoreLink {
        store,
        id: Mutex::default(),
        options: upload.clone(),
    });
    let aborted = Arc::clone(&shared);
    Ok(Output::to(Upload {
        append_at: 0,
        state: Arc::default(),
        on_stop: (!upload.resume).then(|| temporary::on_stop(move || aborted.abort())),
        shared,
    }))
}

/// Whether the object at an address has this note ([`UploadOptions::note`]).
///
/// # Errors
/// The store cannot be reached or denies access.
pub fn is_current(address: &str, options: &RemoteOptions, note: &str) -> io::Result<bool> {
    let found = ObjectStore::of(address, options)?.find()?;
    Ok(found.as_deref() == Some(note))
}

/// The part of an upload that other threads see.
struct StoreLink {
    store: ObjectStore,
    /// The name of the upload, from the first part that is sent.
    id: Mutex<Option<String>>,
    options: UploadOptions,
}

impl StoreLink {
    fn id(&self) -> MutexGuard<'_, Option<String>> {
        self.id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reason why the store does not know the upload or a part of it: another writer continues
    /// it with other parts, or has completed it. Any other error stays as it is.
    fn reason(&self, error: RemoteError) -> RemoteError {
        let is_refused = |code: &&str| error.words.contains(*code);
        if error.fault != Fault::Lasting
            || !["NoSuchUpload", "InvalidPart", "InvalidBlockList"]
                .iter()
                .any(is_refused)
        {
            return error;
        }
        let is_final = !self.options.overwrite || self.options.note.is_some();
        match self.store.is_there() {
            Ok(true) if is_final => RemoteError::new(Fault::Exists, "it exists"),
            Ok(_) => {
                let words = format!("another writer has the same upload: {}", error.words);
                RemoteError::new(Fault::Temporary, words)
            }
            Err(_) => error,
        }
    }

    /// Removes the parts that the store holds. An error cannot be reported: the upload fails.
    fn abort(&self) {
        // An upload that begins just now has no part yet, and is not waited for.
        if let Ok(Some(id)) = self.id.try_lock().map(|mut id| id.take()) {
            let _ = self.store.abort(&id);
        }
    }
}

struct Upload {
    append_at: u64,
    state: Arc<Mutex<Parts>>,
    shared: Arc<StoreLink>,
    /// Removes the upload if the program is asked to stop.
    on_stop: Option<temporary::OnStop>,
}

/// The bytes that wait, and the parts that were sent.
#[derive(Default)]
struct Parts {
    len: u64,
    /// The bytes of the first part, which holds the bytes that a format writes last.
    first: Vec<u8>,
    /// The bytes of the part after those that were sent.
    open: Vec<u8>,
    /// How many parts behind the first one were sent.
    closed: u32,
    /// Those that are sent just now, with their sizes.
    senders: VecDeque<(u64, JoinHandle<Sent>)>,
    stored: Vec<StoredPart>,
    /// The memory of parts that were sent.
    spare: Vec<Vec<u8>>,
    /// The parts that the store holds since an earlier try.
    found: PartsByNumber,
    /// The bytes from here on are read back.
    kept: Option<(u64, Vec<u8>)>,
}

/// Where a part begins, by its number from 1 on.
fn start_of(number: u32) -> u64 {
    let (sizes, rest) = (
        (number - 1) / PARTS_OF_A_SIZE,
        (number - 1) % PARTS_OF_A_SIZE,
    );
    let size = PART_BYTES << sizes;
    (size - PART_BYTES) * u64::from(PARTS_OF_A_SIZE) + size * u64::from(rest)
}

impl Parts {
    fn open_number(&self) -> u32 {
        self.closed + 2
    }

    fn write(&mut self, shared: &Arc<StoreLink>, buf: &[u8], at: u64) -> io::Result<()> {
        self.keep(buf, at);
        self.len = self.len.max(at + buf.len() as u64);
        let (mut buf, mut at) = (buf, at);
        if at < PART_BYTES {
            let (now, later) = buf.split_at(buf.len().min((PART_BYTES - at) as usize));
            put(&mut self.first, now, at as usize);
            (buf, at) = (later, at + now.len() as u64);
        }
        while !buf.is_empty() {
            let (start, end) = (
                start_of(self.open_number()),
                start_of(self.open_number() + 1),
            );
            if at < start {
                let words = format!("byte {at} of the object was sent already, and cannot change");
                return Err(RemoteError::new(Fault::Lasting, words).into());
            }
            if at < end {
                let (now, later) = buf.split_at(buf.len().min((end - at) as usize));
                put(&mut self.open, now, (at - start) as usize);
                (buf, at) = (later, at + now.len() as u64);
            }
            if at >= end {
                self.open.resize((end - start) as usize, 0);
                self.send_open(shared)?;
            }
        }
        Ok(())
    }

    fn keep(&mut self, buf: &[u8], at: u64) {
        if let Some((from, kept)) = &mut self.kept {
            let skipped = from.saturating_sub(at).min(buf.len() as u64) as usize;
            if skipped < buf.len() {
                let at = (at + skipped as u64 - *from) as usize;
                put(kept, &buf[skipped..], at);
            }
        }
    }

    /// Sends the open part, and opens the next one.
    fn send_open(&mut self, shared: &Arc<StoreLink>) -> io::Result<()> {
        let number = self.open_number();
        let parts_max = shared.store.parts_max();
        if number > parts_max {
            let words = format!("an object has at most {} bytes", start_of(parts_max + 1));
            return Err(RemoteError::new(Fault::Lasting, words).into());
        }
        let bytes = std::mem::replace(&mut self.open, self.spare.pop().unwrap_or_default());
        self.send(shared, number, bytes)?;
        self.closed += 1;
        Ok(())
    }

    fn send(&mut self, shared: &Arc<StoreLink>, number: u32, bytes: Vec<u8>) -> io::Result<()> {
        let id = self.begun(shared)?;
        let len = bytes.len() as u64;
        // The first part and the one that is filled next are in memory, too.
        let waiting_max = WAITING_BYTES_MAX.saturating_sub(PART_BYTES + len);
        while let Some((_, sender)) = self.senders.front()
            && (sender.is_finished()
                || self.senders.len() >= SENDERS_MAX
                || self.senders.iter().map(|it| it.0).sum::<u64>() + len > waiting_max)
        {
            self.collect()?;
        }
        let (shared, found) = (Arc::clone(shared), self.found.remove(&number));
        let send = move || {
            let sent = shared.store.put_part(&id, number, &bytes, found.as_ref());
            let part = sent.map_err(|error| shared.reason(error))?;
            Ok((part, bytes))
        };
        let sender = thread::Builder::new().name("upload".into()).spawn(send)?;
        self.senders.push_back((len, sender));
        Ok(())
    }

    /// Waits for the oldest part that is on its way.
    fn collect(&mut self) -> io::Result<()> {
        let Some((_, sender)) = self.senders.pop_front() else {
            return Ok(());
        };
        let (part, mut bytes) = sender.join().expect("sending does not panic")?;
        self.stored.push(part);
        bytes.clear();
        self.spare.push(bytes);
        Ok(())
    }

    /// The name of the upload, which begins with its first part.
    fn begun(&mut self, shared: &StoreLink) -> io::Result<String> {
        let mut id = shared.id();
        if let Some(id) = &*id {
            return Ok(id.clone());
        }
        let note = shared.options.note.as_deref().unwrap_or_default();
        let unfinished = if shared.options.resume {
            shared.store.unfinished()
        } else {
            Ok(None)
        };
        if let Some((known, mut parts)) = unfinished.map_err(|error| shared.reason(error))? {
            let is_same = match parts.remove(&NOTE_PART) {
                // Without a note, the parts themselves are compared.
                None => note.is_empty(),
                Some(part) => shared.store.is_same(&part, note.as_bytes()),
            };
            if is_same {
                self.found = parts;
                *id = Some(known.clone());
                return Ok(known);
            }
        }
        if temporary::is_stopping() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let new = shared.store.begin(shared.options.note.as_deref())?;
        *id = Some(new.clone());
        drop(id);
        if !note.is_empty() && shared.options.resume {
            shared
                .store
                .put_part(&new, NOTE_PART, note.as_bytes(), None)?;
        }
        Ok(new)
    }

    /// Sends the rest, the first part last.
    fn finish(&mut self, shared: &Arc<StoreLink>) -> io::Result<()> {
        let overwrite = shared.options.overwrite;
        if self.len <= PART_BYTES {
            self.first.resize(self.len as usize, 0);
            let note = shared.options.note.as_deref();
            self.stored = vec![shared.store.put(&self.first, note, overwrite)?];
            return Ok(());
        }
        while start_of(self.open_number() + 1) <= self.len {
            let number = self.open_number();
            let bytes = start_of(number + 1) - start_of(number);
            self.open.resize(bytes as usize, 0);
            self.send_open(shared)?;
        }
        let rest = self.len - start_of(self.open_number());
        if rest > 0 {
            self.open.resize(rest as usize, 0);
            self.send_open(shared)?;
        }
        self.first.resize(PART_BYTES as usize, 0);
        let first = std::mem::take(&mut self.first);
        self.send(shared, 1, first)?;
        while !self.senders.is_empty() {
            self.collect()?;
        }
        self.stored.rotate_right(1);
        if temporary::is_stopping() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        // For stores that do not know the condition of the last request.
        if !overwrite && shared.store.is_there()? {
            return Err(RemoteError::new(Fault::Exists, "it exists").into());
        }
        let id = self.begun(shared)?;
        let note = shared.options.note.as_deref();
        let made = shared.store.complete(&id, &self.stored, note, overwrite);
        made.map_err(|error| shared.reason(error))?;
        *shared.id() = None;
        Ok(())
    }
}

/// Writes into bytes, which grow by zeros if that is necessary.
fn put(bytes: &mut Vec<u8>, buf: &[u8], at: usize) {
    let end = at + buf.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[at..end].copy_from_slice(buf);
}

impl Upload {
    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let mut parts = self.parts();
        // A part that is on its way would stay.
        for (_, sender) in parts.senders.drain(..) {
            let _ = sender.join();
        }
        drop(parts);
        if self.on_stop.take().is_some() && !temporary::is_stopping() {
            self.shared.abort();
        }
    }
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Upload")
    }
}

impl OutputTarget for Upload {
    fn kind(&self) -> OutputKind {
        OutputKind::File
    }

    fn append(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.write_all_at(buf, self.append_at)?;
        self.append_at += buf.len() as u64;
        Ok(buf.len())
    }

    fn write_all_at(&self, buf: &[u8], at: u64) -> io::Result<()> {
        self.parts().write(&self.shared, buf, at)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let mut parts = self.parts();
        let sent = if parts.closed > 0 {
            start_of(parts.open_number())
        } else {
            0
        };
        if bytes < sent {
            let words = format!("byte {bytes} of the object was sent already, and cannot go");
            return Err(RemoteError::new(Fault::Lasting, words).into());
        }
        let open = bytes.saturating_sub(start_of(parts.open_number()));
        parts
            .open
            .truncate(usize::try_from(open).unwrap_or(usize::MAX));
        parts
            .first
            .truncate(usize::try_from(bytes).unwrap_or(usize::MAX));
        parts.len = bytes;
        Ok(())
    }

    fn keep_from(&self, at: u64) -> bool {
        self.parts().kept = Some((at, Vec::new()));
        false
    }

    fn reader(&self) -> io::Result<Arc<dyn ReadAt>> {
        Ok(Arc::new(KeptBytes(Arc::clone(&self.state))))
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let mut finished = self.parts().finish(&self.shared);
        if finished.is_ok() && self.shared.options.read_back {
            finished = self.shared.store.read_back(&self.parts().stored);
        }
        finished.map_err(|error| match RemoteError::fault_of(&error) {
            Some(Fault::Exists) => {
                // Nothing of it is needed any more.
                self.shared.abort();
                Error::Io(io::ErrorKind::AlreadyExists.into())
            }
            _ => Error::Io(error),
        })
    }
}

impl ReadAt for Upload {
    fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        self.parts().read(buf, at)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.parts().len)
    }
}

/// The bytes of an object that are still in memory.
struct KeptBytes(Arc<Mutex<Parts>>);

impl ReadAt for KeptBytes {
    fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        let parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        parts.read(buf, at)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).len)
    }
}

impl Parts {
    fn read(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        let (from, kept) = self
            .kept
            .as_ref()
            .map_or((u64::MAX, &[][..]), |(from, kept)| (*from, kept));
        for (start, bytes) in [(from, kept), (0, &self.first)] {
            let range = at
                .checked_sub(start)
                .and_then(|at| usize::try_from(at).ok());
            let range = range.and_then(|at| bytes.get(at..at.checked_add(buf.len())?));
            if let Some(bytes) = range {
                buf.copy_from_slice(bytes);
                return Ok(());
            }
        }
        let words = "an object that is not complete cannot be read back";
        Err(RemoteError::new(Fault::Lasting, words).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_grow_and_hold_five_tebibytes() {
        assert_eq!((start_of(1), start_of(2)), (0, PART_BYTES));
        for number in 1..NOTE_PART {
            let bytes = start_of(number + 1) - start_of(number);
            assert_eq!(bytes, PART_BYTES << ((number - 1) / 1000), "{number}");
        }
        let last = start_of(NOTE_PART) - start_of(NOTE_PART - 1);
        assert!(start_of(NOTE_PART) >= 5 << 40 && last <= 5 << 30);
        let last = start_of(9001) - start_of(9000);
        assert!(last <= 4000 << 20, "more than Azure takes for a block");
    }
}
