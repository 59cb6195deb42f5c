//! Use as JSON.

use tree::json::Object;
use tree::usage::{Amount, Totals};

use super::args::Usage;
use super::measured::Measured;
use crate::text;

/// The version of the form.
const VERSION: u32 = 1;

/// Everything that was measured.
pub(super) fn of_measured(measured: &Measured, args: &Usage) -> Object {
    let Measured {
        name,
        totals,
        nodes,
        files,
        types,
        overhead,
        subvolumes,
        layers,
    } = measured;
    let mut object = Object::of_schema("usage", VERSION).text("source", name);
    object = with_totals(object, totals);
    if let Some(overhead) = overhead {
        object = object
            .number("metadata_bytes", overhead.metadata)
            .number("slack_bytes", overhead.slack);
    }
    let directories = nodes.directories(args.depth).into_iter().take(args.top);
    let directories = directories.map(|at| {
        let node = &nodes.all()[at];
        let object = Object::new().name("path", &nodes.path(at));
        let object = object
            .number("depth", node.depth)
            .number("files", node.files);
        with_amount(object, &node.amount)
    });
    let files = files.0.iter().map(|(path, amount)| {
        let object = Object::new().name("path", path);
        with_amount(object, amount)
    });
    let types = types.sorted();
    let types = types.iter().take(args.top).map(|(name, files, amount)| {
        let object = Object::new().name("type", name).number("files", *files);
        with_amount(object, amount)
    });
    object = object
        .list("by_directory", directories)
        .list("by_file", files)
        .list("by_type", types);
    if let Some(usage) = subvolumes {
        let rows = usage.subvolumes.iter().map(|row| {
            let object = Object::new().number("id", row.id);
            let object = match &row.path {
                Some(path) => object.name("path", path),
                None => object,
            };
            object
                .number("referenced_bytes", row.referenced)
                .number("exclusive_bytes", row.exclusive)
        });
        object = object.list("by_subvolume", rows);
        if !args.if_deleted.is_empty() {
            object = object.number("freed_bytes", usage.freed);
        }
    }
    if let Some((image, usage)) = layers {
        let layers = image.image.layers.iter().zip(usage);
        let layers = layers.map(|(layer, usage)| {
            Object::new()
                .text("digest", &text::of_layer(layer))
                .number("stored_bytes", layer.stored_bytes)
                .number("files", usage.files)
                .number("content_bytes", usage.bytes)
                .number("hidden_files", usage.hidden_files)
                .number("hidden_bytes", usage.hidden_bytes)
        });
        object = object.list("by_layer", layers);
    }
    object
}

/// The sums.
pub(crate) fn of_totals(totals: &Totals) -> Object {
    with_totals(Object::new(), totals)
}

fn with_totals(object: Object, totals: &Totals) -> Object {
    let forms = totals.forms.iter().map(|(form, amount)| {
        let object = Object::new().text("algorithm", form.name());
        with_amount(object, amount)
    });
    object
        .number("files", totals.files)
        .number("directories", totals.directories)
        .number("other_files", totals.others)
        .number("content_bytes", totals.content_bytes)
        .object("total", with_amount(Object::new(), &totals.total()))
        .list("by_algorithm", forms)
        .object("inline", with_amount(Object::new(), &totals.inline))
        .object("fragments", with_amount(Object::new(), &totals.fragments))
        .number("shared_bytes", totals.shared_bytes)
        .number("unreferenced_bytes", totals.unreferenced_bytes)
        .number("hole_bytes", totals.hole_bytes)
}

fn with_amount(object: Object, amount: &Amount) -> Object {
    object
        .number("extents", amount.extents)
        .number("references", amount.references)
        .number("disk_usage_bytes", amount.stored)
        .number("uncompressed_bytes", amount.decoded)
        .number("referenced_bytes", amount.referenced)
}
