//! Counts of requests and replies.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::raw::opcode;

/// Names of requests, and their numbers.
const NAMES: &[(&str, u32)] = &[
    ("lookup", opcode::LOOKUP),
    ("forget", opcode::FORGET),
    ("getattr", opcode::GETATTR),
    ("readlink", opcode::READLINK),
    ("open", opcode::OPEN),
    ("read", opcode::READ),
    ("statfs", opcode::STATFS),
    ("release", opcode::RELEASE),
    ("getxattr", opcode::GETXATTR),
    ("listxattr", opcode::LISTXATTR),
    ("init", opcode::INIT),
    ("opendir", opcode::OPENDIR),
    ("readdir", opcode::READDIR),
    ("releasedir", opcode::RELEASEDIR),
    ("interrupt", opcode::INTERRUPT),
    ("batch_forget", opcode::BATCH_FORGET),
    ("readdirplus", opcode::READDIRPLUS),
    ("lseek", opcode::LSEEK),
    ("statx", opcode::STATX),
];

/// The name of a request.
pub(crate) fn name_of(opcode: u32) -> &'static str {
    let found = NAMES.iter().find(|(_, number)| *number == opcode);
    found.map_or("other", |(name, _)| name)
}

/// Counts requests and bytes.
#[derive(Debug)]
pub struct Counters {
    requests: [AtomicU64; 64],
    bytes: AtomicU64,
    unasked: AtomicU64,
    errors: AtomicU64,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            requests: std::array::from_fn(|_| AtomicU64::new(0)),
            bytes: AtomicU64::new(0),
            unasked: AtomicU64::new(0),
            errors: AtomicU64::new(0),
        }
    }
}

impl Counters {
    pub(crate) fn count(&self, opcode: u32) {
        let index = usize::try_from(opcode).unwrap_or(0);
        // Number 0 is no request; it counts those that are unknown.
        if let Some(counter) = self.requests.get(index).or(self.requests.first()) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn count_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts a file that was sent before it was asked for.
    pub(crate) fn count_unasked(&self, bytes: u64) {
        self.unasked.fetch_add(1, Ordering::Relaxed);
        self.count_bytes(bytes);
    }

    pub(crate) fn count_error(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of all requests.
    pub fn all(&self) -> u64 {
        let counts = self.requests.iter();
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// The requests by kind, as far as there were any.
    pub fn requests(&self) -> Vec<(&'static str, u64)> {
        let mut list = Vec::new();
        let mut others = self.all();
        for &(name, opcode) in NAMES {
            let counter = self.requests.get(usize::try_from(opcode).unwrap_or(0));
            let count = counter.map_or(0, |count| count.load(Ordering::Relaxed));
            others = others.saturating_sub(count);
            if count > 0 {
                list.push((name, count));
            }
        }
        if others > 0 {
            list.push(("other", others));
        }
        list
    }

    /// Bytes of content that were sent.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Files that were sent before they were asked for.
    pub fn unasked(&self) -> u64 {
        self.unasked.load(Ordering::Relaxed)
    }

    /// Problems that were reported.
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_requests_are_counted_together() {
        let counters = Counters::default();
        for opcode in [
            opcode::READ,
            4096,
            opcode::READ,
            opcode::FALLOCATE,
            u32::MAX,
        ] {
            counters.count(opcode);
        }
        assert_eq!(counters.requests(), [("read", 2), ("other", 3)]);
    }
}
