//! Checks that a move inside one buffer writes its target and nothing else.

use super::guarded::Guarded;
use super::oracle::{self, first_difference};
use super::subjects::Copier;

/// A buffer for moves, and its bytes before a move.
pub(crate) struct Room {
    pub(crate) buffer: Guarded,
    before: Vec<u8>,
}

impl Room {
    pub(crate) fn new(bytes: usize) -> Self {
        let mut buffer = Guarded::new(bytes);
        oracle::paint(buffer.as_mut_slice(), 2);
        let before = buffer.as_slice().to_vec();
        Self { buffer, before }
    }

    /// Moves `length` bytes by `distance`. The lower one of source and target starts at `low`.
    pub(crate) fn check(&mut self, copier: &Copier, length: usize, distance: isize, low: usize) {
        let source = low + usize::try_from(-distance).unwrap_or(0);
        let target = low + usize::try_from(distance).unwrap_or(0);
        let start = self.buffer.start();
        let to = start.wrapping_add(target);
        // SAFETY: both ranges lie inside the buffer: the slices below would panic otherwise, and
        // the guard page behind it would be hit.
        let returned = unsafe { (copier.call)(to, start.wrapping_add(source), length) };
        let description =
            || format!("{} of {length} bytes by {distance}, low end at {low}", copier.name);
        assert_eq!(returned, to, "{}: the returned pointer", description());
        let after = self.buffer.as_slice();
        let moved = &after[target..target + length];
        let wrong = first_difference(moved, &self.before[source..source + length]);
        assert_eq!(wrong, None, "{}: a byte of the target is wrong", description());
        let (clean_from, clean_to) =
            (low.saturating_sub(512), (target + length + 512).min(after.len()));
        let wrong = first_difference(&after[clean_from..target], &self.before[clean_from..target]);
        assert_eq!(wrong, None, "{}: wrote before the target", description());
        let past = target + length..clean_to;
        let wrong = first_difference(&after[past.clone()], &self.before[past]);
        assert_eq!(wrong, None, "{}: wrote past the target's end", description());
        self.buffer.as_mut_slice()[target..target + length]
            .copy_from_slice(&self.before[target..target + length]);
    }

    pub(crate) fn check_untouched(&self, copier: &Copier) {
        let changed = first_difference(self.buffer.as_slice(), &self.before);
        assert_eq!(changed, None, "{} wrote far outside its target", copier.name);
    }
}
