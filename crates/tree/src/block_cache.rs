//! A cache of decoded blocks, bounded by their bytes: for many blocks of any length.
//! [`Cache`](crate::Cache) holds a few of one length.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

const SHARDS: usize = 16;
/// How often no shard has anything to evict before that is given up: in the first round, what was
/// used loses its mark.
const FAILURES_MAX: usize = 2 * SHARDS;
/// Number of keys that each shard remembers to count repeated decoding.
const SEEN_MAX: usize = (1 << 20) / SHARDS;

/// A cache of values by key, of which nothing is evicted before all together have too many bytes.
/// Each value is made once, even if several threads ask for it at the same time. A value that was
/// not used for a while is evicted first.
pub struct BlockCache<V> {
    shards: [Mutex<Shard<V>>; SHARDS],
    bytes: AtomicUsize,
    bytes_max: AtomicUsize,
    /// The shard that is evicted from next.
    hand: AtomicUsize,
    counts: [AtomicU64; 3],
    remembers: AtomicBool,
}

/// The counts of a [`BlockCache`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockCounts {
    /// Blocks that were decoded, also those that were not kept.
    pub decoded: u64,
    /// How many of these had been decoded before, as far as that is remembered: of the first
    /// million.
    pub again: u64,
    /// How often a block was in the cache.
    pub hits: u64,
}

struct Shard<V> {
    slots: HashMap<u64, CachedBlock<V>>,
    /// Keys in the order in which they are looked at to evict one.
    clock: VecDeque<u64>,
    seen: HashSet<u64>,
}

struct CachedBlock<V> {
    value: Value<V>,
    bytes: usize,
    is_used: bool,
}

/// `None` while its first user makes it, or after that user failed.
type Value<V> = Arc<Mutex<Option<Arc<V>>>>;

/// Locks, ignoring poisoning: the data behind these locks is consistent at every moment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<V> BlockCache<V> {
    /// A cache of at most this many bytes.
    pub fn new(bytes_max: usize) -> BlockCache<V> {
        let shard = |_| {
            Mutex::new(Shard {
                slots: HashMap::new(),
                clock: VecDeque::new(),
                seen: HashSet::new(),
            })
        };
        BlockCache {
            shards: std::array::from_fn(shard),
            bytes: AtomicUsize::new(0),
            bytes_max: AtomicUsize::new(bytes_max),
            hand: AtomicUsize::new(0),
            counts: Default::default(),
            remembers: AtomicBool::new(false),
        }
    }

    /// Changes the number of bytes, and counts repeated decoding from now on.
    pub fn keep(&self, bytes_max: usize) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
        self.remembers.store(true, Ordering::Relaxed);
    }

    /// Its counts so far.
    pub fn counts(&self) -> BlockCounts {
        let [decoded, again, hits] =
            [0, 1, 2].map(|i: usize| self.counts[i].load(Ordering::Relaxed));
        BlockCounts {
            decoded,
            again,
            hits,
        }
    }

    /// The value of this key, if it is cached or another thread makes it just now.
    pub fn find(&self, key: u64) -> Option<Arc<V>> {
        let value = {
            let mut shard = lock(self.shard(key));
            let slot = shard.slots.get_mut(&key)?;
            slot.is_used = true;
            Arc::clone(&slot.value)
        };
        let found = lock(&value).clone();
        if found.is_some() {
            self.counts[2].fetch_add(1, Ordering::Relaxed);
        }
        found
    }

    /// Counts a block that was decoded without the cache.
    pub fn note_decoded(&self, key: u64) {
        self.counts[0].fetch_add(1, Ordering::Relaxed);
        if self.remembers.load(Ordering::Relaxed) {
            let mut shard = lock(self.shard(key));
            let is_known = shard.seen.contains(&key);
            if is_known {
                self.counts[1].fetch_add(1, Ordering::Relaxed);
            } else if shard.seen.len() < SEEN_MAX {
                shard.seen.insert(key);
            }
        }
    }

    /// The value of this key, made by `make` if it is not cached. It has `bytes` bytes. `make` is
    /// given an evicted value if no one else holds it, so that its memory can be reused.
    pub fn find_or_make<E>(
        &self,
        key: u64,
        bytes: usize,
        make: impl FnOnce(Option<V>) -> Result<V, E>,
    ) -> Result<Arc<V>, E> {
        let (slot, is_new) = self.slot(key, bytes);
        let mut value = lock(&slot);
        if let Some(value) = &*value {
            self.counts[2].fetch_add(1, Ordering::Relaxed);
            return Ok(Arc::clone(value));
        }
        let gone = if is_new { self.make_room(key) } else { None };
        let made = Arc::new(make(gone)?);
        *value = Some(Arc::clone(&made));
        drop(value);
        self.note_decoded(key);
        Ok(made)
    }

    fn shard(&self, key: u64) -> &Mutex<Shard<V>> {
        // The upper bits of the product depend on all bits of the key.
        let spread = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        &self.shards[spread as usize % SHARDS]
    }

    /// The slot of this key, and whether it is new.
    fn slot(&self, key: u64, bytes: usize) -> (Value<V>, bool) {
        let mut shard = lock(self.shard(key));
        if let Some(slot) = shard.slots.get_mut(&key) {
            slot.is_used = true;
            return (Arc::clone(&slot.value), false);
        }
        let value = Value::default();
        let slot = CachedBlock {
            value: Arc::clone(&value),
            bytes,
            is_used: false,
        };
        shard.slots.insert(key, slot);
        shard.clock.push_back(key);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        (value, true)
    }

    /// Evicts values until there are few enough bytes. Returns the last one, if no one else holds
    /// it. The slot of `newest` stays.
    fn make_room(&self, newest: u64) -> Option<V> {
        let mut gone = None;
        let mut failures = 0;
        while self.bytes.load(Ordering::Relaxed) > self.bytes_max.load(Ordering::Relaxed)
            && failures < FAILURES_MAX
        {
            let at = self.hand.fetch_add(1, Ordering::Relaxed) % SHARDS;
            match lock(&self.shards[at]).evict(newest) {
                Some(slot) => {
                    self.bytes.fetch_sub(slot.bytes, Ordering::Relaxed);
                    gone = Some(slot.value);
                    failures = 0;
                }
                None => failures += 1,
            }
        }
        let gone = Arc::into_inner(gone?)?.into_inner();
        Arc::into_inner(gone.unwrap_or_else(PoisonError::into_inner)?)
    }
}

impl<V> Shard<V> {
    /// Takes out the first slot that was not used since it was last looked at, and that no one
    /// fills just now.
    fn evict(&mut self, newest: u64) -> Option<CachedBlock<V>> {
        for _ in 0..self.clock.len() {
            let key = self.clock.pop_front()?;
            let Some(slot) = self.slots.get_mut(&key) else {
                continue;
            };
            let is_made = !matches!(slot.value.try_lock(), Err(TryLockError::WouldBlock));
            if key != newest && is_made && !slot.is_used {
                return self.slots.remove(&key);
            }
            slot.is_used = false;
            self.clock.push_back(key);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(cache: &BlockCache<u64>, key: u64) -> Arc<u64> {
        let made = cache.find_or_make(key, 1, |_| Ok::<_, ()>(key * 10));
        made.unwrap()
    }

    #[test]
    fn nothing_is_made_twice_while_it_fits() {
        let cache = BlockCache::new(0);
        cache.keep(1000);
        for round in 1..=3 {
            for key in 0..1000 {
                assert_eq!(*make(&cache, key * 4096), key * 40960);
            }
            let expected = BlockCounts {
                decoded: 1000,
                again: 0,
                hits: (round - 1) * 1000,
            };
            assert_eq!(cache.counts(), expected);
        }
        for key in 1000..3000 {
            make(&cache, key * 4096);
        }
        assert_eq!(cache.bytes.load(Ordering::Relaxed), 1000);
        let kept = (0..3000).filter(|key| cache.find(key * 4096).is_some());
        assert_eq!(kept.count(), 1000);
        assert!(cache.find(1).is_none());
    }

    #[test]
    fn what_is_used_stays_and_what_failed_is_made_later() {
        let cache = BlockCache::new(4);
        for key in 0..100 {
            make(&cache, key);
            assert!(cache.find(0).is_some(), "{key}");
        }
        let failed = cache.find_or_make(200, 1, |_| Err::<u64, _>("no"));
        assert_eq!(failed, Err("no"));
        assert!(cache.find(200).is_none());
        assert_eq!(*make(&cache, 200), 2000);
        cache.note_decoded(5);
        assert_eq!(cache.counts().again, 0);
    }

    #[test]
    fn values_without_other_users_are_reused() {
        let cache = BlockCache::new(1);
        let held = make(&cache, 1);
        let reused = |key| {
            let mut given = None;
            let made = cache.find_or_make(key, 1, |gone| {
                given = gone;
                Ok::<_, ()>(key)
            });
            made.unwrap();
            given
        };
        assert_eq!(reused(2), None);
        assert_eq!(reused(3), Some(2));
        assert_eq!(*held, 10);
    }

    #[test]
    fn threads_make_each_value_once() {
        let cache = BlockCache::new(usize::MAX);
        let made = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for key in 0..200 {
                        let value = cache.find_or_make(key, 1, |_| {
                            made.fetch_add(1, Ordering::Relaxed);
                            Ok::<_, ()>(key)
                        });
                        assert_eq!(value.as_deref(), Ok(&key));
                    }
                });
            }
        });
        assert_eq!(made.into_inner(), 200);
    }
}
