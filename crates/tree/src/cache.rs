//! A small cache of decoded blocks, shared by several threads.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A cache of values by key, with a fixed capacity. Each value is made once, even if several
/// threads ask for it at the same time. The least recently used value is evicted first.
pub struct Cache<V> {
    shards: Box<[Mutex<Shard<V>>]>,
    slots_per_shard: usize,
}

struct Shard<V> {
    slots: Vec<CachedValue<V>>,
    clock: u64,
}

struct CachedValue<V> {
    key: u64,
    used: u64,
    value: Value<V>,
}

/// `None` while its first user makes it, or after that user failed.
type Value<V> = Arc<Mutex<Option<Arc<V>>>>;

/// Locks, ignoring poisoning: the data behind these locks is consistent at every moment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<V> Cache<V> {
    /// A cache of `shards * slots_per_shard` values.
    pub fn new(shards: usize, slots_per_shard: usize) -> Self {
        let shard = || {
            Mutex::new(Shard {
                slots: Vec::new(),
                clock: 0,
            })
        };
        Cache {
            shards: std::iter::repeat_with(shard).take(shards).collect(),
            slots_per_shard,
        }
    }

    /// The value of this key, made by `make` if it is not cached. `make` is given the evicted value
    /// if no one else holds it, so that its memory can be reused.
    pub fn find_or_make<E>(
        &self,
        key: u64,
        make: impl FnOnce(Option<V>) -> Result<V, E>,
    ) -> Result<Arc<V>, E> {
        let (slot, gone) = self.slot(key);
        let mut value = lock(&slot);
        if let Some(value) = &*value {
            return Ok(Arc::clone(value));
        }
        let gone = gone.and_then(Arc::into_inner);
        let gone = gone.and_then(|gone| gone.into_inner().unwrap_or_else(PoisonError::into_inner));
        let made = Arc::new(make(gone.and_then(Arc::into_inner))?);
        *value = Some(Arc::clone(&made));
        Ok(made)
    }

    /// The slot of this key, and its previous content.
    fn slot(&self, key: u64) -> (Value<V>, Option<Value<V>>) {
        // The upper bits of the product depend on all bits of the key.
        let spread = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let mut shard = lock(&self.shards[spread as usize % self.shards.len()]);
        shard.clock += 1;
        let used = shard.clock;
        if let Some(slot) = shard.slots.iter_mut().find(|slot| slot.key == key) {
            slot.used = used;
            return (Arc::clone(&slot.value), None);
        }
        let value = Value::default();
        let slot = CachedValue {
            key,
            used,
            value: Arc::clone(&value),
        };
        if shard.slots.len() < self.slots_per_shard {
            shard.slots.push(slot);
            return (value, None);
        }
        let oldest = shard.slots.iter_mut().min_by_key(|slot| slot.used);
        let gone = oldest.map(|oldest| std::mem::replace(oldest, slot).value);
        (value, gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_made_once_until_they_are_pushed_out() {
        let cache = Cache::new(1, 2);
        let mut made = 0;
        for (key, made_then) in [(1, 1), (1, 1), (2, 2), (1, 2), (3, 3), (1, 3), (2, 4)] {
            let value = cache.find_or_make(key, |_| {
                made += 1;
                Ok::<_, ()>(key * 10)
            });
            assert_eq!((value.as_deref(), made), (Ok(&(key * 10)), made_then));
        }
        assert_eq!(cache.find_or_make(9, |_| Err("no")), Err("no"));
        assert_eq!(cache.find_or_make(9, |_| Ok::<_, ()>(5)).as_deref(), Ok(&5));
    }

    #[test]
    fn values_without_other_users_are_reused() {
        let cache = Cache::new(1, 1);
        let mut gone = Vec::new();
        let mut kept = Vec::new();
        for key in 0..4 {
            let value = cache.find_or_make(key, |value| {
                gone.push(value);
                Ok::<_, ()>(key)
            });
            if key == 1 {
                kept.push(value);
            }
        }
        assert_eq!(gone, [None, Some(0), None, Some(2)]);
    }
}
