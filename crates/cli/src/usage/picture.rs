//! Use as a treemap and as a page.

use report::html::{Cell, TableRow, page as page_of, table};
use report::svg::{Svg, escape};
use report::treemap::{Rect, Tile, draw};
use tree::usage::{Amount, NodeKind};

use super::args::Usage;
use super::measured::Measured;
use super::table::type_name;
use crate::text;

const WIDTH: u32 = 1200;
const HEIGHT: u32 = 800;
/// Around the treemap.
const MARGIN: f64 = 16.0;
/// The room for the title, and for the legend.
const HEAD: f64 = 56.0;
const FOOT: f64 = 44.0;
/// Rows of the tables on a page.
const ROWS_MAX: usize = 100;

/// The treemap.
pub(super) fn drawing(measured: &Measured) -> Svg {
    let total = measured.totals.total();
    let title = format!("Disk usage of {}", measured.name);
    let mut svg = Svg::new(WIDTH, HEIGHT, &title);
    svg.text(MARGIN, 26.0, "ink title", &title);
    let words = format!(
        "{} on disk, {} uncompressed ({} %), {} in {}",
        text::of_size(total.stored),
        text::of_size(total.decoded),
        total.percent(),
        text::of_size(total.referenced),
        text::count(measured.totals.files, "file")
    );
    svg.text(MARGIN, 45.0, "dim", &words);
    let (width, height) = (f64::from(WIDTH), f64::from(HEIGHT));
    let rect = Rect {
        x: MARGIN,
        y: HEAD,
        width: width - 2.0 * MARGIN,
        height: height - HEAD - FOOT,
    };
    draw(&mut svg, &tiles(measured), rect);
    legend(&mut svg, height - FOOT + 12.0);
    svg
}

/// A row of the ten colours.
fn legend(svg: &mut Svg, y: f64) {
    let name = "Disk usage in percent of uncompressed";
    svg.text(MARGIN, y + 12.0, "dim small", name);
    let (left, step) = (MARGIN + 236.0, 52.0);
    for shade in 0..10_u8 {
        let x = left + step * f64::from(shade);
        let class = format!("r{shade} edge");
        svg.rect(x, y, step, 16.0, &class, None);
        let words = if shade == 9 {
            "≥ 90".to_owned()
        } else {
            format!("{}–{}", u32::from(shade) * 10, u32::from(shade) * 10 + 9)
        };
        let class = format!("small middle on{shade}");
        svg.text(x + step / 2.0, y + 12.0, &class, &words);
    }
}

/// The colour of a ratio.
fn shade(amount: &Amount) -> u8 {
    u8::try_from(amount.percent() / 10).unwrap_or(9).min(9)
}

fn tiles(measured: &Measured) -> Vec<Tile> {
    let nodes = measured.nodes.all();
    let mut tiles: Vec<Tile> = Vec::with_capacity(nodes.len());
    for (at, node) in nodes.iter().enumerate() {
        let Amount {
            stored, decoded, ..
        } = node.amount;
        let name = match node.kind {
            NodeKind::Others => text::count(node.files, "more file"),
            _ if at == 0 => measured.name.clone(),
            _ => text::of_name(&node.name),
        };
        let size = text::of_size(stored);
        let path = match node.kind {
            NodeKind::Others => {
                let dir = text::of_path(&measured.nodes.path(node.parent as usize));
                format!("{name} in {dir}")
            }
            _ if at == 0 => name.clone(),
            _ => text::of_path(&measured.nodes.path(at)),
        };
        let percent = node.amount.percent();
        let tip = format!(
            "{path}\n{size} on disk, {} uncompressed, {percent} %",
            text::of_size(decoded)
        );
        tiles.push(Tile {
            label: format!("{name} {size}"),
            tip,
            size: stored,
            shade: shade(&node.amount),
            children: Vec::new(),
        });
        if at > 0 {
            tiles[node.parent as usize].children.push(at);
        }
    }
    tiles
}

/// The tables and the treemap.
pub(super) fn page(measured: &Measured, args: &Usage) -> String {
    let totals = &measured.totals;
    let total = totals.total();
    let mut body = String::new();
    let forms = totals
        .forms
        .iter()
        .map(|(form, amount)| (form.name(), amount));
    let rows = [("TOTAL", &total)].into_iter().chain(forms);
    let rows: Vec<TableRow> = rows.map(|(name, amount)| row(name, amount, None)).collect();
    body += &table(
        &["Type", "Perc", "Disk Usage", "Uncompressed", "Referenced"],
        &rows,
    );
    body += &facts(measured);
    body += "<h2>Treemap</h2>\n";
    body += &drawing(measured).element();
    let heads = |first| {
        [
            first,
            "Perc",
            "Disk Usage",
            "Uncompressed",
            "Referenced",
            "Files",
        ]
    };
    let nodes = &measured.nodes;
    let rows = nodes
        .directories(args.depth.max(2))
        .into_iter()
        .take(ROWS_MAX);
    let rows: Vec<TableRow> = rows
        .map(|at| {
            let node = &nodes.all()[at];
            let name = text::of_path(&nodes.path(at));
            row(&name, &node.amount, Some(node.files))
        })
        .collect();
    body += "<h2>Directories</h2>\n";
    body += &table(&heads("Directory"), &rows);
    let types = measured.types.sorted();
    let rows = types.iter().take(ROWS_MAX);
    let rows: Vec<TableRow> = rows
        .map(|(name, files, amount)| row(&type_name(name), amount, Some(*files)))
        .collect();
    body += "<h2>File types</h2>\n";
    body += &table(&heads("Type"), &rows);
    page_of(&format!("Disk usage of {}", measured.name), &body)
}

/// Remarks that the first table lacks.
fn facts(measured: &Measured) -> String {
    let totals = &measured.totals;
    let overhead = measured.overhead;
    let (metadata, slack) = overhead.map_or((0, 0), |it| (it.metadata, it.slack));
    let facts = [
        ("shared by several files", totals.shared_bytes),
        ("in fragment blocks", totals.fragments.stored),
        ("inline in metadata", totals.inline.stored),
        ("unreferenced, uncompressed", totals.unreferenced_bytes),
        ("holes", totals.hole_bytes),
        ("metadata", metadata),
        ("slack", slack),
    ];
    let facts = facts.iter().filter(|(_, bytes)| *bytes > 0);
    let facts: Vec<String> = facts
        .map(|(name, bytes)| format!("{} {name}", text::of_size(*bytes)))
        .collect();
    let count = text::count(totals.files, "file");
    let facts = escape(&[vec![count], facts].concat().join(", "));
    format!("<p class=\"dim\">{facts}</p>\n")
}

fn row(name: &str, amount: &Amount, files: Option<u64>) -> TableRow {
    let cell = |text: String, value: u64| Cell {
        text,
        value: Some(value as f64),
    };
    let size = |bytes: u64| cell(text::of_size(bytes), bytes);
    let percent = amount.percent();
    let mut cells = vec![
        Cell {
            text: name.to_owned(),
            value: None,
        },
        cell(format!("{percent} %"), percent),
        size(amount.stored),
        size(amount.decoded),
        size(amount.referenced),
    ];
    cells.extend(files.map(|files| cell(files.to_string(), files)));
    TableRow { cells, class: "" }
}
