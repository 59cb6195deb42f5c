//! Path patterns, as in shells.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};

use super::regex::NameExpression;
use crate::Result;

/// Patterns for paths in a tree.
///
/// A pattern is anchored at the tree's root and must match the whole path: `*.o` matches files in
/// the root, `**/*.o` and `... *.o` those in any directory. `*` and `?` do not match `/`. `[a-z]`,
/// `[!a-z]`, `[[:digit:]]` and `{a,b}` are supported, and `\` escapes a character. As in a shell,
/// braces without a comma or an end, and brackets without an end, stand for themselves. A leading
/// `/` or `./` and a trailing `/` are ignored.
#[derive(Debug, Default)]
pub struct Patterns {
    patterns: Vec<Pattern>,
    paths: Option<Paths>,
}

/// Paths that stand for themselves, of which there may be many.
#[derive(Debug, Default)]
struct Paths {
    /// Each with whether it has matched, and as given.
    all: HashMap<Vec<u8>, (AtomicBool, Box<[u8]>)>,
    /// The directories above them.
    above: HashSet<Vec<u8>>,
    /// Whether they stand for files alone, and not for those in directories.
    is_exact: bool,
}

impl Paths {
    fn concern(&self, names: &[&[u8]]) -> Concern {
        let mut closest = Concern::Nothing;
        let shortest = if self.is_exact { names.len() } else { 0 };
        for len in shortest..=names.len() {
            let path = names[..len].join(&b'/');
            if let Some((has_matched, _)) = self.all.get(&path) {
                has_matched.store(true, Ordering::Relaxed);
                let is_whole = len == names.len();
                closest = closest.max(if is_whole {
                    Concern::Whole
                } else {
                    Concern::Above
                });
            } else if len == names.len() && self.above.contains(&path) {
                closest = closest.max(Concern::Below);
            }
        }
        closest
    }
}

/// A syntax of other programs, in which the expression for each name of a path, or for a text, is
/// written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatternSyntax {
    /// As in a shell: `fnmatch` of the GNU library with its extensions, such as `@(a|b)`. `*` and
    /// `?` do not match a dot at the begin of a name.
    Shell,
    /// A POSIX extended regular expression, which is found anywhere in the name.
    Regex,
    /// The same for a whole text, such as the name of an attribute, with its slashes.
    TextRegex,
}

#[derive(Debug)]
struct Pattern {
    /// The pattern as given.
    given: Box<[u8]>,
    /// The patterns that it stands for: one, or more if braces span directories.
    alternatives: Vec<Vec<PatternLevel>>,
    has_matched: AtomicBool,
}

/// The part of a pattern between two slashes.
#[derive(Debug)]
enum PatternLevel {
    /// `**`: any number of names; at the end of a pattern, at least one.
    Names,
    /// One name, as it is.
    Name(Box<[u8]>),
    /// One name with wildcards, or in the syntax of another program.
    Expression(NameExpression),
    /// A whole path.
    Path(NameExpression),
}

/// How a pattern relates to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Concern {
    /// It matches neither the path nor a path above or below it.
    Nothing,
    /// It can match a path below it.
    Below,
    /// It matches a directory above it.
    Above,
    /// It matches the path.
    Whole,
}

/// Alternatives with slashes of one pattern; one with more of them stands for itself.
const ALTERNATIVES_MAX: usize = 1024;

impl Patterns {
    /// Parses patterns. An empty pattern matches only the root.
    pub fn new<T: AsRef<[u8]>>(patterns: impl IntoIterator<Item = T>) -> Patterns {
        let patterns = patterns.into_iter();
        Patterns {
            patterns: patterns.map(|given| Pattern::new(given.as_ref())).collect(),
            paths: None,
        }
    }

    /// Parses patterns in the syntax of another program. They are anchored at the root as others
    /// are, and `... ` has the same meaning, but braces and `**` have none.
    ///
    /// # Errors
    /// [`Error::InvalidInput`](crate::Error::InvalidInput) for a pattern that is wrong, or cannot
    /// be translated.
    pub fn parse<T: AsRef<[u8]>>(
        syntax: PatternSyntax,
        patterns: impl IntoIterator<Item = T>,
    ) -> Result<Patterns> {
        let patterns = patterns.into_iter();
        let patterns = patterns.map(|given| Pattern::parse(syntax, given.as_ref()));
        Ok(Patterns {
            patterns: patterns.collect::<Result<_>>()?,
            paths: None,
        })
    }

    /// The same patterns, and paths that are not patterns. Without any, nothing more matches.
    #[must_use]
    pub fn with_paths<T: AsRef<[u8]>>(mut self, given: impl IntoIterator<Item = T>) -> Patterns {
        let mut paths = Paths::default();
        for given in given {
            let given = given.as_ref();
            let names: Vec<&[u8]> = names(given).into_iter().filter(|it| *it != b".").collect();
            for len in 0..names.len() {
                paths.above.insert(names[..len].join(&b'/'));
            }
            let has_matched = AtomicBool::new(false);
            paths
                .all
                .insert(names.join(&b'/'), (has_matched, given.into()));
        }
        self.paths = Some(paths);
        self
    }

    /// The same, in which a path of a directory does not stand for the files in it.
    #[must_use]
    pub fn of_exact_paths(mut self) -> Patterns {
        if let Some(paths) = &mut self.paths {
            paths.is_exact = true;
        }
        self
    }

    /// Whether there are no patterns.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty() && self.paths.is_none()
    }

    /// Whether a pattern matches the whole path. All matching patterns are marked as used.
    pub fn matches(&self, path: &[u8]) -> bool {
        self.last_match(path).is_some()
    }

    /// The index of the last pattern that matches the whole path. All matching patterns are marked
    /// as used.
    pub(super) fn last_match(&self, path: &[u8]) -> Option<usize> {
        let names = names(path);
        let mut last = None;
        for (index, pattern) in self.patterns.iter().enumerate() {
            if pattern.concern(&names) == Concern::Whole {
                pattern.has_matched.store(true, Ordering::Relaxed);
                last = Some(index);
            }
        }
        last
    }

    /// The closest relation of a pattern to the path. Patterns that match it or a directory above
    /// it are marked as used.
    pub(super) fn concern(&self, path: &[u8]) -> Concern {
        let names = names(path);
        let mut closest = match &self.paths {
            Some(paths) => paths.concern(&names),
            None => Concern::Nothing,
        };
        for pattern in &self.patterns {
            let concern = pattern.concern(&names);
            if concern >= Concern::Above {
                pattern.has_matched.store(true, Ordering::Relaxed);
            }
            closest = closest.max(concern);
        }
        closest
    }

    /// The patterns that have matched nothing so far, as given.
    pub fn unmatched(&self) -> impl Iterator<Item = &[u8]> {
        let patterns = self.patterns.iter().map(|it| (&it.has_matched, &*it.given));
        let paths = self.paths.iter().flat_map(|paths| paths.all.values());
        let paths = paths.map(|(has_matched, given)| (has_matched, &**given));
        let all = patterns.chain(paths);
        all.filter(|(has_matched, _)| !has_matched.load(Ordering::Relaxed))
            .map(|(_, given)| given)
    }
}

/// The names of a path.
pub(super) fn names(path: &[u8]) -> Vec<&[u8]> {
    let names = path.split(|&byte| byte == b'/');
    names.filter(|name| !name.is_empty()).collect()
}

impl Pattern {
    fn new(given: &[u8]) -> Pattern {
        let (first, rest) = match given.strip_prefix(b"... ") {
            Some(rest) => (Some(PatternLevel::Names), rest),
            None => (None, given),
        };
        let mut expanded = Vec::new();
        expand(&with_escaped_braces(rest), &mut expanded);
        if expanded.len() > ALTERNATIVES_MAX {
            expanded = vec![rest.to_vec()];
        }
        let mut alternatives: Vec<Vec<PatternLevel>> =
            expanded.iter().map(|it| levels(it)).collect();
        if first.is_some() {
            let below = |levels: &mut Vec<PatternLevel>| levels.insert(0, PatternLevel::Names);
            alternatives.iter_mut().for_each(below);
        }
        Pattern {
            given: given.into(),
            alternatives,
            has_matched: AtomicBool::new(false),
        }
    }

    fn parse(syntax: PatternSyntax, given: &[u8]) -> Result<Pattern> {
        let mut levels = Vec::new();
        if syntax == PatternSyntax::TextRegex {
            levels.push(PatternLevel::Path(NameExpression::posix(given)?));
        } else {
            let below = given.strip_prefix(b"... ");
            levels.extend(below.map(|_| PatternLevel::Names));
            for name in names(below.unwrap_or(given)) {
                levels.push(PatternLevel::Expression(match syntax {
                    PatternSyntax::Shell => NameExpression::shell(name)?,
                    _ => NameExpression::posix(name)?,
                }));
            }
        }
        Ok(Pattern {
            given: given.into(),
            alternatives: vec![levels],
            has_matched: AtomicBool::new(false),
        })
    }

    fn concern(&self, names: &[&[u8]]) -> Concern {
        let all = self.alternatives.iter().map(|it| concern(it, names));
        all.max().unwrap_or(Concern::Nothing)
    }
}

/// Follows a path through the levels of a pattern. `at` are the levels that the names so far can
/// have led to, so that the time is bounded whatever the pattern and the path.
fn concern(levels: &[PatternLevel], names: &[&[u8]]) -> Concern {
    if let [PatternLevel::Path(expression)] = levels {
        let is_match = expression.matches(&names.join(&b'/'));
        return if is_match {
            Concern::Whole
        } else {
            Concern::Below
        };
    }
    let end = levels.len();
    let mut at = vec![false; end + 1];
    let mut next = at.clone();
    at[0] = true;
    skip_directories(levels, &mut at);
    let mut is_below_match = false;
    for name in names {
        is_below_match |= at[end];
        next.fill(false);
        for (level, _) in at.iter().enumerate().filter(|(_, is_at)| **is_at) {
            match levels.get(level) {
                Some(PatternLevel::Name(expected)) if **expected == **name => {
                    next[level + 1] = true;
                }
                Some(PatternLevel::Expression(expression)) if expression.matches(name) => {
                    next[level + 1] = true;
                }
                Some(PatternLevel::Names) => {
                    next[level] = true;
                    next[level + 1] = true;
                }
                _ => {}
            }
        }
        skip_directories(levels, &mut next);
        std::mem::swap(&mut at, &mut next);
    }
    if at[end] {
        Concern::Whole
    } else if is_below_match {
        Concern::Above
    } else if at.contains(&true) {
        Concern::Below
    } else {
        Concern::Nothing
    }
}

/// `**` stands for no directory, too, unless it is the last level.
fn skip_directories(levels: &[PatternLevel], at: &mut [bool]) {
    for (level, pattern) in levels.iter().enumerate() {
        if at[level] && matches!(pattern, PatternLevel::Names) && level + 1 < levels.len() {
            at[level + 1] = true;
        }
    }
}

fn levels(pattern: &[u8]) -> Vec<PatternLevel> {
    let levels = pattern
        .split(|&byte| byte == b'/')
        .filter(|level| !matches!(*level, b"" | b"."));
    levels
        .map(|level| {
            if level == b"**" {
                return PatternLevel::Names;
            }
            let is_wild = level.iter().any(|byte| b"*?[{\\".contains(byte));
            match is_wild.then(|| NameExpression::glob(level)) {
                Some(Ok(expression)) => PatternLevel::Expression(expression),
                // An impossible range stands for itself.
                _ => PatternLevel::Name(level.into()),
            }
        })
        .collect()
}

/// The pattern with a backslash before each brace that stands for itself: one without its
/// counterpart, or without a comma between them.
fn with_escaped_braces(pattern: &[u8]) -> Vec<u8> {
    let mut plain = BTreeSet::new();
    // Each with whether a comma follows.
    let mut open: Vec<(usize, bool)> = Vec::new();
    let mut at = 0;
    while at < pattern.len() {
        match pattern[at] {
            b'\\' => at += 1,
            b'[' => at = end_of_class(pattern, at).unwrap_or(at),
            b'{' => {
                plain.insert(at);
                open.push((at, false));
            }
            b',' => {
                if let Some((_, has_comma)) = open.last_mut() {
                    *has_comma = true;
                }
            }
            b'}' => match open.pop() {
                Some((start, true)) => _ = plain.remove(&start),
                _ => _ = plain.insert(at),
            },
            _ => {}
        }
        at += 1;
    }
    let mut escaped = Vec::with_capacity(pattern.len() + plain.len());
    for (at, &byte) in pattern.iter().enumerate() {
        if plain.contains(&at) {
            escaped.push(b'\\');
        }
        escaped.push(byte);
    }
    escaped
}

/// Replaces braces that span directories, as in `{usr/bin,etc}`, by a pattern for each alternative.
/// Others are part of a name.
fn expand(pattern: &[u8], expanded: &mut Vec<Vec<u8>>) {
    if expanded.len() > ALTERNATIVES_MAX {
        return;
    }
    let Some(braces) = SpanningBraces::first(pattern) else {
        return expanded.push(pattern.to_vec());
    };
    for alternative in braces.alternatives {
        expand(
            &[braces.before, alternative, braces.after].concat(),
            expanded,
        );
    }
}

/// Braces with a slash or `**` in them, and the pattern around them.
struct SpanningBraces<'a> {
    before: &'a [u8],
    alternatives: Vec<&'a [u8]>,
    after: &'a [u8],
}

impl SpanningBraces<'_> {
    fn first(pattern: &[u8]) -> Option<SpanningBraces<'_>> {
        let mut open = Vec::new();
        let mut commas: Vec<(usize, usize)> = Vec::new();
        let mut at = 0;
        while at < pattern.len() {
            match pattern[at] {
                b'\\' => at += 1,
                b'[' => at = end_of_class(pattern, at).unwrap_or(at),
                b'{' => open.push(at),
                b',' => commas.push((open.len(), at)),
                b'}' => {
                    let depth = open.len();
                    let Some(start) = open.pop() else {
                        at += 1;
                        continue;
                    };
                    let inner = &pattern[start + 1..at];
                    let spans = inner.contains(&b'/') || inner.windows(2).any(|two| two == b"**");
                    if spans {
                        let mut from = start + 1;
                        let mut alternatives = Vec::new();
                        for &(_, comma) in commas.iter().filter(|it| it.0 == depth && it.1 > start)
                        {
                            alternatives.push(&pattern[from..comma]);
                            from = comma + 1;
                        }
                        alternatives.push(&pattern[from..at]);
                        return Some(SpanningBraces {
                            before: &pattern[..start],
                            alternatives,
                            after: &pattern[at + 1..],
                        });
                    }
                    commas.retain(|(level, _)| *level < depth);
                }
                _ => {}
            }
            at += 1;
        }
        None
    }
}

/// The place of the `]` that ends a class of characters.
fn end_of_class(pattern: &[u8], start: usize) -> Option<usize> {
    let negation = usize::from(matches!(pattern.get(start + 1), Some(b'!' | b'^')));
    let first = start + 1 + negation;
    let rest = pattern.get(first + 1..)?;
    let end = rest.iter().position(|byte| b"]/".contains(byte))?;
    (rest[end] == b']').then_some(first + 1 + end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stand_for_themselves_beside_patterns() {
        let patterns = Patterns::new(["a/*.c"]).with_paths(["./d//e/", "x[1]", "d/e/f", "gone"]);
        for (path, concern) in [
            ("", Concern::Below),
            ("a", Concern::Below),
            ("a/b.c", Concern::Whole),
            ("d", Concern::Below),
            ("d/e", Concern::Whole),
            ("d/e/f", Concern::Whole),
            ("d/e/g/h", Concern::Above),
            ("d/ee", Concern::Nothing),
            ("x1", Concern::Nothing),
            ("x[1]", Concern::Whole),
        ] {
            assert_eq!(patterns.concern(path.as_bytes()), concern, "{path}");
        }
        assert_eq!(patterns.unmatched().collect::<Vec<_>>(), [b"gone"]);
        let nothing = Patterns::default().with_paths([b""; 0]);
        assert!(!nothing.is_empty());
        assert_eq!(nothing.concern(b"a"), Concern::Nothing);
        let exact = Patterns::default()
            .with_paths(["d", "e/f"])
            .of_exact_paths();
        let concerns = ["d", "d/a", "e", "e/f"].map(|path| exact.concern(path.as_bytes()));
        let [above, whole] = [Concern::Below, Concern::Whole];
        assert_eq!(concerns, [whole, Concern::Nothing, above, whole]);
        let all = Patterns::default().with_paths(["."]);
        assert_eq!(all.concern(b"a/b"), Concern::Above);
    }

    #[test]
    fn expressions_are_for_each_name_of_a_path_or_for_a_text() {
        use PatternSyntax::{Regex, Shell, TextRegex};
        for (syntax, pattern, path, concern) in [
            (Regex, "a/(b|c)$", "a", Concern::Below),
            (Regex, "a/(b|c)$", "xax/xb", Concern::Whole),
            (Regex, "a/(b|c)$", "a/b/d", Concern::Above),
            (Regex, "... x", "a/b/axa", Concern::Whole),
            (Regex, "x", "a/x", Concern::Nothing),
            (Shell, "**/y", "d/y", Concern::Whole),
            (Shell, "**/y", "d/e/y", Concern::Nothing),
            (Shell, "... *.@(o|c)", "d/e/y.c", Concern::Whole),
            (TextRegex, "^user.a/", "user.a/b", Concern::Whole),
        ] {
            let patterns = Patterns::parse(syntax, [pattern]).unwrap();
            assert_eq!(
                patterns.concern(path.as_bytes()),
                concern,
                "{pattern} {path}"
            );
        }
        assert!(Patterns::parse(Regex, ["a/(b"]).is_err());
    }

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
            ("x{a", &["x{a"], &["xa"]),
            ("{a,{b,c}/d", &["{a,b/d", "{a,c/d"], &["a", "b/d"]),
            ("{a}{}}", &["{a}{}}"], &["a"]),
            ("[a/b]", &["[a/b]"], &["a"]),
            ("[z-a]", &["[z-a]"], &["a"]),
            ("[[:digit:]]\\n", &["1n"], &["1\n", ":]n"]),
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
    fn a_path_is_matched_or_above_or_below_a_match() {
        use Concern::{Above, Below, Nothing, Whole};
        for (pattern, path, concern) in [
            ("usr/*/bin", "usr", Below),
            ("usr/*/bin", "usr/README", Below),
            ("usr/*/bin", "usr/local/bin", Whole),
            ("usr/*/bin", "usr/local/bin/x/y", Above),
            ("usr/*/bin", "usr/local/lib", Nothing),
            ("etc", "etcetera", Nothing),
            ("... *.o", "a/b/c", Below),
            ("... *.o", "a/b.o", Whole),
            ("**/*.o", "a/b.o/c", Above),
            ("a/**", "a", Below),
            ("{usr/bin,etc}/x", "usr", Below),
            ("{usr/bin,etc}/x", "etc/x", Whole),
            ("{usr/{bin,lib},etc}", "usr/lib", Whole),
            ("{a,b}c/d", "bc/d", Whole),
            ("[{]/{a/b,c}", "{/c", Whole),
        ] {
            let patterns = Patterns::new([pattern]);
            assert_eq!(
                patterns.concern(path.as_bytes()),
                concern,
                "{pattern} {path}"
            );
            assert_eq!(patterns.unmatched().count() == 0, concern >= Above);
        }
        // Neither time nor memory is without bounds.
        let patterns = Patterns::new(["{a/b,c/d}".repeat(30), "**/a/".repeat(2000)]);
        assert_eq!(patterns.concern("a/".repeat(2000).as_bytes()), Whole);
    }

    #[test]
    fn patterns_match_as_a_naive_matcher_of_whole_paths() {
        let mut rng = testkit::Rng::new(32);
        let mut names = vec![String::new()];
        for _ in 0..2 {
            let longer = names
                .iter()
                .flat_map(|it| ["a", "b", "."].map(|c| format!("{it}{c}")));
            names = longer.chain(["a".into(), "b".into()]).collect();
        }
        names.retain(|name| name != "." && name != "..");
        names.sort_unstable();
        names.dedup();
        for _ in 0..testkit::cases(3000) {
            let pattern = random_pattern(&mut rng, 0);
            let patterns = Patterns::new([&pattern]);
            for _ in 0..40 {
                let depth = 1 + rng.below(4);
                let path: Vec<&str> = (0..depth)
                    .map(|_| &*names[rng.below(names.len() as u64) as usize])
                    .collect();
                let prefixes: Vec<String> = (1..=path.len()).map(|n| path[..n].join("/")).collect();
                let whole: Vec<bool> = (prefixes.iter())
                    .map(|path| naive(pattern.as_bytes(), path.as_bytes(), true))
                    .collect();
                for (at, path) in prefixes.iter().enumerate() {
                    let concern = patterns.concern(path.as_bytes());
                    let words = format!("{pattern} {path} {concern:?}");
                    assert_eq!(patterns.matches(path.as_bytes()), whole[at], "{words}");
                    assert_eq!(concern == Concern::Whole, whole[at], "{words}");
                    let is_above = whole[..at].contains(&true);
                    assert_eq!(concern >= Concern::Above, whole[at] || is_above, "{words}");
                    if whole[at..].contains(&true) {
                        assert!(concern > Concern::Nothing, "{words}");
                    }
                }
            }
        }
    }

    /// One to three levels, some of them `**`, some with braces that span levels.
    fn random_pattern(rng: &mut testkit::Rng, depth: u64) -> String {
        let count = 1 + rng.below(3);
        let levels = (0..count).map(|_| match rng.below(8) {
            0 => "**".to_owned(),
            1 if depth < 2 => {
                let [one, two] = [0; 2].map(|_| random_pattern(rng, depth + 1));
                let (before, after) = (rng.below(2) == 0, rng.below(2) == 0);
                let around = |some: bool| if some { "a" } else { "" };
                // `**` beside a letter would be part of a name.
                if one.contains("**") || two.contains("**") {
                    format!("{{{one},{two}}}")
                } else {
                    format!("{}{{{one},{two}}}{}", around(before), around(after))
                }
            }
            _ => {
                let atoms = ["a", "b", "*", "?", "[ab]", "[!a]", "{a,b*}", "."];
                let count = 1 + rng.below(2);
                let atoms = (0..count).map(|_| atoms[rng.below(8) as usize]);
                atoms.collect::<String>().replace("**", "*")
            }
        });
        let levels: Vec<String> = levels.filter(|it| it != ".").collect();
        if levels.is_empty() {
            return "a".to_owned();
        }
        levels.join("/")
    }

    /// The definition, letter by letter.
    fn naive(pattern: &[u8], path: &[u8], is_start: bool) -> bool {
        let rest_of_name = path
            .split(|&byte| byte == b'/')
            .next()
            .unwrap_or(path)
            .len();
        match pattern {
            [] => path.is_empty(),
            b"**" if is_start => !path.is_empty(),
            [b'*', b'*', b'/', rest @ ..] if is_start => {
                let after = |at: &usize| path[*at] == b'/';
                naive(rest, path, true)
                    || (0..path.len())
                        .filter(after)
                        .any(|at| naive(rest, &path[at + 1..], true))
            }
            [b'*', rest @ ..] => (0..=rest_of_name).any(|len| naive(rest, &path[len..], false)),
            [b'?', rest @ ..] => rest_of_name > 0 && naive(rest, &path[1..], false),
            [b'[', b'a', b'b', b']', rest @ ..] => {
                matches!(path.first(), Some(b'a' | b'b')) && naive(rest, &path[1..], false)
            }
            [b'[', b'!', b'a', b']', rest @ ..] => {
                rest_of_name > 0 && path[0] != b'a' && naive(rest, &path[1..], false)
            }
            [b'{', rest @ ..] => {
                let (mut depth, mut from, mut all) = (0, 0, Vec::new());
                for (at, byte) in rest.iter().enumerate() {
                    match byte {
                        b'{' => depth += 1,
                        b',' if depth == 0 => {
                            all.push(&rest[from..at]);
                            from = at + 1;
                        }
                        b'}' if depth == 0 => {
                            all.push(&rest[from..at]);
                            let one = |it: &&[u8]| [it, &rest[at + 1..]].concat();
                            return all.iter().any(|it| naive(&one(it), path, is_start));
                        }
                        b'}' => depth -= 1,
                        _ => {}
                    }
                }
                false
            }
            [byte, rest @ ..] => {
                path.first() == Some(byte) && naive(rest, &path[1..], *byte == b'/')
            }
        }
    }
}
