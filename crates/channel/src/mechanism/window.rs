//! How much memory goes round between the two ends: all of the ring, or a small part of it.
//!
//! A line that the other core has just read, or will read at once, is in that core's caches or in
//! this one's. On Intel it comes from there fast, so the less memory goes round the better, as long
//! as both keep going. On Zen 4 it comes fast from the last cache, where it gets as new lines
//! displace it, and slowly from the other core's: there all of the ring is used, and messages of
//! more than 4 KiB, whose slots would all stay in the cores' caches, go through it too. GB/s in
//! turns, one core complex of Zen 4, messages one after the other:
//!
//! | message | slots | ring of 128 KiB | ring of 1 MiB |
//! |---|---|---|---|
//! | 4 KiB | 9.4 | 6.4 | 8.5 |
//! | 8 KiB | 6.9 | 6.7 | 15.1 |
//! | 16 KiB | | 6.9 | 17.7 |
//! | 64 KiB | | 8.5 | 16.9 |
//! | 256 KiB | | 7.2 | 14.2 |
//!
//! For Intel's see `ring`, `pace` and `layout`. Whose processor it is decides, for the two are no
//! further apart in time (see `distance`); what is unknown counts as AMD's, which loses less where
//! it is wrong.

use std::sync::OnceLock;

use haul_copy::cpu::{self, Vendor};

use crate::shared::layout::INLINE_BYTES_MAX;

/// The longest message that goes inline where lines should not go round soon.
const INLINE_BYTES_MAX_FAR: usize = 4 << 10;

/// Whether little memory going round is better than much.
pub(crate) fn is_small_better() -> bool {
    static IS_BETTER: OnceLock<bool> = OnceLock::new();
    *IS_BETTER.get_or_init(|| cpu::facts().vendor == Vendor::Intel)
}

/// The longest message for which its slot is the best way. Where the sender is not awake, the two
/// ends take turns on a processor, and what is faster from cache to cache does not matter: with one
/// of two processors of Zen 4 busy 8 KiB move 1.17 times as much through slots as through the ring.
pub(crate) fn inline_bytes_max(is_awake: bool) -> usize {
    if is_small_better() || !is_awake { INLINE_BYTES_MAX } else { INLINE_BYTES_MAX_FAR }
}
