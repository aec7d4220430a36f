//! The memory that an instruction reads or writes, derived from the registers before it executes.

use crate::isa::{COPY_LENGTH, COPY_SOURCE, COPY_TARGET, Class, Instruction, REGISTERS};

/// The bytes that a load, a store or a copy touches; a copy's address is its target.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Touched {
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) source: u64,
}

/// A copy in the window.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitingCopy {
    pub(super) sequence: u64,
    pub(super) touched: Touched,
}

/// The bytes that an instruction touches, from the registers before it executes.
#[inline(always)]
pub(super) fn touched(
    class: Class,
    instruction: &Instruction,
    registers: &[u64; REGISTERS],
) -> Touched {
    let register = |number: u8| registers[usize::from(number)];
    match class {
        Class::Load | Class::Store => Touched {
            address: register(instruction.rs1).wrapping_add_signed(instruction.immediate),
            bytes: instruction.operation.bytes(),
            source: 0,
        },
        Class::Copy => Touched {
            address: register(COPY_TARGET),
            bytes: register(COPY_LENGTH),
            source: register(COPY_SOURCE),
        },
        _ => Touched::default(),
    }
}
