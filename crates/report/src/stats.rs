//! The few statistics that a page needs.

pub(crate) use haul_model::statistics::{quantile, quantile_of_sorted};

/// The largest of some numbers; `None` if there are none.
pub(crate) fn largest(numbers: impl IntoIterator<Item = f64>) -> Option<f64> {
    numbers.into_iter().max_by(f64::total_cmp)
}

/// The smallest of some numbers; `None` if there are none.
pub(crate) fn smallest(numbers: impl IntoIterator<Item = f64>) -> Option<f64> {
    numbers.into_iter().min_by(f64::total_cmp)
}
