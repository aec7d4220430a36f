//! Files that load, and many that must be rejected.

use super::*;
use crate::isa::encode;

/// A valid file: a page of code that exits, and a page of data.
fn elf() -> Vec<u8> {
    let mut file = vec![0; 64 + 2 * 56];
    file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    put(&mut file, 16, &2u16.to_le_bytes());
    put(&mut file, 18, &243u16.to_le_bytes());
    put(&mut file, 24, &0x8000_0000u64.to_le_bytes());
    put(&mut file, 32, &64u64.to_le_bytes());
    put(&mut file, 54, &56u16.to_le_bytes());
    put(&mut file, 56, &2u16.to_le_bytes());
    let code = encode::ECALL.to_le_bytes();
    header(&mut file, 0, 5, 176, 0x8000_0000, 4, 4);
    header(&mut file, 1, 6, 180, 0x8000_1000, 3, 100);
    file.extend(code);
    file.extend(b"abc");
    file
}

fn put(file: &mut [u8], at: usize, bytes: &[u8]) {
    file[at..at + bytes.len()].copy_from_slice(bytes);
}

fn header(
    file: &mut [u8],
    index: usize,
    flags: u32,
    offset: u64,
    address: u64,
    bytes: u64,
    size: u64,
) {
    let at = 64 + index * 56;
    put(file, at, &1u32.to_le_bytes());
    put(file, at + 4, &flags.to_le_bytes());
    for (field, value) in [(8, offset), (16, address), (32, bytes), (40, size)] {
        put(file, at + field, &value.to_le_bytes());
    }
}

fn refusal(change: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut file = elf();
    change(&mut file);
    Image::from_elf(&file).expect_err("a bad file").to_string()
}

#[test]
fn valid_file_loads() {
    let image = Image::from_elf(&elf()).expect("a sound file");
    assert_eq!(image.entry(), 0);
    assert_eq!(image.code().len(), 1);
    assert_eq!(image.code()[0].operation, Operation::Ecall);
    assert_eq!(image.memory().read(0x8000_1000, 100).map(|b| &b[..4]), Some(b"abc\0".as_slice()));
    assert_eq!(image.stack_top(), 0x8000_2000 + PAGE + STACK_BYTES);
}

#[test]
fn every_truncation_is_an_error() {
    let file = elf();
    for length in 0..file.len() {
        assert!(Image::from_elf(&file[..length]).is_err(), "{length} bytes");
    }
    assert!(refusal(|f| f.truncate(f.len() - 1)).contains("truncated"));
    assert!(refusal(|f| f.truncate(70)).contains("truncated"));
}

#[test]
fn corrupted_byte_never_panics() {
    let file = elf();
    for at in 0..file.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut file = file.clone();
            file[at] = value;
            // Either result is right, as long as the call returns.
            let _ = Image::from_elf(&file);
        }
    }
}

#[test]
fn foreign_file_is_rejected_with_its_reason() {
    assert!(refusal(|f| f[0] = b'#').contains("does not begin with the ELF signature"));
    assert!(refusal(|f| f[4] = 1).contains("not a 64-bit little-endian"));
    assert!(refusal(|f| f[5] = 2).contains("not a 64-bit little-endian"));
    assert!(refusal(|f| f[18] = 62).contains("machine 62"));
    assert!(refusal(|f| f[48] = 1).contains("compressed"));
    assert!(refusal(|f| f[16] = 3).contains("-no-pie"));
    assert!(refusal(|f| f[54] = 55).contains("of 55 bytes"));
    assert!(refusal(|f| f[57] = 255).contains("program headers"));
    assert!(refusal(|f| f[64 + 56] = 3).contains("-static"));
}

#[test]
fn invalid_segments_are_rejected_with_their_reason() {
    let code = |f: &mut Vec<u8>, address, bytes, size| header(f, 0, 5, 176, address, bytes, size);
    assert!(refusal(|f| code(f, 0x8000_0000, 4, 0x1001)).contains("overlap"));
    assert!(refusal(|f| code(f, 0x8000_0000, 4, u64::MAX)).contains("may span"));
    assert!(refusal(|f| code(f, u64::MAX - 1, 4, 4)).contains("may span"));
    assert!(refusal(|f| code(f, 0, 4, 4)).contains("may span"));
    assert!(refusal(|f| code(f, 0x8000_0000, u64::MAX, u64::MAX)).contains("bytes in the file"));
    assert!(refusal(|f| code(f, 0x8000_0000, 4096, 4096)).contains("truncated"));
    assert!(refusal(|f| code(f, 0x8000_0000, 4, 3)).contains("damaged"));
    assert!(refusal(|f| header(f, 0, 7, 176, 0x8000_0000, 4, 4)).contains("writable and exec"));
    assert!(refusal(|f| header(f, 0, 4, 176, 0x8000_0000, 4, 4)).contains("no executable seg"));
    assert!(refusal(|f| put(f, 56, &0u16.to_le_bytes())).contains("nothing to load"));
    let high = 0u64.wrapping_sub(PAGE);
    assert!(refusal(|f| header(f, 1, 6, 180, high, 3, 100)).contains("may span"));
}

#[test]
fn too_large_code_segment_is_rejected() {
    let message = refusal(|f| {
        header(f, 0, 5, 176, 0x8000_0000, 4, CODE_BYTES_MAX + 4);
        header(f, 1, 6, 180, 0x8100_0000, 3, 100);
    });
    assert!(message.contains("code may span"), "{message}");
}

#[test]
fn entry_outside_of_code_is_rejected() {
    for entry in [0u64, 0x8000_0002, 0x8000_0004, 0x8000_1000, u64::MAX] {
        assert!(refusal(|f| put(f, 24, &entry.to_le_bytes())).contains("entry"), "{entry:#x}");
    }
}

#[test]
fn page_permissions_are_enforced() {
    let mut memory = Image::from_elf(&elf()).expect("a sound file").memory().clone();
    let (code, data, guard) = (0x8000_0000, 0x8000_1000, 0x8000_2000);
    assert!(memory.load::<4>(code).is_some());
    assert_eq!(memory.store::<4>(code, [0; 4]), None);
    assert_eq!(memory.store::<8>(data - 4, [0; 8]), None);
    assert_eq!(memory.store::<8>(guard - 8, [1; 8]), Some(()));
    assert_eq!(memory.store::<8>(guard - 4, [1; 8]), None);
    assert_eq!(memory.load::<1>(guard), None);
    assert_eq!(memory.load::<1>(code - 1), None);
    assert_eq!(memory.load::<8>(u64::MAX - 3), None);
    assert_eq!(memory.read(data, u64::MAX), None);
    assert!(memory.load::<8>(data - 4).is_some(), "an access across two readable pages");
}

#[test]
fn copy_outside_of_memory_or_onto_itself_is_an_error() {
    let mut memory = Image::from_elf(&elf()).expect("a sound file").memory().clone();
    let (data, guard) = (0x8000_1000, 0x8000_2000);
    let mut copy = |source, target, bytes| memory.copy(4, source, target, bytes);
    assert_eq!(copy(data, data + 8, 8), Ok(()));
    assert_eq!(copy(0, 0, 0), Ok(()));
    let message = |result: Result<(), Error>| result.expect_err("a bad copy").to_string();
    assert!(message(copy(data, data + 8, 9)).contains("which overlap"));
    assert!(message(copy(data, guard - 4, 8)).contains("copy to 8 bytes at 0x80001ffc"));
    assert!(message(copy(guard, data, 8)).contains("copy from 8 bytes at 0x80002000"));
    assert!(message(copy(data, data + 64, u64::MAX)).contains("copy from"));
    assert!(message(copy(data, 0x8000_0000, 4)).contains("copy to"));
}

#[test]
fn program_at_end_of_address_space_is_rejected() {
    for start in [u64::MAX - 3, u64::MAX - 4095, u64::MAX - 8191] {
        let image = Image::from_words(start & !3, &[encode::FENCE; 2], 64);
        assert!(image.is_err(), "{start:#x}");
    }
}
