//! Bars and lines as SVG, for figures whose shape is the paper's.

use std::fmt::Write as _;

use crate::text::escape;

/// Dimensions of the drawing in its own units.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 44.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 58.0;
const RIGHT: f64 = 96.0;

/// A group of adjacent bars.
pub(super) struct Group {
    pub(super) name: String,
    pub(super) bars: Vec<Bar>,
}

/// A bar of stacked parts, from the bottom up, each with its colour, and a mark at some height.
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) parts: Vec<(f64, usize)>,
    pub(super) mark: Option<f64>,
}

/// A line, and marks of the same colour.
pub(super) struct Line {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
    pub(super) marks: Vec<(f64, f64)>,
}

/// Groups of bars on an axis from 0 to at least 100 percent.
pub(super) fn bars(title: &str, groups: &[Group], parts: &[&str], mark: &str) -> String {
    let count: usize = groups.iter().map(|group| group.bars.len() + 1).sum();
    if count == 0 {
        return String::new();
    }
    let highest = groups
        .iter()
        .flat_map(|group| &group.bars)
        .map(|bar| {
            bar.parts.iter().map(|part| part.0.max(0.0)).sum::<f64>().max(bar.mark.unwrap_or(0.0))
        })
        .fold(0.0, f64::max);
    let top = (highest / 20.0).ceil().max(1.0) * 20.0;
    let y = |value: f64| TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - value / top);
    let step = (WIDTH - LEFT - 10.0) / count as f64;
    let mut svg = open(title);
    grid(&mut svg, 0.0, top, 10.0);
    let mut x = LEFT + step / 2.0;
    for group in groups {
        let begins = x;
        for bar in &group.bars {
            draw_bar(&mut svg, bar, x, step * 0.8, y);
            x += step;
        }
        let middle = f64::midpoint(begins, x - step * 0.2);
        let _ = write!(
            svg,
            "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            HEIGHT - BOTTOM + 46.0,
            escape(&group.name)
        );
        x += step;
    }
    svg.push_str("</svg></div>");
    svg + &legend(parts, mark)
}

fn draw_bar(svg: &mut String, bar: &Bar, x: f64, width: f64, y: impl Fn(f64) -> f64) {
    let mut at = 0.0;
    for (value, colour) in &bar.parts {
        let value = value.max(0.0);
        let _ = write!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{:.1}\" style=\"fill:var(--s{colour})\">\
             <title>{}: {value:.1}</title></rect>",
            y(at + value),
            y(at) - y(at + value),
            escape(&bar.name)
        );
        at += value;
    }
    if let Some(mark) = bar.mark {
        let at = y(mark);
        let _ = write!(
            svg,
            "<line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" style=\"stroke:var(--ink);stroke-width:2\">\
             <title>paper: {mark}</title></line>",
            x - 2.0,
            x + width + 2.0
        );
    }
    let (tx, ty) = (x + width / 2.0 + 3.0, y(0.0) + 8.0);
    let short = bar.name.trim_start_matches("SYNC_");
    let _ = write!(
        svg,
        "<text x=\"{tx:.1}\" y=\"{ty:.1}\" font-size=\"9\" text-anchor=\"end\" transform=\"rotate(-40 {tx:.1} {ty:.1})\">{}</text>",
        escape(short)
    );
}

/// Lines over a horizontal axis; the vertical axis covers all values and marks.
pub(super) fn lines(title: &str, x_title: &str, lines: &[Line]) -> String {
    let all: Vec<(f64, f64)> =
        lines.iter().flat_map(|line| line.points.iter().chain(&line.marks).copied()).collect();
    let Some(first) = all.first() else {
        return String::new();
    };
    let fold = |of: fn(&(f64, f64)) -> f64| {
        all.iter().map(of).fold((of(first), of(first)), |(low, high), v| (low.min(v), high.max(v)))
    };
    let (left, right) = fold(|point| point.0);
    let (low, high) = fold(|point| point.1);
    let (low, high) = ((low / 10.0).floor() * 10.0, (high / 10.0).ceil() * 10.0 + 0.001);
    let y = |value: f64| TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - (value - low) / (high - low));
    let x = |value: f64| {
        LEFT + 20.0 + (WIDTH - LEFT - RIGHT - 30.0) * (value - left) / (right - left).max(1.0)
    };
    let mut svg = open(title);
    grid(&mut svg, low, high, RIGHT);
    let mut ticks: Vec<f64> = all.iter().map(|point| point.0).collect();
    ticks.sort_by(f64::total_cmp);
    ticks.dedup();
    for tick in ticks {
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{tick}</text>",
            x(tick),
            HEIGHT - BOTTOM + 16.0
        );
    }
    let _ = write!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        f64::midpoint(LEFT, WIDTH - RIGHT),
        HEIGHT - BOTTOM + 36.0,
        escape(x_title)
    );
    for (colour, line) in lines.iter().enumerate() {
        draw_line(&mut svg, line, colour, &x, &y);
    }
    svg + "</svg></div>"
}

fn draw_line(
    svg: &mut String,
    line: &Line,
    colour: usize,
    x: &impl Fn(f64) -> f64,
    y: &impl Fn(f64) -> f64,
) {
    let mut points = line.points.clone();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let path: Vec<String> =
        points.iter().map(|point| format!("{:.1},{:.1}", x(point.0), y(point.1))).collect();
    let _ = write!(
        svg,
        "<polyline points=\"{}\" style=\"fill:none;stroke:var(--s{colour});stroke-width:2\"/>",
        path.join(" ")
    );
    for (at, value) in &points {
        let _ = write!(
            svg,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" style=\"fill:var(--s{colour})\"><title>{} at {at}: {value:.1}</title></circle>",
            x(*at),
            y(*value),
            escape(&line.name)
        );
    }
    for (at, value) in &line.marks {
        let _ = write!(
            svg,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"6\" style=\"fill:none;stroke:var(--s{colour})\"><title>paper, {} at {at}: {value:.1}</title></circle>",
            x(*at),
            y(*value),
            escape(&line.name)
        );
    }
    if let Some((at, value)) = points.last() {
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" style=\"fill:var(--s{colour})\">{}</text>",
            x(*at) + 10.0,
            y(*value) + 4.0,
            escape(&line.name)
        );
    }
}

fn open(title: &str) -> String {
    let title = escape(title);
    format!(
        "<div class=\"wide\" tabindex=\"0\"><svg class=\"simchart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\" font-size=\"11\">\
         <text x=\"{LEFT}\" y=\"10\">{title}</text>"
    )
}

fn grid(svg: &mut String, low: f64, high: f64, right: f64) {
    /// Percent between two lines of the grid.
    const STEP: f64 = 20.0;
    let y = |value: f64| TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - (value - low) / (high - low));
    let mut tick = (low / STEP).ceil() * STEP;
    while tick <= high {
        let at = y(tick);
        let _ = write!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" style=\"stroke:var(--rule)\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{tick}</text>",
            WIDTH - right,
            LEFT - 6.0,
            at + 4.0
        );
        tick += STEP;
    }
}

fn legend(parts: &[&str], mark: &str) -> String {
    if parts.len() < 2 && mark.is_empty() {
        return String::new();
    }
    let mut html = String::from("<p class=\"about\">");
    for (colour, part) in parts.iter().enumerate() {
        let _ = write!(html, "<i style=\"background:var(--s{colour})\"></i>{} ", escape(part));
    }
    if !mark.is_empty() {
        let _ = write!(html, "<b>—</b> {}", escape(mark));
    }
    html + "</p>"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_height_matches_value_and_text_is_escaped() {
        let bar = |value| Bar { name: "<b>".into(), parts: vec![(value, 0)], mark: Some(10.0) };
        let group = Group { name: "g".into(), bars: vec![bar(20.0), bar(10.0)] };
        let svg = bars("t", &[group], &["a", "b"], "paper");
        let heights: Vec<f64> = svg
            .split(" height=\"")
            .skip(1)
            .filter_map(|rest| rest.split('"').next()?.parse().ok())
            .collect();
        assert_eq!(heights.len(), 2);
        assert!((heights[0] - 2.0 * heights[1]).abs() < 0.2, "{heights:?}");
        assert!(!svg.contains("<b>:") && svg.contains("&lt;b&gt;"));
        assert_eq!(bars("t", &[], &[], ""), "");
    }

    #[test]
    fn line_goes_through_its_points() {
        let line = Line {
            name: "l".into(),
            points: vec![(80.0, 50.0), (110.0, 100.0)],
            marks: vec![(80.0, 52.0)],
        };
        let svg = lines("t", "x", &[line]);
        assert_eq!(svg.matches("<circle").count(), 3);
        assert!(svg.contains("<polyline"));
        assert_eq!(lines("t", "x", &[]), "");
    }
}
