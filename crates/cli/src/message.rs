//! Messages to the user, on standard error, and results for programs, on standard output.

use std::io::{self, Write};

use anyhow::{Context, Result};
use tree::json::Object;
use tree::{Error, Finding};

use crate::text;

/// Prints the result of something that is done as JSON.
///
/// # Errors
/// It cannot be written.
pub(crate) fn print_result(object: Object) -> Result<()> {
    let line = object.line() + "\n";
    let mut out = io::stdout().lock();
    let written = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    written.context("all else is done; write the JSON to standard output")
}

/// Prints a message. A message that cannot be printed is not an error.
pub(crate) fn tell(words: &str) {
    // Names are escaped already; what the user typed may not be.
    let is_harmful = |c: char| c.is_control() && c != '\n';
    if words.contains(is_harmful) {
        let escape = |c: char| {
            if is_harmful(c) {
                c.escape_default().to_string()
            } else {
                c.into()
            }
        };
        let words: String = words.chars().map(escape).collect();
        return tell(&words);
    }
    let _ = writeln!(io::stderr(), "restow: {words}");
}

/// An error in words, outermost context first: verb, path, reason.
pub(crate) fn of_error(error: &anyhow::Error) -> String {
    let mut words = Vec::new();
    for cause in error.chain() {
        // Both print their own causes, and `of_io_error` leaves out the error number.
        if let Some(error) = tree_error(cause) {
            words.push(of_tree_error(error));
            break;
        }
        if let Some(error) = cause.downcast_ref::<io::Error>() {
            words.push(of_io_error(error));
            break;
        }
        words.push(cause.to_string());
    }
    words.join(": ")
}

/// The error of a tree that a cause is.
pub(crate) fn tree_error<'a>(cause: &'a (dyn std::error::Error + 'static)) -> Option<&'a Error> {
    match cause.downcast_ref() {
        Some(restow::Error::Tree(error)) => Some(error),
        _ => cause.downcast_ref(),
    }
}

/// Whether an error is that a file exists.
pub(crate) fn is_existing(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| match tree_error(cause) {
        Some(Error::Io(error)) => error.kind() == io::ErrorKind::AlreadyExists,
        _ => false,
    })
}

/// Whether trying again may help.
pub(crate) fn is_temporary(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| match tree_error(cause) {
        Some(error) => is_temporary_in(error),
        None => cause.downcast_ref().is_some_and(restow::is_temporary),
    })
}

fn is_temporary_in(error: &Error) -> bool {
    match error {
        Error::Io(error) => restow::is_temporary(error),
        Error::File { error, .. } | Error::Part { error, .. } => is_temporary_in(error),
        _ => false,
    }
}

/// Whether the reader of our output closed it, which is not an error where the output is a list.
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| match tree_error(cause) {
        Some(Error::Io(error)) => error.kind() == io::ErrorKind::BrokenPipe,
        _ => {
            let error = cause.downcast_ref::<io::Error>();
            error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
        }
    })
}

/// An error of a tree in words.
pub(crate) fn of_tree_error(error: &Error) -> String {
    match error {
        Error::Io(error) => of_io_error(error),
        Error::File { verb, path, error } => {
            format!("{verb} {}: {}", text::of_path(path), of_tree_error(error))
        }
        Error::Part {
            kind,
            number,
            error,
        } => format!("{kind} {number}: {}", of_tree_error(error)),
        error => error.to_string(),
    }
}

/// A finding of a check, with its place.
pub(crate) fn of_finding(finding: &Finding) -> String {
    let part = finding
        .part
        .map(|(kind, number)| format!("{kind} {number}: "));
    let file = (finding.file.as_ref()).map(|path| format!(", in {}", text::of_path(path)));
    let error = of_tree_error(&finding.error);
    part.unwrap_or_default() + &error + &file.unwrap_or_default()
}

fn of_io_error(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AlreadyExists => "already exists".to_owned(),
        io::ErrorKind::BrokenPipe => "the pipe was closed before everything was written".to_owned(),
        _ => of_reason(&error.to_string()),
    }
}

/// The system's words for an error, in lower case and without the error number. A word of capitals
/// stays, such as the name of a variable.
pub(crate) fn of_reason(words: &str) -> String {
    let mut words = words.split(" (os error").next().unwrap_or(words).to_owned();
    if !words.chars().nth(1).is_some_and(char::is_uppercase)
        && let Some(first) = words.get_mut(..1)
    {
        first.make_ascii_lowercase();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_capitals_stay() {
        for (words, shown) in [
            (
                "No such file or directory (os error 2)",
                "no such file or directory",
            ),
            (
                "AZURE_STORAGE_ACCOUNT names no account",
                "AZURE_STORAGE_ACCOUNT names no account",
            ),
            ("\u{e9}t\u{e9}", "\u{e9}t\u{e9}"),
            ("", ""),
        ] {
            assert_eq!(of_reason(words), shown);
        }
    }

    /// Most commands do not have the option.
    #[test]
    fn a_file_that_exists_is_not_said_to_be_replaced_by_overwrite() {
        let error = Error::Io(io::ErrorKind::AlreadyExists.into());
        let error = error.in_file("mkfile", b"a").in_part("command", 3);
        assert_eq!(of_tree_error(&error), "command 3: mkfile a: already exists");
    }
}
