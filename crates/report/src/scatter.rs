//! Points in plots with a logarithmic horizontal axis: ratio against speed.

use crate::svg::{Svg, width_of};

/// Size of one plot in pixels, with its axes.
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 420.0;
/// The margins of the frame of a plot: left, right, above and below.
const LEFT: f64 = 62.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 52.0;
/// Height of the legend below all plots.
const LEGEND: f64 = 34.0;
/// Number of colours in the style sheet.
const COLOURS: usize = 8;
const FONT_PX: f64 = 11.0;

/// A point.
#[derive(Clone, Debug)]
pub struct Point {
    /// The position: `x` is positive.
    pub x: f64,
    /// The position, upwards.
    pub y: f64,
    /// The text beside it, if there is room.
    pub label: String,
    /// The text shown when the pointer rests on it.
    pub tip: String,
    /// The index of its series.
    pub series: usize,
    /// Whether it lies on the line of the best points.
    pub is_best: bool,
    /// Whether it is the one that was chosen.
    pub is_chosen: bool,
}

/// A plot.
#[derive(Clone, Debug)]
pub struct Plot {
    /// The text above it.
    pub title: String,
    /// The name of the horizontal axis.
    pub x_name: String,
    /// The name of the vertical axis.
    pub y_name: String,
    /// The points. Those of a series that follow each other are joined if their labels begin with
    /// the same letters, which are a codec's name.
    pub points: Vec<Point>,
}

/// Draws plots side by side, with one legend for all. The same plots give the same bytes.
pub fn draw(title: &str, series: &[String], plots: &[Plot]) -> Svg {
    let width = (WIDTH * plots.len().max(1) as f64) as u32;
    let mut svg = Svg::new(width, (HEIGHT + LEGEND) as u32, title);
    for (plot, left) in plots.iter().zip((0..).map(|n| f64::from(n) * WIDTH)) {
        Frame::new(plot, left).draw(plot, &mut svg);
    }
    let mut points = plots.iter().flat_map(|plot| &plot.points);
    let words = if points.any(|point| point.is_chosen) {
        "line: best of all; ring: recommended"
    } else {
        "line: best of all"
    };
    legend(series, words, f64::from(width), &mut svg);
    svg
}

fn legend(series: &[String], words: &str, width: f64, svg: &mut Svg) {
    let y = HEIGHT + LEGEND / 2.0;
    let mut x = LEFT;
    for (number, name) in series.iter().enumerate() {
        svg.circle(x, y - 4.0, 4.5, &colour(number), None);
        svg.text(x + 9.0, y, "ink", name);
        x += 30.0 + width_of(name, 12.0);
    }
    if x + width_of(words, 12.0) < width {
        svg.text(width - RIGHT, y, "dim end", words);
    }
}

/// The letters that a label begins with.
fn family(point: &Point) -> &str {
    let label = &point.label;
    let end = label.find(|letter: char| !letter.is_ascii_alphabetic());
    label.get(..end.unwrap_or(label.len())).unwrap_or_default()
}

fn colour(series: usize) -> String {
    format!("s{}", series % COLOURS)
}

/// Where a plot lies, and how values become places.
struct Frame {
    left: f64,
    /// Decimal logarithms of the ends of the horizontal axis.
    x: (f64, f64),
    y: (f64, f64),
    /// The distance of horizontal lines.
    step: f64,
}

impl Frame {
    fn new(plot: &Plot, left: f64) -> Frame {
        let range = |values: &mut dyn Iterator<Item = f64>| {
            let ends = (f64::INFINITY, f64::NEG_INFINITY);
            values.fold(ends, |(low, high), it| (low.min(it), high.max(it)))
        };
        let logs = plot.points.iter().map(|point| log(point.x));
        let (x_low, x_high) = range(&mut logs.into_iter());
        let (y_low, y_high) = range(&mut plot.points.iter().map(|point| point.y));
        let (x, y) = if plot.points.is_empty() {
            ((0.0, 1.0), (0.0, 1.0))
        } else {
            let room = ((x_high - x_low) * 0.08).max(0.08);
            let above = ((y_high - y_low) * 0.08).max(0.02);
            (
                (x_low - room, x_high + room),
                (y_low - above, y_high + above),
            )
        };
        let step = nice((y.1 - y.0) / 6.0);
        Frame { left, x, y, step }
    }

    fn at(&self, point: &Point) -> (f64, f64) {
        (self.x_at(log(point.x)), self.y_at(point.y))
    }

    fn x_at(&self, log: f64) -> f64 {
        let width = WIDTH - LEFT - RIGHT;
        self.left + LEFT + (log - self.x.0) / (self.x.1 - self.x.0) * width
    }

    fn y_at(&self, value: f64) -> f64 {
        let height = HEIGHT - TOP - BOTTOM;
        HEIGHT - BOTTOM - (value - self.y.0) / (self.y.1 - self.y.0) * height
    }

    fn draw(&self, plot: &Plot, svg: &mut Svg) {
        svg.text(self.left + LEFT, 30.0, "ink title", &plot.title);
        self.grid(plot, svg);
        let mut best: Vec<&Point> = plot.points.iter().filter(|point| point.is_best).collect();
        best.sort_by(|a, b| a.x.total_cmp(&b.x));
        let best: Vec<(f64, f64)> = best.into_iter().map(|point| self.at(point)).collect();
        for pair in plot.points.windows(2) {
            if pair[0].series == pair[1].series && family(&pair[0]) == family(&pair[1]) {
                let class = format!("stroke faint {}", colour(pair[0].series));
                svg.line(self.at(&pair[0]), self.at(&pair[1]), &class);
            }
        }
        svg.path(&best, "line");
        let mut taken = Vec::new();
        for point in &plot.points {
            let (x, y) = self.at(point);
            taken.push(Area::around(x, y, 5.0));
            let colour = colour(point.series);
            if point.is_chosen {
                svg.circle(x, y, 9.5, "line", None);
            }
            let (radius, class) = if point.is_best || point.is_chosen {
                (5.0, colour)
            } else {
                (3.5, format!("{colour} faint"))
            };
            svg.circle(x, y, radius, &class, Some(&point.tip));
        }
        // The names of good points come first: there is not room for all.
        let mut order: Vec<&Point> = plot.points.iter().collect();
        order.sort_by_key(|point| (!point.is_chosen, !point.is_best));
        for point in order {
            self.label(point, &mut taken, svg);
        }
    }

    fn grid(&self, plot: &Plot, svg: &mut Svg) {
        let (left, right) = (self.left + LEFT, self.left + WIDTH - RIGHT);
        let (top, bottom) = (TOP, HEIGHT - BOTTOM);
        let mut tick = (self.y.0 / self.step).ceil();
        while tick * self.step <= self.y.1 {
            let y = self.y_at(tick * self.step);
            svg.line((left, y), (right, y), "grid");
            let places = usize::from(self.step < 0.995) + usize::from(self.step < 0.0995);
            let text = format!("{:.places$}", tick * self.step);
            svg.text(left - 7.0, y + 4.0, "dim small end", &text);
            tick += 1.0;
        }
        let are_few = self.x.1 - self.x.0 > 1.6;
        for exponent in -4..12 {
            for digit in 1..10 {
                let value = f64::from(digit) * 10f64.powi(exponent);
                let at = log(value);
                if at < self.x.0 || at > self.x.1 {
                    continue;
                }
                let x = self.x_at(at);
                svg.line((x, top), (x, bottom), "grid");
                if digit == 1 || matches!(digit, 2 | 5) || !are_few && matches!(digit, 3 | 7) {
                    let text = if value < 1.0 {
                        format!("{value:.1}")
                    } else {
                        format!("{value:.0}")
                    };
                    svg.text(x, bottom + 16.0, "dim small middle", &text);
                }
            }
        }
        svg.path(&[(left, top), (left, bottom), (right, bottom)], "line");
        let middle = f64::midpoint(left, right);
        svg.text(middle, bottom + 36.0, "ink middle", &plot.x_name);
        let centre = f64::midpoint(top, bottom);
        svg.upright(self.left + 18.0, centre, "ink", &plot.y_name);
    }

    /// Writes the label of a point where it covers nothing; nowhere if there is no such place.
    fn label(&self, point: &Point, taken: &mut Vec<Area>, svg: &mut Svg) {
        let (x, y) = self.at(point);
        let width = width_of(&point.label, FONT_PX);
        let frame = Area {
            x: self.left + LEFT + 2.0,
            y: TOP - 14.0,
            width: WIDTH - LEFT - RIGHT - 4.0,
            height: HEIGHT - TOP - BOTTOM + 12.0,
        };
        let gap = if point.is_chosen { 13.0 } else { 8.0 };
        for (left, base) in [
            (x + gap, y + 4.0),
            (x - gap - width, y + 4.0),
            (x - width / 2.0, y - gap),
            (x - width / 2.0, y + gap + 8.0),
            (x + gap - 2.0, y - gap + 2.0),
            (x + gap - 2.0, y + gap + 6.0),
        ] {
            let area = Area {
                x: left,
                y: base - 9.0,
                width,
                height: 11.0,
            };
            if frame.holds(&area) && !taken.iter().any(|other| other.meets(&area)) {
                let class = match (point.is_chosen, point.is_best) {
                    (true, _) => "ink small bold",
                    (false, true) => "ink small",
                    (false, false) => "dim small",
                };
                svg.text(left, base, class, &point.label);
                taken.push(area);
                return;
            }
        }
    }
}

/// A rectangle that is taken.
struct Area {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

impl Area {
    fn around(x: f64, y: f64, radius: f64) -> Area {
        Area {
            x: x - radius,
            y: y - radius,
            width: 2.0 * radius,
            height: 2.0 * radius,
        }
    }

    fn meets(&self, other: &Area) -> bool {
        self.x < other.x + other.width
            && other.x < self.x + self.width
            && self.y < other.y + other.height
            && other.y < self.y + self.height
    }

    fn holds(&self, other: &Area) -> bool {
        other.x >= self.x
            && other.y >= self.y
            && other.x + other.width <= self.x + self.width
            && other.y + other.height <= self.y + self.height
    }
}

/// The decimal logarithm of a positive number.
fn log(value: f64) -> f64 {
    value.max(1e-6).log10()
}

/// The next larger of 1, 2 and 5 times a power of ten.
fn nice(value: f64) -> f64 {
    let power = 10f64.powf(value.max(1e-9).log10().floor());
    let digit = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|&digit| digit * power >= value * 0.999_999);
    digit.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn plot(count: usize) -> Plot {
        let point = |n: usize| Point {
            x: 900.0 / 1.8f64.powi(n as i32),
            y: 2.0 + (n as f64).sqrt() / 3.0,
            label: format!("zstd:{n}"),
            tip: format!("zstd:{n} <tip>"),
            series: n / 6,
            is_best: n % 3 != 1,
            is_chosen: n == 6,
        };
        Plot {
            title: "Writing & more".into(),
            x_name: "MB/s".into(),
            y_name: "ratio".into(),
            points: (0..count).map(point).collect(),
        }
    }

    #[test]
    fn plots_are_the_same_every_time() {
        let series = ["lz4".into(), "zstd".into(), "xz".into()];
        let svg = draw("Ratio against speed", &series, &[plot(14), plot(5)]);
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/scatter.svg");
        testkit::golden(&golden, svg.document().as_bytes());
    }

    #[test]
    fn odd_plots_have_only_numbers() {
        let mut same = plot(3);
        same.points.iter_mut().for_each(|point| {
            (point.x, point.y) = (5.0, 1.0);
        });
        let mut far = plot(2);
        (far.points[0].x, far.points[1].x) = (0.0, 1e12);
        for plot in [plot(0), plot(1), same, far] {
            let drawn = draw("odd", &[], &[plot]).document();
            for wrong in ["NaN", "inf"] {
                assert!(!drawn.contains(wrong), "{drawn}");
            }
        }
    }

    #[test]
    fn lines_have_round_distances() {
        for (value, round) in [(0.013, 0.02), (0.05, 0.05), (0.3, 0.5), (7.0, 10.0)] {
            assert!((nice(value) / round - 1.0).abs() < 1e-9, "{value}");
        }
    }
}
