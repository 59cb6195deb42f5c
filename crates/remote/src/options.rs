//! How objects are read.

use std::fmt;
use std::sync::Arc;

use tree::setters;

/// How objects are read.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RemoteOptions {
    /// Bytes of objects that are kept in memory, for each object.
    pub cache_bytes: usize,
    /// Read over `http://` from other machines, too, where anyone on the way can change bytes.
    pub insecure: bool,
    /// Read from servers that give neither an ETag nor a time of the last change.
    pub unguarded: bool,
    /// The variables with credentials and settings, and the clock.
    pub surroundings: Surroundings,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        RemoteOptions {
            cache_bytes: 64 << 20,
            insecure: false,
            unguarded: false,
            surroundings: Surroundings::default(),
        }
    }
}

setters!(RemoteOptions {
    cache_bytes: usize,
    insecure: bool,
    unguarded: bool,
    surroundings: Surroundings,
});

/// How an object is written.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct UploadOptions {
    /// Replace an object of the same name.
    pub overwrite: bool,
    /// Keep an unfinished upload, and continue one: the parts that the store holds are made again,
    /// compared and not sent again.
    pub resume: bool,
    /// Read the object when it is complete, and compare it with the sent parts.
    pub read_back: bool,
    /// A text of ASCII that the object keeps, which names its source. An object with another one is
    /// replaced.
    pub note: Option<String>,
    /// The bytes of all parts in memory, as long as a part has at most 8 MiB.
    pub waiting_bytes: u64,
}

impl Default for UploadOptions {
    fn default() -> Self {
        UploadOptions {
            overwrite: false,
            resume: false,
            read_back: false,
            note: None,
            waiting_bytes: 56 << 20,
        }
    }
}

setters!(UploadOptions {
    overwrite: bool,
    resume: bool,
    read_back: bool,
    note: Option<String>,
    waiting_bytes: u64,
});

type Variable = dyn Fn(&str) -> Option<String> + Send + Sync;

/// The environment, which a library does not look up by itself: variables, and the time.
#[derive(Clone)]
pub struct Surroundings {
    variable: Arc<Variable>,
    now: fn() -> u64,
}

impl Default for Surroundings {
    /// No variables, and the beginning of 1970: enough where no request is signed.
    fn default() -> Self {
        Surroundings::new(|_| None, || 0)
    }
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Surroundings") // variables hold secrets
    }
}

impl Surroundings {
    /// From a function that gives the value of a variable, and one that gives the seconds since
    /// 1970.
    pub fn new(
        variable: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
        now: fn() -> u64,
    ) -> Surroundings {
        Surroundings {
            variable: Arc::new(variable),
            now,
        }
    }

    /// A variable, unless it is empty.
    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        (self.variable)(name).filter(|value| !value.is_empty())
    }

    /// The first of these variables that is set.
    pub(crate) fn first_of(&self, names: &[&str]) -> Option<String> {
        names.iter().find_map(|name| self.variable(name))
    }

    /// Whether a variable says yes.
    pub(crate) fn says(&self, name: &str) -> bool {
        let value = self.variable(name);
        value.is_some_and(|value| ["1", "true", "yes"].contains(&&*value.to_lowercase()))
    }

    pub(crate) fn now(&self) -> u64 {
        (self.now)()
    }
}
