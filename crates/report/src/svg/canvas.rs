//! Axes, lines, dots and the legend of one view.

use std::fmt::Write as _;

use super::scale::{bounds, share, spans_decades, ticks};
use crate::figures::{Plot, Role, Series, Shape, View};
use crate::text::{escape, number};

pub(super) const WIDTH: f64 = 1000.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 36.0;
pub(super) const TOP: f64 = 24.0;
pub(super) const BOTTOM: f64 = 46.0;
pub(super) const ROW: f64 = 13.0;

/// One view of a plot, and its axes.
pub(super) struct Canvas<'a> {
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
    pub(super) fn new(plot: &'a Plot, view: &'a View, height: f64) -> Self {
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

    /// The position of a value on the value axis: from the left for rows, from the bottom for
    /// lines.
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
    pub(super) fn values(&self, svg: &mut String) {
        let (bottom, right) = (self.height - BOTTOM, WIDTH - RIGHT);
        for tick in ticks(self.value, self.log_value) {
            let at = self.at_value(tick);
            let label = number(tick);
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
    pub(super) fn lines(&self, plot: &Plot, svg: &mut String) {
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
    pub(super) fn rows(&self, svg: &mut String) {
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

    pub(super) fn legend(&self, svg: &mut String) {
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
