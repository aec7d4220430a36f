//! RV64IM and the copy instructions, decoded once before the program runs.
//!
//! The form is made for execution, not for reading back: `rd = op(rs1, rs2 + immediate)`. An
//! instruction with an immediate has x0 as its second source, one without has 0 as its immediate; a
//! result that nobody can read goes to [`SINK`]; `lui`, `auipc` and the link of a jump are
//! additions of a constant; branch targets are places in the decoded program.
//!
//! The copy instructions use the opcode custom-0 (the RISC-V manual's space for such): funct3 0, 1
//! and 2 move rs1 into the copy registers Cs (source), Cd (target) and Cl (length in bytes), funct3
//! 3 is `ecpy`, which copies. All other fields are zero.
//!
//! From the bottom up:
//!
//! - `decode`: from a word to an [`Instruction`];
//! - `encode`: a small assembler.

pub mod encode;

mod decode;

pub use decode::decode;

/// x0 to x31, then [`SINK`], then the copy registers; as many as a byte can name, so that an index
/// needs no check.
pub const REGISTERS: usize = 256;
/// Places from here on are of no program: those of direct jumps that lead before it or between two
/// of its instructions.
const ASTRAY: u32 = 1 << 31;

/// A place beyond any program that tells so many bytes from its beginning, which a direct jump is a
/// megabyte off at most: half words, in 31 bits with their sign.
fn astray(distance: u64) -> u32 {
    ASTRAY | (distance / 2) as u32
}

/// Bytes from a program's first instruction to a place in it, or to where a direct jump went
/// astray.
#[must_use]
pub fn distance_of(place: u32) -> u64 {
    if place < ASTRAY {
        return u64::from(place) * WORD;
    }
    // The sign is the bit below the mark.
    (i64::from((place << 1) as i32 >> 1) * 2) as u64
}

/// What x0 is as a target.
pub const SINK: u8 = 32;
/// Cs, the copy's source.
pub const COPY_SOURCE: u8 = 33;
/// Cd, the copy's target.
pub const COPY_TARGET: u8 = 34;
/// Cl, the copy's length.
pub const COPY_LENGTH: u8 = 35;
/// Bytes of an instruction.
pub const WORD: u64 = 4;

/// What an instruction does; names are the RISC-V manual's.
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
    /// No instruction; the immediate is the word.
    Illegal,
    /// No executable page.
    Unmapped,
}

/// Which part of the processor an instruction needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// An integer unit.
    Integer,
    /// A multiply unit, pipelined.
    Multiply,
    /// A multiply unit, taken until done.
    Divide,
    /// A memory port, to read.
    Load,
    /// A memory port, to write.
    Store,
    /// An integer unit, and perhaps another place to fetch from.
    Branch,
    /// The copy control unit.
    Copy,
    /// Nothing else in flight: calls of the environment and faults.
    Serial,
}

/// One decoded instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// What it does.
    pub operation: Operation,
    /// The register that it writes; [`SINK`] for none.
    pub rd: u8,
    /// Its first source; 0 for none.
    pub rs1: u8,
    /// Its second source; 0 for none.
    pub rs2: u8,
    /// Where it jumps, as an index into the decoded program.
    pub target: u32,
    /// What is added to the second source; an offset from the first for loads, stores and `jalr`.
    pub immediate: i64,
}

/// Each operation's class: a table, for the timing core asks for every instruction, and in a
/// program's mixture of them the host would guess a branch wrong as often as not.
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
    /// Which part of the processor it needs.
    #[inline(always)]
    pub fn class(self) -> Class {
        CLASSES[self as usize]
    }

    /// Bytes that a load or store moves; 0 for all else.
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

    /// The result of an operation on registers alone; 0 for all else.
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
            // The manual, section on division: by zero gives all ones or the dividend, and the one
            // overflow gives the dividend or zero; nothing traps.
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

    /// Whether a branch on these values is taken; jumps always are.
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

    /// The value that a load of `bytes` puts into its register.
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
    /// As an assembler would have it, as far as the decoded form still knows.
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
