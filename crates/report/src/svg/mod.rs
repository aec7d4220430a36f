//! A figure without a browser. The page shows it before its script runs, or without the script;
//! documents use it as a picture.
//!
//! Draws the first view in the first mode. Only the script provides interaction.
//!
//! From the bottom up:
//!
//! - `spark`: a small line of ratios;
//! - `scale`: the position of a value on an axis;
//! - `canvas`: axes, lines, dots and the legend of one view.

mod canvas;
mod scale;
mod spark;

use std::fmt::Write as _;

use haul_model::Line;

use crate::figures::{self, Plot, Shape};
use crate::select;
use crate::text::escape;
use canvas::{BOTTOM, Canvas, ROW, TOP, WIDTH};

pub(crate) use spark::spark;

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

/// Every plot as a separate SVG document, with the name of its experiment, in the order of the
/// page. Follows the reader's light or dark theme, and shows the page's initial view.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axis_is_logarithmic_where_the_script_makes_it_so() {
        let record = |size: u64, time: f64| {
            let mut record = haul_model::Record::new("r", "copy.size", "haul", "time", "ns")
                .with("function", "memcpy")
                .with("size_bytes", size);
            record.samples = vec![time];
            Line::from(record)
        };
        // GB/s, which no mode of the plot shows on a logarithmic axis by default.
        let drawn = |time: f64| svg(&[record(1000, 1.0), record(2000, time)]).remove(0).1;
        let ticks = |drawn: &str| drawn.matches("text-anchor=\"end\"").count();
        assert!(drawn(1e4).contains(">100</text>") && !drawn(1e4).contains(">0</text>"));
        assert!(drawn(4.0).contains(">0</text>") && ticks(&drawn(4.0)) > 4);
    }
}
