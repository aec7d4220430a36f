//! Valid and invalid ELF files for the simulated machine.

use std::fs;
use std::path::{Path, PathBuf};

use haul_sim::isa::{Operation, encode};

/// Start address of the simulated machine's programs, and of the data of [`copies`].
pub(super) const START: u64 = 0x8000_0000;
pub(super) const DATA: u64 = START + 0x1000;
pub(super) const DATA_BYTES: u64 = 0x2000;

/// RISC-V's number in an ELF file.
pub(super) const RISC_V: u16 = 243;

/// `li a7, 93; li a0, 0; ecall`: ends at once.
pub(super) const ENDS: [u32; 3] = [0x05d0_0893, 0x0000_0513, encode::ECALL];
/// `j .`
pub(super) const LOOPS: [u32; 1] = [0x0000_006f];
/// `1: addi a0, a0, -1; bnez a0, 1b`, and the end: two instructions for each count in a0.
pub(super) const COUNTS: [u32; 5] = [0xfff5_0513, 0xfe05_1ee3, ENDS[0], ENDS[1], ENDS[2]];

const READ_EXECUTE: u32 = 5;
const READ_WRITE: u32 = 6;

/// A segment, as its program header describes it.
#[derive(Clone)]
pub(super) struct Segment {
    pub(super) address: u64,
    pub(super) bytes: Vec<u8>,
    /// Number of its bytes in the file according to the header, which may be wrong.
    pub(super) file_bytes: u64,
    pub(super) size_bytes: u64,
    pub(super) flags: u32,
}

impl Segment {
    pub(super) fn code(words: &[u32]) -> Self {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let size = bytes.len() as u64;
        Self { address: START, bytes, file_bytes: size, size_bytes: size, flags: READ_EXECUTE }
    }

    pub(super) fn data(address: u64, size_bytes: u64) -> Self {
        Self { address, bytes: Vec::new(), file_bytes: 0, size_bytes, flags: READ_WRITE }
    }
}

/// A file of these segments, for this machine.
pub(super) fn file(machine: u16, entry: u64, segments: &[Segment]) -> Vec<u8> {
    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1];
    file.resize(16, 0);
    let halves = |file: &mut Vec<u8>, values: &[u16]| {
        values.iter().for_each(|value| file.extend(value.to_le_bytes()));
    };
    halves(&mut file, &[2, machine]);
    file.extend(1_u32.to_le_bytes());
    [entry, 64, 0].iter().for_each(|value| file.extend(value.to_le_bytes()));
    file.extend(0_u32.to_le_bytes());
    halves(&mut file, &[64, 56, segments.len() as u16, 0, 0, 0]);
    let mut offset = 64 + 56 * segments.len() as u64;
    for segment in segments {
        [1, segment.flags].iter().for_each(|value: &u32| file.extend(value.to_le_bytes()));
        let Segment { address, file_bytes, size_bytes, .. } = *segment;
        let fields = [offset, address, address, file_bytes, size_bytes, 4096];
        fields.iter().for_each(|value| file.extend(value.to_le_bytes()));
        offset += segment.bytes.len() as u64;
    }
    segments.iter().for_each(|segment| file.extend(&segment.bytes));
    file
}

/// A program of only these instructions, written to the folder.
pub(super) fn program(folder: &Path, name: &str, words: &[u32]) -> PathBuf {
    write(folder, name, &file(RISC_V, START, &[Segment::code(words)]))
}

/// A program that copies a2 bytes from a0 to a1 with `ecpy`, and ends.
pub(super) fn copies(folder: &Path) -> PathBuf {
    let [a0, a1, a2] = [10, 11, 12];
    let words = [&encode::copy(a0, a1, a2)[..], &ENDS].concat();
    let segments = [Segment::code(&words), Segment::data(DATA, DATA_BYTES)];
    write(folder, "copies.elf", &file(RISC_V, START, &segments))
}

/// A program that writes these texts in order, and continues with these instructions.
pub(super) fn writes(folder: &Path, name: &str, texts: &[&str], then: &[u32]) -> PathBuf {
    let [a1, a2, a7] = [11, 12, 17];
    let add = |register, base, value| encode::immediate(Operation::Add, register, base, value);
    // The texts follow the last instruction.
    let code_bytes = 4 * (3 + 4 * texts.len() + then.len()) as i32;
    let mut words = vec![encode::add_upper(a1, 0), add(a1, a1, code_bytes), add(a2, 0, 0)];
    for text in texts {
        words.push(encode::register(Operation::Add, a1, a1, a2));
        words.extend([add(a2, 0, text.len() as i32), add(a7, 0, 64), encode::ECALL]);
    }
    words.extend(then);
    let mut code = Segment::code(&words);
    code.bytes.extend(texts.concat().bytes());
    (code.file_bytes, code.size_bytes) = (code.bytes.len() as u64, code.bytes.len() as u64);
    write(folder, name, &file(RISC_V, START, &[code]))
}

pub(super) fn write(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, bytes).unwrap();
    path
}
