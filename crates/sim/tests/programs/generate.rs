//! Programs from a seed: arithmetic, branches, loops, and loads, stores and copies that meet in a few
//! kilobytes of memory.

use haul_sim::isa::Operation::{self, *};
use haul_sim::isa::encode;

/// Where programs begin, and where their data lies: in the page behind their instructions.
pub(crate) const START: u64 = 0x8000_0000;
/// Bytes of data: two bases of 2 KiB each, which immediates reach.
pub(crate) const DATA_BYTES: u64 = 4096;
const HALF: u32 = 2048;

/// x20 and x21 point at the two halves; x5 to x15 hold values; x28 to x30 are a copy's operands.
const BASES: [u32; 2] = [20, 21];
const VALUES: std::ops::Range<u32> = 5..16;
const COUNTER: u32 = 22;

const ARITHMETIC: [Operation; 28] = [
    Add, Sub, Slt, Sltu, And, Or, Xor, Sll, Srl, Sra, Addw, Subw, Sllw, Srlw, Sraw, Mul, Mulh,
    Mulhsu, Mulhu, Mulw, Div, Divu, Rem, Remu, Divw, Divuw, Remw, Remuw,
];
const LOADS: [Operation; 7] = [Lb, Lh, Lw, Ld, Lbu, Lhu, Lwu];
const STORES: [Operation; 4] = [Sb, Sh, Sw, Sd];
const BRANCHES: [Operation; 6] = [Beq, Bne, Blt, Bge, Bltu, Bgeu];

/// A small generator of numbers: xorshift64*, Marsaglia 2003 and Vigna 2016.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % u64::from(limit)) as u32
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u32) as usize]
    }

    fn value(&mut self) -> u32 {
        VALUES.start + self.below(VALUES.len() as u32)
    }
}

/// A program of about `length` instructions that ends itself.
pub(crate) fn program(seed: u64, length: usize) -> Vec<u32> {
    let mut random = Random::new(seed);
    let mut words = Vec::new();
    while words.len() < length {
        block(&mut random, &mut words);
    }
    words.extend([encode::immediate(Add, 17, 0, 93), encode::ECALL]);
    let mut whole = start(words.len());
    whole.extend(words);
    whole
}

/// Sets the bases and some values.
fn start(rest: usize) -> Vec<u32> {
    let first = 4 + VALUES.len() + rest;
    let data = (4 * first as u32).next_multiple_of(4096);
    let mut words = vec![
        encode::add_upper(BASES[0], data),
        encode::immediate(Add, BASES[1], BASES[0], 2047),
        encode::immediate(Add, BASES[1], BASES[1], 1),
        encode::FENCE,
    ];
    words.extend(VALUES.map(|value| encode::immediate(Add, value, 0, value as i32 * 97 - 700)));
    words
}

/// A loop of a few steps, or steps with a branch over some of them.
fn block(random: &mut Random, words: &mut Vec<u32>) {
    let mut body = Vec::new();
    for _ in 0..1 + random.below(6) {
        step(random, &mut body);
    }
    let length = body.len() as i32;
    match random.below(4) {
        0 => {
            words.push(encode::immediate(Add, COUNTER, 0, 1 + random.below(5) as i32));
            words.extend(body);
            words.push(encode::immediate(Add, COUNTER, COUNTER, -1));
            words.push(encode::branch(Bne, COUNTER, 0, -4 * (length + 1)));
        }
        1 => {
            let (a, b) = (random.value(), random.value());
            words.push(encode::branch(random.of(&BRANCHES), a, b, 4 * (length + 1)));
            words.extend(body);
        }
        2 => {
            // A call over the body, which returns to it; then on behind the return.
            words.push(encode::jump(1, 8));
            words.push(encode::jump(0, 8));
            words.push(encode::immediate(Jalr, 0, 1, 0));
            words.extend(body);
        }
        _ => words.extend(body),
    }
}

fn step(random: &mut Random, words: &mut Vec<u32>) {
    let base = random.of(&BASES);
    // Few places, so that accesses meet; not all of them aligned.
    let place = (random.below(64) * 32 + random.below(9)).min(HALF - 8) as i32;
    match random.below(16) {
        0..5 => {
            let (rd, a, b) = (random.value(), random.value(), random.value());
            words.push(encode::register(random.of(&ARITHMETIC), rd, a, b));
        }
        5..9 => words.push(encode::immediate(random.of(&LOADS), random.value(), base, place)),
        9..13 => words.push(encode::store(random.of(&STORES), random.value(), base, place)),
        13 => {
            // An address that is only known late: a value decides which line it is in.
            let value = random.value();
            words.push(encode::immediate(And, 23, value, 0x7c0));
            words.push(encode::register(Add, 23, 23, base));
            words.push(encode::immediate(Ld, value, 23, 8));
        }
        _ => copy(random, words),
    }
}

/// A copy from one half to the other, or inside one half without touching itself.
fn copy(random: &mut Random, words: &mut Vec<u32>) {
    let bytes = random.of(&[0, 1, 8, 61, 64, 200, 512, 1000]);
    let from = random.below(HALF - bytes);
    let to = random.below(HALF - bytes);
    let source = random.of(&BASES);
    let mut target = random.of(&BASES);
    if source == target && from.abs_diff(to) < bytes {
        target = BASES[0] + BASES[1] - source;
    }
    words.push(encode::immediate(Add, 28, source, from as i32));
    words.push(encode::immediate(Add, 29, target, to as i32));
    words.push(encode::immediate(Add, 30, 0, bytes as i32));
    words.extend(encode::copy(28, 29, 30));
}
