//! Miss-status holding registers: the lines under way from memory, and the accesses that wait for
//! each.

use super::port::{Kind, Tag};
use crate::configuration::Cycle;

/// A line under way.
#[derive(Clone, Debug, Default)]
pub struct Register {
    /// The line's number; `None` if the register is free.
    pub line: Option<u64>,
    /// The waiting accesses, oldest first.
    pub waiting: Vec<(Tag, Kind)>,
    /// The cycle in which the response phase of the line's bus transaction ends.
    pub responded: Cycle,
    /// Whether the line was overwritten in memory while under way. The waiting accesses get the
    /// line, but no cache keeps it.
    pub overtaken: bool,
    /// The transaction, for the trace.
    pub transaction: u32,
}

/// All registers of a memory system.
pub struct Registers {
    registers: Vec<Register>,
    taken: usize,
}

impl Registers {
    /// `count` free registers.
    #[must_use]
    pub fn new(count: u32) -> Self {
        Self { registers: vec![Register::default(); count as usize], taken: 0 }
    }

    /// The register that holds a line.
    pub fn find(&mut self, line: u64) -> Option<&mut Register> {
        if self.taken == 0 {
            return None;
        }
        self.registers.iter_mut().find(|register| register.line == Some(line))
    }

    /// Whether a store waits for one of these lines.
    #[must_use]
    pub fn has_store(&self, lines: std::ops::Range<u64>) -> bool {
        self.registers.iter().any(|register| {
            register.line.is_some_and(|line| lines.contains(&line))
                && register.waiting.iter().any(|(_, kind)| *kind == Kind::Store)
        })
    }

    /// Takes a free register for a line. Returns its number and the register, or `None` if none is
    /// free.
    pub fn take(&mut self, line: u64) -> Option<(u8, &mut Register)> {
        let number = self.registers.iter().position(|register| register.line.is_none())?;
        let register = &mut self.registers[number];
        register.line = Some(line);
        register.overtaken = false;
        self.taken += 1;
        Some((u8::try_from(number).expect("at most 256 registers"), register))
    }

    /// The register of this number.
    #[must_use]
    pub fn get(&self, number: u8) -> &Register {
        &self.registers[usize::from(number)]
    }

    /// Frees a register and moves its waiting accesses to `waited`.
    pub fn free(&mut self, number: u8, waited: &mut Vec<(Tag, Kind)>) {
        let register = &mut self.registers[usize::from(number)];
        register.line = None;
        waited.clear();
        waited.append(&mut register.waiting);
        self.taken -= 1;
    }

    /// Whether no line is under way.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.taken == 0
    }
}
