//! Compares every instruction with its result in the RISC-V manual.

use super::*;
use crate::isa::encode;
use Operation::*;

const START: u64 = 0x8000_0000;
const A0: u32 = 10;
const A1: u32 = 11;
const A2: u32 = 12;
const HIGH: u64 = 1 << 63;

/// Runs words with a1 and a2 set and returns the machine after `ecall` with a7 = 93.
fn after(words: &[u32], a1: u64, a2: u64) -> Interpreter {
    let (result, machine) = run(words, a1, a2);
    result.expect("the program ends itself");
    machine
}

fn run(words: &[u32], a1: u64, a2: u64) -> (Result<u64, Error>, Interpreter) {
    let mut words = words.to_vec();
    words.extend([encode::immediate(Add, 17, 0, 93), encode::ECALL]);
    let image = Image::from_words(START, &words, 8192).expect("a sound program");
    let arguments = [0, a1, a2];
    let mut machine = Interpreter::new(&image, &arguments, Traffic::default()).expect("no traffic");
    (machine.run(&image, 1000), machine)
}

/// `op a0, a1, a2`, a1, a2, and the resulting a0.
const RESULTS: [(Operation, u64, u64, u64); 58] = [
    (Add, 1, u64::MAX, 0),
    (Sub, 0, 1, u64::MAX),
    (Slt, u64::MAX, 0, 1),
    (Slt, 0, u64::MAX, 0),
    (Sltu, u64::MAX, 0, 0),
    (Sltu, 0, u64::MAX, 1),
    (And, 0xff00, 0x0ff0, 0x0f00),
    (Or, 0xff00, 0x0ff0, 0xfff0),
    (Xor, 0xff00, 0x0ff0, 0xf0f0),
    (Sll, 1, 63, HIGH),
    (Sll, 1, 64 + 3, 8),
    (Srl, HIGH, 63, 1),
    (Sra, HIGH, 63, u64::MAX),
    (Addw, 0x7fff_ffff, 1, 0xffff_ffff_8000_0000),
    (Addw, 0x1_0000_0001, 1, 2),
    (Subw, 0, 1, u64::MAX),
    (Subw, 0x8000_0000, 1, 0x7fff_ffff),
    (Sllw, 1, 31, 0xffff_ffff_8000_0000),
    (Sllw, 1, 32, 1),
    (Srlw, 0xffff_ffff_8000_0000, 31, 1),
    (Srlw, 0x8000_0000, 0, 0xffff_ffff_8000_0000),
    (Sraw, 0x8000_0000, 31, u64::MAX),
    (Mul, u64::MAX, u64::MAX, 1),
    (Mul, 1 << 33, 1 << 33, 0),
    (Mulh, u64::MAX, u64::MAX, 0),
    (Mulh, HIGH, HIGH, 1 << 62),
    (Mulh, HIGH, 2, u64::MAX),
    (Mulhsu, u64::MAX, u64::MAX, u64::MAX),
    (Mulhsu, 2, HIGH, 1),
    (Mulhu, u64::MAX, u64::MAX, u64::MAX - 1),
    (Mulhu, HIGH, 2, 1),
    (Mulw, 0x1_0001, 0x1_0001, 0x2_0001),
    (Mulw, 0x8000_0000, u64::MAX, 0xffff_ffff_8000_0000),
    (Div, (-20i64) as u64, 6, (-3i64) as u64),
    (Div, HIGH, u64::MAX, HIGH),
    (Div, 7, 0, u64::MAX),
    (Divu, (-20i64) as u64, 6, 3_074_457_345_618_258_599),
    (Divu, 7, 0, u64::MAX),
    (Rem, (-20i64) as u64, 6, (-2i64) as u64),
    (Rem, HIGH, u64::MAX, 0),
    (Rem, 7, 0, 7),
    (Remu, (-20i64) as u64, 6, 2),
    (Remu, 7, 0, 7),
    (Divw, (-20i64) as u64, 6, (-3i64) as u64),
    (Divw, 0x8000_0000, u64::MAX, 0xffff_ffff_8000_0000),
    (Divw, 7, 1 << 32, u64::MAX),
    (Divuw, 0xffff_ffec, 6, 715_827_879),
    (Divuw, 0x8000_0000, 1, 0xffff_ffff_8000_0000),
    (Divuw, 7, 0, u64::MAX),
    (Remw, (-20i64) as u64, 6, (-2i64) as u64),
    (Remw, 0x8000_0000, u64::MAX, 0),
    (Remw, 0x8000_0000, 0, 0xffff_ffff_8000_0000),
    (Remuw, 0xffff_ffec, 6, 2),
    (Remuw, 0x8000_0000, 0, 0xffff_ffff_8000_0000),
    (Remuw, 7, 5, 2),
    (Divu, HIGH, 2, 1 << 62),
    (Divw, 7, 2, 3),
    (Mulhsu, HIGH, 2, u64::MAX),
];

#[test]
fn register_operations_give_expected_results() {
    for (operation, a1, a2, wanted) in RESULTS {
        let machine = after(&[encode::register(operation, A0, A1, A2)], a1, a2);
        assert_eq!(machine.registers[10], wanted, "{operation:?} {a1:#x} {a2:#x}");
    }
}

#[test]
fn immediate_operations_give_expected_results() {
    for (operation, a1, value, wanted) in [
        (Add, 5, -7, (-2i64) as u64),
        (Slt, (-8i64) as u64, -7, 1),
        (Sltu, 5, -7, 1),
        (Sltu, u64::MAX, -7, 0),
        (And, u64::MAX, -7, (-7i64) as u64),
        (Or, 2, -7, (-5i64) as u64),
        (Xor, 0, -1, u64::MAX),
        (Sll, 1, 35, 1 << 35),
        (Srl, HIGH, 35, 1 << 28),
        (Sra, HIGH, 62, (-2i64) as u64),
        (Addw, 0x7fff_ffff, 1, 0xffff_ffff_8000_0000),
        (Sllw, 3, 31, 0xffff_ffff_8000_0000),
        (Srlw, 0x8000_0000, 31, 1),
        (Sraw, 0x8000_0000, 31, u64::MAX),
    ] {
        let machine = after(&[encode::immediate(operation, A0, A1, value)], a1, 0);
        assert_eq!(machine.registers[10], wanted, "{operation:?} {a1:#x} {value}");
    }
    let machine =
        after(&[encode::load_upper(A0, 0x8000_1000), encode::add_upper(A1, 0x1000)], 0, 0);
    assert_eq!(machine.registers[10], 0xffff_ffff_8000_1000);
    assert_eq!(machine.registers[11], START + 4 + 0x1000);
}

#[test]
fn x0_stays_zero() {
    let machine = after(&[encode::immediate(Add, 0, 0, 5), encode::register(Add, A0, 0, 0)], 0, 0);
    assert_eq!((machine.registers[0], machine.registers[10]), (0, 0));
}

#[test]
fn loads_and_stores_give_expected_results() {
    let data = START + 0x1000;
    let value = 0x8182_8384_8586_8788;
    for (operation, offset, wanted) in [
        (Lb, 0, 0xffff_ffff_ffff_ff88),
        (Lbu, 1, 0x87),
        (Lh, 0, 0xffff_ffff_ffff_8788),
        (Lhu, 2, 0x8586),
        (Lw, 0, 0xffff_ffff_8586_8788),
        (Lwu, 4, 0x8182_8384),
        (Ld, 0, value),
        (Ld, -1, value << 8),
        (Lw, 1, 0xffff_ffff_8485_8687),
    ] {
        let words =
            [encode::store(Sd, A2, A1, 16), encode::immediate(operation, A0, A1, 16 + offset)];
        let machine = after(&words, data, value);
        assert_eq!(machine.registers[10], wanted, "{operation:?} {offset}");
    }
    for (operation, wanted) in [(Sb, 0x88), (Sh, 0x8788), (Sw, 0x8586_8788), (Sd, value)] {
        let words = [encode::store(operation, A2, A1, 8), encode::immediate(Ld, A0, A1, 8)];
        assert_eq!(after(&words, data, value).registers[10], wanted, "{operation:?}");
    }
    // Across the border of two pages.
    let words = [encode::store(Sd, A2, A1, -4), encode::immediate(Ld, A0, A1, -4)];
    assert_eq!(after(&words, data + 0x1000, value).registers[10], value);
}

#[test]
fn branches_and_jumps_reach_their_targets() {
    for (operation, a1, a2, is_taken) in [
        (Beq, 1, 1, true),
        (Beq, 1, 2, false),
        (Bne, 1, 2, true),
        (Bne, 2, 2, false),
        (Blt, u64::MAX, 0, true),
        (Blt, 0, 0, false),
        (Bge, 0, u64::MAX, true),
        (Bge, u64::MAX, 0, false),
        (Bltu, 0, u64::MAX, true),
        (Bltu, u64::MAX, 0, false),
        (Bgeu, u64::MAX, u64::MAX, true),
        (Bgeu, 0, 1, false),
    ] {
        let skip = [encode::branch(operation, A1, A2, 8), encode::immediate(Add, A0, 0, 1)];
        let machine = after(&skip, a1, a2);
        assert_eq!(machine.registers[10] == 0, is_taken, "{operation:?} {a1:#x} {a2:#x}");
    }
    let jump = [encode::jump(1, 8), encode::immediate(Add, A0, 0, 1)];
    let machine = after(&jump, 0, 0);
    assert_eq!((machine.registers[10], machine.registers[1]), (0, START + 4));
    // `jalr a1, 1(a1)`: the target is read before the link is written, and its lowest bit is
    // cleared.
    let jump = [encode::immediate(Jalr, A1, A1, 1), encode::immediate(Add, A0, 0, 1)];
    let machine = after(&jump, START + 8, 0);
    assert_eq!((machine.registers[10], machine.registers[11]), (0, START + 4));
    let back = [encode::immediate(Add, A0, A0, 1), encode::branch(Bltu, A0, A1, -4), encode::FENCE];
    assert_eq!(after(&back, 5, 0).registers[10], 5);
}

#[test]
fn ecpy_copies_bytes() {
    let data = START + 0x1000;
    let mut words = vec![
        encode::store(Sd, A2, A1, 0),
        encode::immediate(Add, 13, A1, 1000),
        encode::immediate(Add, 14, 0, 7),
    ];
    words.extend(encode::copy(A1, 13, 14));
    words.push(encode::immediate(Ld, A0, 13, 0));
    assert_eq!(after(&words, data, 0x1122_3344_5566_7788).registers[10], 0x22_3344_5566_7788);
}

#[test]
fn program_faults_are_reported_with_address_and_value() {
    let message = |words: &[u32], a1, a2| run(words, a1, a2).0.expect_err("a fault").to_string();
    assert!(message(&[0], 0, 0).contains("illegal instruction 0x00000000 at 0x80000000"));
    assert!(message(&[encode::EBREAK], 0, 0).starts_with("ebreak at 0x80000000"));
    assert!(message(&[encode::ECALL], 0, 0).starts_with("unknown call 0"));
    let load = encode::immediate(Lw, A0, A1, 0);
    assert!(message(&[load], 64, 0).contains("0x80000000 would load 4 bytes at 0x40"));
    let store = encode::store(Sw, A0, A1, 0);
    assert!(message(&[store], START, 0).contains("would store 4 bytes at 0x80000000"));
    assert!(message(&[store], crate::nic::REGISTERS_ADDRESS, 0).contains("would store 4 bytes"));
    let jump = encode::immediate(Jalr, 0, A1, 0);
    assert!(message(&[jump], 64, 0).contains("jump to 0x40"));
    assert!(message(&[jump], START + 2, 0).contains("jump to 0x80000002"));
    assert!(message(&[encode::jump(0, 0x1000)], 0, 0).contains("jump to 0x80001000"));
    assert!(message(&[encode::jump(0, -8)], 0, 0).contains("jump to 0x7ffffff8"));
    assert!(message(&[encode::jump(0, 6)], 0, 0).contains("jump to 0x80000006"));
    let branch = encode::branch(Beq, 0, 0, -4094);
    assert!(message(&[branch], 0, 0).contains("jump to 0x7ffff002"));
    assert!(message(&[encode::jump(0, 0)], 0, 0).contains("still running after 1000 instructions"));
    let mut copy = encode::copy(A1, A2, A1).to_vec();
    copy.push(encode::FENCE);
    assert!(message(&copy, START, START + 8).contains("would copy from"));
    let device = encode::store(Sd, A2, A1, 8);
    assert!(message(&[device], crate::nic::REGISTERS_ADDRESS, 9).contains("returned = 0x9"));
}

#[test]
fn instruction_limit_is_exact() {
    let image = Image::from_words(START, &[encode::FENCE, encode::jump(0, -4)], 0).expect("sound");
    let mut machine = Interpreter::new(&image, &[], Traffic::default()).expect("no traffic");
    assert!(machine.run(&image, 70_001).is_err());
    assert_eq!((machine.executed, machine.next), (70_001, 1));
}
