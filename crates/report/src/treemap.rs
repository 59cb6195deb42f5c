//! Treemaps: nested rectangles whose areas are in proportion to sizes.
//!
//! The layout is the squarified one (Bruls, Huizing and van Wijk, "Squarified Treemaps", 2000):
//! children are laid in rows along the shorter side, and a row ends when another child would make
//! its rectangles longer.

use std::collections::BinaryHeap;

use crate::svg::{Svg, width_of};

/// Rectangles of a drawing: more are not seen, and make the file large.
const TILES_MAX: usize = 1500;
/// The smallest side of a rectangle whose contents are drawn, in pixels.
const OPENED_MIN: f64 = 14.0;
/// The smallest area of a rectangle of its own, in square pixels; smaller ones are drawn as one.
const TILE_AREA_MIN: f64 = 36.0;
/// The height of the line with the name of a rectangle that has contents.
const HEAD: f64 = 15.0;
/// Between a rectangle and its contents.
const MARGIN: f64 = 2.0;
/// The size of the letters, as in the style sheet's `small`.
const FONT: f64 = 11.0;

/// Something that has a size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tile {
    /// The text in it, if there is room.
    pub label: String,
    /// The text shown when the pointer rests on it.
    pub tip: String,
    /// Its size, with all that it holds.
    pub size: u64,
    /// Its colour: 0 to 9.
    pub shade: u8,
    /// The numbers of the tiles that it holds, each larger than its own.
    pub children: Vec<usize>,
}

/// A rectangle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rect {
    /// Its left side.
    pub x: f64,
    /// Its upper side.
    pub y: f64,
    /// Its width.
    pub width: f64,
    /// Its height.
    pub height: f64,
}

impl Rect {
    fn area(&self) -> f64 {
        self.width * self.height
    }

    fn shorter(&self) -> f64 {
        self.width.min(self.height)
    }
}

/// A tile that is to be drawn: the largest is drawn first, of equal ones the first.
struct Waiting {
    area: f64,
    tile: usize,
    rect: Rect,
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let by_area = self.area.total_cmp(&other.area);
        by_area.then_with(|| other.tile.cmp(&self.tile))
    }
}

/// Draws the first tile and its content, the largest first, until there are enough. A tile without
/// size is not drawn.
pub fn draw(svg: &mut Svg, tiles: &[Tile], rect: Rect) {
    let Some(first) = tiles.first().filter(|tile| tile.size > 0) else {
        return;
    };
    let mut waiting = BinaryHeap::new();
    waiting.push(Waiting {
        area: rect.area(),
        tile: 0,
        rect,
    });
    let mut drawn = 1;
    box_of(svg, first, rect);
    while let Some(Waiting { tile, rect, .. }) = waiting.pop() {
        let Some(tile) = tiles.get(tile) else {
            continue;
        };
        if tile.children.is_empty() || rect.shorter() < OPENED_MIN || drawn >= TILES_MAX {
            label(svg, tile, rect);
            continue;
        }
        let inner = inside(svg, tile, rect);
        let (shown, rest) = laid_out(tiles, tile, inner, TILES_MAX - drawn);
        for (number, rect) in shown {
            box_of(svg, &tiles[number], rect);
            drawn += 1;
            waiting.push(Waiting {
                area: rect.area(),
                tile: number,
                rect,
            });
        }
        if let Some((others, rect)) = rest {
            box_of(svg, &others, rect);
            label(svg, &others, rect);
            drawn += 1;
        }
        drawn = drawn.min(TILES_MAX);
    }
}

/// The substitute for children that are too small to be drawn, and its place.
type Rest = (Tile, Rect);

/// The children that are drawn, at most `count_max`, with their places, and the small ones as one.
fn laid_out(
    tiles: &[Tile],
    tile: &Tile,
    inner: Rect,
    count_max: usize,
) -> (Vec<(usize, Rect)>, Option<Rest>) {
    let mut children: Vec<usize> = (tile.children.iter().copied())
        .filter(|&at| tiles.get(at).is_some_and(|child| child.size > 0))
        .collect();
    children.sort_by_key(|&at| std::cmp::Reverse(tiles[at].size));
    let sum: u128 = children.iter().map(|&at| u128::from(tiles[at].size)).sum();
    let scale = inner.area() / sum.max(1) as f64;
    let is_large = |&at: &usize| tiles[at].size as f64 * scale >= TILE_AREA_MIN;
    let large = (children.iter().take(count_max))
        .take_while(|at| is_large(at))
        .count();
    let mut sizes: Vec<f64> = (children[..large].iter())
        .map(|&at| tiles[at].size as f64)
        .collect();
    let small = &children[large..];
    let rest = u64::try_from(
        small
            .iter()
            .map(|&at| u128::from(tiles[at].size))
            .sum::<u128>(),
    );
    let rest = rest.unwrap_or(u64::MAX);
    let has_rest = rest as f64 * scale >= TILE_AREA_MIN;
    if has_rest {
        sizes.push(rest as f64);
    }
    let places = squarified(&sizes, inner);
    let shown = children[..large]
        .iter()
        .copied()
        .zip(places.iter().copied());
    let others = places.last().filter(|_| has_rest).map(|&rect| {
        let label = format!("{} more", small.len());
        let shade = shade_of(tiles, small);
        let tip = format!("{label} in {}", tile.tip);
        let tile = Tile {
            label,
            tip,
            size: rest,
            shade,
            children: Vec::new(),
        };
        (tile, rect)
    });
    (shown.collect(), others)
}

/// The colour of tiles together: that of the average.
fn shade_of(tiles: &[Tile], small: &[usize]) -> u8 {
    let (mut sum, mut size) = (0, 0);
    for &at in small {
        sum += u128::from(tiles[at].shade) * u128::from(tiles[at].size);
        size += u128::from(tiles[at].size);
    }
    u8::try_from(sum.checked_div(size).unwrap_or(0)).unwrap_or(9)
}

fn box_of(
    svg: &mut Svg,
    tile: &Tile,
    Rect {
        x,
        y,
        width,
        height,
    }: Rect,
) {
    let class = format!("r{} edge", tile.shade.min(9));
    svg.rect(x, y, width, height, &class, Some(&tile.tip));
}

/// Writes the name above the contents, if there is room. Returns the room of the contents.
fn inside(svg: &mut Svg, tile: &Tile, rect: Rect) -> Rect {
    let has_head = rect.height >= 3.0 * HEAD && rect.width >= 3.0 * HEAD;
    let head = if has_head { HEAD } else { MARGIN };
    if has_head {
        let top = Rect {
            height: HEAD,
            ..rect
        };
        label(svg, tile, top);
    }
    Rect {
        x: rect.x + MARGIN,
        y: rect.y + head,
        width: (rect.width - 2.0 * MARGIN).max(0.0),
        height: (rect.height - head - MARGIN).max(0.0),
    }
}

/// Writes as much of the label as fits, in the upper left corner.
fn label(svg: &mut Svg, tile: &Tile, rect: Rect) {
    let room = rect.width - 6.0;
    if rect.height < FONT + 2.0 || room < 3.0 * FONT {
        return;
    }
    let text = shortened(&tile.label, room);
    if !text.is_empty() {
        let class = format!("small on{}", tile.shade.min(9));
        svg.text(rect.x + 3.0, rect.y + FONT, &class, &text);
    }
}

/// A text that is not wider than this; the rest becomes an ellipsis.
fn shortened(text: &str, room: f64) -> String {
    if width_of(text, FONT) <= room {
        return text.to_owned();
    }
    let mut short = String::new();
    for letter in text.chars() {
        short.push(letter);
        if width_of(&short, FONT) + FONT > room {
            short.pop();
            break;
        }
    }
    if short.chars().count() < 2 {
        return String::new();
    }
    short.push('…');
    short
}

/// Places for sizes, which are in descending order, in a rectangle that they fill.
pub fn squarified(sizes: &[f64], rect: Rect) -> Vec<Rect> {
    let sum: f64 = sizes.iter().sum();
    if sum <= 0.0 || rect.area() <= 0.0 {
        return Vec::new();
    }
    let scale = rect.area() / sum;
    let mut places = Vec::with_capacity(sizes.len());
    let (mut free, mut rest) = (rect, sizes);
    while !rest.is_empty() {
        let side = free.shorter();
        let mut count = 1;
        while count < rest.len()
            && longest(&rest[..=count], scale, side) <= longest(&rest[..count], scale, side)
        {
            count += 1;
        }
        let (row, after) = rest.split_at(count);
        lay(row, scale, &mut free, &mut places);
        rest = after;
    }
    places
}

/// The ratio of the sides of the longest rectangle in a row along a side. The first and the last
/// one are the largest and the smallest.
fn longest(row: &[f64], scale: f64, side: f64) -> f64 {
    let sum: f64 = row.iter().sum::<f64>() * scale;
    let [large, small] = [row.first(), row.last()].map(|it| it.copied().unwrap_or(0.0) * scale);
    let (square, sum) = (side * side, sum * sum);
    (square * large / sum).max(sum / (square * small))
}

/// Lays a row along the shorter side, and takes it from the free room.
fn lay(row: &[f64], scale: f64, free: &mut Rect, places: &mut Vec<Rect>) {
    let sum: f64 = row.iter().sum::<f64>() * scale;
    let is_column = free.width >= free.height;
    let depth = sum / free.shorter().max(f64::MIN_POSITIVE);
    let mut at = 0.0;
    for size in row {
        let len = size * scale / depth;
        places.push(if is_column {
            Rect {
                x: free.x,
                y: free.y + at,
                width: depth,
                height: len,
            }
        } else {
            Rect {
                x: free.x + at,
                y: free.y,
                width: len,
                height: depth,
            }
        });
        at += len;
    }
    if is_column {
        free.x += depth;
        free.width = (free.width - depth).max(0.0);
    } else {
        free.y += depth;
        free.height = (free.height - depth).max(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Rect = Rect {
        x: 10.0,
        y: 20.0,
        width: 600.0,
        height: 400.0,
    };

    /// The example of the paper: 6, 6, 4, 3, 2, 2, 1 in a rectangle of 6 by 4.
    #[test]
    fn rows_are_those_of_the_paper() {
        let room = Rect {
            x: 0.0,
            y: 0.0,
            width: 6.0,
            height: 4.0,
        };
        let places = squarified(&[6.0, 6.0, 4.0, 3.0, 2.0, 2.0, 1.0], room);
        let of = |at: usize| {
            let Rect {
                x,
                y,
                width,
                height,
            } = places[at];
            [x, y, width, height].map(|it| (it * 100.0).round() / 100.0)
        };
        assert_eq!(of(0), [0.0, 0.0, 3.0, 2.0]);
        assert_eq!(of(1), [0.0, 2.0, 3.0, 2.0]);
        assert_eq!(of(2), [3.0, 0.0, 1.71, 2.33]);
        assert_eq!(of(3), [4.71, 0.0, 1.29, 2.33]);
        assert_eq!(of(4), [3.0, 2.33, 1.2, 1.67]);
    }

    #[test]
    fn areas_are_in_proportion_and_do_not_overlap() {
        let mut rng = testkit::Rng::new(3);
        for count in [1, 2, 7, 100] {
            let mut sizes: Vec<f64> = (0..count).map(|_| 1.0 + rng.below(10_000) as f64).collect();
            sizes.sort_by(|a, b| b.total_cmp(a));
            let sum: f64 = sizes.iter().sum();
            let places = squarified(&sizes, ROOM);
            assert_eq!(places.len(), count);
            for (at, place) in places.iter().enumerate() {
                let expected = sizes[at] / sum * ROOM.area();
                assert!((place.area() - expected).abs() < 0.01, "{place:?}");
                assert!(place.x >= ROOM.x - 0.01 && place.y >= ROOM.y - 0.01);
                assert!(place.x + place.width <= ROOM.x + ROOM.width + 0.01);
                assert!(place.y + place.height <= ROOM.y + ROOM.height + 0.01);
                for other in &places[at + 1..] {
                    let apart = other.x + 0.01 >= place.x + place.width
                        || place.x + 0.01 >= other.x + other.width
                        || other.y + 0.01 >= place.y + place.height
                        || place.y + 0.01 >= other.y + other.height;
                    assert!(apart, "{place:?} {other:?}");
                }
            }
        }
    }

    fn tile(label: &str, size: u64, shade: u8, children: Vec<usize>) -> Tile {
        Tile {
            label: label.to_owned(),
            tip: format!("{label}: {size} bytes"),
            size,
            shade,
            children,
        }
    }

    #[test]
    fn the_drawing_is_always_the_same() {
        let mut tiles = vec![
            tile("root", 1_000_500, 4, vec![1, 2, 3]),
            tile("usr <&>", 600_500, 2, vec![4, 5]),
            tile("photographs", 300_000, 9, vec![]),
            tile("etc", 100_000, 0, vec![]),
            tile("lib", 400_000, 1, (6..16).collect()),
            tile(
                "a file with a very long name that does not fit.txt",
                200_000,
                6,
                vec![],
            ),
        ];
        for number in 0..10 {
            tiles.push(tile(&format!("{number}"), 40_000 >> number, number, vec![]));
        }
        let mut svg = Svg::new(640, 440, "what is where");
        draw(&mut svg, &tiles, ROOM);
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/treemap.svg");
        testkit::golden(std::path::Path::new(golden), svg.document());
    }

    #[test]
    fn a_million_files_make_no_large_drawing() {
        let mut tiles = vec![tile("root", 1_000_000, 5, (1..=1_000_000).collect())];
        tiles.extend((0..1_000_000).map(|_| tile("f", 1, 5, vec![])));
        let mut svg = Svg::new(640, 440, "many");
        draw(&mut svg, &tiles, ROOM);
        assert!(svg.document().len() < 10_000, "they are drawn as one");
        // Directories in directories, deeper than any stack.
        let mut tiles: Vec<Tile> = (0..100_000)
            .map(|at| tile("d", 7, 5, vec![at + 1]))
            .collect();
        tiles.push(tile("f", 7, 5, vec![]));
        draw(&mut svg, &tiles, ROOM);
        assert!(svg.document().len() < 100_000);
    }

    #[test]
    fn nothing_is_drawn_of_nothing() {
        let empty = Svg::new(10, 10, "").document();
        for tiles in [vec![], vec![tile("empty", 0, 0, vec![])]] {
            let mut svg = Svg::new(10, 10, "");
            draw(&mut svg, &tiles, ROOM);
            assert_eq!(svg.document(), empty);
        }
    }
}
