//! Tables of whole processes: time of ours divided by that of another program.

use crate::cells::{cell, markdown, mb, over, spread_cell};
use crate::record::{RecordRow, TableRecord};
use crate::table::RenderedTable;

/// SquashFS images, divided by those of mksquashfs.
pub(crate) fn squashfs(record: &TableRecord) -> RenderedTable {
    let columns = "tree | `--compress` | mksquashfs s | `--no-verify` | CPU | verifying | gensquashfs | size | peak memory";
    show(record, columns, "mksquashfs", |row, cells| {
        let others = ["restow verifying", "gensquashfs"];
        cells.extend(others.map(|peer| spread_cell(row.spread(peer, "time"))));
        cells.push(size(row, "mksquashfs"));
    })
}

/// SquashFS images unpacked, divided by unsquashfs.
pub(crate) fn unsquashfs(record: &TableRecord) -> RenderedTable {
    let columns = "tree | codec | unsquashfs s | wall | CPU | peak memory";
    show(record, columns, "unsquashfs", |_, _| {})
}

/// Directories and archives, divided by GNU tar, cp or diff.
pub(crate) fn trees(record: &TableRecord) -> RenderedTable {
    let columns = "tree | work | GNU s | wall | CPU | peak memory";
    show(record, columns, "GNU", |_, _| {})
}

/// btrfs images, divided by those of mkfs.btrfs.
pub(crate) fn btrfs(record: &TableRecord) -> RenderedTable {
    let columns = "tree | `--compress` | mkfs.btrfs s | wall | CPU | size | peak memory";
    show(record, columns, "mkfs.btrfs", |row, cells| {
        cells.push(size(row, "mkfs.btrfs"));
    })
}

fn show(
    record: &TableRecord,
    columns: &str,
    theirs: &str,
    add: impl Fn(&RecordRow, &mut Vec<String>),
) -> RenderedTable {
    let line = |(tree, row): (&str, &RecordRow)| {
        let cpu = |peer| row.value(peer, "CPU seconds");
        let mut cells = vec![
            tree.to_owned(),
            row.name.clone(),
            cell(row.value(theirs, "seconds"), 2),
            spread_cell(row.spread("restow", "time")),
            cell(over(cpu("restow"), cpu(theirs).map(|cpu| cpu.max(0.01))), 3),
        ];
        add(row, &mut cells);
        let memory = mb(row.value("restow", "memory"));
        cells.push(memory.map_or("-".to_owned(), |memory| format!("{memory:.1} MB")));
        cells
    };
    let lines: Vec<Vec<String>> = record.all_rows().map(line).collect();
    markdown(columns, &lines).into()
}

fn size(row: &RecordRow, theirs: &str) -> String {
    let bytes = |peer| row.value(peer, "bytes");
    cell(over(bytes("restow"), bytes(theirs)), 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Spread;

    #[test]
    fn a_missing_peer_leaves_a_dash() {
        let mut record = TableRecord::default();
        let mut add =
            |peer: &str, metric: &str, value| record.add("usr", "zstd:1", peer, metric, value);
        for (peer, bytes, cpu) in [("mksquashfs", 1000.0, 0.03), ("restow", 990.0, 0.015)] {
            add(peer, "seconds", 0.02);
            add(peer, "CPU seconds", cpu);
            add(peer, "bytes", bytes);
        }
        add("restow", "memory", 9e6);
        for (peer, ratio) in [("restow", 0.5), ("restow verifying", 0.75)] {
            let spread = Spread {
                low: ratio,
                median: ratio,
                high: ratio,
            };
            record.add_spread(["usr", "zstd:1", peer, "time"], spread);
        }
        let text = squashfs(&TableRecord::parse(&record.text()).unwrap()).text;
        assert!(text.starts_with("| tree |"), "{text}");
        assert!(text.ends_with(
            "| usr | zstd:1 | 0.02 | 0.500 [0.500..0.500] | 0.500 | 0.750 [0.750..0.750] | - | 0.9900 | 9.0 MB |\n"
        ), "{text}");
    }
}
