//! Random programs from a seed: arithmetic, branches, loops, and loads, stores and copies that
//! overlap in a few kilobytes of memory, across page ends.

use haul_sim::isa::Operation::{self, *};
use haul_sim::isa::encode;

/// The start of programs. Their data is in the page after their instructions.
pub(crate) const START: u64 = 0x8000_0000;
/// The size of the data in bytes: an area of [`REACHED`] bytes at each base, and one of
/// [`FAR_BYTES`] at each far base.
pub(crate) const DATA_BYTES: u64 = 10 * PAGE as u64;
const PAGE: u32 = 4096;
/// The number of bytes within reach of an immediate.
const REACHED: u32 = 2048;
/// The size in bytes of an area that only copies reach: three pages, which cover parts of two
/// more.
const FAR_BYTES: u32 = 3 * PAGE;

/// x20 and x21 point to two areas, each with a page end in its middle; x24 and x25 to the far
/// areas; x5 to x15 hold values; x28 to x30 are a copy's operands.
const BASES: [u32; 2] = [20, 21];
const FAR: [u32; 2] = [24, 25];
/// The offsets of the areas in the data.
const AREAS: [(u32, u32); 4] = [
    (BASES[0], PAGE - REACHED / 2),
    (BASES[1], 2 * PAGE + PAGE - REACHED / 2),
    (FAR[0], 4 * PAGE - 100),
    (FAR[1], 7 * PAGE - 60),
];
const VALUES: std::ops::Range<u32> = 5..16;
const COUNTER: u32 = 22;

const ARITHMETIC: [Operation; 28] = [
    Add, Sub, Slt, Sltu, And, Or, Xor, Sll, Srl, Sra, Addw, Subw, Sllw, Srlw, Sraw, Mul, Mulh,
    Mulhsu, Mulhu, Mulw, Div, Divu, Rem, Remu, Divw, Divuw, Remw, Remuw,
];
const LOADS: [Operation; 7] = [Lb, Lh, Lw, Ld, Lbu, Lhu, Lwu];
const STORES: [Operation; 4] = [Sb, Sh, Sw, Sd];
const BRANCHES: [Operation; 6] = [Beq, Bne, Blt, Bge, Bltu, Bgeu];

/// A small random number generator: xorshift64*, Marsaglia 2003 and Vigna 2016.
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

    pub(crate) fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u32) as usize]
    }

    fn value(&mut self) -> u32 {
        VALUES.start + self.below(VALUES.len() as u32)
    }
}

/// A program of about `length` instructions that exits.
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

/// The offset of the data of a program with this number of instructions.
pub(crate) fn data_offset(instructions: usize) -> u32 {
    (4 * instructions as u32).next_multiple_of(PAGE)
}

/// Sets the bases and some values.
fn start(rest: usize) -> Vec<u32> {
    let data = data_offset(2 * AREAS.len() + VALUES.len() + rest);
    let mut words = Vec::new();
    for (base, offset) in AREAS {
        // `auipc` adds a constant whose low twelve bits are zero.
        let own = 4 * words.len() as u32;
        let wanted = data + offset - own;
        let low = (wanted % PAGE) as i32;
        let low = if low >= REACHED as i32 { low - PAGE as i32 } else { low };
        words.push(encode::add_upper(base, wanted.wrapping_add_signed(-low)));
        words.push(encode::immediate(Add, base, base, low));
    }
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
            // A call of a function that returns at once. A jump then skips this function, to the
            // body.
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
    // Few offsets, so that accesses overlap; not all of them aligned.
    let place = (random.below(64) * 32 + random.below(9)).min(REACHED - 8) as i32;
    match random.below(16) {
        0..5 => {
            let (rd, a, b) = (random.value(), random.value(), random.value());
            words.push(encode::register(random.of(&ARITHMETIC), rd, a, b));
        }
        5..9 => words.push(encode::immediate(random.of(&LOADS), random.value(), base, place)),
        9..13 => words.push(encode::store(random.of(&STORES), random.value(), base, place)),
        13 => {
            // An address that is only known late: a value selects its line.
            let value = random.value();
            words.push(encode::immediate(And, 23, value, 0x7c0));
            words.push(encode::register(Add, 23, 23, base));
            words.push(encode::immediate(Ld, value, 23, 8));
        }
        _ => copy(random, words),
    }
}

/// A copy from one area to the other, or inside one area without overlap. Now and then a long one
/// to, from or between the far areas.
fn copy(random: &mut Random, words: &mut Vec<u32>) {
    if random.below(8) == 0 {
        return long_copy(random, words);
    }
    let bytes = random.of(&[0, 1, 8, 61, 64, 200, 512, 1000]);
    let from = random.below(REACHED - bytes);
    let to = random.below(REACHED - bytes);
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

fn long_copy(random: &mut Random, words: &mut Vec<u32>) {
    let mut ends = [random.of(&FAR), random.of(&BASES)];
    let (mut bytes, mut doublings) = (1 + random.below(1024), 0);
    match random.below(3) {
        0 => ends.reverse(),
        1 => {}
        _ => {
            (ends, doublings) = ([FAR[0], FAR[1]], 3);
            bytes += 300;
        }
    }
    let room = if doublings > 0 { FAR_BYTES } else { REACHED } - (bytes << doublings);
    let places = [random.below(room.min(REACHED)), random.below(room.min(REACHED))];
    words.push(encode::immediate(Add, 28, ends[0], places[0] as i32));
    words.push(encode::immediate(Add, 29, ends[1], places[1] as i32));
    words.push(encode::immediate(Add, 30, 0, bytes as i32));
    words.extend((0..doublings).map(|_| encode::register(Add, 30, 30, 30)));
    words.extend(encode::copy(28, 29, 30));
}
