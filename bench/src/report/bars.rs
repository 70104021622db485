//! Figures of papers as bars: the paper's (or what is aimed at) and ours, one below the other, and where the goal is.

use super::digits;
use super::plot::escape;
use crate::record::FigureRecord;
use std::fmt::Write;

const WIDTH: f64 = 760.0;
const ROW: f64 = 62.0;
/// Room for the number behind the longest bar.
const RIGHT: f64 = 60.0;
const BAR: f64 = 13.0;

/// All figures in one drawing, on one scale from zero.
pub(super) fn bars(figures: &[FigureRecord]) -> String {
    let longest =
        figures.iter().flat_map(|f| [f.paper, f.ours]).filter(|v| v.is_finite()).fold(1.0, f64::max);
    let wide = |value: f64| if value.is_finite() { value.max(0.0) / longest * (WIDTH - RIGHT) } else { 0.0 };
    let height = ROW * figures.len() as f64;
    let mut svg = format!(
        "<svg class=\"bars\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"figures of papers and ours\">\n"
    );
    let even = wide(1.0);
    let _ = writeln!(svg, "<path class=\"grid\" d=\"M{even:.1} 0V{height}\"/>");
    for (at, figure) in figures.iter().enumerate() {
        let top = ROW * at as f64;
        let holds = if figure.holds { "" } else { ", does not hold" };
        let label = escape(&format!("{} (goal: {}{holds})", figure.id, figure.goal));
        let _ = writeln!(svg, "<text class=\"label\" x=\"0\" y=\"{:.1}\">{label}</text>", top + 16.0);
        for (line, (class, name, value)) in
            [("theirs", "given", figure.paper), ("ours", "ours", figure.ours)].into_iter().enumerate()
        {
            let y = top + 22.0 + line as f64 * (BAR + 2.0);
            let (wide, number) = (wide(value), digits(value));
            let _ = writeln!(
                svg,
                "<rect class=\"{class}\" x=\"0\" y=\"{y:.1}\" width=\"{wide:.1}\" height=\"{BAR}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\">{number} {name}</text>",
                wide + 5.0,
                y + BAR - 1.0
            );
        }
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_numbers_and_say_what_does_not_hold() {
        let figure = |paper, ours, holds| FigureRecord {
            kind: "figure".into(),
            id: "a<b".into(),
            paper,
            ours,
            goal: "at most 2".into(),
            holds,
        };
        let svg = bars(&[figure(2.0, 1.0, true), figure(0.5, 4.0, false)]);
        let widths: Vec<&str> = svg
            .split("<rect")
            .skip(1)
            .filter_map(|r| r.split("width=\"").nth(1)?.split('"').next())
            .collect();
        assert_eq!(widths, ["350.0", "175.0", "87.5", "700.0"]);
        assert!(svg.contains("M175.0 0V124"), "a line where both are even: {svg}");
        assert_eq!(svg.matches("does not hold").count(), 1);
        assert!(svg.contains("a&lt;b (goal: at most 2)"));
    }
}
