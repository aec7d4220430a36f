//! The numbers of operations.

/// The number of an entry of the table.
pub(super) type Id = u32;

/// The number of an operation. A number is not used again before 4,294,967,295 later operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    pub(super) id: Id,
    pub(super) generation: u32,
}

impl Ticket {
    /// The ticket as a number, which is not 0.
    ///
    /// ```
    /// assert_eq!(haul_engine::Ticket::of(5).number(), 5);
    /// ```
    #[must_use]
    pub fn number(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.id)
    }

    /// The ticket of this number. Any number is allowed: one that was not given out is refused when
    /// it is used.
    #[must_use]
    pub fn of(number: u64) -> Self {
        Self { id: number as u32, generation: (number >> 32) as u32 }
    }
}
