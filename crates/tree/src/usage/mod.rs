//! Where the stored bytes of a tree are: by algorithm, by directory and by type of file.
//!
//! The accounting is that of compsize. A stored extent counts once, with all its bytes, wherever it
//! is first met in the order of the walk, and each name of a file counts what the file refers to.
//! Inline content has no extent and counts with each name. Symbolic links and devices take no data.
//! A fragment block, which holds the ends of many files, is divided among them.

mod extents;
mod host;
mod largest;
mod nodes;
mod part;
mod sums;
mod types;
mod walk;

pub use largest::LargestFiles;
pub use nodes::{NodeKind, UsageNode, UsageTree};
pub use part::{ByExtents, StorageForm, StoredPart, StoredParts, algorithm_name, hole};
pub use types::{Types, type_of};
pub use walk::{All, Visitor, measure};

/// Bytes of a kind of extents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Stored extents, and inline contents.
    pub extents: u64,
    /// References from names of files to these.
    pub references: u64,
    /// Bytes that they take in the container, in one copy ("disk usage").
    pub stored: u64,
    /// Bytes that they decode to ("uncompressed").
    pub decoded: u64,
    /// Bytes of files that refer to them ("referenced"): more than `decoded` if they are shared,
    /// fewer if not all of an extent is used.
    pub referenced: u64,
}

impl Amount {
    /// Adds another amount.
    pub fn add(&mut self, other: &Amount) {
        self.extents = self.extents.saturating_add(other.extents);
        self.references = self.references.saturating_add(other.references);
        self.stored = self.stored.saturating_add(other.stored);
        self.decoded = self.decoded.saturating_add(other.decoded);
        self.referenced = self.referenced.saturating_add(other.referenced);
    }

    /// Stored bytes in percent of the decoded ones, rounded down; 100 if nothing is decoded.
    pub fn percent(&self) -> u64 {
        let stored = u128::from(self.stored).saturating_mul(100);
        let percent = stored.checked_div(self.decoded.into()).unwrap_or(100);
        u64::try_from(percent).unwrap_or(u64::MAX)
    }
}

/// What a tree takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// For each way of storing that occurs, its amount, in the order of [`StorageForm::name`]'s
    /// documentation.
    pub forms: Vec<(StorageForm, Amount)>,
    /// Names of regular files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Names of other files, such as symbolic links.
    pub others: u64,
    /// Lengths of the files, by name.
    pub content_bytes: u64,
    /// The part that is inline in metadata.
    pub inline: Amount,
    /// The part that is in fragment blocks, which hold the ends of several files.
    pub fragments: Amount,
    /// Bytes of files where nothing is stored.
    pub hole_bytes: u64,
    /// Stored bytes, other than those of fragment blocks, that several files, or several parts of a
    /// file, refer to.
    pub shared_bytes: u64,
    /// Decoded bytes of extents that nothing in the tree refers to, such as those that were
    /// overwritten.
    pub unreferenced_bytes: u64,
}

impl Totals {
    /// The sum of all forms.
    pub fn total(&self) -> Amount {
        let mut total = Amount::default();
        for (_, amount) in &self.forms {
            total.add(amount);
        }
        total
    }

    /// The amount of a form.
    pub fn of(&self, form: StorageForm) -> Amount {
        let found = self.forms.iter().find(|(it, _)| *it == form);
        found.map_or(Amount::default(), |(_, amount)| *amount)
    }

    fn form(&mut self, form: StorageForm) -> &mut Amount {
        let at = match self.forms.binary_search_by(|(it, _)| it.cmp(&form)) {
            Ok(at) => at,
            Err(at) => {
                self.forms.insert(at, (form, Amount::default()));
                at
            }
        };
        &mut self.forms[at].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_is_rounded_down_and_does_not_overflow() {
        let of = |stored, decoded| {
            Amount {
                stored,
                decoded,
                ..Amount::default()
            }
            .percent()
        };
        assert_eq!((of(38, 6000), of(1, 3), of(5, 0)), (0, 33, 100));
        assert_eq!(of(u64::MAX, u64::MAX), 100);
    }

    /// The numbers of a hostile image have any size.
    #[test]
    fn sums_of_more_than_every_address_are_the_most_there_is() {
        let all = |number| Amount {
            extents: number,
            references: number,
            stored: number,
            decoded: number,
            referenced: number,
        };
        let mut sum = all(u64::MAX - 1);
        sum.add(&all(5));
        assert_eq!(sum, all(u64::MAX));
    }

    #[test]
    fn forms_are_in_order() {
        let mut totals = Totals::default();
        for form in [
            StorageForm::Preallocated,
            StorageForm::Encoded("zstd"),
            StorageForm::Plain,
            StorageForm::Encoded("zlib"),
        ] {
            totals.form(form).stored += 1;
        }
        let names: Vec<&str> = totals.forms.iter().map(|(form, _)| form.name()).collect();
        assert_eq!(names, ["none", "zlib", "zstd", "prealloc"]);
        assert_eq!(totals.total().stored, 4);
    }
}
