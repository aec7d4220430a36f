//! The few statistics that a page needs beyond what records carry.

/// The `share` quantile of samples, by linear interpolation; `None` where there are none.
pub(crate) fn quantile(samples: &[f64], share: f64) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    quantile_of_sorted(&sorted, share)
}

/// The same of samples that ascend already: for many quantiles of the same ones.
pub(crate) fn quantile_of_sorted(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    #[expect(clippy::cast_precision_loss, reason = "a record has far fewer than 2^52 samples")]
    let position = share.clamp(0.0, 1.0) * last as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within 0..=last")]
    let below = position.floor() as usize;
    let above = (below + 1).min(last);
    let weight = position.fract();
    Some(sorted[below] * (1.0 - weight) + sorted[above] * weight)
}

/// The geometric mean of ratios; `None` where there are none or one is not above 0.
pub(crate) fn geometric_mean(ratios: &[f64]) -> Option<f64> {
    if ratios.is_empty() || ratios.iter().any(|ratio| *ratio <= 0.0) {
        return None;
    }
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
    let mean = ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64;
    Some(mean.exp())
}

/// The largest of some numbers; `None` where there are none.
pub(crate) fn largest(numbers: impl IntoIterator<Item = f64>) -> Option<f64> {
    numbers.into_iter().max_by(f64::total_cmp)
}

/// The smallest of some numbers; `None` where there are none.
pub(crate) fn smallest(numbers: impl IntoIterator<Item = f64>) -> Option<f64> {
    numbers.into_iter().min_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_interpolate() {
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(quantile(&[3.0], 0.25), Some(3.0));
        assert_eq!(quantile(&[4.0, 1.0, 2.0, 3.0], 0.5), Some(2.5));
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.25), Some(2.0));
        assert_eq!(quantile(&[1.0, 2.0], 1.0), Some(2.0));
    }

    #[test]
    fn means_are_geometric() {
        assert_eq!(geometric_mean(&[]), None);
        assert_eq!(geometric_mean(&[1.0, 0.0]), None);
        let mean = geometric_mean(&[0.5, 2.0]).unwrap();
        assert!((mean - 1.0).abs() < 1e-12);
    }
}
