//! Plots of tables.

use report::bars::{self, Bar, Group};
use report::scatter::{self, Plot, Point};
use report::svg::Svg;

/// A point whose place may be unknown: the index of its series, its name, and both coordinates.
pub(crate) type MaybePoint = (usize, String, Option<f64>, Option<f64>);

/// Bars with one name: indices of their series, and lengths where they are known.
pub(crate) type MaybeBars = (String, Vec<(usize, Option<f64>)>);

/// Draws ratio against speed: plots with their titles.
pub(crate) fn speeds(
    title: &str,
    series: &[&str],
    plots: Vec<(&str, Vec<MaybePoint>)>,
    [x_name, y_name]: [&str; 2],
) -> Svg {
    let plot = |(name, points): (&str, Vec<MaybePoint>)| {
        let points = points.into_iter();
        let points: Vec<(usize, String, f64, f64)> = points
            .filter_map(|(series, label, x, y)| Some((series, label, x?, y?)))
            .collect();
        let is_beaten = |x: f64, y: f64| {
            let mut others = points.iter();
            others.any(|(.., ox, oy)| *ox >= x && *oy >= y && (*ox > x || *oy > y))
        };
        let points = points.iter().map(|(of, label, x, y)| Point {
            x: *x,
            y: *y,
            label: label.clone(),
            tip: format!("{label}, {}: {x:.3}, {y:.3}", series[*of]),
            series: *of,
            is_best: !is_beaten(*x, *y),
            is_chosen: false,
        });
        Plot {
            title: name.to_owned(),
            x_name: x_name.to_owned(),
            y_name: y_name.to_owned(),
            points: points.collect(),
        }
    };
    let plots: Vec<Plot> = plots.into_iter().map(plot).collect();
    scatter::draw(title, &owned(series), &plots)
}

/// Draws groups of the bars whose lengths are known.
pub(crate) fn groups(title: &str, series: &[&str], groups: &[MaybeBars]) -> Svg {
    let bar = |(series, value): &(usize, Option<f64>)| {
        let (series, value) = (*series, (*value)?);
        Some(Bar { series, value })
    };
    let group = |(name, of): &MaybeBars| Group {
        name: name.clone(),
        bars: of.iter().filter_map(bar).collect(),
    };
    let groups: Vec<Group> = groups.iter().map(group).collect();
    bars::draw(title, &owned(series), &groups)
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}
