//! Use as text.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;

use restow::{ContainerImage, SubvolumeUsage};
use tree::tar::LayerUsage;
use tree::usage::{Amount, NodeKind, Totals};

use super::args::Usage;
use super::measured::Measured;
use crate::text;

/// The name of the type of files that have none.
pub(super) const NO_TYPE: &str = "(no type)";

/// All tables.
pub(super) fn all(measured: &Measured, args: &Usage) -> String {
    let Measured {
        totals,
        nodes,
        files,
        types,
        overhead,
        ..
    } = measured;
    let size = |bytes: u64| size(bytes, args.bytes);
    let mut out = forms(totals, args.bytes);
    out.push('\n');
    let mut line = |name: &str, bytes: u64, what: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{name:<12} {:<12} {what}", size(bytes));
    };
    let fragments = text::count(totals.fragments.extents, "block");
    let fragments = format!("disk usage of {fragments} that hold ends of files");
    let (metadata, slack) = overhead.map_or((0, 0), |it| (it.metadata, it.slack));
    for (name, bytes, what) in [
        (
            "Shared",
            totals.shared_bytes,
            "disk usage of extents that several files refer to",
        ),
        ("Fragments", totals.fragments.stored, &*fragments),
        ("Inline", totals.inline.stored, "disk usage within metadata"),
        (
            "Unreferenced",
            totals.unreferenced_bytes,
            "uncompressed bytes of extents that no file refers to",
        ),
        ("Holes", totals.hole_bytes, "not stored"),
        ("Metadata", metadata, "one copy"),
        ("Slack", slack, "allocated and unused"),
    ] {
        let is_known = overhead.is_some() || !matches!(name, "Metadata" | "Slack");
        if is_known && (bytes > 0 || name == "Shared") {
            line(name, bytes, what);
        }
    }
    let directories = nodes.directories(args.depth);
    let shown = &directories[..directories.len().min(args.top)];
    if !shown.is_empty() {
        heading("Directory", &mut out);
        for &at in shown {
            let node = &nodes.all()[at];
            let name = text::of_path(&nodes.path(at));
            row(&node.amount, node.files, &name, &size, &mut out);
        }
        more((directories.len() - shown.len()) as u64, &mut out);
    }
    if nodes
        .all()
        .first()
        .is_some_and(|node| node.kind == NodeKind::Directory)
        && !files.0.is_empty()
    {
        out += "\nPerc   Disk Usage   Uncompressed Referenced   File\n";
        for (path, amount) in &files.0 {
            let name = text::of_path(path);
            let _ = writeln!(out, "{} {name}", columns(amount, &size));
        }
        more(files.1, &mut out);
    }
    let types = types.sorted();
    let shown = &types[..types.len().min(args.top)];
    if !shown.is_empty() {
        heading("Type", &mut out);
        for (name, files, amount) in shown {
            row(amount, *files, &type_name(name), &size, &mut out);
        }
        more((types.len() - shown.len()) as u64, &mut out);
    }
    if let Some(subvolumes) = &measured.subvolumes {
        of_subvolumes(subvolumes, args, &size, &mut out);
    }
    if let Some((image, usage)) = &measured.layers {
        of_layers(image, usage, &size, &mut out);
    }
    out
}

/// The layers, in their order: hidden files are still a part of the image.
fn of_layers(
    image: &ContainerImage,
    usage: &[LayerUsage],
    size: &dyn Fn(u64) -> String,
    out: &mut String,
) {
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "\nStored       Content      Hidden       Files    Layer"
    );
    for (layer, usage) in image.image.layers.iter().zip(usage) {
        let [stored, content, hidden] =
            [layer.stored_bytes, usage.bytes, usage.hidden_bytes].map(size);
        let (files, name) = (usage.files, text::of_layer(layer));
        let _ = writeln!(
            out,
            "{stored:<12} {content:<12} {hidden:<12} {files:<8} {name}"
        );
    }
}

/// The subvolumes, those with the most bytes of their own first.
fn of_subvolumes(
    usage: &SubvolumeUsage,
    args: &Usage,
    size: &dyn Fn(u64) -> String,
    out: &mut String,
) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "\nReferenced   Exclusive    Subvolume");
    let mut rows: Vec<_> = usage.subvolumes.iter().collect();
    rows.sort_by_key(|row| (std::cmp::Reverse(row.exclusive), row.id));
    for row in rows.iter().take(args.top) {
        let name = match (&row.path, row.id) {
            (Some(path), _) if path.is_empty() => "top level".to_owned(),
            (Some(path), _) => text::of_path(path),
            (None, id) => format!("subvolume {id}, without a path"),
        };
        let [referenced, exclusive] = [row.referenced, row.exclusive].map(size);
        let _ = writeln!(out, "{referenced:<12} {exclusive:<12} {name}");
    }
    more(rows.len().saturating_sub(args.top) as u64, out);
    if !args.if_deleted.is_empty() {
        let names: Vec<String> = (args.if_deleted.iter())
            .map(|name| text::of_name(name.as_bytes()))
            .collect();
        let freed = size(usage.freed);
        let _ = writeln!(out, "\nDeleting {} frees {freed}.", names.join(", "));
    }
}

/// The name of a type of files, for people.
pub(super) fn type_name(name: &[u8]) -> String {
    if name.is_empty() {
        NO_TYPE.to_owned()
    } else {
        text::of_name(name)
    }
}

/// The table of compsize.
pub(crate) fn forms(totals: &Totals, in_bytes: bool) -> String {
    let (total, inline) = (totals.total(), totals.inline);
    let mut out = format!(
        "Processed {}, {} regular extents ({} refs), {} inline.\n",
        text::count(totals.files, "file"),
        total.extents.saturating_sub(inline.extents),
        total.references.saturating_sub(inline.references),
        inline.extents
    );
    out += "Type       Perc     Disk Usage   Uncompressed Referenced\n";
    // A form without bytes of its own has no row, as in compsize: the unwritten rest of a
    // preallocated extent belongs to the form that the walk met first.
    let rows = totals.forms.iter().filter(|(_, amount)| amount.decoded > 0);
    let rows = rows.map(|(form, amount)| (form.name(), amount));
    for (name, amount) in [("TOTAL", &total)].into_iter().chain(rows) {
        let percent = format!("{:3}%", amount.percent());
        let [stored, decoded, referenced] =
            [amount.stored, amount.decoded, amount.referenced].map(|it| size(it, in_bytes));
        let _ = writeln!(
            out,
            "{name:<10} {percent:<8} {stored:<12} {decoded:<12} {referenced}"
        );
    }
    out
}

fn size(bytes: u64, in_bytes: bool) -> String {
    if in_bytes {
        bytes.to_string()
    } else {
        text::of_size(bytes)
    }
}

fn heading(name: &str, out: &mut String) {
    let _ = writeln!(
        out,
        "\nPerc   Disk Usage   Uncompressed Referenced   Files    {name}"
    );
}

fn row(amount: &Amount, files: u64, name: &str, size: &dyn Fn(u64) -> String, out: &mut String) {
    let _ = writeln!(out, "{} {files:<8} {name}", columns(amount, size));
}

/// The columns that each table of amounts has.
fn columns(amount: &Amount, size: &dyn Fn(u64) -> String) -> String {
    let percent = format!("{:3}%", amount.percent());
    let [stored, decoded, referenced] =
        [amount.stored, amount.decoded, amount.referenced].map(size);
    format!("{percent:<6} {stored:<12} {decoded:<12} {referenced:<12}")
}

fn more(count: u64, out: &mut String) {
    if count > 0 {
        let _ = writeln!(out, "and {count} more (--top)");
    }
}
