//! Rust source cut into code, comments and string literals, as far as the rules need it.

/// A file's text with everything but the code blanked out, and what was blanked out.
pub(crate) struct Source {
    /// The code: comments, and the inside of literals, are spaces; every line keeps its number and
    /// columns in bytes.
    pub(crate) code: String,
    /// Each comment with the number of its first line.
    pub(crate) comments: Vec<(usize, String)>,
    /// Each string literal: where its first quote stands in `code`, and its content as it is
    /// written.
    pub(crate) strings: Vec<(usize, String)>,
    /// Where each line of `code` but the first begins.
    line_starts: Vec<usize>,
}

impl Source {
    pub(crate) fn parse(text: &str) -> Source {
        let bytes = text.as_bytes();
        let mut source = Source {
            code: String::with_capacity(text.len()),
            comments: Vec::new(),
            strings: Vec::new(),
            line_starts: text.match_indices('\n').map(|(at, _)| at + 1).collect(),
        };
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            if rest.starts_with(b"//") {
                let len = rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
                source.comment(&text[at..at + len]);
                at += len;
            } else if rest.starts_with(b"/*") {
                let len = block_comment(rest);
                source.comment(&text[at..at + len]);
                at += len;
            } else if let Some((before, inside, after)) = string(rest, previous(bytes, at)) {
                source.code.push_str(&text[at..at + before]);
                let start = source.code.len() - 1;
                let inside = &text[at + before..at + before + inside];
                source.strings.push((start, inside.to_owned()));
                source.blank(inside);
                at += before + inside.len();
                source.code.push_str(&text[at..at + after]);
                at += after;
            } else if let Some(len) = character(rest) {
                source.code.push('\'');
                source.blank(&text[at + 1..at + len - 1]);
                source.code.push('\'');
                at += len;
            } else {
                let len = text[at..].chars().next().map_or(1, char::len_utf8);
                source.code.push_str(&text[at..at + len]);
                at += len;
            }
        }
        source
    }

    /// The number of the line, counted from 1, of a place in `code`.
    pub(crate) fn line_at(&self, at: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= at) + 1
    }

    /// The line where the unit tests begin, or one after all lines.
    pub(crate) fn tests_start(&self) -> usize {
        let mut lines = self.code.lines().enumerate().peekable();
        while let Some((index, line)) = lines.next() {
            let next = lines.peek().map_or("", |(_, next)| next.trim_start());
            let is_for_tests =
                line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test,");
            if is_for_tests && next.starts_with("mod ") && next.ends_with('{') {
                return index + 1;
            }
        }
        usize::MAX
    }

    /// The code before the unit tests.
    pub(crate) fn shipped(&self) -> &str {
        let tests = self.tests_start().saturating_sub(2);
        &self.code[..self
            .line_starts
            .get(tests)
            .map_or(self.code.len(), |start| *start)]
    }

    fn comment(&mut self, comment: &str) {
        let line = self.line_at(self.code.len());
        self.comments.push((line, comment.to_owned()));
        self.blank(comment);
    }

    fn blank(&mut self, text: &str) {
        let blank = text.bytes().map(|b| if b == b'\n' { '\n' } else { ' ' });
        self.code.extend(blank);
    }
}

/// Where `word` stands in `code`, not as a part of a longer word.
pub(crate) fn word_positions(code: &str, word: &str) -> Vec<usize> {
    let is_word = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    let bytes = code.as_bytes();
    (code.match_indices(word).map(|(at, _)| at))
        .filter(|at| !is_word(at.checked_sub(1).and_then(|at| bytes.get(at))))
        .filter(|at| !is_word(bytes.get(at + word.len())))
        .collect()
}

fn previous(bytes: &[u8], at: usize) -> Option<u8> {
    at.checked_sub(1).map(|at| bytes[at])
}

/// The length of the block comment, which may hold others, that `rest` begins with.
fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest[at..].starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// If `rest` begins with a string literal: the lengths of its prefix with the first quote, its
/// inside, and the last quote.
fn string(rest: &[u8], previous: Option<u8>) -> Option<(usize, usize, usize)> {
    // The r of `for` begins no raw string.
    let in_word = previous.is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_');
    let mut prefix = 0;
    let mut raw = false;
    if !in_word {
        prefix += usize::from(matches!(rest.first(), Some(b'b' | b'c')));
        raw = rest.get(prefix) == Some(&b'r');
        prefix += usize::from(raw);
    }
    let hashes = if raw {
        rest[prefix..].iter().take_while(|b| **b == b'#').count()
    } else {
        0
    };
    let before = prefix + hashes + 1;
    if rest.get(before - 1) != Some(&b'"') {
        return None;
    }
    let mut at = before;
    while at < rest.len() {
        let closes =
            rest[at] == b'"' && rest[at + 1..].iter().take_while(|b| **b == b'#').count() >= hashes;
        if closes {
            return Some((before, at - before, 1 + hashes));
        }
        at += if rest[at] == b'\\' && !raw { 2 } else { 1 };
    }
    Some((before, rest.len() - before, 0))
}

/// The length of the character literal that `rest` begins with, unless that is a lifetime.
fn character(rest: &[u8]) -> Option<usize> {
    match rest {
        [b'\'', b'\\', _, tail @ ..] => tail.iter().position(|b| *b == b'\'').map(|len| len + 4),
        [b'\'', tail @ ..] => {
            let len = std::str::from_utf8(&tail[..tail.len().min(4)])
                .or_else(|error| std::str::from_utf8(&tail[..error.valid_up_to()]))
                .ok()?
                .chars()
                .next()?
                .len_utf8();
            (tail.get(len) == Some(&b'\'')).then_some(len + 2)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(text: &str) -> Vec<String> {
        Source::parse(text)
            .strings
            .into_iter()
            .map(|(_, string)| string)
            .collect()
    }

    #[test]
    fn comments_and_strings_leave_the_code() {
        let source = Source::parse("let a = \"unsafe // \\\" x\"; // unsafe \"b\"\nunsafe {}\n");
        assert_eq!(word_positions(&source.code, "unsafe").len(), 1);
        assert_eq!(source.line_at(word_positions(&source.code, "unsafe")[0]), 2);
        assert_eq!(source.strings, [(8, "unsafe // \\\" x".to_owned())]);
        assert_eq!(source.comments, [(1, "// unsafe \"b\"".to_owned())]);
    }

    #[test]
    fn every_kind_of_string_is_known() {
        assert_eq!(
            strings("r\"a\\\" b\"c\" br#\"d\"e\"#"),
            ["a\\", "c", "d\"e"]
        );
        assert_eq!(strings("for\"x\""), ["x"]);
        assert_eq!(
            strings("'\"' \"a\" b'\\'' \"b\" '\\u{41}' \"c\" 'é' \"d\""),
            ["a", "b", "c", "d"]
        );
        assert_eq!(strings("fn f<'a>(x: &'a str) -> &'a str { \"y\" }"), ["y"]);
    }

    #[test]
    fn nested_comments_end_where_they_end() {
        let source = Source::parse("/* a /* b */ c\n */ code\n");
        assert_eq!(source.code, "              \n    code\n");
        assert_eq!(source.comments.len(), 1);
    }

    #[test]
    fn unfinished_source_is_no_reason_to_panic() {
        for text in ["\"", "r#\"a", "/*", "'", "'\\", "b'", "//", "\"\\", "é'é"] {
            assert_eq!(Source::parse(text).code.len(), text.len(), "{text}");
        }
    }

    #[test]
    fn words_are_whole() {
        assert_eq!(
            word_positions("unsafe_code unsafe xunsafe unsafe", "unsafe"),
            [12, 27]
        );
    }

    #[test]
    fn tests_end_the_lines() {
        let source = Source::parse("a\n#[cfg(test)]\nuse b;\n#[cfg(test)]\nmod tests {\nc\n}\n");
        assert_eq!(source.tests_start(), 4);
        assert_eq!(source.shipped().lines().count(), 3);
    }
}
