//! Patterns of paths, as shells know them.

use std::sync::atomic::{AtomicBool, Ordering};

use fast_glob::glob_match;

/// Patterns of paths in a tree.
///
/// A pattern is anchored at the tree's root, and a match is one of a whole path: `*.o` means files in the root, `**/*.o` and
/// `... *.o` those in any directory. `*` and `?` do not match `/`; `[a-z]`, `[!a-z]` and `{a,b}` are known, and `\` takes a
/// character for what it is. A leading `/` or `./` and a trailing `/` mean nothing.
#[derive(Debug, Default)]
pub struct Patterns(Vec<Pattern>);

#[derive(Debug)]
struct Pattern {
    /// As it was given.
    given: Box<[u8]>,
    /// As it is matched.
    glob: Box<[u8]>,
    /// The pattern of each directory level.
    levels: Vec<Box<[u8]>>,
    has_matched: AtomicBool,
}

impl Patterns {
    /// Reads patterns. An empty one matches the root alone.
    pub fn new<T: AsRef<[u8]>>(patterns: impl IntoIterator<Item = T>) -> Patterns {
        Patterns(
            patterns
                .into_iter()
                .map(|given| Pattern::new(given.as_ref()))
                .collect(),
        )
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one matches the whole path; all that do are noted as having matched.
    pub fn matches(&self, path: &[u8]) -> bool {
        self.last_match(path).is_some()
    }

    /// The index of the last pattern that matches the whole path; all that do are noted as having matched.
    pub(super) fn last_match(&self, path: &[u8]) -> Option<usize> {
        let mut last = None;
        for (index, pattern) in self.0.iter().enumerate() {
            if glob_match(&*pattern.glob, path) {
                pattern.has_matched.store(true, Ordering::Relaxed);
                last = Some(index);
            }
        }
        last
    }

    /// Whether one matches the path, a directory above it, or what may be below it.
    pub(super) fn concerns(&self, path: &[u8]) -> bool {
        let names: Vec<&[u8]> = path
            .split(|&byte| byte == b'/')
            .filter(|name| !name.is_empty())
            .collect();
        let mut concerned = false;
        for pattern in &self.0 {
            let mut levels = pattern.levels.iter();
            let leads = names.iter().all(|name| match levels.next() {
                Some(level) => glob_match(&**level, name),
                None => true,
            });
            let has_ended = leads && names.len() >= pattern.levels.len();
            if has_ended {
                pattern.has_matched.store(true, Ordering::Relaxed);
            }
            concerned |= leads;
        }
        concerned
    }

    /// The patterns that have matched nothing so far, as they were given.
    pub fn unmatched(&self) -> impl Iterator<Item = &[u8]> {
        let unmatched = self
            .0
            .iter()
            .filter(|pattern| !pattern.has_matched.load(Ordering::Relaxed));
        unmatched.map(|pattern| &*pattern.given)
    }
}

impl Pattern {
    fn new(given: &[u8]) -> Pattern {
        let (prefix, rest) = match given.strip_prefix(b"... ") {
            Some(rest) => (&b"**/"[..], rest),
            None => (&b""[..], given),
        };
        let levels = rest
            .split(|&byte| byte == b'/')
            .filter(|level| !matches!(*level, b"" | b"."));
        let levels: Vec<Box<[u8]>> = levels.map(Box::from).collect();
        let mut glob = prefix.to_vec();
        // What would negate the pattern is a name's first character here.
        if levels
            .first()
            .is_some_and(|level| level.first() == Some(&b'!'))
            && prefix.is_empty()
        {
            glob.push(b'\\');
        }
        glob.extend(levels.join(&b'/'));
        Pattern {
            given: given.into(),
            glob: glob.into(),
            levels: levels.into_iter().map(not_negated).collect(),
            has_matched: AtomicBool::new(false),
        }
    }
}

fn not_negated(level: Box<[u8]>) -> Box<[u8]> {
    match level.first() {
        Some(b'!') => [b"\\", &*level].concat().into(),
        _ => level,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_anchored_and_stop_at_slashes() {
        for (pattern, yes, no) in [
            ("*.o", &["a.o", ".o"][..], &["d/a.o", "a.oo"][..]),
            ("**/*.o", &["a.o", "d/a.o", "d/e/a.o"], &["d/a.c"]),
            ("... *.o", &["a.o", "d/a.o"], &["d/a.c"]),
            ("/usr/./share/", &["usr/share"], &["usr/share/x", "share"]),
            (
                "a?[b-d]{x,yy}",
                &["a_bx", "a_dyy"],
                &["a/bx", "a_ex", "a_bxx"],
            ),
            ("!a", &["!a"], &["a", "b"]),
            ("\\*", &["*"], &["x"]),
            ("proc/*", &["proc/1"], &["proc", "proc/1/fd"]),
        ] {
            let patterns = Patterns::new([pattern]);
            for path in yes {
                assert!(patterns.matches(path.as_bytes()), "{pattern} {path}");
            }
            assert_eq!(patterns.unmatched().count(), 0);
            for path in no {
                assert!(!patterns.matches(path.as_bytes()), "{pattern} {path}");
            }
        }
        assert!(Patterns::new([b"\xff*"]).matches(b"\xff\xfe"));
    }

    #[test]
    fn what_leads_to_a_match_or_is_below_one_concerns() {
        let patterns = Patterns::new(["usr/*/bin", "etc"]);
        for path in [
            "",
            "usr",
            "usr/local",
            "usr/local/bin",
            "usr/local/bin/x/y",
            "etc/a",
        ] {
            assert!(patterns.concerns(path.as_bytes()), "{path}");
        }
        for path in ["var", "usr/local/lib", "etcetera"] {
            assert!(!patterns.concerns(path.as_bytes()), "{path}");
        }
        assert_eq!(patterns.unmatched().count(), 0);
    }
}
