//! Parents, and other subvolumes from which files are cloned.

use std::cell::Cell;
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
    is_synced: Cell<bool>,
}

impl Sources {
    pub(super) fn new(target: &Arc<OwnedFd>) -> Sources {
        Sources {
            target: Arc::clone(target),
            open: HashMap::new(),
            is_synced: Cell::new(false),
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

    /// The subvolume that was received with this UUID, or has it, and is as it was at this
    /// transaction.
    ///
    /// One that was sent from here, received and changed elsewhere, and is now sent back, is named
    /// by the UUID it has here; the transaction is one of the other file system then, and says
    /// nothing.
    pub(super) fn find(&self, uuid: [u8; 16], ctransid: u64) -> Result<OwnedFd> {
        if !self.is_synced.replace(true) {
            linux::sync_file_system(&*self.target)?;
        }
        let mut fault = None;
        for is_received in [true, false] {
            for found in linux::subvolumes_by_uuid(&*self.target, uuid, is_received)? {
                match self.fault_of(&found, is_received, ctransid)? {
                    None => {
                        let flags = OpenFlags::RDONLY | OpenFlags::DIRECTORY;
                        return Ok(linux::open_inode(&*self.target, found.id, ROOT, flags)?);
                    }
                    Some(words) => fault = fault.or(Some(words)),
                }
            }
        }
        Err(fault.map_or(
            Error::InvalidInput(
                "no subvolume of this file system has the UUID or received UUID of the parent or clone source; receive it first",
            ),
            Error::InvalidInput,
        ))
    }

    fn fault_of(
        &self,
        found: &Subvolume,
        is_received: bool,
        ctransid: u64,
    ) -> Result<Option<&'static str>> {
        let last_change = if is_received && found.ctransid > found.rtransid {
            linux::last_change_after(&*self.target, found.id, found.rtransid)?
        } else {
            None
        };
        let state = ParentState {
            is_read_only: found.is_read_only,
            stransid: found.stransid,
            rtime: time(found.rtime),
        };
        Ok(state.fault(is_received, ctransid, last_change.map(time)))
    }
}

fn time(time: Timestamp) -> Time {
    Time {
        seconds: time.seconds,
        nanoseconds: time.nanoseconds,
    }
}

/// The state of a subvolume on which a stream may build.
#[derive(Clone, Copy, Debug)]
pub struct ParentState {
    /// Whether it cannot be written.
    pub is_read_only: bool,
    /// The transaction of the subvolume that it was received from, on the sending side.
    pub stransid: u64,
    /// The time when it was received.
    pub rtime: Time,
}

impl ParentState {
    /// The reason why a subvolume is not the one that a stream builds on, if it is not. The stream
    /// names it by its received UUID or by its own, and by the transaction of its last change where
    /// it was sent. `last_change` is the last change time of the files that were written to the
    /// tree after it was received.
    pub fn fault(
        &self,
        is_received: bool,
        ctransid: u64,
        last_change: Option<Time>,
    ) -> Option<&'static str> {
        if !self.is_read_only {
            return Some(
                "the parent or clone source is not read-only, so it can have changed; --parent takes it as it is",
            );
        }
        if !is_received {
            return None;
        }
        if self.stransid != ctransid {
            return Some(
                "the parent or clone source was received in another state than the stream needs (transactions differ); --parent takes it as it is",
            );
        }
        // Linux writes data back later than it was written, so `btrfs receive` can leave a
        // subvolume that is written to after it was marked. A change of a file sets its change
        // time, which writing back does not.
        let is_changed = last_change.is_some_and(|change| change > self.rtime);
        is_changed.then_some(
            "the parent or clone source was changed after it was received; --parent takes it as it is",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_that_may_differ_is_refused() {
        let at = |seconds| Time {
            seconds,
            nanoseconds: 5,
        };
        let good = ParentState {
            is_read_only: true,
            stransid: 9,
            rtime: at(100),
        };
        assert_eq!(good.fault(true, 9, None), None);
        // In the reverse direction, the number is of another file system.
        assert_eq!(good.fault(false, 1234, None), None);
        let writable = ParentState {
            is_read_only: false,
            ..good
        };
        let fault = |found: &ParentState, is_received, ctransid| {
            found.fault(is_received, ctransid, None).unwrap_or("none")
        };
        assert!(fault(&good, true, 10).contains("another state"));
        assert!(fault(&writable, true, 9).contains("read-only"));
        assert!(fault(&writable, false, 9).contains("read-only"));
        // Written back later, or changed.
        assert_eq!(good.fault(true, 9, Some(at(100))), None);
        let changed = good.fault(true, 9, Some(at(101)));
        assert!(changed.unwrap().contains("was changed"));
    }
}
