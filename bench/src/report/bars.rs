//! Figures of papers as bars: the paper's, what was simulated and ours, one below the other, as far as there
//! are any.

use super::digits;
use super::plot::escape;
use crate::record::FigureRecord;
use std::fmt::Write;

const WIDTH: f64 = 760.0;
/// A figure: its name above its bars.
const ROW: f64 = 32.0;
/// Room for the number behind the longest bar.
const RIGHT: f64 = 60.0;
const BAR: f64 = 13.0;
/// A bar with what is between it and the next.
const LINE: f64 = 15.0;

/// All figures in one drawing, on one scale from zero.
pub(super) fn bars(figures: &[FigureRecord]) -> String {
    let lines: Vec<Vec<(&str, &str, f64)>> = figures.iter().map(lines).collect();
    let longest = lines.iter().flatten().map(|line| line.2).filter(|v| v.is_finite()).fold(1.0, f64::max);
    let wide = |value: f64| if value.is_finite() { value.max(0.0) / longest * (WIDTH - RIGHT) } else { 0.0 };
    let height = lines.iter().map(|lines| ROW + LINE * lines.len() as f64).sum::<f64>();
    let mut svg = format!(
        "<svg class=\"bars\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"figures of papers and ours\">\n"
    );
    let even = wide(1.0);
    let _ = writeln!(svg, "<path class=\"grid\" d=\"M{even:.1} 0V{height}\"/>");
    let mut top = 0.0;
    for (figure, lines) in figures.iter().zip(lines) {
        let holds = if figure.holds { "" } else { ", does not hold" };
        let label = escape(&format!("{} (goal: {}{holds})", figure.id, figure.goal));
        let _ = writeln!(svg, "<text class=\"label\" x=\"0\" y=\"{:.1}\">{label}</text>", top + 16.0);
        let mut y = top + 22.0;
        top += ROW + LINE * lines.len() as f64;
        for (class, name, value) in lines {
            let (wide, number) = (wide(value), digits(value));
            let _ = writeln!(
                svg,
                "<rect class=\"{class}\" x=\"0\" y=\"{y:.1}\" width=\"{wide:.1}\" height=\"{BAR}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\">{number} {name}</text>",
                wide + 5.0,
                y + BAR - 1.0
            );
            y += LINE;
        }
    }
    svg + "</svg>\n"
}

/// The class of each bar, what it is and how long.
fn lines(figure: &FigureRecord) -> Vec<(&'static str, &'static str, f64)> {
    let theirs = figure.paper.map(|value| ("theirs", "paper", value));
    let simulated = figure.simulated.map(|value| ("simulated", "simulated", value));
    theirs.into_iter().chain(simulated).chain([("ours", "ours", figure.ours)]).collect()
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
            simulated: None,
            ours,
            goal: "at most 2".into(),
            holds,
        };
        let svg = bars(&[figure(Some(2.0), 1.0, true), figure(Some(0.5), 4.0, false)]);
        let widths: Vec<&str> = svg
            .split("<rect")
            .skip(1)
            .filter_map(|r| r.split("width=\"").nth(1)?.split('"').next())
            .collect();
        assert_eq!(widths, ["350.0", "175.0", "87.5", "700.0"]);
        assert!(svg.contains("M175.0 0V124"), "a line where both are even: {svg}");
        assert_eq!(svg.matches("does not hold").count(), 1);
        assert!(svg.contains("a&lt;b (goal: at most 2)"));
        let simulated = FigureRecord { simulated: Some(2.0), ..figure(None, 4.0, true) };
        let svg = bars(&[simulated]);
        assert_eq!((svg.matches("<rect").count(), svg.matches(" paper<").count()), (2, 0));
        assert!(svg.contains("2.00 simulated<"), "{svg}");
    }
}
