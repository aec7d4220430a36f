//! AVX-512 moves and broadcasts on a processor without AVX-512.
//!
//! # Idea
//!
//! An EVEX instruction traps (SIGILL). The handler decodes the instruction, emulates it and
//! continues after it. The low 32 bytes of zmm0 to zmm15 stay in the registers of the interrupted
//! thread. The processor itself runs AVX2 instructions, which use the same registers. The
//! processor has no registers for the other bytes, so a thread-local variable holds them.
//!
//! An AVX2 instruction that writes zmm0 to zmm15 clears the upper half of the register without a
//! trap. The emulator therefore stores the lower half together with the upper half: if the lower
//! half has changed since then, an AVX2 instruction has written the register, and the upper half
//! counts as cleared.
//!
//! An unknown instruction aborts the process with a message that has the instruction's text. A
//! misaligned operand of an instruction that requires alignment aborts the process too. A bad
//! address kills the process with SIGSEGV, as it would without the emulator.

use core::cell::UnsafeCell;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

use iced_x86::{
    Decoder, DecoderOptions, EncodingKind, Formatter, Instruction, IntelFormatter, Mnemonic,
    OpKind, Register,
};

use crate::frame::Frame;

/// The state for which the processor has no registers.
struct Upper {
    /// Bytes 32 to 63 of zmm0 to zmm15.
    halves: [[u8; 32]; 16],
    /// The value of bytes 0 to 31 at the time when `halves` was written.
    below: [[u8; 32]; 16],
    /// zmm16 to zmm31.
    wholes: [[u8; 64]; 16],
    /// k0 to k7.
    masks: [u64; 8],
}

thread_local! {
    static UPPER: UnsafeCell<Upper> = const {
        UnsafeCell::new(Upper {
            halves: [[0; 32]; 16],
            below: [[0; 32]; 16],
            wholes: [[0; 64]; 16],
            masks: [0; 8],
        })
    };
}

static EMULATED: AtomicUsize = AtomicUsize::new(0);

/// The number of instructions that have been emulated so far. If a test emulated no instruction,
/// it has proved nothing.
pub(crate) fn emulated() -> usize {
    EMULATED.load(Ordering::Relaxed)
}

/// Installs the handler that emulates trapped instructions, on all threads.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // The decoder builds its tables on first use, which must not happen in a handler.
        assert_eq!(decode(&[0x90], 0).mnemonic(), Mnemonic::Nop);
        // SAFETY: all zeros is a valid sigaction.
        let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_trap;
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO;
        // SAFETY: the handler has the signature that the flags require.
        let installed =
            unsafe { libc::sigaction(libc::SIGILL, &raw const action, core::ptr::null_mut()) };
        assert_eq!(installed, 0);
    });
}

extern "C" fn on_trap(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the system passed this context to this handler.
    let frame = unsafe { Frame::new(context) };
    let mut frame = frame.unwrap_or_else(|reason| die(&reason));
    let at = frame.instruction_pointer();
    // SAFETY: the processor has just fetched the instruction, and code or unwind tables follow it.
    let bytes = unsafe { core::slice::from_raw_parts(at as *const u8, 15) };
    let instruction = decode(bytes, at);
    if let Err(reason) = emulate(&instruction, &mut frame) {
        let mut text = String::new();
        IntelFormatter::new().format(&instruction, &mut text);
        die(&format!("`{text}` at {at:#x}: {reason}"));
    }
    EMULATED.fetch_add(1, Ordering::Relaxed);
    frame.continue_at(instruction.next_ip());
}

fn decode(bytes: &[u8], at: u64) -> Instruction {
    Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode()
}

fn die(reason: &str) -> ! {
    let text = format!("AVX-512 emulator: {reason}\n");
    // SAFETY: a string of that length; abort has no obligations.
    unsafe {
        libc::write(2, text.as_ptr().cast(), text.len());
        libc::abort()
    }
}

fn emulate(instruction: &Instruction, frame: &mut Frame) -> Result<(), String> {
    use Mnemonic as M;
    // These are the only emulated AVX-512 instructions with a VEX prefix.
    if matches!(instruction.mnemonic(), M::Kmovd | M::Kmovq) {
        return set_mask(instruction, frame);
    }
    if instruction.encoding() != EncodingKind::EVEX {
        return Err("only EVEX instructions are emulated".into());
    }
    if instruction.is_broadcast() {
        return Err("broadcasts from memory are not emulated".into());
    }
    match instruction.mnemonic() {
        M::Vmovdqu8 if instruction.has_op_mask() => move_masked(instruction, frame),
        _ if instruction.has_op_mask() => Err("masks are emulated for vmovdqu8 alone".into()),
        M::Vmovdqu8 | M::Vmovdqu16 | M::Vmovdqu32 | M::Vmovdqu64 | M::Vmovups | M::Vmovupd => {
            move_whole(instruction, frame, false)
        }
        M::Vmovdqa32 | M::Vmovdqa64 | M::Vmovaps | M::Vmovapd => {
            move_whole(instruction, frame, true)
        }
        M::Vmovntdq | M::Vmovntps | M::Vmovntpd => move_whole(instruction, frame, true),
        M::Vmovq => store_low(instruction, frame),
        M::Vpbroadcastb => broadcast(instruction, frame, 1),
        M::Vpbroadcastw => broadcast(instruction, frame, 2),
        M::Vpbroadcastd => broadcast(instruction, frame, 4),
        M::Vpbroadcastq => broadcast(instruction, frame, 8),
        _ => Err("not emulated".into()),
    }
}

/// A load, a store, or a move between registers.
fn move_whole(instruction: &Instruction, frame: &mut Frame, aligned: bool) -> Result<(), String> {
    let register = |operand| match instruction.op_kind(operand) {
        OpKind::Register => Some(instruction.op_register(operand)),
        _ => None,
    };
    let named = register(0).or(register(1)).ok_or("no register")?;
    let width = named.size();
    let mut value = [0; 64];
    match register(1) {
        Some(source) => value = read(frame, source)?,
        None => {
            let address = address(instruction, frame, width, aligned)?;
            // SAFETY: not guaranteed here: it is the address of the emulated instruction, and a bad
            // one faults here as it would have faulted there.
            unsafe {
                core::ptr::copy_nonoverlapping(address.cast_const(), value.as_mut_ptr(), width)
            }
        }
    }
    match register(0) {
        Some(target) => write(frame, target, width, &value),
        None => {
            let address = address(instruction, frame, width, aligned)?;
            // SAFETY: as above.
            unsafe { core::ptr::copy_nonoverlapping(value.as_ptr(), address, width) }
            Ok(())
        }
    }
}

/// Stores the low 8 bytes of a register.
fn store_low(instruction: &Instruction, frame: &Frame) -> Result<(), String> {
    if instruction.op_kind(0) != OpKind::Memory || instruction.op_kind(1) != OpKind::Register {
        return Err("only a store is emulated".into());
    }
    let value = read(frame, instruction.op_register(1))?;
    let address = address(instruction, frame, 8, false)?;
    // SAFETY: as in `move_whole`.
    unsafe { core::ptr::copy_nonoverlapping(value.as_ptr(), address, 8) }
    Ok(())
}

/// Loads a mask register from a general register.
fn set_mask(instruction: &Instruction, frame: &Frame) -> Result<(), String> {
    let is_register = |operand| instruction.op_kind(operand) == OpKind::Register;
    let (target, source) = (instruction.op_register(0), instruction.op_register(1));
    if !(is_register(0) && is_register(1) && target.is_k() && source.is_gpr()) {
        return Err("only a mask from a general register is emulated".into());
    }
    let all = frame.general(source)?;
    let value =
        if instruction.mnemonic() == Mnemonic::Kmovd { all & u64::from(u32::MAX) } else { all };
    // SAFETY: the state is this thread's, which does not run while its trap is handled.
    UPPER.with(|upper| unsafe { (*upper.get()).masks[target.number()] = value });
    Ok(())
}

/// A masked load that clears the other bytes, or a masked store. The emulation accesses memory
/// byte by byte, so that no masked-out byte is accessed.
fn move_masked(instruction: &Instruction, frame: &mut Frame) -> Result<(), String> {
    let number = instruction.op_mask().number();
    // SAFETY: the state is this thread's, which does not run while its trap is handled.
    let mask = UPPER.with(|upper| unsafe { (*upper.get()).masks[number] });
    let is_load = instruction.op_kind(0) == OpKind::Register;
    let memory = u32::from(is_load);
    if instruction.op_kind(memory) != OpKind::Memory || is_load && !instruction.zeroing_masking() {
        return Err("only loads that clear and stores are emulated under a mask".into());
    }
    let named = instruction.op_register(1 - memory);
    let width = named.size();
    let address = address(instruction, frame, width, false)?;
    let mut value = if is_load { [0; 64] } else { read(frame, named)? };
    for (index, byte) in value.iter_mut().enumerate().take(width) {
        let at = address.wrapping_add(index);
        if mask >> index & 1 == 0 {
            continue;
        }
        if is_load {
            // SAFETY: as in `move_whole`; the mask selects this byte.
            *byte = unsafe { at.read() };
        } else {
            // SAFETY: as above.
            unsafe { at.write(*byte) };
        }
    }
    if is_load { write(frame, named, width, &value) } else { Ok(()) }
}

/// Repeats the lowest `width` bytes of a general or vector register, or of memory.
fn broadcast(instruction: &Instruction, frame: &mut Frame, width: usize) -> Result<(), String> {
    let target = instruction.op_register(0);
    let mut element = [0; 8];
    match instruction.op_kind(1) {
        OpKind::Register if instruction.op_register(1).is_gpr() => {
            element = frame.general(instruction.op_register(1))?.to_le_bytes();
        }
        OpKind::Register => {
            element.copy_from_slice(&read(frame, instruction.op_register(1))?[..8]);
        }
        _ => {
            let address = address(instruction, frame, width, false)?;
            // SAFETY: as in `move_whole`.
            unsafe {
                core::ptr::copy_nonoverlapping(address.cast_const(), element.as_mut_ptr(), width)
            }
        }
    }
    let value = core::array::from_fn(|index| element[index % width]);
    write(frame, target, target.size(), &value)
}

/// The address of the memory operand.
fn address(
    instruction: &Instruction,
    frame: &Frame,
    width: usize,
    aligned: bool,
) -> Result<*mut u8, String> {
    if instruction.segment_prefix() != Register::None {
        return Err("a segment".into());
    }
    let mut address = if instruction.is_ip_rel_memory_operand() {
        instruction.ip_rel_memory_address()
    } else {
        let mut address = instruction.memory_displacement64();
        if instruction.memory_base() != Register::None {
            address = address.wrapping_add(frame.general(instruction.memory_base())?);
        }
        address
    };
    if instruction.memory_index() != Register::None {
        let index = frame.general(instruction.memory_index())?;
        address = address.wrapping_add(index.wrapping_mul(instruction.memory_index_scale().into()));
    }
    if aligned && !address.is_multiple_of(width as u64) {
        return Err(format!("{address:#x} is not a multiple of {width}"));
    }
    Ok(core::ptr::with_exposed_provenance_mut(address as usize))
}

/// All 64 bytes of the register that `register` is a part of.
fn read(frame: &Frame, register: Register) -> Result<[u8; 64], String> {
    let index = vector(register)?;
    UPPER.with(|upper| {
        // SAFETY: the state is this thread's, which does not run while its trap is handled.
        let upper = unsafe { &*upper.get() };
        if index >= 16 {
            return Ok(upper.wholes[index - 16]);
        }
        let low = frame.ymm(index);
        let mut value = [0; 64];
        value[..32].copy_from_slice(&low);
        if low == upper.below[index] {
            value[32..].copy_from_slice(&upper.halves[index]);
        }
        Ok(value)
    })
}

/// Writes the first `width` bytes of the register and clears the other bytes, like every EVEX and
/// VEX instruction.
fn write(
    frame: &mut Frame,
    register: Register,
    width: usize,
    value: &[u8; 64],
) -> Result<(), String> {
    let index = vector(register)?;
    let mut whole = [0; 64];
    whole[..width].copy_from_slice(&value[..width]);
    UPPER.with(|upper| {
        // SAFETY: the state is this thread's, which does not run while its trap is handled.
        let upper = unsafe { &mut *upper.get() };
        if index >= 16 {
            upper.wholes[index - 16] = whole;
            return;
        }
        upper.below[index].copy_from_slice(&whole[..32]);
        upper.halves[index].copy_from_slice(&whole[32..]);
        frame.set_ymm(index, &upper.below[index]);
    });
    Ok(())
}

fn vector(register: Register) -> Result<usize, String> {
    if register.is_vector_register() {
        Ok(register.number())
    } else {
        Err(format!("register {register:?}"))
    }
}
