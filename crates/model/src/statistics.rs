//! Quantiles, the interval of a median, and means. All crates that measure, print or draw use these
//! functions.
//!
//! haul uses medians throughout: on a shared machine, a tenth of the samples may contain another
//! process's work, which shifts a mean but hardly a median.

/// The median: the middle value, or the mean of the two middle values. `None` if there are no
/// values.
///
/// ```
/// use haul_model::statistics::median;
/// assert_eq!(median(&[300.0, 100.0]), Some(200.0));
/// assert_eq!(median(&[]), None);
/// ```
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    median_in_place(&mut values.to_vec())
}

/// Like [`median`], but selects instead of sorting: it takes linear time and reorders the values.
#[must_use]
pub fn median_in_place(values: &mut [f64]) -> Option<f64> {
    let middle = values.len() / 2;
    let is_even = values.len().is_multiple_of(2);
    if values.is_empty() {
        return None;
    }
    let (below, &mut upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    let lower = below.iter().copied().max_by(f64::total_cmp).filter(|_| is_even);
    Some(lower.map_or(upper, |lower| f64::midpoint(lower, upper)))
}

/// The quantile `share`, from 0 to 1, interpolated linearly (type 7 of Hyndman and Fan, "Sample
/// quantiles in statistical packages", 1996). `None` if there are no values. A share below 0 counts
/// as 0, and one above 1 as 1.
///
/// ```
/// use haul_model::statistics::quantile;
/// assert_eq!(quantile(&[4.0, 1.0, 2.0, 3.0], 0.25), Some(1.75));
/// ```
#[must_use]
pub fn quantile(values: &[f64], share: f64) -> Option<f64> {
    quantile_of_sorted(&sorted(values), share)
}

/// Like [`quantile`], for sorted values. It is faster for many quantiles of the same values.
#[must_use]
pub fn quantile_of_sorted(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let position = share.clamp(0.0, 1.0) * last as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within 0..=last")]
    let below = position.floor() as usize;
    let above = (below + 1).min(last);
    if sorted[below] == sorted[above] {
        return Some(sorted[below]);
    }
    let weight = position.fract();
    Some(sorted[below] * (1.0 - weight) + sorted[above] * weight)
}

/// The smallest number of values that have an interval. Two values show only that they differ.
pub const INTERVAL_VALUES_MIN: usize = 3;

/// The number of standard deviations around the mean that contain 95% of a normal distribution.
const Z_95: f64 = 1.96;

/// The 95% confidence interval of the median of the values' distribution, by order statistics
/// (Conover, "Practical nonparametric statistics", section 3.2). It is the whole range for fewer
/// than nine values, and `None` for fewer than [`INTERVAL_VALUES_MIN`].
///
/// ```
/// use haul_model::statistics::median_interval;
/// let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
/// assert_eq!(median_interval(&hundred), Some([40.0, 61.0]));
/// assert_eq!(median_interval(&[3.0, 1.0, 2.0]), Some([1.0, 3.0]));
/// assert_eq!(median_interval(&[1.0, 2.0]), None);
/// ```
#[must_use]
pub fn median_interval(values: &[f64]) -> Option<[f64; 2]> {
    if values.len() < INTERVAL_VALUES_MIN {
        return None;
    }
    let sorted = sorted(values);
    let count = sorted.len() as f64;
    let rank = (count / 2.0 - Z_95 / 2.0 * count.sqrt()).floor().max(1.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to half of all")]
    let below = rank as usize - 1;
    Some([sorted[below], sorted[sorted.len() - 1 - below]])
}

/// The scaled median absolute deviation from the median: it estimates the standard deviation of
/// normally distributed values with a few outliers. `None` if there are no values.
#[must_use]
pub fn robust_deviation(values: &[f64]) -> Option<f64> {
    /// The standard deviation of a normal distribution over its median absolute deviation.
    const SCALE: f64 = 1.4826;
    let middle = median(values)?;
    let apart: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    Some(SCALE * median(&apart)?)
}

/// The geometric mean, which is the mean to use for ratios. `None` if there are no values, or if a
/// value is not above 0.
///
/// ```
/// use haul_model::statistics::geometric_mean;
/// let mean = geometric_mean(&[1.0, 4.0, 16.0]).unwrap();
/// assert!((mean - 4.0).abs() < 1e-12);
/// assert_eq!(geometric_mean(&[1.0, 0.0]), None);
/// ```
#[must_use]
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() || values.iter().any(|&value| value.is_nan() || value <= 0.0) {
        return None;
    }
    let logarithms: f64 = values.iter().map(|value| value.ln()).sum();
    Some((logarithms / values.len() as f64).exp())
}

/// The probability that Student's t with `freedom` degrees of freedom is farther from 0 than `t`,
/// in either direction (Abramowitz and Stegun, 26.7.1 and 26.5.8).
///
/// ```
/// use haul_model::statistics::student_tails;
/// assert!((student_tails(2.228, 10.0) - 0.05).abs() < 1e-4);
/// assert!((student_tails(-12.706, 1.0) - 0.05).abs() < 1e-4);
/// ```
#[must_use]
pub fn student_tails(t: f64, freedom: f64) -> f64 {
    incomplete_beta(freedom / 2.0, 0.5, freedom / (freedom + t * t))
}

/// The distance from 0 that Student's t exceeds with the probability `tails`, in both directions
/// together: the inverse of [`student_tails`].
///
/// ```
/// use haul_model::statistics::student_quantile;
/// assert!((student_quantile(0.05, 4.0) - 2.776).abs() < 1e-3);
/// ```
#[must_use]
pub fn student_quantile(tails: f64, freedom: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while student_tails(high, freedom) > tails && high < 1e12 {
        high *= 2.0;
    }
    // 60 halvings of a range of at most 2^40 reach the precision of a double.
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if student_tails(middle, freedom) > tails { low = middle } else { high = middle }
    }
    high
}

/// The regularized incomplete beta function, by its continued fraction (Press and others,
/// "Numerical recipes", section 6.4).
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    let logarithm = log_gamma(a + b) - log_gamma(a) - log_gamma(b) + a * x.ln() + b * (-x).ln_1p();
    let front = logarithm.exp();
    if x < (a + 1.0) / (a + b + 2.0) {
        front * beta_fraction(a, b, x) / a
    } else {
        1.0 - front * beta_fraction(b, a, 1.0 - x) / b
    }
}

fn beta_fraction(a: f64, b: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let kept = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / kept(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    for step in 1..300 {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        for term in [even, odd] {
            d = 1.0 / kept(1.0 + term * d);
            c = kept(1.0 + term / c);
            fraction *= c * d;
        }
        if (c * d - 1.0).abs() < 1e-14 {
            break;
        }
    }
    fraction
}

/// The logarithm of the gamma function for arguments above 0 (Lanczos' approximation, accurate to
/// 15 digits).
fn log_gamma(x: f64) -> f64 {
    const G: f64 = 7.0;
    const COEFFICIENTS: [f64; 8] = [
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    let x = x - 1.0;
    let series = COEFFICIENTS
        .iter()
        .zip(1..)
        .fold(0.999_999_999_999_809_9, |sum, (c, place)| sum + c / (x + f64::from(place)));
    let t = x + G + 0.5;
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x + 0.5) * t.ln() - t + series.ln()
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn statistics_match_closed_forms() {
        let values = [4.0, 1.0, 3.0, 2.0, 5.0];
        assert_eq!(median(&values), Some(3.0));
        assert_eq!(median(&values[..4]), Some(2.5));
        assert_eq!((quantile(&values, 0.25), quantile(&values, 2.0)), (Some(2.0), Some(5.0)));
        assert_eq!(quantile(&values, 0.1), Some(1.4));
        assert_eq!((quantile(&[], 0.5), quantile(&[3.0], 0.25)), (None, Some(3.0)));
        assert_eq!(geometric_mean(&[]), None);
        assert_eq!((robust_deviation(&values), robust_deviation(&[])), (Some(1.4826), None));
    }

    /// Tables of Student's t, two-sided: 5% and 0.1%.
    #[test]
    fn student_quantile_matches_published_tables() {
        for (freedom, five, tenth) in
            [(1.0, 12.706, 636.62), (3.0, 3.182, 12.924), (8.0, 2.306, 5.041), (30.0, 2.042, 3.646)]
        {
            assert!((student_quantile(0.05, freedom) - five).abs() < 1e-3, "{freedom}");
            assert!((student_quantile(0.001, freedom) / tenth - 1.0).abs() < 1e-3, "{freedom}");
            let tails = student_tails(student_quantile(0.01, freedom), freedom);
            assert!((tails - 0.01).abs() < 1e-9, "{tails}");
        }
        assert!((student_tails(0.0, 5.0) - 1.0).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn median_equals_middle_quantile(values in prop::collection::vec(-10f64..10.0, 0..80)) {
            prop_assert_eq!(median(&values), quantile(&values, 0.5));
        }
    }
}
