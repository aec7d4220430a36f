//! A figure without a browser: what the page shows before, or without, its script; and a picture
//! for a document.
//!
//! Draws the first view in the first mode. Everything that moves is the script's.

use std::fmt::Write as _;

use haul_model::Line;

use crate::figures::{self, Plot, Role, Series, Shape, View};
use crate::select;
use crate::text::escape;

const WIDTH: f64 = 1000.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 36.0;
const TOP: f64 = 24.0;
const BOTTOM: f64 = 46.0;
const ROW: f64 = 13.0;

/// The colours of the page, light; the page's own style sheet and its dark theme take precedence.
const COLOURS: [(&str, &str, &str); 10] = [
    ("ink", "#1b1d1f", "#e4e5e3"),
    ("soft", "#5c6064", "#a0a4a8"),
    ("grid", "#ecece7", "#24282c"),
    ("band", "#e3e3dd", "#31353a"),
    ("s0", "#0a5fb0", "#62b1f5"),
    ("s1", "#c04a00", "#f2935a"),
    ("s2", "#00795c", "#3fc7a0"),
    ("s3", "#9a4a94", "#d992d2"),
    ("s4", "#806300", "#dcb93f"),
    ("s5", "#4a4e52", "#c3c6c9"),
];

/// Every plot as an SVG document of its own, with the name of its experiment, in the order of the
/// page. Follows the reader's light or dark theme; draws what the page draws at first.
///
/// ```
/// use haul_model::{Line, Record};
/// let lines = [4096, 8192].map(|size| {
///     let mut record = Record::new("run", "copy.size", "haul", "time", "ns");
///     record = record.with("size_bytes", size);
///     record.samples = vec![51.2];
///     Line::from(record)
/// });
/// let plots = haul_report::svg(&lines);
/// assert_eq!(plots[0].0, "copy.size");
/// assert!(plots[0].1.starts_with("<svg xmlns="));
/// ```
#[must_use]
pub fn svg(lines: &[Line]) -> Vec<(String, String)> {
    let (mut light, mut dark) = (String::new(), String::new());
    for (name, on_light, on_dark) in COLOURS {
        let _ = write!(light, "--{name}:{on_light};");
        let _ = write!(dark, "--{name}:{on_dark};");
    }
    let style =
        format!("<style>svg{{{light}}}@media(prefers-color-scheme:dark){{svg{{{dark}}}}}</style>");
    let mut plots = Vec::new();
    for (index, section) in select::sections(lines).iter().enumerate() {
        for figure in figures::figures(section, index) {
            let Some(plot) = &figure.plot else { continue };
            let drawn = of_plot(plot, &figure.title)
                .replacen("<svg ", "<svg xmlns=\"http://www.w3.org/2000/svg\" font-family=\"system-ui, sans-serif\" ", 1)
                .replacen("</title>", &format!("</title>{style}"), 1);
            plots.push((figure.experiment.to_string(), drawn));
        }
    }
    plots
}

/// The course of some ratios, small: a line on a logarithmic axis, with 1 as a rule. Above the rule
/// is slower.
pub(crate) fn spark(ratios: &[f64]) -> String {
    const WIDTH: f64 = 96.0;
    const HEIGHT: f64 = 22.0;
    /// From the edge to the line.
    const EDGE: f64 = 3.0;
    let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    let low = logs.iter().copied().fold(0.0, f64::min);
    let high = logs.iter().copied().fold(0.0, f64::max);
    // A course within some percent of 1 is flat, and drawn so.
    let span = (high - low).max(0.1);
    let middle = f64::midpoint(low, high);
    let y = |log: f64| HEIGHT / 2.0 - (log - middle) / span * (HEIGHT - 2.0 * EDGE);
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 places")]
    let x =
        |place: usize| EDGE + place as f64 * (WIDTH - 2.0 * EDGE) / (logs.len().max(2) - 1) as f64;
    let points: Vec<String> = logs
        .iter()
        .enumerate()
        .map(|(place, log)| format!("{:.1},{:.1}", x(place), y(*log)))
        .collect();
    let (last_x, last_y) =
        (x(logs.len().saturating_sub(1)), y(logs.last().copied().unwrap_or(0.0)));
    format!(
        "<svg class=\"spark\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" aria-hidden=\"true\">\
         <line x1=\"0\" x2=\"{WIDTH}\" y1=\"{0:.1}\" y2=\"{0:.1}\"/><polyline points=\"{1}\"/>\
         <circle cx=\"{last_x:.1}\" cy=\"{last_y:.1}\" r=\"1.8\"/></svg>",
        y(0.0),
        points.join(" ")
    )
}

/// The plot as an `<svg>` element that takes its colours from the page.
pub(crate) fn of_plot(plot: &Plot, title: &str) -> String {
    let Some(view) = plot.views.first() else { return String::new() };
    let lanes = view.series.len().max(1);
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
    let height = match plot.shape {
        Shape::Dots => TOP + BOTTOM + view.labels.len() as f64 * (lanes as f64 * ROW + 10.0),
        Shape::Sizes | Shape::Counts => 420.0,
    };
    let canvas = Canvas::new(plot, view, height);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" font-size=\"12\"><title>{}</title>",
        escape(title)
    );
    canvas.values(&mut svg);
    match plot.shape {
        Shape::Dots => canvas.rows(&mut svg),
        Shape::Sizes | Shape::Counts => canvas.lines(plot, &mut svg),
    }
    canvas.legend(&mut svg);
    svg + "</svg>"
}

struct Canvas<'a> {
    view: &'a View,
    is_rows: bool,
    log_x: bool,
    log_value: bool,
    is_ratio: bool,
    value_title: &'a str,
    height: f64,
    x: (f64, f64),
    value: (f64, f64),
}

impl<'a> Canvas<'a> {
    fn new(plot: &'a Plot, view: &'a View, height: f64) -> Self {
        let mode = plot.modes[0];
        let is_ratio = mode.name == "ratio";
        let shown = view.series.iter().filter(|series| series.shown);
        let mut values: Vec<f64> = shown
            .flat_map(|s| {
                let intervals = if is_ratio { [&s.low[0], &s.high[0]] } else { [&s.y[0]; 2] };
                s.y[0]
                    .iter()
                    .chain(intervals.into_iter().flatten())
                    .flatten()
                    .copied()
                    .collect::<Vec<f64>>()
            })
            .collect();
        let log_value = mode.log || !is_ratio && spans_decades(&values);
        if is_ratio {
            values.extend([0.95, 1.05]);
        } else if !log_value {
            values.push(0.0);
        }
        let (low, high) = bounds(values.iter().copied());
        let value =
            if log_value { (low / 1.5, high * 1.5) } else { (low, high + (high - low) * 0.05) };
        let (first, last) = bounds(view.x.iter().copied());
        Self {
            view,
            is_rows: plot.shape == Shape::Dots,
            log_x: plot.shape == Shape::Sizes,
            log_value,
            is_ratio,
            value_title: mode.title,
            height,
            x: if first == last { (first / 2.0, last * 2.0 + 1.0) } else { (first, last) },
            value,
        }
    }

    /// Where a value of the value axis stands: from the left for rows, from the bottom for lines.
    fn at_value(&self, value: f64) -> f64 {
        let share = share(value, self.value, self.log_value).clamp(0.0, 1.0);
        if self.is_rows {
            LEFT + share * (WIDTH - LEFT - RIGHT)
        } else {
            self.height - BOTTOM - share * (self.height - BOTTOM - TOP)
        }
    }

    fn at_x(&self, x: f64) -> f64 {
        LEFT + share(x, self.x, self.log_x) * (WIDTH - LEFT - RIGHT)
    }

    /// The value axis with its grid.
    fn values(&self, svg: &mut String) {
        let (bottom, right) = (self.height - BOTTOM, WIDTH - RIGHT);
        for tick in ticks(self.value, self.log_value) {
            let at = self.at_value(tick);
            let label = crate::text::number(tick);
            let _ = if self.is_rows {
                write!(
                    svg,
                    "<path d=\"M{at:.1} {TOP}V{bottom:.1}\" {}/><text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\" {}>{label}</text>",
                    line("grid", 1.0),
                    bottom + 16.0,
                    fill("soft")
                )
            } else {
                write!(
                    svg,
                    "<path d=\"M{LEFT} {at:.1}H{right}\" {}/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" {}>{label}</text>",
                    line("grid", 1.0),
                    LEFT - 8.0,
                    at + 4.0,
                    fill("soft")
                )
            };
        }
        let title = escape(self.value_title);
        let _ = if self.is_rows {
            write!(
                svg,
                "<text x=\"{right}\" y=\"{:.1}\" text-anchor=\"end\" {}>{title}</text>",
                bottom + 36.0,
                fill("soft")
            )
        } else {
            write!(svg, "<text x=\"{LEFT}\" y=\"{:.1}\" {}>{title}</text>", TOP - 8.0, fill("soft"))
        };
    }

    /// Lines over sizes or counts.
    fn lines(&self, plot: &Plot, svg: &mut String) {
        let bottom = self.height - BOTTOM;
        for guide in plot.guides.iter().filter(|guide| guide.x >= self.x.0 && guide.x <= self.x.1) {
            let at = self.at_x(guide.x);
            let _ = write!(
                svg,
                "<path d=\"M{at:.1} {TOP}V{bottom}\" {} stroke-dasharray=\"1 2\"/><text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"10.5\" {}>{}</text>",
                line("soft", 1.0),
                TOP - 4.0,
                fill("soft"),
                escape(&guide.label)
            );
        }
        let every = self.view.x.len().div_ceil(12).max(1);
        for (x, label) in self.view.x.iter().zip(&self.view.labels).step_by(every) {
            let _ = write!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" {}>{}</text>",
                self.at_x(*x),
                bottom + 16.0,
                fill("soft"),
                escape(label)
            );
        }
        for (index, series) in
            self.view.series.iter().enumerate().filter(|(_, series)| series.shown)
        {
            let points: Vec<String> = self
                .view
                .x
                .iter()
                .zip(&series.y[0])
                .filter_map(|(x, y)| {
                    Some(format!("{:.1},{:.1}", self.at_x(*x), self.at_value((*y)?)))
                })
                .collect();
            let dash = if matches!(series.role, Role::Best | Role::Limit) {
                " stroke-dasharray=\"6 3\""
            } else {
                ""
            };
            let _ = write!(
                svg,
                "<polyline points=\"{}\" {}{dash} stroke-linejoin=\"round\"/>",
                points.join(" "),
                line(colour(series, index), 2.0)
            );
        }
    }

    /// A dot and its interval for each row and series, over the noise floor.
    fn rows(&self, svg: &mut String) {
        let lanes = self.view.series.len().max(1);
        #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
        let (step, middle) = (lanes as f64 * ROW + 10.0, lanes as f64 / 2.0);
        for (row, label) in self.view.labels.iter().enumerate() {
            #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
            let centre = TOP + (row as f64 + 0.5) * step;
            let _ = write!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" {}>{}</text>",
                LEFT - 10.0,
                centre + 4.0,
                fill("ink"),
                escape(label)
            );
            for (lane, series) in self.view.series.iter().enumerate() {
                #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
                let y = centre + (lane as f64 + 0.5 - middle) * ROW;
                self.dot(series, lane, row, y, svg);
            }
        }
    }

    fn dot(&self, series: &Series, lane: usize, row: usize, y: f64, svg: &mut String) {
        let (Some(value), Some(low), Some(high)) =
            (series.y[0][row], series.low[0][row], series.high[0][row])
        else {
            return;
        };
        if let Some(floor) = series.floor[0][row].filter(|_| self.is_ratio) {
            let (left, right) = (self.at_value(1.0 - floor), self.at_value(1.0 + floor));
            let _ = write!(
                svg,
                "<path d=\"M{left:.1} {y:.1}H{:.1}\" {}/>",
                right.max(left + 1.0),
                line("band", 8.0)
            );
        }
        let colour = colour(series, lane);
        let _ = write!(
            svg,
            "<path d=\"M{:.1} {y:.1}H{:.1}\" {}/><circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"4\" {}/>",
            self.at_value(low),
            self.at_value(high),
            line(colour, 1.5),
            self.at_value(value),
            fill(colour)
        );
    }

    fn legend(&self, svg: &mut String) {
        let mut x = LEFT;
        for (index, series) in
            self.view.series.iter().enumerate().filter(|(_, series)| series.shown)
        {
            let y = self.height - 10.0;
            let _ = write!(
                svg,
                "<path d=\"M{x:.1} {:.1}h14\" {}/><text x=\"{:.1}\" y=\"{y:.1}\" {}>{}</text>",
                y - 4.0,
                line(colour(series, index), 3.0),
                x + 19.0,
                fill("ink"),
                escape(&series.name)
            );
            #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
            let width = series.name.chars().count() as f64 * 7.0;
            x += 38.0 + width;
        }
    }
}

/// A stroke in one of the page's colours.
fn line(colour: &str, width: f64) -> String {
    format!("fill=\"none\" style=\"stroke:var(--{colour})\" stroke-width=\"{width}\"")
}

fn fill(colour: &str) -> String {
    format!("style=\"fill:var(--{colour})\"")
}

fn colour(series: &Series, index: usize) -> &'static str {
    match series.role {
        Role::Haul => "s0",
        Role::Baseline => "s1",
        Role::Best => "s2",
        Role::Limit => "soft",
        Role::Other => ["s0", "s1", "s2", "s3", "s4", "s5"][index % 6],
    }
}

/// The smallest and the largest; from 0 to 1 where there is none.
fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) =
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    if low.is_finite() && high.is_finite() { (low, high) } else { (0.0, 1.0) }
}

/// Whether values span so much that the page's script draws them on a logarithmic axis: `SPAN_LOG`
/// there.
fn spans_decades(values: &[f64]) -> bool {
    const SPAN_LOG: f64 = 100.0;
    let (low, high) = bounds(values.iter().copied());
    low > 0.0 && high / low >= SPAN_LOG
}

/// How far a value lies between two others, from 0 to 1; half way where they are the same.
fn share(value: f64, (low, high): (f64, f64), log: bool) -> f64 {
    let scale = |v: f64| if log { v.max(f64::MIN_POSITIVE).ln() } else { v };
    let span = scale(high) - scale(low);
    let share = (scale(value) - scale(low)) / span;
    if span > 0.0 && share.is_finite() { share } else { 0.5 }
}

/// Round values from low to high: powers of ten on a logarithmic axis, else steps of 1, 2 or 5.
fn ticks((low, high): (f64, f64), log: bool) -> Vec<f64> {
    if log {
        let powers = (-9..=15).map(|power| 10_f64.powi(power));
        return powers.filter(|tick| (low..=high).contains(tick)).collect();
    }
    let rough = (high - low) / 6.0;
    if !rough.is_finite() || rough <= 0.0 {
        return vec![low];
    }
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|s| s * power)
        .find(|step| *step >= rough)
        .unwrap_or(rough);
    let first = (low / step).ceil();
    (0..12)
        .map(|n| ((first + f64::from(n)) * step * 1e9).round() / 1e9)
        .filter(|tick| *tick <= high)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(ticks((0.0, 100.0), false), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(ticks((0.83, 1.12), false), [0.85, 0.9, 0.95, 1.0, 1.05, 1.1]);
        assert_eq!(ticks((7.0, 2000.0), true), [10.0, 100.0, 1000.0]);
        assert_eq!(ticks((3.0, 3.0), false), [3.0]);
    }

    #[test]
    fn an_axis_is_logarithmic_where_the_script_has_it_so() {
        let record = |size: u64, time: f64| {
            let mut record = haul_model::Record::new("r", "copy.size", "haul", "time", "ns")
                .with("function", "memcpy")
                .with("size_bytes", size);
            record.samples = vec![time];
            Line::from(record)
        };
        // GB/s, which no mode of the plot has on such an axis of its own accord.
        let drawn = |time: f64| svg(&[record(1000, 1.0), record(2000, time)]).remove(0).1;
        let ticks = |drawn: &str| drawn.matches("text-anchor=\"end\"").count();
        assert!(drawn(1e4).contains(">100</text>") && !drawn(1e4).contains(">0</text>"));
        assert!(drawn(4.0).contains(">0</text>") && ticks(&drawn(4.0)) > 4);
    }

    #[test]
    fn shares_stay_finite() {
        assert!((share(10.0, (1.0, 100.0), true) - 0.5).abs() < 1e-12);
        assert!((share(5.0, (5.0, 5.0), false) - 0.5).abs() < 1e-12);
        assert!((share(0.0, (0.0, 8.0), true)).is_finite());
    }
}
