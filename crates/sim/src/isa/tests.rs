//! Words as GNU as 2.40 assembles them, compared with the decoder and with the assembler of
//! [`encode`]. The interpreter's tests check results.

use super::*;
use Operation::*;

const A0: u32 = 10;
const A1: u32 = 11;
const A2: u32 = 12;

/// Every operation on two registers: `op a0, a1, a2`.
const REGISTER: [(u32, Operation); 28] = [
    (0x00c5_8533, Add),
    (0x40c5_8533, Sub),
    (0x00c5_a533, Slt),
    (0x00c5_b533, Sltu),
    (0x00c5_f533, And),
    (0x00c5_e533, Or),
    (0x00c5_c533, Xor),
    (0x00c5_9533, Sll),
    (0x00c5_d533, Srl),
    (0x40c5_d533, Sra),
    (0x00c5_853b, Addw),
    (0x40c5_853b, Subw),
    (0x00c5_953b, Sllw),
    (0x00c5_d53b, Srlw),
    (0x40c5_d53b, Sraw),
    (0x02c5_8533, Mul),
    (0x02c5_9533, Mulh),
    (0x02c5_a533, Mulhsu),
    (0x02c5_b533, Mulhu),
    (0x02c5_853b, Mulw),
    (0x02c5_c533, Div),
    (0x02c5_d533, Divu),
    (0x02c5_e533, Rem),
    (0x02c5_f533, Remu),
    (0x02c5_c53b, Divw),
    (0x02c5_d53b, Divuw),
    (0x02c5_e53b, Remw),
    (0x02c5_f53b, Remuw),
];

/// Every operation with an immediate, every load and `jalr`: `op a0, a1, value`.
const IMMEDIATE: [(u32, Operation, i32); 21] = [
    (0xff95_8513, Add, -7),
    (0xff95_a513, Slt, -7),
    (0xff95_b513, Sltu, -7),
    (0xff95_f513, And, -7),
    (0xff95_e513, Or, -7),
    (0xff95_c513, Xor, -7),
    (0x0235_9513, Sll, 35),
    (0x0235_d513, Srl, 35),
    (0x4235_d513, Sra, 35),
    (0xff95_851b, Addw, -7),
    (0x0055_951b, Sllw, 5),
    (0x0055_d51b, Srlw, 5),
    (0x4055_d51b, Sraw, 5),
    (0xff85_8503, Lb, -8),
    (0xff85_9503, Lh, -8),
    (0xff85_a503, Lw, -8),
    (0xff85_b503, Ld, -8),
    (0xff85_c503, Lbu, -8),
    (0xff85_d503, Lhu, -8),
    (0xff85_e503, Lwu, -8),
    (0x0105_8567, Jalr, 16),
];

/// Every store: `op a2, -8(a1)`.
const STORE: [(u32, Operation); 4] =
    [(0xfec5_8c23, Sb), (0xfec5_9c23, Sh), (0xfec5_ac23, Sw), (0xfec5_bc23, Sd)];

/// Every branch: `op a1, a2, offset`.
const BRANCH: [(u32, Operation, i32); 6] = [
    (0x80c5_80e3, Beq, -0x800),
    (0x7ec5_9f63, Bne, 0x7fe),
    (0x00c5_c863, Blt, 0x10),
    (0xfec5_dee3, Bge, -4),
    (0x42c5_e063, Bltu, 0x420),
    (0x7ec5_fee3, Bgeu, 0xffc),
];

/// The address of the words of these tests, in a program that begins at 0x8000_0000.
const AT: u64 = 0x8010_0000;

fn decoded(word: u32) -> Instruction {
    decode(word, AT, 0x8000_0000)
}

fn plain(operation: Operation, rd: u8, rs1: u8, rs2: u8, immediate: i64) -> Instruction {
    Instruction { operation, rd, rs1, rs2, target: 0, immediate }
}

#[test]
fn register_and_immediate_operations_decode() {
    for (word, operation) in REGISTER {
        assert_eq!(decoded(word), plain(operation, 10, 11, 12, 0), "{word:#x}");
        assert_eq!(encode::register(operation, A0, A1, A2), word, "{operation:?}");
    }
    for (word, operation, value) in IMMEDIATE {
        assert_eq!(decoded(word), plain(operation, 10, 11, 0, value.into()), "{word:#x}");
        assert_eq!(encode::immediate(operation, A0, A1, value), word, "{operation:?}");
    }
    for (word, operation) in STORE {
        assert_eq!(decoded(word), plain(operation, SINK, 11, 12, -8), "{word:#x}");
        assert_eq!(encode::store(operation, A2, A1, -8), word, "{operation:?}");
    }
}

#[test]
fn branches_and_jumps_decode() {
    let index = |offset: i64| {
        u32::try_from((0x10_0000 + offset) / 4).expect("the tests' targets are in the program")
    };
    for (word, operation, offset) in BRANCH {
        // The encoding can hold offsets that are not multiples of an instruction.
        let target = match offset % 4 {
            0 => index(offset.into()),
            _ => astray(0x10_0000_u64.wrapping_add_signed(offset.into())),
        };
        let wanted = Instruction { target, ..plain(operation, SINK, 11, 12, 0) };
        assert_eq!(decoded(word), wanted, "{word:#x}");
        assert_eq!(encode::branch(operation, A1, A2, offset), word, "{operation:?}");
    }
    let link = AT as i64 + 4;
    let jal = Instruction { target: index(-0x10_0000), ..plain(Jal, 1, 0, 0, link) };
    assert_eq!(decoded(0x8000_00ef), jal);
    assert_eq!(encode::jump(1, -0x10_0000), 0x8000_00ef);
    assert_eq!(decoded(0x4dfa_b06f).rd, SINK);
    assert_eq!(distance_of(decoded(0x4dfa_b06f).target), 0x10_0000 + 0xabcde);
    assert_eq!(encode::jump(0, 0xabcde), 0x4dfa_b06f);
    // A jump to an address before the program.
    let before = decode(encode::jump(0, -8), 0x8000_0004, 0x8000_0000).target;
    assert_eq!(distance_of(before), 4_u64.wrapping_neg());
}

#[test]
fn astray_index_is_outside_of_every_program_and_encodes_its_distance() {
    const FARTHEST: u64 = crate::image::CODE_BYTES_MAX + (1 << 20);
    for distance in [2, FARTHEST - 2, 2_u64.wrapping_neg(), (1_u64 << 20).wrapping_neg()] {
        let place = astray(distance);
        assert!(u64::from(place) > FARTHEST, "{distance:#x} is {place:#x}");
        assert_eq!(distance_of(place), distance);
    }
    assert_eq!(distance_of(7), 28);
}

#[test]
fn constants_decode() {
    assert_eq!(decoded(0x8000_1537), plain(Add, 10, 0, 0, -0x7fff_f000));
    assert_eq!(encode::load_upper(A0, 0x8000_1000), 0x8000_1537);
    assert_eq!(decoded(0x8000_1517), plain(Add, 10, 0, 0, AT as i64 - 0x7fff_f000));
    assert_eq!(encode::add_upper(A0, 0x8000_1000), 0x8000_1517);
}

#[test]
fn environment_and_copy_instructions_decode() {
    for (word, operation) in [(0x0ff0_000f, Fence), (0x73, Ecall), (0x0010_0073, Ebreak)] {
        assert_eq!(decoded(word), plain(operation, SINK, 0, 0, 0));
    }
    let words = [0x0005_800b, 0x0006_100b, 0x0005_200b, 0x0000_300b];
    assert_eq!(encode::copy(A1, A2, A0), words);
    assert_eq!(decoded(words[0]), plain(Add, COPY_SOURCE, 11, 0, 0));
    assert_eq!(decoded(words[1]), plain(Add, COPY_TARGET, 12, 0, 0));
    assert_eq!(decoded(words[2]), plain(Add, COPY_LENGTH, 10, 0, 0));
    assert_eq!(decoded(words[3]), plain(Ecpy, SINK, 0, 0, 0));
}

#[test]
fn invalid_word_decodes_as_illegal() {
    for word in [
        0,
        u32::MAX,
        0x0000_4501,                    // two compressed instructions
        0x00c5_8553,                    // fadd.s
        0x00c5_852f,                    // an atomic
        0x3400_1073,                    // a control register
        0x00c5_d563 & !0x7000 | 0x2000, // a branch with an undefined funct3
        0x04c5_8533,                    // an operation with a stray funct7
        0x06c5_1513,                    // a shift by too much
        0x0205_151b,                    // a word shift by too much
        0x0000_700b,                    // a copy instruction with an undefined funct3
        0x0005_b00b,                    // ecpy with a source
        0x0005_880b,                    // a copy move with a target
    ] {
        assert_eq!(decoded(word), plain(Illegal, SINK, 0, 0, word.into()), "{word:#x}");
    }
}

#[test]
fn write_to_x0_goes_to_the_sink() {
    assert_eq!(decoded(encode::register(Add, 0, A1, A2)).rd, SINK);
    assert_eq!(decoded(encode::immediate(Ld, 0, A1, 0)).rd, SINK);
}

#[test]
fn instruction_is_displayed_as_assembly() {
    for (word, text) in [
        (0x00c5_8533, "add a0, a1, a2"),
        (0xff95_8513, "addi a0, a1, -7"),
        (0xff85_b503, "ld a0, -8(a1)"),
        (0xfec5_bc23, "sd a2, -8(a1)"),
        (0x00c5_c863, "blt a1, a2"),
        (0x0005_800b, "addi Cs, a1, 0"),
        (0x0000_300b, "ecpy"),
        (0x0000_0073, "ecall"),
        (0x0010_80e7, "jalr ra, 1(ra)"),
        (0x0000_1537, "li a0, 0x1000"),
    ] {
        assert_eq!(decoded(word).to_string(), text);
    }
}
