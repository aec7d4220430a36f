//! A switch's own statistics of its port to the guest, compared with the packets that the guest has
//! counted.

use std::time::{Duration, Instant};

use super::sides::Side;

/// The longest time until the statistics are equal to the guest's counts: twice the time after
/// which Open vSwitch updates them.
const TIMEOUT: Duration = Duration::from_secs(12);

/// The time between two comparisons. The counts of haul's guest are at most 20 ms old.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// By how many packets a switch's statistics differ from the guest's counts once no packets are
/// on their way; `None` if the switch has no such statistics. Both sides end their traffic.
///
/// # Errors
/// A side does not answer; the text names no side.
pub(super) fn miscounted(
    switch: &mut dyn Side,
    guest: &mut dyn Side,
    size_bytes: usize,
) -> Result<Option<u64>, String> {
    if switch.statistics()?.is_none() {
        return Ok(None);
    }
    guest.pause()?;
    switch.pause()?;
    let (started, mut before) = (Instant::now(), None);
    loop {
        let Some(own) = switch.statistics()? else { return Ok(None) };
        let counted = guest.count()?;
        let counts = [counted.rx_packets, counted.tx_packets];
        let difference = own.difference(counts, size_bytes as u64);
        // Equal twice without a packet in between: the next packet cannot hide a difference.
        let is_final = difference == 0 && before == Some((own, counts));
        if is_final || started.elapsed() > TIMEOUT {
            return Ok(Some(difference));
        }
        before = Some((own, counts));
        std::thread::sleep(POLL_INTERVAL);
    }
}
