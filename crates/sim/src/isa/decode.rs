//! Decodes a word to an [`Instruction`]. Field and opcode numbers are those of the RISC-V
//! unprivileged manual, chapter "RV32/64G instruction set listings".

use super::{COPY_LENGTH, COPY_SOURCE, COPY_TARGET, Instruction, Operation, SINK, WORD};
use Operation::*;

/// Decodes the `word` at `address` of a program whose first instruction is at `start`.
///
/// Never fails: a word that is not an instruction becomes [`Operation::Illegal`], and a jump out of
/// the program gets an index beyond any program, so that it faults only if it is executed.
pub fn decode(word: u32, address: u64, start: u64) -> Instruction {
    let fields = Fields { word, address, start };
    fields.decode().unwrap_or(Instruction {
        operation: Illegal,
        rd: SINK,
        rs1: 0,
        rs2: 0,
        target: 0,
        immediate: word.into(),
    })
}

/// A word and its location.
struct Fields {
    word: u32,
    address: u64,
    start: u64,
}

impl Fields {
    fn decode(&self) -> Option<Instruction> {
        match self.word & 0x7f {
            0x37 => Some(self.constant(i64::from(self.upper()))),
            0x17 => Some(
                self.constant(self.address.wrapping_add_signed(i64::from(self.upper())) as i64),
            ),
            0x6f => Some(self.jump_and_link()),
            0x67 if self.funct3() == 0 => Some(self.with_immediate(Jalr)),
            0x63 => self.branch(),
            0x03 => self.load(),
            0x23 => self.store(),
            0x13 => self.immediate_operation(),
            0x1b => self.immediate_word_operation(),
            0x33 => self.operation(),
            0x3b => self.word_operation(),
            0x0f if self.funct3() <= 1 => Some(self.plain(Fence)),
            0x73 if self.word == 0x73 => Some(self.plain(Ecall)),
            0x73 if self.word == 0x0010_0073 => Some(self.plain(Ebreak)),
            0x0b => self.copy(),
            _ => None,
        }
    }

    fn branch(&self) -> Option<Instruction> {
        let operation = match self.funct3() {
            0 => Beq,
            1 => Bne,
            4 => Blt,
            5 => Bge,
            6 => Bltu,
            7 => Bgeu,
            _ => return None,
        };
        let w = self.word;
        let offset = (((w as i32) >> 31) << 12)
            | (((w >> 7) & 1) << 11) as i32
            | (((w >> 25) & 0x3f) << 5) as i32
            | (((w >> 8) & 0xf) << 1) as i32;
        let target = self.index(offset);
        Some(Instruction { target, rd: SINK, immediate: 0, ..self.two_sources(operation) })
    }

    fn jump_and_link(&self) -> Instruction {
        let w = self.word;
        let offset = (((w as i32) >> 31) << 20)
            | (w & 0x000f_f000) as i32
            | (((w >> 20) & 1) << 11) as i32
            | (((w >> 21) & 0x3ff) << 1) as i32;
        let target = self.index(offset);
        let link = self.address.wrapping_add(WORD) as i64;
        Instruction { operation: Jal, target, ..self.constant(link) }
    }

    fn load(&self) -> Option<Instruction> {
        let operations = [Lb, Lh, Lw, Ld, Lbu, Lhu, Lwu];
        operations.get(self.funct3() as usize).map(|operation| self.with_immediate(*operation))
    }

    fn store(&self) -> Option<Instruction> {
        let operation = *[Sb, Sh, Sw, Sd].get(self.funct3() as usize)?;
        let offset = (((self.word as i32) >> 25) << 5) | ((self.word >> 7) & 0x1f) as i32;
        let immediate = i64::from(offset);
        Some(Instruction { rd: SINK, immediate, ..self.two_sources(operation) })
    }

    fn immediate_operation(&self) -> Option<Instruction> {
        let shift = self.word >> 26;
        let operation = match self.funct3() {
            0 => Add,
            2 => Slt,
            3 => Sltu,
            4 => Xor,
            6 => Or,
            7 => And,
            1 if shift == 0 => return Some(self.shift(Sll, 63)),
            5 if shift == 0 => return Some(self.shift(Srl, 63)),
            5 if shift == 0x10 => return Some(self.shift(Sra, 63)),
            _ => return None,
        };
        Some(self.with_immediate(operation))
    }

    fn immediate_word_operation(&self) -> Option<Instruction> {
        match (self.funct3(), self.funct7()) {
            (0, _) => Some(self.with_immediate(Addw)),
            (1, 0) => Some(self.shift(Sllw, 31)),
            (5, 0) => Some(self.shift(Srlw, 31)),
            (5, 0x20) => Some(self.shift(Sraw, 31)),
            _ => None,
        }
    }

    fn operation(&self) -> Option<Instruction> {
        let operations = match self.funct7() {
            0 => [Add, Sll, Slt, Sltu, Xor, Srl, Or, And],
            1 => [Mul, Mulh, Mulhsu, Mulhu, Div, Divu, Rem, Remu],
            0x20 => [Sub, Illegal, Illegal, Illegal, Illegal, Sra, Illegal, Illegal],
            _ => return None,
        };
        self.legal(operations[self.funct3() as usize])
    }

    fn word_operation(&self) -> Option<Instruction> {
        let operations = match self.funct7() {
            0 => [Addw, Sllw, Illegal, Illegal, Illegal, Srlw, Illegal, Illegal],
            1 => [Mulw, Illegal, Illegal, Illegal, Divw, Divuw, Remw, Remuw],
            0x20 => [Subw, Illegal, Illegal, Illegal, Illegal, Sraw, Illegal, Illegal],
            _ => return None,
        };
        self.legal(operations[self.funct3() as usize])
    }

    fn copy(&self) -> Option<Instruction> {
        if self.word & 0xfff0_0f80 != 0 {
            return None;
        }
        let rd = match self.funct3() {
            0 => COPY_SOURCE,
            1 => COPY_TARGET,
            2 => COPY_LENGTH,
            3 if self.rs1() == 0 => return Some(self.plain(Ecpy)),
            _ => return None,
        };
        Some(Instruction { rd, rs2: 0, ..self.two_sources(Add) })
    }

    fn legal(&self, operation: Operation) -> Option<Instruction> {
        (operation != Illegal).then(|| self.two_sources(operation))
    }

    fn two_sources(&self, operation: Operation) -> Instruction {
        let (rs1, rs2) = (self.rs1(), ((self.word >> 20) & 31) as u8);
        Instruction { operation, rd: self.rd(), rs1, rs2, target: 0, immediate: 0 }
    }

    fn with_immediate(&self, operation: Operation) -> Instruction {
        let immediate = i64::from((self.word as i32) >> 20);
        Instruction { rs2: 0, immediate, ..self.two_sources(operation) }
    }

    fn shift(&self, operation: Operation, mask: u32) -> Instruction {
        let immediate = i64::from((self.word >> 20) & mask);
        Instruction { rs2: 0, immediate, ..self.two_sources(operation) }
    }

    fn constant(&self, immediate: i64) -> Instruction {
        Instruction { rs1: 0, rs2: 0, immediate, ..self.two_sources(Add) }
    }

    fn plain(&self, operation: Operation) -> Instruction {
        Instruction { operation, rd: SINK, rs1: 0, rs2: 0, target: 0, immediate: 0 }
    }

    /// The index of `address + offset` in the program. An address before the program, or between
    /// two instructions, gets an index beyond it from [`super::astray`].
    fn index(&self, offset: i32) -> u32 {
        let distance = self.address.wrapping_add_signed(i64::from(offset)).wrapping_sub(self.start);
        match u32::try_from(distance / WORD) {
            Ok(index) if distance.is_multiple_of(WORD) => index,
            _ => super::astray(distance),
        }
    }

    fn upper(&self) -> i32 {
        (self.word & 0xffff_f000) as i32
    }

    fn rd(&self) -> u8 {
        match ((self.word >> 7) & 31) as u8 {
            0 => SINK,
            register => register,
        }
    }

    fn rs1(&self) -> u8 {
        ((self.word >> 15) & 31) as u8
    }

    fn funct3(&self) -> u32 {
        (self.word >> 12) & 7
    }

    fn funct7(&self) -> u32 {
        self.word >> 25
    }
}
