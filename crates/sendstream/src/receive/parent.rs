//! Parents, and other subvolumes from which files are cloned.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use linux::{OpenFlags, Subvolume, Timestamp};
use tree::{Error, Result, Time};

/// The inode number of the root of a subvolume (`BTRFS_FIRST_FREE_OBJECTID`).
const ROOT: u64 = 256;
/// The most subvolumes that are held open.
const OPEN_MAX: usize = 128;

/// Subvolumes of the file system, by the UUIDs that streams name.
pub(super) struct Sources {
    target: Arc<OwnedFd>,
    open: HashMap<[u8; 16], Arc<OwnedFd>>,
    /// Whether what was changed before is in the trees: Linux puts inodes there when it commits.
    is_synced: bool,
    /// Subvolumes that were found, but with another transaction, and not yet reported.
    pub(super) other_transactions: Vec<OtherTransaction>,
}

impl Sources {
    pub(super) fn new(target: &Arc<OwnedFd>) -> Sources {
        Sources {
            target: Arc::clone(target),
            open: HashMap::new(),
            is_synced: false,
            other_transactions: Vec::new(),
        }
    }

    /// Makes an open subvolume known by a UUID.
    pub(super) fn know(&mut self, uuid: [u8; 16], subvolume: OwnedFd) {
        if self.open.len() >= OPEN_MAX {
            self.open.clear();
        }
        self.open.insert(uuid, Arc::new(subvolume));
    }

    /// The source of a clone.
    pub(super) fn source(&mut self, uuid: [u8; 16], ctransid: u64) -> Result<Arc<OwnedFd>> {
        if let Some(open) = self.open.get(&uuid) {
            return Ok(Arc::clone(open));
        }
        let found = Arc::new(self.find(uuid, ctransid)?);
        if self.open.len() >= OPEN_MAX {
            self.open.clear();
        }
        self.open.insert(uuid, Arc::clone(&found));
        Ok(found)
    }

    /// The subvolume that was received with this UUID, or has it, and was not changed here. One
    /// that was received from this transaction is preferred to others.
    pub(super) fn find(&mut self, uuid: [u8; 16], ctransid: u64) -> Result<OwnedFd> {
        if !std::mem::replace(&mut self.is_synced, true) {
            linux::sync_file_system(&*self.target)?;
        }
        let mut candidates = Vec::new();
        for is_received in [true, false] {
            for found in linux::subvolumes_by_uuid(&*self.target, uuid, is_received)? {
                candidates.push((found.id, self.state_of(&found, is_received)?));
            }
        }
        let (id, other) = ParentState::choose(candidates, uuid, ctransid)?;
        self.other_transactions.extend(other);
        let flags = OpenFlags::RDONLY | OpenFlags::DIRECTORY;
        Ok(linux::open_inode(&*self.target, id, ROOT, flags)?)
    }

    fn state_of(&self, found: &Subvolume, is_received: bool) -> Result<ParentState> {
        let last_change = if is_received && found.ctransid > found.rtransid {
            linux::last_change_after(&*self.target, found.id, found.rtransid)?
        } else {
            None
        };
        Ok(ParentState {
            is_received,
            is_read_only: found.is_read_only,
            stransid: found.stransid,
            rtime: time(found.rtime),
            last_change: last_change.map(time),
        })
    }
}

fn time(time: Timestamp) -> Time {
    Time {
        seconds: time.seconds,
        nanoseconds: time.nanoseconds,
    }
}

/// A subvolume that was received with the UUID that a stream names, but from another transaction.
///
/// This does not mean that it differs. The transaction is a number of the file system that sent:
/// after a copy was sent on from a second one, each of them names its own. Linux also raises the
/// number of a read-only snapshot whose content stays, as by deduplication or late write-back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OtherTransaction {
    /// The UUID in the stream.
    pub uuid: [u8; 16],
    /// The transaction with which it was received.
    pub received: u64,
    /// The transaction that the stream names.
    pub named: u64,
}

impl OtherTransaction {
    /// The subvolume with this UUID.
    pub fn new(uuid: [u8; 16], received: u64, named: u64) -> OtherTransaction {
        OtherTransaction {
            uuid,
            received,
            named,
        }
    }
}

/// The state of a subvolume on which a stream may build.
#[derive(Clone, Copy, Debug)]
pub struct ParentState {
    /// Whether its received UUID, and not its own, is the one that the stream names.
    pub is_received: bool,
    /// Whether it cannot be written.
    pub is_read_only: bool,
    /// The transaction of the subvolume that it was received from, on the sending side.
    pub stransid: u64,
    /// The time when it was received.
    pub rtime: Time,
    /// The last change time of the files that were written to the tree after it was received.
    pub last_change: Option<Time>,
}

impl ParentState {
    /// Chooses among the subvolumes that have the UUID of a parent or clone source: the first one
    /// that was not changed here and has the transaction, or else the first one that was not
    /// changed.
    ///
    /// # Errors
    /// There is none. [`Error::InvalidInput`] says why.
    pub fn choose<T>(
        candidates: Vec<(T, ParentState)>,
        uuid: [u8; 16],
        named: u64,
    ) -> Result<(T, Option<OtherTransaction>)> {
        let mut reason = "no subvolume of this file system has the UUID or received UUID of the parent or clone source; receive it first";
        let mut chosen = None;
        for (index, (found, state)) in candidates.into_iter().enumerate() {
            match state.fault() {
                Some(fault) if index == 0 => reason = fault,
                Some(_) => {}
                // A UUID of its own comes back from where it was sent to, with a number from there.
                None if !state.is_received || state.stransid == named => {
                    return Ok((found, None));
                }
                None => {
                    let other = OtherTransaction::new(uuid, state.stransid, named);
                    chosen.get_or_insert((found, Some(other)));
                }
            }
        }
        chosen.ok_or(Error::InvalidInput(reason))
    }

    /// The reason why it may differ from the received state.
    fn fault(&self) -> Option<&'static str> {
        if !self.is_read_only {
            return Some(
                "the parent or clone source is not read-only, so it can have changed; --parent takes it as it is",
            );
        }
        // Linux writes data back later than it was written, so `btrfs receive` can leave a
        // subvolume that is written to after it was marked. A change of a file sets its change
        // time, which writing back does not.
        let is_changed = self.is_received && self.last_change.is_some_and(|it| it > self.rtime);
        is_changed.then_some(
            "the parent or clone source was changed after it was received; --parent takes it as it is",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_is_chosen_unless_it_was_changed_here() {
        let at = |seconds| Time {
            seconds,
            nanoseconds: 5,
        };
        let good = ParentState {
            is_received: true,
            is_read_only: true,
            stransid: 9,
            rtime: at(100),
            last_change: None,
        };
        let choose = |candidates: &[ParentState], named| {
            let candidates = candidates.iter().copied().enumerate().collect();
            let chosen = ParentState::choose(candidates, [7; 16], named);
            chosen.map_err(|error| error.to_string())
        };
        let other = Some(OtherTransaction {
            uuid: [7; 16],
            received: 9,
            named: 10,
        });
        assert_eq!(choose(&[good], 9), Ok((0, None)));
        assert_eq!(choose(&[good], 10), Ok((0, other)));
        let exact = ParentState {
            stransid: 10,
            ..good
        };
        assert_eq!(choose(&[good, exact], 10), Ok((1, None)));
        // In the reverse direction, the number is of another file system.
        let own = ParentState {
            is_received: false,
            ..good
        };
        assert_eq!(choose(&[own], 1234), Ok((0, None)));
        for state in [good, own] {
            let writable = ParentState {
                is_read_only: false,
                ..state
            };
            assert!(choose(&[writable], 9).unwrap_err().contains("read-only"));
        }
        // Written back later, or changed.
        let changed = |seconds| ParentState {
            last_change: Some(at(seconds)),
            ..good
        };
        assert_eq!(choose(&[changed(100)], 9), Ok((0, None)));
        for named in [9, 10] {
            let fault = choose(&[changed(101)], named).unwrap_err();
            assert!(fault.contains("was changed"), "{fault}");
        }
        assert!(choose(&[], 9).unwrap_err().contains("receive it first"));
    }
}
