//! The values of instructions after a mispredicted branch. These instructions use a copy of the
//! registers and their own stores; both are dropped when the branch resolves.

use crate::image::{Image, Memory};
use crate::isa::{Class, Instruction, Operation, REGISTERS};

/// The state of the wrong path.
pub(super) struct Shadow {
    registers: [u64; REGISTERS],
    /// Stores in program order: address, value, bytes.
    stores: Vec<(u64, u64, u64)>,
}

impl Shadow {
    pub(super) fn new() -> Self {
        Self { registers: [0; REGISTERS], stores: Vec::new() }
    }

    /// Starts from the registers of the right path.
    pub(super) fn begin(&mut self, registers: &[u64; REGISTERS]) {
        self.registers = *registers;
        self.stores.clear();
    }

    pub(super) fn registers(&self) -> &[u64; REGISTERS] {
        &self.registers
    }

    /// Executes one instruction and returns the index of the next. It never faults: unmapped memory
    /// reads as zero, and copies and devices are not accessed.
    pub(super) fn execute(
        &mut self,
        image: &Image,
        memory: &Memory,
        index: u32,
        instruction: &Instruction,
    ) -> u32 {
        let a = self.registers[usize::from(instruction.rs1)];
        let b = self.registers[usize::from(instruction.rs2)];
        let address = a.wrapping_add_signed(instruction.immediate);
        let operation = instruction.operation;
        let after = index.wrapping_add(1);
        let rd = usize::from(instruction.rd);
        match operation.class() {
            Class::Store => {
                self.stores.push((address, b, operation.bytes()));
                after
            }
            Class::Load => {
                let bytes = self.load(memory, address, operation.bytes());
                self.registers[rd] = operation.extend(bytes);
                after
            }
            Class::Branch if operation == Operation::Jal => {
                self.registers[rd] = instruction.immediate as u64;
                instruction.target
            }
            Class::Branch if operation == Operation::Jalr => {
                self.registers[rd] = image.address_of(after);
                image.index_of(address & !1)
            }
            Class::Branch => {
                if operation.is_taken(a, b) {
                    instruction.target
                } else {
                    after
                }
            }
            Class::Integer | Class::Multiply | Class::Divide => {
                let b = b.wrapping_add_signed(instruction.immediate);
                self.registers[rd] = operation.compute(a, b);
                after
            }
            Class::Copy | Class::Serial => after,
        }
    }

    fn load(&self, memory: &Memory, address: u64, bytes: u64) -> u64 {
        let is_apart = |(store, _, length): &(u64, u64, u64)| {
            address.wrapping_sub(*store) >= *length && store.wrapping_sub(address) >= bytes
        };
        if self.stores.iter().all(is_apart)
            && let Some(value) = stored(memory, address, bytes)
        {
            return value;
        }
        self.load_bytewise(memory, address, bytes)
    }

    /// A load that overlaps a store of this path, or memory that is not mapped.
    #[cold]
    fn load_bytewise(&self, memory: &Memory, address: u64, bytes: u64) -> u64 {
        let mut word = [0; 8];
        let mut missing = (1u32 << bytes) - 1;
        // A load sees the youngest store to each byte.
        for (store, value, length) in self.stores.iter().rev() {
            for byte in 0..bytes {
                let offset = address.wrapping_add(byte).wrapping_sub(*store);
                if missing >> byte & 1 == 1 && offset < *length {
                    word[byte as usize] = value.to_le_bytes()[offset as usize];
                    missing &= !(1 << byte);
                }
            }
        }
        for byte in (0..bytes).filter(|byte| missing >> byte & 1 == 1) {
            let stored = memory.load::<1>(address.wrapping_add(byte));
            word[byte as usize] = stored.map_or(0, |[value]| value);
        }
        u64::from_le_bytes(word)
    }
}

/// The value in memory; `None` if one of its pages is not readable.
fn stored(memory: &Memory, address: u64, bytes: u64) -> Option<u64> {
    Some(match bytes {
        1 => u64::from(u8::from_le_bytes(memory.load(address)?)),
        2 => u64::from(u16::from_le_bytes(memory.load(address)?)),
        4 => u64::from(u32::from_le_bytes(memory.load(address)?)),
        _ => u64::from_le_bytes(memory.load(address)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::{decode, encode};

    #[test]
    fn wrong_path_stores_are_visible_to_wrong_path_only() {
        let image = Image::from_words(0x8000_0000, &[encode::FENCE], 4096).expect("sound");
        let memory = image.memory().clone();
        let mut registers = [0; REGISTERS];
        (registers[11], registers[12]) = (0x8000_1000, 0x1122_3344_5566_7788);
        let mut shadow = Shadow::new();
        shadow.begin(&registers);
        let run = |shadow: &mut Shadow, word| {
            let instruction = decode(word, 0x8000_0000, 0x8000_0000);
            shadow.execute(&image, &memory, 0, &instruction)
        };
        assert_eq!(run(&mut shadow, encode::store(Operation::Sd, 12, 11, 0)), 1);
        run(&mut shadow, encode::store(Operation::Sb, 0, 11, 1));
        run(&mut shadow, encode::immediate(Operation::Ld, 10, 11, 0));
        assert_eq!(shadow.registers()[10], 0x1122_3344_5566_0088);
        run(&mut shadow, encode::immediate(Operation::Lh, 10, 11, 7));
        assert_eq!(shadow.registers()[10], 0x11);
        assert_eq!(memory.load::<8>(0x8000_1000), Some([0; 8]));
        run(&mut shadow, encode::immediate(Operation::Ld, 10, 0, 0));
        assert_eq!(shadow.registers()[10], 0, "memory that is not mapped");
        assert_eq!(run(&mut shadow, encode::branch(Operation::Beq, 0, 0, 12)), 3);
        assert_eq!(run(&mut shadow, encode::branch(Operation::Bne, 0, 0, 12)), 1);
    }
}
