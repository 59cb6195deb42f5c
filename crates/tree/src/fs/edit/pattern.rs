//! Path patterns, as in shells.

use std::sync::atomic::{AtomicBool, Ordering};

use fast_glob::glob_match;

/// Patterns for paths in a tree.
///
/// A pattern is anchored at the tree's root and must match the whole path: `*.o` matches files in
/// the root, `**/*.o` and `... *.o` those in any directory. `*` and `?` do not match `/`. `[a-z]`,
/// `[!a-z]` and `{a,b}` are supported, and `\` escapes a character. A leading `/` or `./` and a
/// trailing `/` are ignored.
#[derive(Debug, Default)]
pub struct Patterns(Vec<Pattern>);

#[derive(Debug)]
struct Pattern {
    /// The pattern as given.
    given: Box<[u8]>,
    /// The pattern as matched.
    glob: Box<[u8]>,
    /// The pattern of each directory level.
    levels: Vec<Box<[u8]>>,
    has_matched: AtomicBool,
}

impl Patterns {
    /// Parses patterns. An empty pattern matches only the root.
    pub fn new<T: AsRef<[u8]>>(patterns: impl IntoIterator<Item = T>) -> Patterns {
        Patterns(
            patterns
                .into_iter()
                .map(|given| Pattern::new(given.as_ref()))
                .collect(),
        )
    }

    /// Whether there are no patterns.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a pattern matches the whole path. All matching patterns are marked as used.
    pub fn matches(&self, path: &[u8]) -> bool {
        self.last_match(path).is_some()
    }

    /// The index of the last pattern that matches the whole path. All matching patterns are marked
    /// as used.
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

    /// Whether a pattern matches the path or a directory above it, or could match a path below it.
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

    /// The patterns that have matched nothing so far, as given.
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
        // A character that would negate the pattern is part of a name here.
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
