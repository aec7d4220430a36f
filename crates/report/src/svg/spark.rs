//! A small line of ratios.

/// A small line of ratios on a logarithmic axis, with a rule at 1. Above the rule is slower.
pub(crate) fn spark(ratios: &[f64]) -> String {
    const WIDTH: f64 = 96.0;
    const HEIGHT: f64 = 22.0;
    /// The margin around the line.
    const EDGE: f64 = 3.0;
    let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    let low = logs.iter().copied().fold(0.0, f64::min);
    let high = logs.iter().copied().fold(0.0, f64::max);
    // A line within a few percent of 1 is drawn flat.
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
