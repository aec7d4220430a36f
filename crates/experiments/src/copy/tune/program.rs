//! The items of tuning for one program: the functions and sizes of its profile, by their share of
//! the time.
//!
//! The sizes of a class are assumed to be spread evenly around their mean. Sizes up to 1 MiB
//! together are one distribution, on which choices are made and checked. A class from which
//! thresholds may begin is trained at its mean, and a threshold lies at its smallest size.

use haul_copy::LOOKUP_MIN;
use haul_measure::Distribution;
use haul_measure::distribution::SIZE_MAX_BYTES;
use haul_model::profile::{Calls, CallsOfSize};

use crate::copy::Function;
use crate::error::Error;

/// The name of the program's sizes in records.
pub(super) const NAME: &str = "program";

/// The largest number of sizes that represent a class in the distribution.
const SIZES_OF_A_CLASS: u64 = 64;

/// A class is trained if its calls take at least this share of the function's estimated time.
const SHARE_MIN: f64 = 0.005;

/// A size that is trained.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trainee {
    /// Where a threshold for this size lies.
    pub(super) from: usize,
    /// The measured size.
    pub(super) size: usize,
    /// The weight of its ratios.
    pub(super) weight: f64,
}

/// The calls of a function.
fn of(calls: &Calls, function: Function) -> &[CallsOfSize] {
    match function {
        Function::Memcpy | Function::Memmove => &calls.copies,
        Function::Memset => &calls.fills,
    }
}

/// The function's share of the estimated time of all calls.
pub(super) fn share(calls: &Calls, function: Function) -> f64 {
    let time = |function| of(calls, function).iter().map(CallsOfSize::estimated_ns).sum::<f64>();
    let whole = time(Function::Memcpy) + time(Function::Memset);
    if whole > 0.0 { time(function) / whole } else { 0.0 }
}

/// The sizes up to 1 MiB; `None` if there are none.
pub(super) fn distribution(
    calls: &Calls,
    function: Function,
) -> Result<Option<Distribution>, Error> {
    let drawn = |one: &&CallsOfSize| one.range_bytes().1 <= SIZE_MAX_BYTES as u64;
    let all: Vec<&CallsOfSize> = of(calls, function).iter().filter(drawn).collect();
    let Some(largest) = all.iter().map(|one| one.range_bytes().1 as usize).max() else {
        return Ok(None);
    };
    let whole: f64 = all.iter().map(|one| one.calls).sum();
    let mut probabilities = vec![0.0; largest + 1];
    for one in all {
        let (first, last) = one.range_bytes();
        let step = ((last - first) / SIZES_OF_A_CLASS).max(1) as usize;
        let sizes = (first as usize..=last as usize).step_by(step);
        let each = one.calls / whole / sizes.clone().count() as f64;
        sizes.for_each(|size| probabilities[size] += each);
    }
    Ok(Some(Distribution::from_probabilities(NAME, &probabilities)?))
}

/// The classes from which thresholds may begin, up to a largest size. A class takes part with its
/// share of the time.
pub(super) fn trainees(calls: &Calls, function: Function, size_max_bytes: usize) -> Vec<Trainee> {
    let all = of(calls, function);
    let whole: f64 = all.iter().map(CallsOfSize::estimated_ns).sum();
    let matters = |one: &&CallsOfSize| {
        let is_long = one.first_bytes >= LOOKUP_MIN as u64;
        is_long && one.estimated_ns() >= SHARE_MIN * whole
    };
    let trainee = |one: &CallsOfSize| Trainee {
        from: one.first_bytes.min(size_max_bytes as u64) as usize,
        size: one.size_bytes.min(size_max_bytes as u64) as usize,
        weight: one.estimated_ns() / whole,
    };
    let mut trainees: Vec<Trainee> = all.iter().filter(matters).map(trainee).collect();
    trainees.dedup_by_key(|trainee| trainee.from);
    trainees
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(bits: u32, size_bytes: u64, calls: f64) -> CallsOfSize {
        let (first_bytes, last_bytes) = (1 << (bits - 1), (1 << bits) - 1);
        CallsOfSize { size_bytes, first_bytes, last_bytes, calls }
    }

    /// Mostly 100 B, some pages, and a few of 3 MiB.
    fn calls() -> Calls {
        let copies = vec![class(7, 100, 96.0), class(13, 4096, 4.0), class(22, 3 << 20, 0.01)];
        Calls { copies, fills: vec![class(7, 64, 1.0)] }
    }

    #[test]
    fn distribution_has_the_means_and_shares_of_the_classes() {
        let drawn = distribution(&calls(), Function::Memcpy).unwrap().unwrap();
        assert!((drawn.share_at_most(127) - 0.96).abs() < 1e-9);
        assert_eq!((drawn.size_max_bytes(), drawn.name()), (4096, NAME));
        assert!((drawn.mean_bytes() - (0.96 * 100.0 + 0.04 * 4096.0)).abs() < 1.0);
        let empty = Calls { copies: vec![], ..calls() };
        assert!(distribution(&empty, Function::Memcpy).unwrap().is_none());
    }

    #[test]
    fn classes_are_trained_at_their_mean_with_their_share_of_the_time() {
        let trainees = trainees(&calls(), Function::Memcpy, 1 << 20);
        let of = |it: &Trainee| (it.from, it.size);
        assert_eq!(trainees.iter().map(of).collect::<Vec<_>>(), [(4096, 4096), (1 << 20, 1 << 20)]);
        // 100 B take 9 ns, a page 209 ns and 3 MiB 157,290 ns.
        let (page, whole) = (4.0 * 208.8, 96.0 * 9.0 + 4.0 * 208.8 + 1572.9);
        assert!((trainees[0].weight - page / whole).abs() < 1e-3, "{trainees:?}");
        assert!(share(&calls(), Function::Memset) < 0.01);
        assert_eq!(share(&Calls::default(), Function::Memcpy), 0.0);
    }
}
