//! Horizontal bars in groups, beside their names and values.

use crate::svg::{Svg, width_of};

/// Size in pixels: the whole width, room for the names of groups and for values, and what is above
/// the first bar.
const WIDTH: f64 = 760.0;
const NAMES: f64 = 230.0;
const VALUES: f64 = 70.0;
const TOP: f64 = 46.0;
/// Height of a bar, the distance between bars, and that between groups.
const BAR: f64 = 13.0;
const STEP: f64 = 16.0;
const GAP: f64 = 10.0;
const LEGEND: f64 = 34.0;
/// Number of colours in the style sheet.
const COLOURS: usize = 8;

/// A bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// The index of its series.
    pub series: usize,
    /// Its length: not negative.
    pub value: f64,
}

/// Bars with one name.
#[derive(Clone, Debug)]
pub struct Group {
    /// The text beside the bars.
    pub name: String,
    /// The bars, downwards.
    pub bars: Vec<Bar>,
}

/// Draws groups of bars from one line, with a legend. The same groups give the same bytes.
pub fn draw(title: &str, series: &[String], groups: &[Group]) -> Svg {
    let bars: usize = groups.iter().map(|group| group.bars.len()).sum();
    let height = TOP + STEP * bars as f64 + GAP * groups.len() as f64 + LEGEND;
    let mut svg = Svg::new(WIDTH as u32, height as u32, title);
    svg.text(16.0, 26.0, "ink title", title);
    let all = groups.iter().flat_map(|group| &group.bars);
    let longest = all.map(|bar| bar.value).fold(0.0, f64::max);
    let scale = if longest > 0.0 {
        (WIDTH - NAMES - VALUES) / longest
    } else {
        0.0
    };
    let mut y = TOP;
    for group in groups {
        let height = STEP * group.bars.len() as f64;
        svg.text(NAMES - 8.0, y + height / 2.0 + 2.0, "ink end", &group.name);
        for bar in &group.bars {
            let class = format!("s{}", bar.series % COLOURS);
            let (width, value) = (bar.value * scale, short(bar.value));
            let tip = match series.get(bar.series) {
                Some(name) => format!("{}, {name}: {value}", group.name),
                None => format!("{}: {value}", group.name),
            };
            svg.rect(NAMES, y, width.max(0.5), BAR, &class, Some(&tip));
            svg.text(NAMES + width + 6.0, y + BAR - 2.0, "dim small", &value);
            y += STEP;
        }
        y += GAP;
    }
    svg.line((NAMES, TOP - 6.0), (NAMES, y - GAP + 3.0), "line");
    let mut x = NAMES;
    for (number, name) in series.iter().enumerate() {
        let class = format!("s{}", number % COLOURS);
        svg.rect(x, y + 6.0, 10.0, 10.0, &class, None);
        svg.text(x + 15.0, y + 15.0, "ink", name);
        x += 34.0 + width_of(name, 12.0);
    }
    svg
}

/// Three digits, or all before the point.
fn short(value: f64) -> String {
    let places = match value {
        value if value >= 99.95 => 0,
        value if value >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.places$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn bars_are_the_same_every_time() {
        let group = |name: &str, values: [f64; 2]| Group {
            name: name.into(),
            bars: (0..)
                .zip(values)
                .map(|(series, value)| Bar { series, value })
                .collect(),
        };
        let groups = [
            group("send & receive", [1.0, 0.236]),
            group("nothing", [0.0, 12.5]),
        ];
        let svg = draw("Time", &["Linux".into(), "ours".into()], &groups);
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/bars.svg");
        testkit::golden(&golden, svg.document().as_bytes());
    }

    #[test]
    fn no_bars_have_only_numbers() {
        let group = Group {
            name: "x".into(),
            bars: vec![Bar {
                series: 9,
                value: 0.0,
            }],
        };
        for groups in [&[][..], &[group]] {
            let drawn = draw("odd", &[], groups).document();
            assert!(
                !drawn.contains("NaN") && !drawn.contains("inf\""),
                "{drawn}"
            );
        }
    }

    #[test]
    fn values_are_short() {
        for (value, text) in [(0.236, "0.24"), (9.996, "10.0"), (99.96, "100")] {
            assert_eq!(short(value), text);
        }
    }
}
