//! The changelog of the Debian package: `CHANGELOG.md` in the form of deb-changelog(5).

/// Longest line, which `lintian` asks for.
const LINE_MAX: usize = 79;

/// The versions of a changelog, newest first. `version` and `date` (RFC 5322) are those of the part
/// that is not released yet; `date_of` gives the date of a day, such as 2026-12-01.
pub(crate) fn of(
    text: &str,
    version: &str,
    date: &str,
    maintainer: &str,
    date_of: impl Fn(&str) -> Result<String, String>,
) -> Result<String, String> {
    let mut words = String::new();
    for part in text.split("\n## [").skip(1) {
        let (heading, body) = part.split_once('\n').unwrap_or((part, ""));
        let (name, day) = match heading.split_once("] - ") {
            Some((name, day)) => (name, date_of(day.trim())?),
            None if heading == "Unreleased]" => (version, date.to_owned()),
            None => return Err(format!("CHANGELOG.md: [{heading} has no date")),
        };
        // A part without lines follows a release.
        let changes = changes(body);
        if changes.is_empty() {
            continue;
        }
        words += &format!("restow ({name}) unstable; urgency=medium\n");
        words += &changes;
        words += &format!("\n -- {maintainer}  {day}\n\n");
    }
    words.truncate(words.trim_end().len());
    if !words.starts_with(&format!("restow ({version}) ")) {
        return Err(format!("CHANGELOG.md says nothing of version {version}"));
    }
    Ok(words + "\n")
}

/// The lines of a version: headings in brackets, and a paragraph for each item.
fn changes(body: &str) -> String {
    let mut items: Vec<(&str, String)> = Vec::new();
    for line in body.lines() {
        let text = line.trim();
        let is_continued = items.last().is_some_and(|(bullet, _)| !bullet.is_empty());
        if text.is_empty() || text.starts_with("# ") {
        } else if let Some(item) = text.strip_prefix("- ") {
            items.push(("  * ", plain(item)));
        } else if line.starts_with(' ') && is_continued {
            let (_, item) = items.last_mut().expect("one is continued");
            *item += " ";
            *item += &plain(text);
        } else {
            let heading = text.trim_start_matches('#').trim().trim_end_matches(':');
            items.push(("", format!("[ {heading} ]")));
        }
    }
    let mut words = String::new();
    for (bullet, item) in items {
        if bullet.is_empty() {
            words += &format!("\n  {item}\n");
        } else {
            if words.is_empty() {
                words.push('\n');
            }
            words += &wrapped(bullet, &item);
        }
    }
    words
}

/// Without the marks of Markdown: code, and links with their targets.
fn plain(text: &str) -> String {
    let mut rest = text.replace('`', "");
    while let Some(middle) = rest.find("](") {
        let (Some(start), Some(len)) = (rest[..middle].rfind('['), rest[middle..].find(')')) else {
            break;
        };
        let words = rest[start + 1..middle].to_owned();
        rest.replace_range(start..=middle + len, &words);
    }
    rest
}

/// A paragraph whose first line begins with `bullet`, and the others below its text.
fn wrapped(bullet: &str, text: &str) -> String {
    let (mut words, mut line) = (String::new(), bullet.to_owned());
    for word in text.split_whitespace() {
        let is_first = line.len() == bullet.len();
        if !is_first && line.chars().count() + 1 + word.chars().count() > LINE_MAX {
            words += &line;
            words.push('\n');
            line = " ".repeat(bullet.len());
        } else if !is_first {
            line.push(' ');
        }
        line += word;
    }
    words + &line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_become_paragraphs_of_plain_lines() {
        let text = "# Changelog\n\nThe form.\n\n## [Unreleased]\n\n### Added\n\nThe command:\n\n- `restow x` does it\n  at [last](y.md).\n\
            - And so.\n\n## [0.1.0] - 2026-12-01\n\n- First.\n";
        let day = |day: &str| Ok(format!("day {day}"));
        let expected = "restow (0.2.0) unstable; urgency=medium\n\n  [ Added ]\n\n  [ The command ]\n  * restow x does it at last.\n  * And so.\n\n \
            -- A <a@b.c>  today\n\nrestow (0.1.0) unstable; urgency=medium\n\n  * First.\n\n -- A <a@b.c>  day 2026-12-01\n";
        assert_eq!(
            of(text, "0.2.0", "today", "A <a@b.c>", day).as_deref(),
            Ok(expected)
        );
        let released = text.replacen(
            "### Added\n\nThe command:\n\n- `restow x` does it\n  at [last](y.md).\n- And so.\n\n",
            "",
            1,
        );
        let only = of(&released, "0.1.0", "today", "A <a@b.c>", day).expect("one version");
        assert!(
            only.starts_with("restow (0.1.0)") && only.ends_with("day 2026-12-01\n"),
            "{only}"
        );
        // Neither the version nor a date can be left out.
        assert!(of(&released, "0.2.0", "today", "A <a@b.c>", day).is_err());
        assert!(of("\n## [0.1.0]\n\n- First.\n", "0.1.0", "today", "A", day).is_err());
    }

    #[test]
    fn long_items_are_wrapped_below_their_text() {
        let words = wrapped("  * ", &"word ".repeat(30));
        let lines: Vec<&str> = words.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines.iter().all(|line| line.len() <= LINE_MAX));
        assert!(lines[0].starts_with("  * word") && lines[1].starts_with("    word"));
    }

    #[test]
    fn every_line_of_the_changelog_fits() {
        let text = std::fs::read_to_string(crate::environment::root().join("CHANGELOG.md"))
            .expect("CHANGELOG.md");
        let words = of(&text, "1", "today", "A", |_| Ok(String::new())).expect("a changelog");
        for line in words.lines() {
            assert!(
                line.chars().count() <= LINE_MAX && !line.contains('`'),
                "{line}"
            );
        }
    }
}
