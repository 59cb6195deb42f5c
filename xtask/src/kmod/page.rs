//! The tables of docs/BENCHMARKS.md that are measured in a kernel.

use std::fs;
use std::path::Path;

use crate::environment::root;

const PAGE: &str = "docs/BENCHMARKS.md";

/// Prints a table and puts it between its marks in the page.
pub(super) fn put(name: &str, table: &str) -> Result<(), String> {
    println!("{table}");
    let path = root().join(PAGE);
    let page = fs::read_to_string(&path).map_err(|error| format!("read {PAGE}: {error}"))?;
    let page = with_table(&page, name, table)
        .ok_or_else(|| format!("{PAGE} has no marks of the table {name}"))?;
    fs::write(&path, page).map_err(|error| format!("write {PAGE}: {error}"))
}

/// The names of files without their folders, as one word each.
pub(super) fn names(paths: &[String]) -> Vec<String> {
    let name = |path| Path::new(path).file_name().unwrap_or_default();
    (paths.iter())
        .map(|path| name(path).to_string_lossy().replace(' ', "_"))
        .collect()
}

/// The names and contents of files, each cut off after `length_max` bytes.
pub(super) fn contents(
    paths: &[String],
    length_max: usize,
) -> Result<Vec<(String, Vec<u8>)>, String> {
    let mut files = Vec::new();
    for (path, name) in paths.iter().zip(names(paths)) {
        let mut content = fs::read(path).map_err(|error| format!("read {path}: {error}"))?;
        content.truncate(length_max);
        files.push((name, content));
    }
    Ok(files)
}

/// A number of bytes in MB of the original tables, which have two decimals.
pub(super) fn megabytes(bytes: u64) -> String {
    format!("{:.2}", bytes as f64 / 1e6)
}

fn with_table(page: &str, name: &str, table: &str) -> Option<String> {
    let (start, end) = (
        format!("<!-- kmod {name} -->\n"),
        format!("<!-- end kmod {name} -->"),
    );
    let (before, rest) = page.split_once(&start)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{start}{table}{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_replaces_what_is_between_its_marks() {
        let page = "a\n<!-- kmod x -->\nold\n<!-- end kmod x -->\nb\n";
        assert_eq!(
            with_table(page, "x", "new\n").unwrap(),
            page.replace("old", "new")
        );
        assert_eq!(with_table(page, "y", "new\n"), None);
    }
}
