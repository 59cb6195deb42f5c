//! The findings of a check of an image, in any format.

use std::fmt;

use crate::{Error, Result, setters};

/// Findings after this many are only counted.
const FINDINGS_MAX: u64 = 1000;

/// The parts of an image to check: all metadata, and as much of the data as `data` says.
///
/// The default is [`CheckOptions::EVERYTHING`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckOptions {
    /// How data is checked.
    pub data: DataCheck,
}

impl Default for CheckOptions {
    fn default() -> CheckOptions {
        CheckOptions::EVERYTHING
    }
}

impl CheckOptions {
    /// Everything that can be checked.
    pub const EVERYTHING: CheckOptions = CheckOptions {
        data: DataCheck::Decode,
    };
}

setters!(CheckOptions { data: DataCheck });

/// How data is checked. Each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DataCheck {
    /// Data is not read.
    Skip,
    /// Where there are checksums, the data in every copy must match them.
    Checksums,
    /// Encoded data must decode.
    Decode,
}

impl DataCheck {
    /// Whether encoded data is decoded.
    pub fn decodes(self) -> bool {
        self == DataCheck::Decode
    }
}

/// Something that is wrong with an image.
#[derive(Debug)]
pub struct Finding {
    /// The fault, and its byte offset.
    pub error: Error,
    /// The part of the image that is affected: its kind, as a noun, and its number.
    pub part: Option<(&'static str, i64)>,
    /// The path of the affected file from the tree's root, without a leading `/`.
    pub file: Option<Box<[u8]>>,
}

impl From<Error> for Finding {
    /// A finding about the file that the error names, if any.
    fn from(error: Error) -> Finding {
        let (error, file) = match error {
            Error::File { path, error, .. } => (*error, Some(path)),
            error => (error, None),
        };
        Finding {
            error,
            part: None,
            file,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((kind, number)) = self.part {
            write!(f, "{kind} {number}: ")?;
        }
        self.error.fmt(f)?;
        match &self.file {
            Some(path) if path.is_empty() => f.write_str(", in ."),
            Some(path) => write!(f, ", in {}", path.escape_ascii()),
            None => Ok(()),
        }
    }
}

/// Reports findings, and counts them.
pub struct Findings<'a> {
    report: &'a mut dyn FnMut(Finding),
    count: u64,
}

impl<'a> Findings<'a> {
    /// Creates the collection; the first thousand findings go to `report`.
    pub fn new(report: &'a mut dyn FnMut(Finding)) -> Findings<'a> {
        Findings { report, count: 0 }
    }

    /// The number of findings, including those not reported.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether the next finding will be reported.
    pub fn reports_next(&self) -> bool {
        self.count < FINDINGS_MAX
    }

    /// Adds a finding.
    ///
    /// # Errors
    /// [`Error::Io`], which is not a finding about the image, and ends the check.
    pub fn add(&mut self, finding: Finding) -> Result<()> {
        if matches!(finding.error, Error::Io(_)) {
            return Err(match finding.file {
                Some(path) => finding.error.in_file("check", &path),
                None => finding.error,
            });
        }
        if self.reports_next() {
            (self.report)(finding);
        }
        self.count += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_says_what_and_where() {
        let finding = |part, path: &[u8]| Finding {
            part,
            ..Finding::from(Error::NotFound.in_file("check", path))
        };
        let words = "no such file or directory";
        let said = finding(None, b"a/\xff").to_string();
        assert_eq!(said, format!("{words}, in a/\\xff"));
        let said = finding(Some(("tree", -7)), b"").to_string();
        assert_eq!(said, format!("tree -7: {words}, in ."));
        assert_eq!(Finding::from(Error::NotFound).to_string(), words);
    }

    #[test]
    fn all_are_counted_and_the_first_are_reported() {
        let mut reported = 0;
        let mut report = |_| reported += 1;
        let mut findings = Findings::new(&mut report);
        for _ in 0..1500 {
            findings.add(Error::NotFound.into()).unwrap();
        }
        let failed = Error::Io(std::io::Error::other("medium")).in_file("read", b"a");
        let failed = findings.add(failed.into()).unwrap_err();
        assert_eq!(failed.to_string(), "check a: medium");
        assert_eq!(findings.count(), 1500);
        assert_eq!(reported, 1000);
    }
}
