//! The system calls that rustix does not offer.

use core::arch::asm;

use super::Errno;

/// Numbers by architecture: the kernel's `arch/x86/entry/syscalls/syscall_64.tbl` and
/// `include/uapi/asm-generic/unistd.h`.
#[cfg(target_arch = "x86_64")]
mod number {
    pub(super) const TGKILL: usize = 234;
    pub(super) const MBIND: usize = 237;
    pub(super) const GETCPU: usize = 309;
    pub(super) const CLOCK_GETTIME: usize = 228;
    pub(super) const MADVISE: usize = 28;
    pub(super) const MINCORE: usize = 27;
    pub(super) const GET_ROBUST_LIST: usize = 274;
    pub(super) const RT_SIGACTION: usize = 13;
    pub(super) const RT_SIGPROCMASK: usize = 14;
    pub(super) const RT_SIGRETURN: usize = 15;
    pub(super) const GETTID: usize = 186;
    pub(super) const GETPID: usize = 39;
}
#[cfg(target_arch = "aarch64")]
mod number {
    pub(super) const TGKILL: usize = 131;
    pub(super) const MBIND: usize = 235;
    pub(super) const GETCPU: usize = 168;
    pub(super) const CLOCK_GETTIME: usize = 113;
    pub(super) const MADVISE: usize = 233;
    pub(super) const MINCORE: usize = 232;
    pub(super) const GET_ROBUST_LIST: usize = 100;
    pub(super) const RT_SIGACTION: usize = 134;
    pub(super) const RT_SIGPROCMASK: usize = 135;
    pub(super) const GETTID: usize = 178;
    pub(super) const GETPID: usize = 172;
}

/// `MPOL_PREFERRED` of the kernel's `include/uapi/linux/mempolicy.h`: memory comes from this
/// node, else from the nearest.
const MPOL_PREFERRED: usize = 1;

/// `MADV_COLLAPSE` of the kernel's `include/uapi/asm-generic/mman-common.h`, since Linux 6.1.
const MADV_COLLAPSE: usize = 25;

/// `MADV_GUARD_INSTALL` of the kernel's `include/uapi/asm-generic/mman-common.h`, since Linux 6.13,
/// and for files since 6.15.
const MADV_GUARD_INSTALL: usize = 102;

/// `MADV_GUARD_REMOVE`, likewise.
const MADV_GUARD_REMOVE: usize = 103;

/// `CLOCK_MONOTONIC` of the kernel's `include/uapi/linux/time.h`.
const CLOCK_MONOTONIC: usize = 1;

/// How many nodes a node mask of one word can contain.
pub(super) const NODES_MAX: u32 = usize::BITS;

/// Whether this process could send a signal to thread `tid` of process `pid`. Sends no signal.
pub(super) fn probe_thread(pid: u32, tid: u32) -> Result<(), Errno> {
    // SAFETY: signal 0 is not delivered, and tgkill accesses no memory of this process.
    let result = unsafe { call(number::TGKILL, [pid as usize, tid as usize, 0, 0, 0, 0]) };
    check(result).map(drop)
}

/// The address of the list of robust mutexes that a thread of this process registered; 0 if it
/// registered none. For `thread`, 0 means this thread.
pub(super) fn robust_list(thread: u32) -> Result<usize, Errno> {
    let mut found: [usize; 2] = [0; 2];
    let [head, length] = found.each_mut().map(|word| &raw mut *word as usize);
    // SAFETY: get_robust_list writes a word to `head` and one to `length`, which outlive the call
    // and are read afterwards.
    let result = unsafe { call(number::GET_ROBUST_LIST, [thread as usize, head, length, 0, 0, 0]) };
    check(result).map(|_| found[0])
}

/// An action for a signal in the kernel's layout: `struct sigaction` in the kernel's
/// `signal_types.h`, which differs from glibc's.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KernelAction {
    pub(super) handler: usize,
    pub(super) flags: u64,
    pub(super) restorer: usize,
    pub(super) mask: u64,
}

const _: () = assert!(size_of::<KernelAction>() == 32);

/// Bytes of a signal mask (`sizeof(sigset_t)` in the kernel's `asm/signal.h`).
const MASK_BYTES: usize = 8;

/// `SIG_UNBLOCK` of the kernel's `include/uapi/asm-generic/signal-defs.h`.
const SIG_UNBLOCK: usize = 1;

/// The return of a signal handler: `rt_sigreturn`. It has the same bytes as glibc's, by which
/// debuggers recognize the stack frame of a signal.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
extern "C" fn restore() {
    core::arch::naked_asm!("mov rax, {number}", "syscall", number = const number::RT_SIGRETURN)
}

/// `SA_RESTORER` of x86's `asm/signal.h`; on other architectures the kernel provides the return.
#[cfg(target_arch = "x86_64")]
const SA_RESTORER: u64 = 0x0400_0000;

/// Sets the action `new` for a signal, if it is not `None`. Returns the previous action.
///
/// # Safety
///
/// The new action's handler is the default, ignores the signal, or is a function that may run as a
/// handler.
pub(super) unsafe fn action(signal: u32, new: Option<KernelAction>) -> Result<KernelAction, Errno> {
    #[cfg(target_arch = "x86_64")]
    let new = new.map(|new| KernelAction {
        flags: new.flags | SA_RESTORER,
        restorer: restore as *const () as usize,
        ..new
    });
    let mut old = KernelAction::default();
    let new = new.as_ref().map_or(0, |new| core::ptr::from_ref(new) as usize);
    let arguments = [signal as usize, new, &raw mut old as usize, MASK_BYTES, 0, 0];
    // SAFETY: the kernel reads one action and writes another, which both outlive the call; the
    // caller promises that the new action is valid.
    let result = unsafe { call(number::RT_SIGACTION, arguments) };
    check(result).map(|_| old)
}

/// Unblocks a signal in this thread.
pub(super) fn unblock(signal: u32) {
    let mask: [u64; 1] = [1 << (signal - 1)];
    let arguments = [SIG_UNBLOCK, mask.as_ptr() as usize, 0, MASK_BYTES, 0, 0];
    // SAFETY: the kernel reads one word of the mask, which outlives the call.
    let _ = unsafe { call(number::RT_SIGPROCMASK, arguments) };
}

/// Sends this thread a signal.
pub(super) fn raise(signal: u32) {
    // SAFETY: both calls only return a number.
    let [pid, tid] = [number::GETPID, number::GETTID].map(|asked| unsafe { call(asked, [0; 6]) });
    // SAFETY: the signal has the effect that the process has set for it.
    let _ = unsafe { call(number::TGKILL, [pid as usize, tid as usize, signal as usize, 0, 0, 0]) };
}

/// The thread pointer: the content of the register with the address of the thread's control
/// block.
pub(super) fn thread_pointer() -> usize {
    if cfg!(miri) {
        return 0;
    }
    let pointer: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the word at fs:0 contains the thread pointer itself, by the psABI's rules for TLS;
    // it is only read.
    unsafe {
        asm!("mov {}, fs:0", out(reg) pointer, options(nostack, preserves_flags, readonly));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: any code may read the register, and reading it changes nothing.
    unsafe {
        asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, nomem, preserves_flags));
    }
    pointer
}

/// Seconds and nanoseconds of the monotonic clock. A system call reads the clock, because under
/// valgrind no vDSO is mapped at the address that the kernel reports, and rustix would use the
/// vDSO at this address.
pub(super) fn monotonic() -> [i64; 2] {
    let mut time: [i64; 2] = [0; 2];
    // SAFETY: clock_gettime writes two words to `time`, which outlives the call and is read
    // afterwards. The call cannot fail for a clock that every kernel has.
    unsafe {
        call(number::CLOCK_GETTIME, [CLOCK_MONOTONIC, time.as_mut_ptr() as usize, 0, 0, 0, 0])
    };
    time
}

/// The node on which this thread runs.
pub(super) fn current_node() -> Result<u32, Errno> {
    let mut node: [u32; 1] = [0];
    // SAFETY: getcpu writes one u32 to `node`, which outlives the call and is read afterwards.
    let result = unsafe { call(number::GETCPU, [0, node.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    check(result).map(|_| node[0])
}

/// Makes the kernel prefer `node` for the pages of `[address, address + bytes)` that are not
/// present yet.
pub(super) fn bind(address: usize, bytes: usize, node: u32) -> Result<(), Errno> {
    debug_assert!(node < NODES_MAX, "node {node} does not fit the mask");
    let mask: [usize; 1] = [1 << node];
    let arguments =
        [address, bytes, MPOL_PREFERRED, mask.as_ptr() as usize, NODES_MAX as usize + 1, 0];
    // SAFETY: mbind changes the source of future pages, not the content of memory; it reads one
    // word from `mask`, which outlives the call.
    let result = unsafe { call(number::MBIND, arguments) };
    check(result).map(drop)
}

/// Stores a byte in `found` for each page of the kernel in `[address, address + bytes)`. The
/// lowest bit of the byte says whether the page is resident. `found` must be long enough.
pub(super) fn resident(address: usize, bytes: usize, found: &mut [u8]) -> Result<(), Errno> {
    debug_assert!(bytes.div_ceil(4096) <= found.len());
    let arguments = [address, bytes, found.as_mut_ptr() as usize, 0, 0, 0];
    // SAFETY: mincore writes one byte per page to `found`, which outlives the call, and changes
    // nothing else.
    let result = unsafe { call(number::MINCORE, arguments) };
    check(result).map(drop)
}

/// Makes the pages of `[address, address + bytes)` one huge page now. This also works if the
/// kernel's setting disables huge pages for shared memory (seen on Linux 6.18 with `shmem_enabled`
/// at "never").
pub(super) fn collapse(address: usize, bytes: usize) -> Result<(), Errno> {
    // SAFETY: collapsing keeps the content of the memory.
    let result = unsafe { call(number::MADVISE, [address, bytes, MADV_COLLAPSE, 0, 0, 0]) };
    check(result).map(drop)
}

/// Removes the access to `[address, address + bytes)`, and the content of this range.
///
/// # Safety
///
/// Nothing needs the content of the range, and nothing accesses the range from now on.
pub(super) unsafe fn guard(address: usize, bytes: usize) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let result = unsafe { call(number::MADVISE, [address, bytes, MADV_GUARD_INSTALL, 0, 0, 0]) };
    check(result).map(drop)
}

/// Restores the access that [`guard`] removed. Has no effect if `guard` had none.
pub(super) fn unguard(address: usize, bytes: usize) -> Result<(), Errno> {
    // SAFETY: adding access breaks no user.
    let result = unsafe { call(number::MADVISE, [address, bytes, MADV_GUARD_REMOVE, 0, 0, 0]) };
    check(result).map(drop)
}

fn check(result: isize) -> Result<usize, Errno> {
    if (-4095..0).contains(&result) {
        return Err(Errno::from_raw_os_error(-result as i32));
    }
    Ok(result as usize)
}

/// The result of a system call under Miri, which cannot make any: `-ENOSYS`.
const NO_SYSTEM_CALLS: isize = -38;

/// One system call with up to six arguments.
///
/// # Safety
///
/// The call and its arguments do not change memory that Rust relies on.
#[cfg(target_arch = "x86_64")]
unsafe fn call(number: usize, arguments: [usize; 6]) -> isize {
    if cfg!(miri) {
        return NO_SYSTEM_CALLS;
    }
    let result: isize;
    // SAFETY: the registers are those of the kernel's calling convention, which clobbers rcx and
    // r11; the effects are the caller's promise.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            in("r9") arguments[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// One system call with up to six arguments.
///
/// # Safety
///
/// The call and its arguments do not change memory that Rust relies on.
#[cfg(target_arch = "aarch64")]
unsafe fn call(number: usize, arguments: [usize; 6]) -> isize {
    if cfg!(miri) {
        return NO_SYSTEM_CALLS;
    }
    let result: isize;
    // SAFETY: the registers are those of the kernel's calling convention; the effects are the
    // caller's promise.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") arguments[0] as isize => result,
            in("x1") arguments[1],
            in("x2") arguments[2],
            in("x3") arguments[3],
            in("x4") arguments[4],
            in("x5") arguments[5],
            options(nostack),
        );
    }
    result
}
