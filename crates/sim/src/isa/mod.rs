//! RV64IM and the copy instructions, decoded before the program runs.
//!
//! The decoded form is made for execution, not for disassembly: `rd = op(rs1, rs2 + immediate)`.
//! An instruction with an immediate has x0 as its second source; an instruction without an
//! immediate has 0 there. A result that is never read goes to [`SINK`]. `lui`, `auipc` and the
//! link of a jump are additions of a constant. Branch targets are indices into the decoded
//! program.
//!
//! The copy instructions use the opcode custom-0, which the RISC-V manual reserves for extensions.
//! funct3 0, 1 and 2 move rs1 into the copy registers Cs (source), Cd (target) and Cl (length in
//! bytes); funct3 3 is `ecpy`, which copies. All other fields are zero.
//!
//! From the bottom up:
//!
//! - `decode`: decodes a word to an [`Instruction`];
//! - `encode`: a small assembler.

pub mod encode;

mod decode;

pub use decode::decode;

/// x0 to x31, then [`SINK`], then the copy registers. There are as many as a byte can number, so
/// that an index needs no bounds check.
pub const REGISTERS: usize = 256;
/// Indices from here on are outside of every program: the targets of direct jumps that lead before
/// the program or between two of its instructions.
const ASTRAY: u32 = 1 << 31;

/// Encodes a distance in bytes from the program's beginning as an index beyond any program. A
/// direct jump reaches a megabyte at most, so that its distance in half words fits into 31 bits
/// with its sign.
fn astray(distance: u64) -> u32 {
    ASTRAY | (distance / 2) as u32
}

/// Bytes from a program's first instruction to the instruction at an index, or to the encoded
/// target of a jump out of the program.
#[must_use]
pub fn distance_of(place: u32) -> u64 {
    if place < ASTRAY {
        return u64::from(place) * WORD;
    }
    // The sign is the bit below the [`ASTRAY`] bit.
    (i64::from((place << 1) as i32 >> 1) * 2) as u64
}

/// The target register of an instruction whose target is x0.
pub const SINK: u8 = 32;
/// Cs, the copy's source.
pub const COPY_SOURCE: u8 = 33;
/// Cd, the copy's target.
pub const COPY_TARGET: u8 = 34;
/// Cl, the copy's length.
pub const COPY_LENGTH: u8 = 35;
/// The size of an instruction in bytes.
pub const WORD: u64 = 4;

/// The operation of an instruction; names are the RISC-V manual's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Operation {
    Add,
    Sub,
    Slt,
    Sltu,
    And,
    Or,
    Xor,
    Sll,
    Srl,
    Sra,
    Addw,
    Subw,
    Sllw,
    Srlw,
    Sraw,
    Mul,
    Mulh,
    Mulhsu,
    Mulhu,
    Mulw,
    Div,
    Divu,
    Rem,
    Remu,
    Divw,
    Divuw,
    Remw,
    Remuw,
    Lb,
    Lh,
    Lw,
    Ld,
    Lbu,
    Lhu,
    Lwu,
    Sb,
    Sh,
    Sw,
    Sd,
    Beq,
    Bne,
    Blt,
    Bge,
    Bltu,
    Bgeu,
    Jal,
    Jalr,
    /// `ecpy`: copies Cl bytes from Cs to Cd.
    Ecpy,
    /// Orders memory; a single core sees its own accesses in order anyway.
    Fence,
    Ecall,
    Ebreak,
    /// An illegal instruction; the immediate is the word.
    Illegal,
    /// An address without an executable page.
    Unmapped,
}

/// The part of the processor that an instruction needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// An integer unit.
    Integer,
    /// A multiply unit, pipelined.
    Multiply,
    /// A multiply unit, busy until the division is done.
    Divide,
    /// A memory port, for a read.
    Load,
    /// A memory port, for a write.
    Store,
    /// An integer unit. The instruction may redirect fetch.
    Branch,
    /// The copy control unit.
    Copy,
    /// An empty window: environment calls and faults.
    Serial,
}

/// One decoded instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// The operation.
    pub operation: Operation,
    /// The register that the instruction writes; [`SINK`] for none.
    pub rd: u8,
    /// The first source register; 0 for none.
    pub rs1: u8,
    /// The second source register; 0 for none.
    pub rs2: u8,
    /// The target of a branch or jump, as an index into the decoded program.
    pub target: u32,
    /// A summand of the second source; an offset from the first for loads, stores and `jalr`.
    pub immediate: i64,
}

/// The class of each operation. It is a table because the timing core reads it for every
/// instruction, and the host would mispredict a branch on a program's mix of operations about half
/// of the time.
const CLASSES: [Class; Operation::Unmapped as usize + 1] = {
    use Operation::*;
    let others: [(&[Operation], Class); 7] = [
        (&[Mul, Mulh, Mulhsu, Mulhu, Mulw], Class::Multiply),
        (&[Div, Divu, Rem, Remu, Divw, Divuw, Remw, Remuw], Class::Divide),
        (&[Lb, Lh, Lw, Ld, Lbu, Lhu, Lwu], Class::Load),
        (&[Sb, Sh, Sw, Sd], Class::Store),
        (&[Beq, Bne, Blt, Bge, Bltu, Bgeu, Jal, Jalr], Class::Branch),
        (&[Ecpy], Class::Copy),
        (&[Ecall, Ebreak, Illegal, Unmapped], Class::Serial),
    ];
    let mut classes = [Class::Integer; Unmapped as usize + 1];
    let mut of = 0;
    while of < others.len() {
        let mut each = 0;
        while each < others[of].0.len() {
            classes[others[of].0[each] as usize] = others[of].1;
            each += 1;
        }
        of += 1;
    }
    classes
};

impl Operation {
    /// The part of the processor that the operation needs.
    #[inline(always)]
    pub fn class(self) -> Class {
        CLASSES[self as usize]
    }

    /// Bytes that a load or store moves; 0 for other operations.
    pub fn bytes(self) -> u64 {
        use Operation::*;
        match self {
            Lb | Lbu | Sb => 1,
            Lh | Lhu | Sh => 2,
            Lw | Lwu | Sw => 4,
            Ld | Sd => 8,
            _ => 0,
        }
    }

    /// The result of an operation on registers alone; 0 for other operations.
    #[inline(always)]
    pub fn compute(self, a: u64, b: u64) -> u64 {
        use Operation::*;
        let word = |value: i32| value as i64 as u64;
        let shift = b & 63;
        match self {
            Add => a.wrapping_add(b),
            Sub => a.wrapping_sub(b),
            Slt => u64::from((a as i64) < b as i64),
            Sltu => u64::from(a < b),
            And => a & b,
            Or => a | b,
            Xor => a ^ b,
            Sll => a << shift,
            Srl => a >> shift,
            Sra => ((a as i64) >> shift) as u64,
            Addw => word((a as i32).wrapping_add(b as i32)),
            Subw => word((a as i32).wrapping_sub(b as i32)),
            Sllw => word((a as i32) << (b & 31)),
            Srlw => word(((a as u32) >> (b & 31)) as i32),
            Sraw => word((a as i32) >> (b & 31)),
            Mul => a.wrapping_mul(b),
            Mulh => ((i128::from(a as i64) * i128::from(b as i64)) >> 64) as u64,
            Mulhsu => ((i128::from(a as i64) * i128::from(b)) >> 64) as u64,
            Mulhu => ((u128::from(a) * u128::from(b)) >> 64) as u64,
            Mulw => word((a as i32).wrapping_mul(b as i32)),
            // The manual's section on division: a division by zero has the quotient all ones and
            // the dividend as its remainder; the only overflow has the dividend as its quotient
            // and the remainder 0. Neither traps.
            Div if b == 0 => u64::MAX,
            Div => (a as i64).wrapping_div(b as i64) as u64,
            Divu => a.checked_div(b).unwrap_or(u64::MAX),
            Rem if b == 0 => a,
            Rem => (a as i64).wrapping_rem(b as i64) as u64,
            Remu => a.checked_rem(b).unwrap_or(a),
            Divw if b as i32 == 0 => u64::MAX,
            Divw => word((a as i32).wrapping_div(b as i32)),
            Divuw => word((a as u32).checked_div(b as u32).unwrap_or(u32::MAX) as i32),
            Remw if b as i32 == 0 => word(a as i32),
            Remw => word((a as i32).wrapping_rem(b as i32)),
            Remuw => word((a as u32).checked_rem(b as u32).unwrap_or(a as u32) as i32),
            _ => 0,
        }
    }

    /// Whether a branch on these values is taken. Jumps always are.
    #[inline(always)]
    pub fn is_taken(self, a: u64, b: u64) -> bool {
        use Operation::*;
        match self {
            Beq => a == b,
            Bne => a != b,
            Blt => (a as i64) < b as i64,
            Bge => (a as i64) >= b as i64,
            Bltu => a < b,
            Bgeu => a >= b,
            Jal | Jalr => true,
            _ => false,
        }
    }

    /// The register's value after a load of `bytes`.
    #[inline(always)]
    pub fn extend(self, bytes: u64) -> u64 {
        use Operation::*;
        match self {
            Lb => bytes as i8 as i64 as u64,
            Lh => bytes as i16 as i64 as u64,
            Lw => bytes as i32 as i64 as u64,
            _ => bytes,
        }
    }
}

/// The ABI's names of the integer registers, from the RISC-V ELF psABI.
const NAMES: [&str; 36] = [
    "zero", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1", "a0", "a1", "a2", "a3", "a4",
    "a5", "a6", "a7", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "t3", "t4",
    "t5", "t6", "-", "Cs", "Cd", "Cl",
];

impl std::fmt::Display for Instruction {
    /// Formats the instruction as an assembler would, as far as the decoded form allows.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = format!("{:?}", self.operation).to_lowercase();
        let register = |number: u8| NAMES.get(usize::from(number)).copied().unwrap_or("?");
        let (rd, a, b) = (register(self.rd), register(self.rs1), register(self.rs2));
        let immediate = self.immediate;
        match self.operation.class() {
            Class::Load => write!(f, "{name} {rd}, {immediate}({a})"),
            Class::Store => write!(f, "{name} {b}, {immediate}({a})"),
            Class::Branch if self.operation == Operation::Jal => write!(f, "{name} {rd}"),
            Class::Branch if self.operation == Operation::Jalr => {
                write!(f, "{name} {rd}, {immediate}({a})")
            }
            Class::Branch => write!(f, "{name} {a}, {b}"),
            Class::Copy => write!(f, "ecpy"),
            Class::Serial => write!(f, "{name}"),
            _ if self.operation == Operation::Fence => write!(f, "fence"),
            _ if self.rs2 == 0 && self.rs1 == 0 => write!(f, "li {rd}, {immediate:#x}"),
            _ if self.rs2 == 0 => write!(f, "{name}i {rd}, {a}, {immediate}"),
            _ => write!(f, "{name} {rd}, {a}, {b}"),
        }
    }
}

#[cfg(test)]
mod tests;
