//! The list of files that `restow copy -v` prints.

use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use tree::{EntryId, Inventory, Progress};

use crate::bar::Bar;
use crate::text;

/// Reports progress to a bar, and prints names at the pace of the files that are done.
pub(crate) struct Names<'a> {
    bar: &'a Bar,
    list: Option<Mutex<NameList<'a>>>,
}

struct NameList<'a> {
    inventory: &'a Inventory<'a>,
    rest: Box<dyn Iterator<Item = EntryId> + Send + 'a>,
    line: NameLine,
    to_standard_error: bool,
}

/// The line for a name.
pub(crate) type NameLine = fn(&Inventory<'_>, EntryId) -> String;

/// The path alone.
pub(crate) fn path_line(inventory: &Inventory<'_>, entry: EntryId) -> String {
    text::of_path(&inventory.path(entry))
}

impl<'a> Names<'a> {
    /// Prints names if they have lines: on standard output, or on standard error if the tree goes
    /// to standard output.
    pub(crate) fn new(
        bar: &'a Bar,
        inventory: &'a Inventory<'a>,
        line: Option<NameLine>,
        dst: &Path,
    ) -> Self {
        let list = line.map(|line| {
            Mutex::new(NameList {
                inventory,
                rest: Box::new(inventory.names()),
                line,
                to_standard_error: dst == Path::new("-"),
            })
        });
        Names { bar, list }
    }

    /// Prints the names that are left: those of directories are often written last.
    pub(crate) fn finish(&self) {
        self.print(u64::MAX);
        self.bar.finish();
    }

    fn print(&self, count: u64) {
        let Some(list) = &self.list else { return };
        let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
        let mut names = String::new();
        for _ in 0..count {
            let Some(entry) = list.rest.next() else { break };
            names += &(list.line)(list.inventory, entry);
            names.push('\n');
            if names.len() > 1 << 16 {
                list.write(&names);
                names.clear();
            }
        }
        list.write(&names);
    }
}

impl NameList<'_> {
    /// A closed pipe for the list does not stop the copy.
    fn write(&self, names: &str) {
        let _ = if self.to_standard_error {
            io::stderr().write_all(names.as_bytes())
        } else {
            io::stdout().write_all(names.as_bytes())
        };
    }
}

impl Progress for Names<'_> {
    fn expect(&self, files: Option<u64>, bytes: Option<u64>) {
        self.bar.expect(files, bytes);
    }

    fn advance(&self, files: u64, bytes: u64) {
        self.bar.advance(files, bytes);
        self.print(files);
    }

    fn wrote(&self, bytes: u64) {
        self.bar.wrote(bytes);
    }
}
