//! The free descriptors, or ids, of a ring.

/// Free numbers of a ring, first in, first out. If the device keeps the order, every round of the
/// ring then uses the same numbers.
#[derive(Debug)]
pub(super) struct Free {
    numbers: Box<[u16]>,
    start: usize,
    count: usize,
}

impl Free {
    /// All numbers of a ring of this size, a power of two.
    pub(super) fn new(size: u16) -> Self {
        debug_assert!(size.is_power_of_two());
        Self { numbers: (0..size).collect(), start: 0, count: usize::from(size) }
    }

    /// Restores the initial state.
    pub(super) fn reset(&mut self) {
        *self = Self::new(self.numbers.len() as u16);
    }

    #[inline]
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Takes a number. At least one must be free.
    #[inline]
    pub(super) fn take(&mut self) -> u16 {
        debug_assert!(self.count > 0);
        let number = self.numbers[self.start];
        self.start = (self.start + 1) & (self.numbers.len() - 1);
        self.count -= 1;
        number
    }

    /// Returns a number that was taken.
    #[inline]
    pub(super) fn put(&mut self, number: u16) {
        debug_assert!(self.count < self.numbers.len());
        let end = (self.start + self.count) & (self.numbers.len() - 1);
        self.numbers[end] = number;
        self.count += 1;
    }
}
