//! Checks that a fill writes its target and nothing else.

use super::guarded::Guarded;
use super::oracle::{UNTOUCHED, first_other, first_touched};
use super::subjects::Filler;

/// The bytes on either side of the target that are checked after each call. The rest of the
/// buffer is checked at the end.
const CHECKED: usize = 128;

/// Fills each of the ascending sizes with the next byte of `bytes`, `offset` bytes away from the
/// guard page before or after the buffer, and checks the result.
pub(crate) fn check(
    filler: &Filler,
    room: &mut Guarded,
    (at_end, offset): (bool, usize),
    sizes: &[usize],
    bytes: impl Iterator<Item = i32>,
) {
    let index = |length| if at_end { room.bytes() - offset - length } else { offset };
    for (&length, byte) in sizes.iter().zip(bytes) {
        let first = index(length);
        let target = room.start().wrapping_add(first);
        // SAFETY: the buffer holds `length` bytes there.
        let returned = unsafe { (filler.call)(target, byte, length) };
        let description = || {
            let side = if at_end { "before the end" } else { "after the start" };
            format!("{} of {length} bytes {offset} {side} with {byte:#x}", filler.name)
        };
        assert_eq!(returned, target, "{}: the returned pointer", description());
        let (before, rest) = room.as_slice().split_at(first);
        let (filled, after) = rest.split_at(length);
        assert_eq!(
            first_other(filled, byte as u8),
            None,
            "{}: a byte of the target is wrong",
            description()
        );
        let before = &before[first.saturating_sub(CHECKED)..];
        assert_eq!(first_touched(before), None, "{}: wrote before the target", description());
        let after = &after[..after.len().min(CHECKED)];
        assert_eq!(first_touched(after), None, "{}: wrote past the target's end", description());
    }
    let size_max = sizes.last().copied().unwrap_or(0);
    let first = index(size_max);
    room.as_mut_slice()[first..first + size_max].fill(UNTOUCHED);
    let touched = first_touched(room.as_slice());
    assert_eq!(touched, None, "{} wrote far outside its target", filler.name);
}

/// Bytes that differ from one call to the next and never are [`UNTOUCHED`]; C's memset takes an int
/// and uses its lowest eight bits.
pub(crate) fn changing_bytes() -> impl Iterator<Item = i32> {
    (0..).map(|turn: i32| {
        let byte = turn.wrapping_mul(89) % 255 + 1;
        if turn % 3 == 0 { byte | turn << 8 } else { byte }
    })
}
