//! Strings at bad offsets between target and source.
//!
//! On some processors, `rep movsb` is many times slower at some offsets. Random addresses
//! sometimes have such an offset, but a program may use such an offset in every call. The known
//! bad offsets are: targets 1 to 63 bytes above the source within their pages (Zen 3 and 4: a
//! factor of 20; Zen 5 at 32 bytes: 1.8), these offsets plus a multiple of 4 GiB (Intel's fast
//! short strings), and targets at a distance of a little less or more than a page, where loads
//! wait for stores with the same low twelve bits.

use std::time::Duration;

use haul_copy::Policy;
use haul_measure::Level;
use haul_model::experiment::key;

use super::Tune;
use super::rounds::{Allotment, Item, compare};
use super::search::Method;
use crate::context::Context;
use crate::copy::workload::{Apart, Workload};
use crate::copy::{Function, Plain, ThenRead};
use crate::error::Error;

/// The largest size that is tried, in bytes. Above this size, both buffers exceed L2, and the
/// time of memory accesses hides the effect of the offsets.
pub(super) const SIZE_MAX_BYTES: usize = 2 << 20;

/// The longest time for the offsets of one size.
pub(super) const BUDGET: Duration = Duration::from_millis(400);

const PAGE: usize = 4 << 10;
const FAR: usize = 4 << 30;

/// Distances of the target above the source: a multiple of `multiple_of`, plus `and` bytes.
const BAD: [Apart; 8] = [
    Apart { multiple_of: PAGE, and: 1 },
    Apart { multiple_of: PAGE, and: 16 },
    Apart { multiple_of: PAGE, and: 32 },
    Apart { multiple_of: PAGE, and: 63 },
    Apart { multiple_of: PAGE, and: 128 },
    Apart { multiple_of: PAGE, and: PAGE - 32 },
    Apart { multiple_of: FAR, and: 1 },
    Apart { multiple_of: FAR, and: 33 },
];

/// The time of a string divided by the time of registers, at the worst of the offsets, for copies
/// of this size; `None` if the run was stopped. An offset without free address space on this
/// machine is skipped.
pub(super) fn worst(
    config: &Tune,
    size: usize,
    base: Policy,
    budget: Duration,
    context: &mut Context<'_>,
) -> Result<Option<f64>, Error> {
    let function = Function::Memcpy;
    let entrants = [Method::Registers, Method::String]
        .map(|method| (method.name(function), method.forced(base)));
    let mut clock = Allotment::new(budget, BAD.len());
    // If nothing can be mapped, the ratio is 1, as for registers, so that it does not favour
    // strings.
    let mut worst: f64 = 1.0;
    for apart in BAD {
        let Ok(mut workload) = Workload::apart(size, apart, config.seed) else { continue };
        let item = Item {
            phase: "offsets",
            what: (key::SIZE_BYTES, size.into()),
            level: Level::Nearest,
            function,
            then_read: ThenRead::Nothing,
            more: vec![(key::DISTANCE_BYTES, (apart.multiple_of + apart.and).into())],
            plain: Plain::C,
        };
        let found = compare(config, &item, &mut workload, &entrants, clock.next(), context)?;
        let Some(found) = found else { return Ok(None) };
        worst = found.iter().map(|comparison| comparison.ratio).fold(worst, f64::max);
    }
    Ok(Some(worst))
}
