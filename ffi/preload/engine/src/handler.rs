//! The handler of SIGSEGV and SIGILL, which executes the two instructions on a portal.
//!
//! The signal arrives synchronously, at an instruction of the program that is neither in libc nor
//! in this library, so that the handler may take locks and allocate.

use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};
use std::cell::UnsafeCell;

use haul_engine::dsa::{DESCRIPTOR_BYTES, Descriptor};

use crate::decode::{INSTRUCTION_BYTES_MAX, decode};
use crate::device;

/// The zero flag, in the register of flags.
const ZERO_FLAG: i64 = 1 << 6;

/// The flags that ENQCMD clears: CF, PF, AF, ZF, SF and OF.
const CLEARED: i64 = 1 | 1 << 2 | 1 << 4 | ZERO_FLAG | 1 << 7 | 1 << 11;

/// The registers in the order of machine code.
const REGISTERS: [libc::c_int; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

/// The handlers that were there before.
struct Before(UnsafeCell<[MaybeUninit<libc::sigaction>; 2]>);
// SAFETY: `install` writes it before `IS_INSTALLED` is set, and nothing writes it afterwards.
unsafe impl Sync for Before {}
static BEFORE: Before = Before(UnsafeCell::new([MaybeUninit::uninit(); 2]));
static IS_INSTALLED: AtomicBool = AtomicBool::new(false);

const SIGNALS: [libc::c_int; 2] = [libc::SIGSEGV, libc::SIGILL];

/// Installs the handler. Called once.
pub(crate) fn install() {
    // SAFETY: all zeros are a valid value of this structure.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction = (handle as extern "C" fn(_, _, _)).addr_for_kernel();
    action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_ONSTACK;
    // SAFETY: this function is called once, and no handler reads the memory yet.
    let before = unsafe { &mut *BEFORE.0.get() };
    for (signal, before) in SIGNALS.into_iter().zip(before) {
        // SAFETY: both structures live until the call returns, and the handler keeps the rules of
        // a handler.
        unsafe { libc::sigaction(signal, &raw const action, before.as_mut_ptr()) };
    }
    IS_INSTALLED.store(true, Ordering::Release);
}

/// The address of a handler as a number.
trait Handler {
    fn addr_for_kernel(self) -> usize;
}

impl Handler for extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut c_void) {
    fn addr_for_kernel(self) -> usize {
        (self as *const ()).addr()
    }
}

extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a context of this type to a handler with SA_SIGINFO.
    let context_of_signal = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    if execute(context_of_signal).is_none() {
        pass_on(signal, info, context);
    }
}

/// Executes one of the two instructions on a portal; `None` if there is none.
fn execute(context: &mut libc::ucontext_t) -> Option<()> {
    let registers = &mut context.uc_mcontext.gregs;
    let at = registers[libc::REG_RIP as usize] as u64;
    let mut code = [0; INSTRUCTION_BYTES_MAX];
    let count = read(at, &mut code);
    let value = |number: u8| registers[REGISTERS[usize::from(number & 15)] as usize] as u64;
    let instruction = decode(code.get(..count)?, at, value)?;
    let open = device::portal(usize::try_from(instruction.target).ok()?)?;
    let mut bytes = [0; DESCRIPTOR_BYTES];
    if read(instruction.source, &mut bytes) < DESCRIPTOR_BYTES {
        return None;
    }
    let descriptor = Descriptor::from_bytes(bytes);
    if instruction.is_enqueue {
        // SAFETY: the program submits the descriptor, and keeps what it names.
        let is_accepted = unsafe { open.enqueue(&descriptor) };
        let flags = &mut registers[libc::REG_EFL as usize];
        *flags &= !CLEARED;
        if !is_accepted {
            *flags |= ZERO_FLAG;
        }
    } else {
        // SAFETY: as above.
        unsafe { open.store(&descriptor) };
    }
    registers[libc::REG_RIP as usize] = at.wrapping_add(instruction.length as u64) as i64;
    Some(())
}

/// Reads memory at any address, and returns the number of bytes that can be read.
fn read(address: u64, into: &mut [u8]) -> usize {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let start = ptr::without_provenance_mut(address as usize);
    let remote = libc::iovec { iov_base: start, iov_len: into.len() };
    // SAFETY: the call has no conditions.
    let process = unsafe { libc::getpid() };
    // SAFETY: the vectors and the slice live until the call returns. The kernel checks the other
    // address.
    let count =
        unsafe { libc::process_vm_readv(process, &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(count).unwrap_or(0)
}

/// Gives a signal to the handler that was there before. Without one, the signal is repeated with
/// the kernel's default, which ends the program.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let at = SIGNALS.iter().position(|one| *one == signal).unwrap_or(0);
    if IS_INSTALLED.load(Ordering::Acquire) {
        // SAFETY: `install` has written all, and nothing writes any more.
        let before = unsafe { &(*BEFORE.0.get())[at] };
        // SAFETY: `install` had the kernel write it.
        let before = unsafe { before.assume_init_ref() };
        let handler = before.sa_sigaction;
        if handler == libc::SIG_IGN {
            return;
        }
        if handler != libc::SIG_DFL {
            type Simple = extern "C" fn(libc::c_int);
            type Whole = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut c_void);
            if before.sa_flags & libc::SA_SIGINFO != 0 {
                // SAFETY: with SA_SIGINFO, the program gave the address of such a function.
                let handler = unsafe { core::mem::transmute::<usize, Whole>(handler) };
                handler(signal, info, context);
            } else {
                // SAFETY: without SA_SIGINFO, the program gave the address of such a function.
                let handler = unsafe { core::mem::transmute::<usize, Simple>(handler) };
                handler(signal);
            }
            return;
        }
    }
    // SAFETY: the call has no conditions; the instruction is then repeated and ends the program.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}
