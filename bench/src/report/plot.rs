//! One chart as SVG: lines over two axes, each linear or logarithmic.
//!
//! The drawing has a fixed size in its own units and is scaled by the page. Colours and fonts come from the
//! page's style, by class: `s0`, `s1`, ... for the lines, which also differ in their dashes, so that colour
//! alone never has to tell two apart. A line breaks where a value cannot be drawn, as zero on a logarithmic
//! axis. What a line has marked is a bar of its colour above the plot.
//!
//! A chart can also be a file of its own, for a text that shows it as a picture: with title, legend and the
//! style inside, on a ground of its own, so that it is readable wherever it is put.

use std::fmt::Write;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 82.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 52.0;
/// At most so many ticks on an axis, roughly.
const TICKS: f64 = 6.0;
/// Lines of at most so many points show each of them; longer ones are drawn thinner.
const DOTS: usize = 40;
/// Points closer than this on the drawing are not told apart.
const NEAR: f64 = 0.6;
/// Colours in the style.
const COLOURS: usize = 7;
/// Room for the bar of what a line has marked.
const MARK: f64 = 7.0;

/// The size of a file of its own, its legend's lines apart, and how wide a letter is there, roughly.
const FILE_WIDTH: f64 = 780.0;
const FILE_HEIGHT: f64 = 360.0;
const LEGEND_LINE: f64 = 22.0;
const LETTER: f64 = 7.8;

/// How all of it looks, in light and in dark.
pub(super) const STYLE: &str = include_str!("plot.css");

/// A chart of several lines.
pub(super) struct Chart {
    pub(super) title: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) lines: Vec<Line>,
}

/// An axis of a chart.
pub(super) struct Axis {
    /// With its unit.
    pub(super) label: &'static str,
    /// Logarithmic; otherwise linear from zero.
    pub(super) log: bool,
    /// A tick in words.
    pub(super) tick: fn(f64) -> String,
}

/// One line, in the order of its points.
pub(super) struct Line {
    pub(super) name: String,
    /// Number of its colour and dashes.
    pub(super) style: usize,
    /// Hold each value until the next point, as histograms do.
    pub(super) steps: bool,
    pub(super) points: Vec<(f64, f64)>,
    /// From where to where on the first axis something went on.
    pub(super) marked: Option<(f64, f64)>,
}

impl Chart {
    /// The chart as an `svg` element, or nothing when there is nothing to draw.
    pub(super) fn svg(&self) -> Option<String> {
        let drawn = self.draw(WIDTH, HEIGHT)?;
        let title = escape(&self.title);
        Some(format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">\n{drawn}</svg>"
        ))
    }

    /// The chart as a file of its own.
    pub(super) fn file(&self) -> Option<String> {
        let drawn = self.draw(FILE_WIDTH, FILE_HEIGHT)?;
        let title = escape(&self.title);
        let (mut legend, mut x, mut y) = (String::new(), LEFT, 50.0);
        for line in &self.lines {
            let wide = 42.0 + line.name.chars().count() as f64 * LETTER + 18.0;
            if x > LEFT && x + wide > FILE_WIDTH {
                (x, y) = (LEFT, y + LEGEND_LINE);
            }
            let (classes, name, text) = (classes(line.style), escape(&line.name), x + 42.0);
            let _ = writeln!(
                legend,
                "<g class=\"{classes}\"><path d=\"M{x} {:.1}h34\"/></g><text x=\"{text:.1}\" y=\"{y}\">{name}</text>",
                y - 5.0
            );
            x += wide;
        }
        let (top, height) = (y + 10.0, y + 10.0 + FILE_HEIGHT);
        Some(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {FILE_WIDTH} {height}\" width=\"{FILE_WIDTH}\" \
             height=\"{height}\" role=\"img\" aria-label=\"{title}\">\n<style>\n{STYLE}</style>\n\
             <rect class=\"paper\" width=\"{FILE_WIDTH}\" height=\"{height}\"/>\n\
             <text class=\"label\" x=\"{LEFT}\" y=\"24\">{title}</text>\n{legend}\
             <g transform=\"translate(0 {top})\">\n{drawn}</g>\n</svg>\n"
        ))
    }

    /// What is in it.
    fn draw(&self, width: f64, height: f64) -> Option<String> {
        let marked = self.lines.iter().filter(|line| line.marked.is_some()).count();
        let top = TOP + MARK * marked as f64;
        let (bottom, right, middle) = (height - BOTTOM, width - RIGHT, f64::midpoint(top, height - BOTTOM));
        let x = self.scale(&self.x, |p| p.0, LEFT, right)?;
        let y = self.scale(&self.y, |p| p.1, bottom, top)?;
        let mut svg = String::new();
        for tick in &y.ticks {
            let (at, text) = (y.place(*tick), escape(&(self.y.tick)(*tick)));
            let _ = writeln!(svg, "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{right}\"/>");
            let _ =
                writeln!(svg, "<text class=\"y\" x=\"{}\" y=\"{:.1}\">{text}</text>", LEFT - 7.0, at + 5.0);
        }
        for tick in &x.ticks {
            let (at, text) = (x.place(*tick), escape(&(self.x.tick)(*tick)));
            let _ = writeln!(svg, "<path class=\"grid\" d=\"M{at:.1} {top}V{bottom}\"/>");
            let _ = writeln!(svg, "<text class=\"x\" x=\"{at:.1}\" y=\"{}\">{text}</text>", bottom + 19.0);
        }
        let _ = writeln!(svg, "<path class=\"axis\" d=\"M{LEFT} {top}V{bottom}H{right}\"/>");
        let centre = f64::midpoint(LEFT, right);
        let _ = writeln!(
            svg,
            "<text class=\"x label\" x=\"{centre}\" y=\"{}\">{}</text>",
            height - 8.0,
            escape(self.x.label)
        );
        let label = escape(self.y.label);
        let _ = writeln!(
            svg,
            "<text class=\"x label\" transform=\"translate(15 {middle}) rotate(-90)\">{label}</text>"
        );
        // The first line is drawn last, over the others.
        for line in self.lines.iter().rev() {
            line.draw(&mut svg, &x, &y);
        }
        let marks = self.lines.iter().filter_map(|line| Some((line, line.marked?)));
        for (number, (line, (from, to))) in marks.enumerate() {
            let (y, from, to) = (TOP + MARK * (number as f64 - 1.0), x.place(from), x.place(to));
            let (colour, wide) = (line.style % COLOURS, to - from);
            let _ = writeln!(
                svg,
                "<rect class=\"m{colour}\" x=\"{from:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" height=\"{}\"/>",
                MARK - 2.5
            );
        }
        Some(svg)
    }

    /// The scale that holds all values of one axis; none when no value can be drawn.
    fn scale(&self, axis: &Axis, value: fn(&(f64, f64)) -> f64, from: f64, to: f64) -> Option<Scale> {
        let points = self.lines.iter().flat_map(|line| &line.points);
        let values = points.map(value).filter(|v| v.is_finite() && (!axis.log || *v > 0.0));
        let (lo, hi) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(lo, hi), v| (lo.min(v), hi.max(v)));
        (lo <= hi).then(|| if axis.log { Scale::log(lo, hi, from, to) } else { Scale::linear(hi, from, to) })
    }
}

impl Line {
    fn draw(&self, svg: &mut String, x: &Scale, y: &Scale) {
        let (mut path, mut dots) = (String::new(), String::new());
        let mut last: Option<(f64, f64)> = None;
        // Steps and distributions are smooth; a course over time is not.
        let dense = self.points.len() > DOTS && !x.log;
        let shown = self.points.len() <= DOTS && !self.steps;
        for (at, point) in self.points.iter().enumerate() {
            let (px, py) = (x.place(point.0), y.place(point.1));
            if !px.is_finite() || !py.is_finite() {
                last = None;
                continue;
            }
            let ends = at + 1 == self.points.len();
            match last {
                Some((lx, ly)) if !ends && (px - lx).abs() < NEAR && (py - ly).abs() < NEAR => continue,
                Some(_) if self.steps => {
                    let _ = write!(path, "H{px:.1}V{py:.1}");
                }
                Some(_) => {
                    let _ = write!(path, "L{px:.1} {py:.1}");
                }
                None => {
                    let _ = write!(path, "M{px:.1} {py:.1}");
                }
            }
            if shown {
                let _ = write!(dots, "<circle cx=\"{px:.1}\" cy=\"{py:.1}\" r=\"2.4\"/>");
            }
            last = Some((px, py));
        }
        let (classes, name) = (classes(self.style), escape(&self.name));
        let dense = if dense { " dense" } else { "" };
        let _ = writeln!(
            svg,
            "<g class=\"{classes}{dense}\"><title>{name}</title><path d=\"{path}\"/>{dots}</g>"
        );
    }
}

/// The classes of a line or of its sample in a legend: seven colours with dashes of their own, then the same
/// colours with others. Fourteen can be told apart.
pub(super) fn classes(style: usize) -> String {
    let more = if style % (2 * COLOURS) < COLOURS { "" } else { " more" };
    format!("line s{}{more}", style % COLOURS)
}

/// From values to places on the drawing.
pub(super) struct Scale {
    /// The values at the ends, or their logarithms.
    lo: f64,
    hi: f64,
    log: bool,
    from: f64,
    to: f64,
    pub(super) ticks: Vec<f64>,
}

impl Scale {
    /// From zero to the tick at or above `hi`.
    fn linear(hi: f64, from: f64, to: f64) -> Self {
        let hi = if hi > 0.0 { hi } else { 1.0 };
        let rough = hi / TICKS;
        let unit = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|s| s * unit).into_iter().find(|s| *s >= rough * 0.999);
        let step = step.unwrap_or(rough);
        let count = (hi / step - 1e-9).ceil().max(1.0);
        let ticks = (0..=count as u32).map(|n| f64::from(n) * step).collect();
        Self { lo: 0.0, hi: count * step, log: false, from, to, ticks }
    }

    /// From the tick at or below `lo` to the one at or above `hi`: powers of ten, and between them 2 and 5
    /// where there are few. So a chart never spans less than a factor of two.
    pub(super) fn log(lo: f64, hi: f64, from: f64, to: f64) -> Self {
        let decades = (hi / lo).log10();
        let mantissas: &[f64] = match decades {
            d if d <= 1.7 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        let (first, last) = (lo.log10().floor() as i32, hi.log10().ceil() as i32);
        let all: Vec<f64> =
            (first..=last).flat_map(|power| mantissas.iter().map(move |m| m * 10_f64.powi(power))).collect();
        let begin = all.iter().rposition(|t| *t <= lo * 1.000_001).unwrap_or(0);
        let end = all.iter().position(|t| *t >= hi * 0.999_999).unwrap_or(all.len() - 1);
        let end = end.max(begin + 1).min(all.len() - 1);
        let begin = begin.min(end - 1);
        let span = &all[begin..=end];
        let every = (span.len() as f64 / (TICKS + 3.0)).ceil() as usize;
        let ticks = span.iter().copied().step_by(every).collect();
        Self { lo: span[0].log10(), hi: span[span.len() - 1].log10(), log: true, from, to, ticks }
    }

    /// Not finite when the value has no place.
    pub(super) fn place(&self, value: f64) -> f64 {
        let value = match self.log {
            true if value > 0.0 => value.log10(),
            true => f64::NAN,
            false => value,
        };
        self.from + (value - self.lo) / (self.hi - self.lo) * (self.to - self.from)
    }
}

/// Text for HTML and SVG, in elements and in attributes.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A time in the unit that suits it.
pub(super) fn micros(value: f64) -> String {
    match value {
        v if v < 0.9995 => format!("{} ns", plain(v * 1e3)),
        v if v < 999.5 => format!("{} \u{b5}s", plain(v)),
        v if v < 999_500.0 => format!("{} ms", plain(v / 1e3)),
        v => format!("{} s", plain(v / 1e6)),
    }
}

/// A count with k or M.
pub(super) fn thousands(value: f64) -> String {
    match value {
        v if v < 999.5 => plain(v),
        v if v < 999_500.0 => format!("{}k", plain(v / 1e3)),
        v => format!("{}M", plain(v / 1e6)),
    }
}

/// A share in percent.
pub(super) fn share(value: f64) -> String {
    format!("{} %", plain(value * 100.0))
}

/// Without the noise of binary fractions.
pub(super) fn plain(value: f64) -> String {
    let rounded: f64 = format!("{value:.2e}").parse().unwrap_or(value);
    rounded.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(log: bool, points: &[(f64, f64)]) -> Chart {
        let line = Line { name: "a<b".into(), style: 1, steps: false, points: points.to_vec(), marked: None };
        Chart {
            title: "t".into(),
            x: Axis { label: "time (s)", log: false, tick: plain },
            y: Axis { label: "latency", log, tick: micros },
            lines: vec![line],
        }
    }

    #[test]
    fn a_linear_scale_goes_from_zero_to_a_round_tick_beyond_the_last_value() {
        let scale = Scale::linear(262_000.0, 100.0, 0.0);
        assert_eq!(scale.ticks, [0.0, 50_000.0, 100_000.0, 150_000.0, 200_000.0, 250_000.0, 300_000.0]);
        assert_eq!((scale.place(0.0), scale.place(150_000.0), scale.place(300_000.0)), (100.0, 50.0, 0.0));
        assert_eq!(Scale::linear(0.0, 0.0, 1.0).ticks.first(), Some(&0.0));
    }

    #[test]
    fn a_log_scale_gives_each_decade_the_same_room() {
        let scale = Scale::log(3.0, 9_000.0, 0.0, 400.0);
        assert_eq!(scale.ticks, [1.0, 10.0, 100.0, 1000.0, 10000.0]);
        assert!((scale.place(10.0) - 100.0).abs() < 1e-9 && (scale.place(1000.0) - 300.0).abs() < 1e-9);
        let few = Scale::log(3.0, 3.0, 0.0, 1.0);
        assert_eq!(few.ticks, [2.0, 5.0], "a single value still has a span");
        let tens = Scale::log(10.0, 10.0, 0.0, 1.0);
        assert!(tens.ticks.len() >= 2 && tens.place(10.0).is_finite());
        assert!(Scale::log(1e-9, 1e9, 0.0, 1.0).ticks.len() <= 10);
    }

    #[test]
    fn points_land_where_the_axes_say() {
        let svg = chart(false, &[(0.0, 0.0), (6.0, 6.0)]).svg().unwrap();
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        assert!(svg.contains(&format!("M{LEFT:.1} {bottom:.1}L{right:.1} {TOP:.1}")), "{svg}");
        assert!(svg.contains("class=\"line s1\"") && svg.contains("a&lt;b"));
    }

    #[test]
    fn a_short_line_shows_its_points_and_a_long_one_is_thin() {
        let line = |count: u32| {
            let points: Vec<_> = (0..count).map(|n| (f64::from(n), f64::from(n % 2))).collect();
            let svg = chart(false, &points).svg().unwrap();
            (svg.matches("<circle").count(), svg.contains("dense"))
        };
        assert_eq!((line(10), line(200)), ((10, false), (0, true)));
    }

    #[test]
    fn fourteen_lines_are_told_apart() {
        let all: std::collections::BTreeSet<String> = (0..14).map(classes).collect();
        assert_eq!(all.len(), 14);
        for class in all.iter().flat_map(|classes| classes.split(' ')) {
            assert!(STYLE.contains(&format!(".{class} ")), "{class} has no style");
        }
    }

    #[test]
    fn what_is_marked_is_a_bar_above_the_plot_which_makes_room_for_it() {
        let mut chart = chart(false, &[(0.0, 0.0), (6.0, 6.0)]);
        chart.lines[0].marked = Some((3.0, 6.0));
        let svg = chart.svg().unwrap();
        let (right, top) = (WIDTH - RIGHT, TOP + MARK);
        let (middle, half) = (f64::midpoint(LEFT, right), (right - LEFT) / 2.0);
        assert!(svg.contains(&format!("L{right:.1} {top:.1}")), "{svg}");
        assert!(
            svg.contains(&format!("class=\"m1\" x=\"{middle:.1}\" y=\"5.0\" width=\"{half:.1}\"")),
            "{svg}"
        );
        assert!((0..COLOURS).all(|n| STYLE.contains(&format!(".m{n} {{"))));
    }

    #[test]
    fn the_legend_of_a_file_takes_as_many_lines_as_it_needs() {
        let mut many = chart(false, &[(0.0, 0.0), (6.0, 6.0)]);
        let height = |chart: &Chart| {
            let file = chart.file().unwrap();
            file.split("height=\"")
                .nth(1)
                .and_then(|rest| rest.split('"').next()?.parse::<f64>().ok())
                .unwrap()
        };
        let one = height(&many);
        many.lines = (0..8)
            .map(|style| Line {
                name: "a name of some length".into(),
                style,
                points: vec![(0.0, 1.0)],
                steps: false,
                marked: None,
            })
            .collect();
        assert_eq!(height(&many), one + 2.0 * LEGEND_LINE, "three of them fit in a line");
    }

    #[test]
    fn a_value_without_a_place_breaks_the_line() {
        let svg = chart(true, &[(0.0, 1.0), (1.0, 2.0), (2.0, 0.0), (3.0, 4.0)]).svg().unwrap();
        let path = svg.split("<path d=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
        assert_eq!((path.matches('M').count(), path.matches('L').count()), (2, 1), "{path}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn nothing_to_draw_is_no_chart() {
        assert!(chart(false, &[]).svg().is_none());
        assert!(chart(true, &[(1.0, 0.0)]).svg().is_none());
        assert!(chart(false, &[(1.0, f64::NAN)]).svg().is_none());
    }

    #[test]
    fn ticks_are_in_the_unit_that_suits_them() {
        let times: Vec<String> = [0.5, 1.0, 20.0, 1e3, 2.5e5, 1e6].map(micros).into();
        assert_eq!(times, ["500 ns", "1 \u{b5}s", "20 \u{b5}s", "1 ms", "250 ms", "1 s"]);
        let counts: Vec<String> = [0.0, 500.0, 150_000.0, 1.5e6].map(thousands).into();
        assert_eq!(counts, ["0", "500", "150k", "1.5M"]);
        assert_eq!([0.1, 1e-5].map(share), ["10 %", "0.001 %"]);
    }
}
