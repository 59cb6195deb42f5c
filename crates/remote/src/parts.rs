//! The parts of an object: those that wait for bytes, and those that are sent.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use tree::temporary;

use crate::access::{PartsByNumber, StoredPart};
use crate::error::{Fault, RemoteError};
use crate::store_link::StoreLink;

/// The bytes of the first parts. Stores want at least 5 MiB.
const PART_BYTES: u64 = 8 << 20;
/// Parts of a size, after which it doubles: 10,000 parts hold 8 TiB, and none has more than 4 GiB.
const PARTS_OF_A_SIZE: u32 = 1000;
/// The part of an unfinished upload that says of which source it is. It never becomes a part of the
/// object.
const NOTE_PART: u32 = 10_000;
/// Parts that are sent at the same time.
const SENDERS_MAX: usize = 3;
/// Parts that wait for bytes, without those that are written last: a format that writes two copies
/// side by side is in two parts, and fills a third one that has the end of one copy and the
/// beginning of the other.
const OPEN_MAX: usize = 3;

/// A part that the store has, and its memory.
type Sent = Result<(StoredPart, Vec<u8>), RemoteError>;

/// The bytes that wait, and the parts that were sent.
pub(crate) struct Parts {
    len: u64,
    /// Those that wait for bytes, by their numbers from 1 on.
    open: BTreeMap<u32, WaitingPart>,
    /// Those that get bytes last, the first one among them.
    held: BTreeSet<u32>,
    /// Those that are sent just now, the oldest one first.
    senders: VecDeque<SendingPart>,
    /// Those that were sent; `None` while they are on their way.
    sent: BTreeMap<u32, Option<StoredPart>>,
    /// All of a complete object.
    pub(crate) stored: Vec<StoredPart>,
    /// The memory of parts that were sent.
    spare: Vec<Vec<u8>>,
    /// The parts that the store holds since an earlier try.
    found: PartsByNumber,
    /// The bytes from here on are read back.
    kept: Option<(u64, Vec<u8>)>,
}

impl Default for Parts {
    fn default() -> Self {
        Parts {
            len: 0,
            open: BTreeMap::new(),
            held: BTreeSet::from([1]),
            senders: VecDeque::new(),
            sent: BTreeMap::new(),
            stored: Vec::new(),
            spare: Vec::new(),
            found: PartsByNumber::new(),
            kept: None,
        }
    }
}

struct SendingPart {
    number: u32,
    bytes: u64,
    thread: JoinHandle<Sent>,
}

/// The bytes of a part up to the last one that was written.
#[derive(Default)]
struct WaitingPart {
    bytes: Vec<u8>,
    /// The ranges that were written, in order and apart from each other.
    written: Vec<(usize, usize)>,
}

impl WaitingPart {
    fn write(&mut self, buf: &[u8], at: usize) {
        put(&mut self.bytes, buf, at);
        let (mut from, mut to) = (at, at + buf.len());
        let before = self.written.partition_point(|range| range.1 < from);
        let touched = self.written[before..].partition_point(|range| range.0 <= to);
        for range in self.written.drain(before..before + touched) {
            (from, to) = (from.min(range.0), to.max(range.1));
        }
        self.written.insert(before, (from, to));
    }

    fn is_full(&self, bytes: u64) -> bool {
        self.written.first() == Some(&(0, bytes as usize))
    }
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

/// The number of the part with this byte.
fn number_of(at: u64) -> u32 {
    let sizes = (at / (PART_BYTES * u64::from(PARTS_OF_A_SIZE)) + 1).ilog2();
    let first = sizes * PARTS_OF_A_SIZE + 1;
    first + ((at - start_of(first)) / (PART_BYTES << sizes)) as u32
}

fn bytes_of(number: u32) -> u64 {
    start_of(number + 1) - start_of(number)
}

fn check_number(shared: &StoreLink, number: u32) -> io::Result<()> {
    let parts_max = shared.store.parts_max();
    if number <= parts_max {
        return Ok(());
    }
    let words = format!("an object has at most {} bytes", start_of(parts_max + 1));
    Err(RemoteError::new(Fault::Lasting, words).into())
}

impl Parts {
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn write(&mut self, shared: &Arc<StoreLink>, buf: &[u8], at: u64) -> io::Result<()> {
        if let Some((from, kept)) = &mut self.kept {
            let skipped = from.saturating_sub(at).min(buf.len() as u64) as usize;
            if skipped < buf.len() {
                let at = (at + skipped as u64 - *from) as usize;
                put(kept, &buf[skipped..], at);
            }
        }
        self.len = self.len.max(at + buf.len() as u64);
        let (mut buf, mut at) = (buf, at);
        while !buf.is_empty() {
            let number = number_of(at);
            if self.sent.contains_key(&number) {
                let words = format!("byte {at} of the object was sent already, and cannot change");
                return Err(RemoteError::new(Fault::Lasting, words).into());
            }
            check_number(shared, number)?;
            self.make_room(shared, number)?;
            let in_part = (at - start_of(number)) as usize;
            let left = bytes_of(number) - in_part as u64;
            let (now, later) = buf.split_at(buf.len().min(left as usize));
            let spare = &mut self.spare;
            let part = self.open.entry(number).or_insert_with(|| {
                // Doubling would leave up to the same again unused.
                let mut bytes = spare.pop().unwrap_or_default();
                bytes.reserve_exact(bytes_of(number) as usize);
                WaitingPart {
                    bytes,
                    written: Vec::new(),
                }
            });
            part.write(now, in_part);
            if part.is_full(bytes_of(number)) && !self.held.contains(&number) {
                self.send_open(shared, number, bytes_of(number))?;
            }
            (buf, at) = (later, at + now.len() as u64);
        }
        Ok(())
    }

    /// Sends the part before all others that wait, if there are too many beside this one, and waits
    /// until there is memory for this one. Bytes that were left out are zeros.
    fn make_room(&mut self, shared: &Arc<StoreLink>, number: u32) -> io::Result<()> {
        if self.open.contains_key(&number) {
            return Ok(());
        }
        if !self.held.contains(&number) {
            let mut waiting = self.open.keys().filter(|it| !self.held.contains(it));
            if let (Some(&first), OPEN_MAX..) = (waiting.next(), waiting.count() + 1) {
                self.send_open(shared, first, bytes_of(first))?;
            }
        }
        self.wait_for(shared, bytes_of(number))
    }

    /// Waits for parts that are on their way, until there is memory for these bytes.
    fn wait_for(&mut self, shared: &StoreLink, bytes: u64) -> io::Result<()> {
        while !self.senders.is_empty()
            && self.waiting_bytes() + bytes > shared.options.waiting_bytes
        {
            self.collect()?;
        }
        Ok(())
    }

    fn send_open(&mut self, shared: &Arc<StoreLink>, number: u32, bytes: u64) -> io::Result<()> {
        let mut part = self.open.remove(&number).unwrap_or_default().bytes;
        part.resize(bytes as usize, 0);
        self.send(shared, number, part)
    }

    fn send(&mut self, shared: &Arc<StoreLink>, number: u32, bytes: Vec<u8>) -> io::Result<()> {
        let id = self.begun(shared)?;
        let len = bytes.len() as u64;
        while let Some(sender) = self.senders.front()
            && (sender.thread.is_finished() || self.senders.len() >= SENDERS_MAX)
        {
            self.collect()?;
        }
        self.wait_for(shared, len)?;
        let (shared, found) = (Arc::clone(shared), self.found.remove(&number));
        let send = move || {
            let sent = shared.store.put_part(&id, number, &bytes, found.as_ref());
            let part = sent.map_err(|error| shared.reason(error))?;
            Ok((part, bytes))
        };
        let thread = thread::Builder::new().name("upload".into()).spawn(send)?;
        self.sent.insert(number, None);
        self.senders.push_back(SendingPart {
            number,
            bytes: len,
            thread,
        });
        Ok(())
    }

    fn waiting_bytes(&self) -> u64 {
        let open = self.open.keys().map(|&number| bytes_of(number));
        open.chain(self.senders.iter().map(|it| it.bytes)).sum()
    }

    /// Waits for the oldest part that is on its way.
    fn collect(&mut self) -> io::Result<()> {
        let Some(sender) = self.senders.pop_front() else {
            return Ok(());
        };
        let (part, mut bytes) = sender.thread.join().expect("sending does not panic")?;
        self.sent.insert(sender.number, Some(part));
        bytes.clear();
        self.spare.push(bytes);
        Ok(())
    }

    /// Waits for all parts that are on their way, also for those that fail.
    pub(crate) fn wait(&mut self) {
        for sender in self.senders.drain(..) {
            let _ = sender.thread.join();
        }
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
    pub(crate) fn finish(&mut self, shared: &Arc<StoreLink>) -> io::Result<()> {
        let overwrite = shared.options.overwrite;
        let note = shared.options.note.as_deref();
        if self.len <= PART_BYTES {
            let mut bytes = self.open.remove(&1).unwrap_or_default().bytes;
            bytes.resize(self.len as usize, 0);
            self.stored = vec![shared.store.put(&bytes, note, overwrite)?];
            return Ok(());
        }
        let last = number_of(self.len - 1);
        check_number(shared, last)?;
        for number in (2..=last).chain([1]) {
            if !self.sent.contains_key(&number) {
                let bytes = bytes_of(number).min(self.len - start_of(number));
                self.send_open(shared, number, bytes)?;
            }
        }
        while !self.senders.is_empty() {
            self.collect()?;
        }
        if temporary::is_stopping() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        // For stores that do not know the condition of the last request.
        if !overwrite && shared.store.is_there()? {
            return Err(RemoteError::new(Fault::Exists, "it exists").into());
        }
        self.stored = std::mem::take(&mut self.sent)
            .into_values()
            .flatten()
            .collect();
        let id = self.begun(shared)?;
        let made = shared.store.complete(&id, &self.stored, note, overwrite);
        made.map_err(|error| shared.reason(error))?;
        *shared.id() = None;
        Ok(())
    }

    pub(crate) fn set_len(&mut self, bytes: u64) -> io::Result<()> {
        let sent = self.sent.keys().next_back();
        if sent.is_some_and(|&number| bytes < start_of(number + 1)) {
            let words = format!("byte {bytes} of the object was sent already, and cannot go");
            return Err(RemoteError::new(Fault::Lasting, words).into());
        }
        self.open.retain(|&number, part| {
            let left = bytes.saturating_sub(start_of(number));
            let left = usize::try_from(left).unwrap_or(usize::MAX);
            part.bytes.truncate(left);
            part.written.retain(|range| range.0 < left);
            if let Some(last) = part.written.last_mut() {
                last.1 = last.1.min(left);
            }
            left > 0
        });
        self.len = bytes;
        Ok(())
    }

    /// Keeps the part of the object with these bytes until the end.
    pub(crate) fn hold(&mut self, at: u64, len: u64) {
        let last = number_of(at + len.max(1) - 1);
        self.held.extend(number_of(at)..=last);
    }

    pub(crate) fn keep_from(&mut self, at: u64) {
        self.kept = Some((at, Vec::new()));
    }

    pub(crate) fn read(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        let number = number_of(at);
        let open = self
            .open
            .get(&number)
            .map(|part| (start_of(number), &part.bytes));
        let kept = self.kept.as_ref().map(|(from, kept)| (*from, kept));
        for (start, bytes) in kept.into_iter().chain(open) {
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

/// Writes into bytes, which grow by zeros if that is necessary.
fn put(bytes: &mut Vec<u8>, buf: &[u8], at: usize) {
    let end = at + buf.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[at..end].copy_from_slice(buf);
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
            let (first, last) = (start_of(number), start_of(number + 1) - 1);
            assert_eq!((number_of(first), number_of(last)), (number, number));
        }
        let last = start_of(NOTE_PART) - start_of(NOTE_PART - 1);
        assert!(start_of(NOTE_PART) >= 5 << 40 && last <= 5 << 30);
        let last = start_of(9001) - start_of(9000);
        assert!(last <= 4000 << 20, "more than Azure takes for a block");
    }

    #[test]
    fn a_part_is_full_when_every_byte_was_written() {
        let mut part = WaitingPart::default();
        for (at, len, ranges) in [
            (4, 2, &[(4, 6)][..]),
            (0, 1, &[(0, 1), (4, 6)]),
            (8, 2, &[(0, 1), (4, 6), (8, 10)]),
            (5, 3, &[(0, 1), (4, 10)]),
            (4, 1, &[(0, 1), (4, 10)]),
            (2, 1, &[(0, 1), (2, 3), (4, 10)]),
            (1, 3, &[(0, 10)]),
        ] {
            assert!(!part.is_full(10));
            part.write(&vec![1; len], at);
            assert_eq!(part.written, ranges);
        }
        assert!(part.is_full(10) && !part.is_full(11));
    }
}
