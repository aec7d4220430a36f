//! `inline`: the bytes of a small message stand in its slot, behind the header.

use haul_copy::Hint;

use super::checksum::Sum;
use super::layout::HEADER_BYTES;
use super::link::Lane;
use super::source::Source;

/// Copies the message into its slot.
pub(super) fn put(lane: &Lane, message: u64, source: &mut Source<'_>, length: usize) {
    let at = lane.slot(message) + HEADER_BYTES;
    source.write_to(&lane.link.region, at, length, Hint::Unknown);
}

/// Copies the message out of its slot, and adds it to the checksum.
pub(super) fn take(lane: &Lane, message: u64, target: &mut [u8], sum: Option<&mut Sum>) {
    let at = lane.slot(message) + HEADER_BYTES;
    match sum {
        Some(sum) => lane.link.region.read_summed(at, target, false, (sum, 0)),
        None => lane.link.region.read(at, target, Hint::Unknown),
    }
}
