//! Finds MOVDIR64B or ENQCMD at an instruction pointer, and its operands (Intel SDM, volume 2).

/// The longest instruction, in bytes.
pub(crate) const INSTRUCTION_BYTES_MAX: usize = 15;

/// One of the two instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instruction {
    /// Whether it is ENQCMD, which reports "retry" in ZF.
    pub(crate) is_enqueue: bool,
    /// The address of the portal.
    pub(crate) target: u64,
    /// The address of the descriptor.
    pub(crate) source: u64,
    /// The length of the instruction, in bytes.
    pub(crate) length: usize,
}

/// The instruction in `code`, which begins at address `at`. `register` gives the value of a
/// register by its number in machine code.
pub(crate) fn decode(code: &[u8], at: u64, register: impl Fn(u8) -> u64) -> Option<Instruction> {
    let mut bytes = code.iter().copied();
    let mut next = || bytes.next();
    let is_enqueue = match next()? {
        0x66 => false,
        0xf2 => true,
        _ => return None,
    };
    let mut byte = next()?;
    let mut rex = 0;
    if byte & 0xf0 == 0x40 {
        rex = byte;
        byte = next()?;
    }
    if (byte, next()?, next()?) != (0x0f, 0x38, 0xf8) {
        return None;
    }
    let modrm = next()?;
    let (mode, low) = (modrm >> 6, modrm & 7);
    if mode == 3 {
        return None;
    }
    let target = register(modrm >> 3 & 7 | (rex & 4) << 1);
    let mut length = 5 + usize::from(rex != 0);
    let mut address = 0u64;
    let mut has_base = true;
    let mut base = low | (rex & 1) << 3;
    if low == 4 {
        let sib = next()?;
        length += 1;
        base = sib & 7 | (rex & 1) << 3;
        has_base = !(sib & 7 == 5 && mode == 0);
        let index = sib >> 3 & 7 | (rex & 2) << 2;
        if index != 4 {
            address = register(index) << (sib >> 6);
        }
    }
    let is_relative = low == 5 && mode == 0;
    if has_base && !is_relative {
        address = address.wrapping_add(register(base));
    }
    let displacement_bytes = match mode {
        1 => 1,
        2 => 4,
        _ if is_relative || !has_base => 4,
        _ => 0,
    };
    let mut displacement = 0u32;
    for index in 0..displacement_bytes {
        displacement |= u32::from(next()?) << (8 * index);
    }
    let displacement = match displacement_bytes {
        1 => i64::from(displacement as u8 as i8),
        _ => i64::from(displacement as i32),
    };
    length += displacement_bytes;
    address = address.wrapping_add_signed(displacement);
    if is_relative {
        address = address.wrapping_add(at).wrapping_add(length as u64);
    }
    Some(Instruction { is_enqueue, target, source: address, length })
}
