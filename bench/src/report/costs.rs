//! Strategies by what they cost, as one drawing that needs no page around it: how often a byte is written
//! over how many runs a key may be in, both logarithmic, and the peak of space as the size of a point. A
//! panel for each ratio of data to memory; runs are on the same axis in all, so that a method can be followed
//! from one to the next.

use super::plot::{Scale, escape, plain};
use siltstone::strategy::METHODS;
use std::fmt::Write;

/// The cost of one strategy.
#[derive(Clone, Debug)]
pub(crate) struct Cost {
    pub(crate) name: String,
    /// Bytes written a byte inserted.
    pub(crate) written: f64,
    /// Runs that a key may be in.
    pub(crate) runs: f64,
    /// The most bytes on disk over those of the data.
    pub(crate) space: f64,
}

/// All strategies at one ratio of data to memory.
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) points: Vec<Cost>,
}

const WIDTH: f64 = 400.0;
const LEFT: f64 = 48.0;
const TOP: f64 = 32.0;
const PLOT: (f64, f64) = (340.0, 380.0);
/// Below the axis: its numbers, what it is, and what sizes mean.
const BOTTOM: f64 = 84.0;
/// Lines of names are so far apart at least, and their letters about so wide.
const LINE: f64 = 13.0;
const LETTER: f64 = 6.1;
/// Colours of the methods, in the order of their names in [`METHODS`]; beyond them, the last.
const COLOURS: [&str; 7] = ["#0067b0", "#d1540a", "#00856a", "#555b61", "#b6508f", "#8a6d00", "#555b61"];

/// The colour that all settings of a method share.
fn colour(method: &str) -> &'static str {
    fn name(text: &str) -> &str {
        text.split('{').next().unwrap_or(text)
    }
    let mut names = METHODS.iter().copied().map(name).collect::<Vec<_>>();
    names.dedup();
    let at = names.iter().position(|one| *one == name(method)).unwrap_or(COLOURS.len());
    COLOURS[at.min(COLOURS.len() - 1)]
}

/// The drawing.
pub(crate) fn costs(panels: &[Panel]) -> String {
    let (width, height) = (WIDTH * panels.len() as f64, TOP + PLOT.1 + BOTTOM);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"11\" fill=\"#333\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n"
    );
    let most = |points: &[Cost], value: fn(&Cost) -> f64| points.iter().map(value).fold(1.0, f64::max);
    let runs = panels.iter().map(|panel| most(&panel.points, |c| c.runs)).fold(1.0, f64::max);
    for (at, panel) in panels.iter().enumerate() {
        let left = LEFT + WIDTH * at as f64;
        let x = Scale::log(1.0, runs, left, left + PLOT.0);
        let y = Scale::log(1.0, most(&panel.points, |c| c.written), TOP + PLOT.1, TOP);
        draw(&mut svg, panel, &x, &y, left);
    }
    let _ = write!(
        svg,
        "<text x=\"{LEFT}\" y=\"{}\">size: the most bytes on disk over those of the data",
        height - 14.0
    );
    for (n, space) in [1.0, 1.5, 2.0].into_iter().enumerate() {
        let at = LEFT + 330.0 + 60.0 * n as f64;
        let (radius, y) = (radius(space), height - 18.0);
        let _ = write!(
            svg,
            "</text>\n<circle cx=\"{at}\" cy=\"{y}\" r=\"{radius:.1}\" fill=\"#555b61\" fill-opacity=\".55\"/>"
        );
        let _ = write!(svg, "<text x=\"{}\" y=\"{}\">{}", at + 14.0, height - 14.0, plain(space));
    }
    svg + "</text>\n</svg>\n"
}

fn draw(svg: &mut String, panel: &Panel, x: &Scale, y: &Scale, left: f64) {
    let (right, bottom) = (left + PLOT.0, TOP + PLOT.1);
    let title = escape(&panel.title);
    let _ = writeln!(svg, "<text x=\"{left}\" y=\"20\" font-size=\"14\" font-weight=\"bold\">{title}</text>");
    for tick in &x.ticks {
        let (at, text) = (x.place(*tick), plain(*tick));
        let _ = writeln!(svg, "<path d=\"M{at:.1} {TOP}V{bottom}\" stroke=\"#ddd\"/>");
        let _ =
            writeln!(svg, "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{text}</text>", bottom + 16.0);
    }
    for tick in &y.ticks {
        let (at, text) = (y.place(*tick), plain(*tick));
        let _ = writeln!(svg, "<path d=\"M{left} {at:.1}H{right}\" stroke=\"#ddd\"/>");
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
            left - 6.0,
            at + 4.0
        );
    }
    let middle = f64::midpoint(left, right);
    let _ = writeln!(
        svg,
        "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">runs a key may be in</text>",
        bottom + 34.0
    );
    let (at, middle) = (left - 34.0, f64::midpoint(TOP, bottom));
    let _ = writeln!(
        svg,
        "<text transform=\"translate({at} {middle}) rotate(-90)\" text-anchor=\"middle\">bytes written a byte \
         overwritten</text>"
    );
    let points: Vec<Point<'_>> = panel
        .points
        .iter()
        .map(|cost| Point {
            name: &cost.name,
            x: x.place(cost.runs.max(1.0)),
            y: y.place(cost.written.max(1.0)),
            radius: radius(cost.space),
        })
        .collect();
    for (point, (name_x, name_y)) in points.iter().zip(names(&points, right)) {
        let Point { name, x, y, radius } = point;
        let colour = colour(name);
        let name = escape(name);
        let _ = writeln!(
            svg,
            "<g fill=\"{colour}\"><circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\" fill-opacity=\".55\"/>\
             <path d=\"M{x:.1} {y:.1}L{:.1} {:.1}\" stroke=\"{colour}\" stroke-width=\".6\"/>\
             <text x=\"{name_x:.1}\" y=\"{name_y:.1}\">{name}</text></g>",
            if name_x > *x { name_x - 2.0 } else { name_x + wide(point.name) + 2.0 },
            name_y - 4.0,
        );
    }
}

struct Point<'a> {
    name: &'a str,
    x: f64,
    y: f64,
    radius: f64,
}

fn radius(space: f64) -> f64 {
    3.0 + 7.0 * (space - 1.0).max(0.0)
}

fn wide(name: &str) -> f64 {
    LETTER * name.len() as f64
}

/// Where each name begins: beside its point, to the right where there is room, and higher or lower where
/// another name or point is in its place.
fn names(points: &[Point<'_>], right: f64) -> Vec<(f64, f64)> {
    let mut order: Vec<usize> = (0..points.len()).collect();
    order.sort_by(|a, b| points[*a].y.total_cmp(&points[*b].y));
    let mut places = vec![(0.0, 0.0); points.len()];
    let mut taken: Vec<(f64, f64, f64)> =
        points.iter().map(|p| (p.x - p.radius, p.x + p.radius, p.y + 4.0)).collect();
    for at in order {
        let point = &points[at];
        let beside = point.x + point.radius + 5.0;
        let fits = beside + wide(point.name) <= right + WIDTH - PLOT.0 - LEFT;
        let x = if fits { beside } else { point.x - point.radius - 5.0 - wide(point.name) };
        let end = x + wide(point.name);
        let free = |y: f64| taken.iter().all(|t| t.1 < x || t.0 > end || (t.2 - y).abs() >= LINE);
        let farther = (0..(PLOT.1 as i32))
            .flat_map(|far| [point.y + 4.0 + f64::from(far), point.y + 4.0 - f64::from(far)]);
        let inside = |y: &f64| (TOP + LINE..=TOP + PLOT.1).contains(y);
        let y = farther.into_iter().filter(inside).find(|y| free(*y)).unwrap_or(point.y + 4.0);
        taken.push((x, end, y));
        places[at] = (x, y);
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(title: &str, costs: &[(&str, f64, f64, f64)]) -> Panel {
        let cost = |&(name, written, runs, space): &(&str, f64, f64, f64)| Cost {
            name: name.into(),
            written,
            runs,
            space,
        };
        Panel { title: title.into(), points: costs.iter().map(cost).collect() }
    }

    #[test]
    fn points_lie_where_their_costs_are_on_the_axes_of_all_panels() {
        let svg = costs(&[
            panel("D/M 10", &[("leveled", 1.0, 1.0, 1.0), ("size_tiered{runs=4}", 10.0, 10.0, 2.0)]),
            panel("D/M 100", &[("leveled", 100.0, 10.0, 1.5)]),
        ]);
        let circles: Vec<&str> = svg.matches("<circle").collect();
        assert_eq!(circles.len(), 3 + 3, "three that say what sizes mean");
        let bottom = TOP + PLOT.1;
        assert!(svg.contains(&format!("cx=\"{LEFT:.1}\" cy=\"{bottom:.1}\" r=\"3.0\"")), "{svg}");
        let right = LEFT + PLOT.0;
        assert!(svg.contains(&format!("cx=\"{right:.1}\" cy=\"{TOP:.1}\" r=\"10.0\"")), "{svg}");
        let right = LEFT + WIDTH + PLOT.0;
        assert!(svg.contains(&format!("cx=\"{right:.1}\" cy=\"{TOP:.1}\" r=\"6.5\"")), "{svg}");
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n") && !svg.contains("NaN"));
    }

    #[test]
    fn names_do_not_cover_each_other() {
        let point = |name, x, y| Point { name, x, y, radius: 4.0 };
        let points =
            [point("leveled", 100.0, 50.0), point("exploring", 101.0, 51.0), point("remerge", 110.0, 52.0)];
        let places = names(&points, 300.0);
        for (i, a) in places.iter().enumerate() {
            for b in &places[i + 1..] {
                assert!((a.1 - b.1).abs() >= LINE, "{places:?}");
            }
        }
        let at_the_edge = names(&[point("rangemerge{deltas_max=4}", 299.0, 50.0)], 300.0);
        assert!(at_the_edge[0].0 < 299.0, "to the left: {at_the_edge:?}");
    }
}
