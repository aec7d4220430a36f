//! How much memory circulates between the two ends: all of the ring, or a small part of it.
//!
//! A line that the other core has just read, or will read at once, is in that core's caches or in
//! this core's caches. On Intel, transfers between these caches are fast, so less circulating
//! memory is better while neither end sleeps. On Zen 4, transfers from the other core's caches
//! are slow. Transfers from the last cache are fast, and a line gets there when new lines evict
//! it. So on Zen 4 all of the ring is used, and messages of more than 4 KiB go through it too,
//! because their slots would all stay in the cores' caches. Interleaved measurements within one
//! core complex of Zen 4, messages one after the other, in GB/s:
//!
//! | message | slots | ring of 128 KiB | ring of 1 MiB |
//! |---|---|---|---|
//! | 4 KiB | 9.4 | 6.4 | 8.5 |
//! | 8 KiB | 6.9 | 6.7 | 15.1 |
//! | 16 KiB | | 6.9 | 17.7 |
//! | 64 KiB | | 8.5 | 16.9 |
//! | 256 KiB | | 7.2 | 14.2 |
//!
//! For Intel's figures see `ring`, `pace` and `layout`. The processor's vendor decides, because
//! the measured `distance` does not distinguish Intel from Zen 4. An unknown vendor counts as
//! AMD, because that assumption loses less if it is wrong.

use std::sync::OnceLock;

use haul_copy::cpu::{self, Vendor};

use crate::shared::layout::INLINE_BYTES_MAX;

/// The longest inline message on a processor on which more circulating memory is better.
const INLINE_BYTES_MAX_FAR: usize = 4 << 10;

/// Whether less circulating memory is better.
pub(crate) fn is_small_better() -> bool {
    static IS_BETTER: OnceLock<bool> = OnceLock::new();
    *IS_BETTER.get_or_init(|| cpu::facts().vendor == Vendor::Intel)
}

/// The longest message for which `inline` is the fastest mechanism. If the sender sleeps now and
/// then, the two ends alternate on one processor, and the transfer between caches does not
/// matter: with one of two processors of Zen 4 busy, messages of 8 KiB move 1.17 times as fast
/// through slots as through the ring.
pub(crate) fn inline_bytes_max(is_awake: bool) -> usize {
    if is_small_better() || !is_awake { INLINE_BYTES_MAX } else { INLINE_BYTES_MAX_FAR }
}
