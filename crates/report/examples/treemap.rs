//! Draws where the bytes of a directory are: `cargo run -p restow-report --example treemap --
//! DIRECTORY > sizes.svg`.
use std::error::Error;
use std::fs;
use std::io::{Write, stdout};
use std::path::Path;

use report::svg::Svg;
use report::treemap::{Rect, Tile, draw};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os()
        .nth(1)
        .ok_or("usage: treemap DIRECTORY")?;
    Ok(stdout().write_all(drawing(Path::new(&path))?.as_bytes())?)
}

/// The drawing as a file of its own.
pub(crate) fn drawing(path: &Path) -> Result<String, Box<dyn Error>> {
    let mut tiles = Vec::new();
    add(&mut tiles, path, 0)?;
    let mut svg = Svg::new(960, 600, "Sizes");
    let whole = Rect {
        x: 0.0,
        y: 0.0,
        width: 960.0,
        height: 600.0,
    };
    draw(&mut svg, &tiles, whole);
    Ok(svg.document())
}

/// Adds a file, and what a directory holds; returns its number.
fn add(tiles: &mut Vec<Tile>, path: &Path, depth: u8) -> Result<usize, Box<dyn Error>> {
    let number = tiles.len();
    let name = path.file_name().unwrap_or(path.as_os_str());
    tiles.push(Tile {
        label: name.to_string_lossy().into_owned(),
        shade: depth.min(9),
        ..Tile::default()
    });
    let metadata = fs::symlink_metadata(path)?;
    if metadata.is_dir() {
        for entry in fs::read_dir(path)? {
            let child = add(tiles, &entry?.path(), depth.saturating_add(1))?;
            tiles[number].size += tiles[child].size;
            tiles[number].children.push(child);
        }
        // The largest first, and the same drawing in whatever order they are listed.
        let mut children = std::mem::take(&mut tiles[number].children);
        children.sort_by(|&a, &b| {
            let (a, b) = (&tiles[a], &tiles[b]);
            b.size.cmp(&a.size).then_with(|| a.label.cmp(&b.label))
        });
        tiles[number].children = children;
    } else {
        tiles[number].size = metadata.len();
    }
    tiles[number].tip = format!("{}: {} bytes", path.display(), tiles[number].size);
    Ok(number)
}
