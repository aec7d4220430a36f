//! One size after the other: the time of each, and the loop over them.

use std::time::Duration;

use haul_model::Bytes;

use crate::context::Context;
use crate::error::Error;

/// The time of a size's rounds, unless a user sets another one.
const ROUNDS: Duration = Duration::from_millis(500);

/// The time of the rounds of all sizes, unless a user sets another one.
pub(super) fn budget(sizes_bytes: &[usize]) -> Duration {
    ROUNDS * count(sizes_bytes)
}

/// The share of one size in the budget of all.
pub(super) fn share(budget: Duration, sizes_bytes: &[usize]) -> Duration {
    budget / count(sizes_bytes)
}

/// The sizes, for a user: `2 KiB 4 KiB`.
pub(super) fn named(sizes_bytes: &[usize]) -> String {
    let named = sizes_bytes.iter().map(|&size| Bytes(size as u64).to_string());
    named.collect::<Vec<_>>().join(" ")
}

/// The largest size; 0 if there is none.
pub(super) fn largest(sizes_bytes: &[usize]) -> usize {
    sizes_bytes.iter().copied().max().unwrap_or(0)
}

/// Measures each size, until a signal arrives.
///
/// # Errors
/// The error of the first size that failed.
pub(super) fn measure(
    sizes_bytes: &[usize],
    context: &mut Context<'_>,
    mut measure: impl FnMut(usize, &mut Context<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    for &size in sizes_bytes {
        if context.is_stopped() {
            break;
        }
        measure(size, context)?;
    }
    Ok(())
}

/// The number of sizes, at least 1.
fn count(sizes_bytes: &[usize]) -> u32 {
    u32::try_from(sizes_bytes.len()).unwrap_or(u32::MAX).max(1)
}
