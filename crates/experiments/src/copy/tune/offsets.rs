//! Strings where target and source lie badly to each other.
//!
//! `rep movsb` has offsets at which it is many times slower than elsewhere, on some processors:
//! drawn addresses come upon them now and then, and a program may have them always. Known are
//! targets 1 to 63 bytes above the source in their pages (Zen 3 and 4: a factor of 20; Zen 5 at 32
//! bytes: 1.8), the same beyond a multiple of 4 GiB (Intel's fast short strings), and targets a
//! little below or above a page's distance, where loads wait for stores of the same low twelve
//! bits.

use std::time::Duration;

use haul_copy::Policy;
use haul_measure::Level;
use haul_model::experiment::key;

use super::Tune;
use super::rounds::{Allotment, Item, compare};
use super::search::Way;
use crate::context::Context;
use crate::copy::workload::{Apart, Workload};
use crate::copy::{Function, Plain, ThenRead};
use crate::error::Error;

/// The largest size that is tried, in bytes: beyond it both buffers leave L2, and memory's time
/// hides offsets.
pub(super) const SIZE_MAX_BYTES: usize = 2 << 20;

/// The most time that the offsets of one size get.
pub(super) const BUDGET: Duration = Duration::from_millis(400);

const PAGE: usize = 4 << 10;
const FAR: usize = 4 << 30;

/// How far the target lies above the source: so many bytes beyond a multiple of the first.
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

/// The time of a string over that of registers at the worst of the offsets, for copies of this
/// size; `None` when stopped. An offset for which the machine has no address space left is passed
/// over.
pub(super) fn worst(
    config: &Tune,
    size: usize,
    base: Policy,
    budget: Duration,
    context: &mut Context<'_>,
) -> Result<Option<f64>, Error> {
    let function = Function::Memcpy;
    let entrants = [Way::Registers, Way::String].map(|way| (way.name(function), way.forced(base)));
    let mut clock = Allotment::new(budget, BAD.len());
    // As registers, where nothing could be mapped: no reason for strings.
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
