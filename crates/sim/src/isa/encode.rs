//! A small assembler: for tests, for generated programs, and for trials of the copy engine
//! without a compiler. Registers are numbers from 0 to 31; immediates must fit their fields.

use super::Operation;
use Operation::*;

/// `op rd, rs1, rs2` for an operation on registers alone.
///
/// # Panics
/// If the operation is a load, a store or a branch, or has no such form.
pub fn register(operation: Operation, rd: u32, rs1: u32, rs2: u32) -> u32 {
    let (opcode, funct7, funct3) = match operation {
        Add => (0x33, 0, 0),
        Sub => (0x33, 0x20, 0),
        Sll => (0x33, 0, 1),
        Slt => (0x33, 0, 2),
        Sltu => (0x33, 0, 3),
        Xor => (0x33, 0, 4),
        Srl => (0x33, 0, 5),
        Sra => (0x33, 0x20, 5),
        Or => (0x33, 0, 6),
        And => (0x33, 0, 7),
        Addw => (0x3b, 0, 0),
        Subw => (0x3b, 0x20, 0),
        Sllw => (0x3b, 0, 1),
        Srlw => (0x3b, 0, 5),
        Sraw => (0x3b, 0x20, 5),
        Mul => (0x33, 1, 0),
        Mulh => (0x33, 1, 1),
        Mulhsu => (0x33, 1, 2),
        Mulhu => (0x33, 1, 3),
        Div => (0x33, 1, 4),
        Divu => (0x33, 1, 5),
        Rem => (0x33, 1, 6),
        Remu => (0x33, 1, 7),
        Mulw => (0x3b, 1, 0),
        Divw => (0x3b, 1, 4),
        Divuw => (0x3b, 1, 5),
        Remw => (0x3b, 1, 6),
        Remuw => (0x3b, 1, 7),
        _ => panic!("{operation:?} is not an operation on registers"),
    };
    funct7 << 25 | rs2 << 20 | rs1 << 15 | funct3 << 12 | rd << 7 | opcode
}

/// `opi rd, rs1, immediate`, a load `op rd, immediate(rs1)`, or `jalr rd, immediate(rs1)`.
///
/// # Panics
/// If the operation has no such form.
pub fn immediate(operation: Operation, rd: u32, rs1: u32, value: i32) -> u32 {
    let (opcode, funct3, high) = match operation {
        Add => (0x13, 0, 0),
        Slt => (0x13, 2, 0),
        Sltu => (0x13, 3, 0),
        Xor => (0x13, 4, 0),
        Or => (0x13, 6, 0),
        And => (0x13, 7, 0),
        Sll => (0x13, 1, 0),
        Srl => (0x13, 5, 0),
        Sra => (0x13, 5, 0x400),
        Addw => (0x1b, 0, 0),
        Sllw => (0x1b, 1, 0),
        Srlw => (0x1b, 5, 0),
        Sraw => (0x1b, 5, 0x400),
        Lb => (0x03, 0, 0),
        Lh => (0x03, 1, 0),
        Lw => (0x03, 2, 0),
        Ld => (0x03, 3, 0),
        Lbu => (0x03, 4, 0),
        Lhu => (0x03, 5, 0),
        Lwu => (0x03, 6, 0),
        Jalr => (0x67, 0, 0),
        _ => panic!("{operation:?} takes no immediate"),
    };
    ((value as u32 & 0xfff) | high) << 20 | rs1 << 15 | funct3 << 12 | rd << 7 | opcode
}

/// `op rs2, offset(rs1)` for a store.
///
/// # Panics
/// If the operation is not a store.
pub fn store(operation: Operation, rs2: u32, rs1: u32, offset: i32) -> u32 {
    let funct3 = match operation {
        Sb => 0,
        Sh => 1,
        Sw => 2,
        Sd => 3,
        _ => panic!("{operation:?} is not a store"),
    };
    let offset = offset as u32;
    (offset >> 5 & 0x7f) << 25 | rs2 << 20 | rs1 << 15 | funct3 << 12 | (offset & 0x1f) << 7 | 0x23
}

/// `op rs1, rs2, offset` for a branch; the offset is in bytes from the branch itself.
///
/// # Panics
/// If the operation is not a conditional branch.
pub fn branch(operation: Operation, rs1: u32, rs2: u32, offset: i32) -> u32 {
    let funct3 = match operation {
        Beq => 0,
        Bne => 1,
        Blt => 4,
        Bge => 5,
        Bltu => 6,
        Bgeu => 7,
        _ => panic!("{operation:?} is not a branch"),
    };
    let o = offset as u32;
    (o >> 12 & 1) << 31
        | (o >> 5 & 0x3f) << 25
        | rs2 << 20
        | rs1 << 15
        | funct3 << 12
        | (o >> 1 & 0xf) << 8
        | (o >> 11 & 1) << 7
        | 0x63
}

/// `jal rd, offset`; the offset is in bytes from the jump itself.
pub fn jump(rd: u32, offset: i32) -> u32 {
    let o = offset as u32;
    (o >> 20 & 1) << 31
        | (o >> 1 & 0x3ff) << 21
        | (o >> 11 & 1) << 20
        | (o >> 12 & 0xff) << 12
        | rd << 7
        | 0x6f
}

/// `lui rd, value`: the low 12 bits of `value` are zero.
pub fn load_upper(rd: u32, value: u32) -> u32 {
    (value & 0xffff_f000) | rd << 7 | 0x37
}

/// `auipc rd, value`: the low 12 bits of `value` are zero.
pub fn add_upper(rd: u32, value: u32) -> u32 {
    (value & 0xffff_f000) | rd << 7 | 0x17
}

/// The three moves and `ecpy` itself: copies `length` bytes from `source` to `target`. All three
/// parameters are registers.
pub fn copy(source: u32, target: u32, length: u32) -> [u32; 4] {
    let to = |funct3: u32, rs1: u32| rs1 << 15 | funct3 << 12 | 0x0b;
    [to(0, source), to(1, target), to(2, length), to(3, 0)]
}

/// `ecall`.
pub const ECALL: u32 = 0x73;
/// `ebreak`.
pub const EBREAK: u32 = 0x0010_0073;
/// `fence`.
pub const FENCE: u32 = 0x0ff0_000f;
