//! The position of a value on an axis, and the values that get a tick.

/// The smallest and the largest value; 0 and 1 if there are none.
pub(super) fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) =
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    if low.is_finite() && high.is_finite() { (low, high) } else { (0.0, 1.0) }
}

/// Whether values span so much that the page's script draws them on a logarithmic axis (`SPAN_LOG`
/// there).
pub(super) fn spans_decades(values: &[f64]) -> bool {
    const SPAN_LOG: f64 = 100.0;
    let (low, high) = bounds(values.iter().copied());
    low > 0.0 && high / low >= SPAN_LOG
}

/// The position of a value between two others, from 0 to 1; one half if they are equal.
pub(super) fn share(value: f64, (low, high): (f64, f64), log: bool) -> f64 {
    let scale = |v: f64| if log { v.max(f64::MIN_POSITIVE).ln() } else { v };
    let span = scale(high) - scale(low);
    let share = (scale(value) - scale(low)) / span;
    if span > 0.0 && share.is_finite() { share } else { 0.5 }
}

/// Round values from low to high: powers of ten on a logarithmic axis, else steps of 1, 2 or 5.
pub(super) fn ticks((low, high): (f64, f64), log: bool) -> Vec<f64> {
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
    fn shares_stay_finite() {
        assert!((share(10.0, (1.0, 100.0), true) - 0.5).abs() < 1e-12);
        assert!((share(5.0, (5.0, 5.0), false) - 0.5).abs() < 1e-12);
        assert!((share(0.0, (0.0, 8.0), true)).is_finite());
    }
}
