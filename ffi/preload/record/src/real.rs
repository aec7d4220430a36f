//! The real functions: the next ones with the same name in the order of libraries.

use core::ffi::{CStr, c_int, c_long, c_ulong, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// A function of the next library, looked up by name.
pub(crate) struct Next {
    name: &'static CStr,
    address: AtomicUsize,
}

/// The values of [`Next::address`] before the look-up, and if no library has the function.
const UNKNOWN: usize = 0;
const ABSENT: usize = 1;

impl Next {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicUsize::new(UNKNOWN) }
    }

    /// The function's address; `None` if no library has the function. The first call may
    /// allocate.
    pub(crate) fn address(&self) -> Option<usize> {
        let known = match self.address.load(Ordering::Relaxed) {
            UNKNOWN => self.look_up(),
            known => known,
        };
        (known != ABSENT).then_some(known)
    }

    #[cold]
    fn look_up(&self) -> usize {
        // SAFETY: the name is a C string, and RTLD_NEXT means the libraries after this one.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        let address = if found.is_null() { ABSENT } else { found.addr() };
        self.address.store(address, Ordering::Relaxed);
        address
    }
}

/// Declares a function that calls the next function with its name, and returns the default if
/// there is no such function.
macro_rules! next {
    ($place:ident = $name:ident($($argument:ident: $type:ty),*) -> $result:ty, else $default:expr) => {
        static $place: $crate::real::Next = {
            const NAME: &str = concat!(stringify!($name), "\0");
            match core::ffi::CStr::from_bytes_with_nul(NAME.as_bytes()) {
                Ok(name) => $crate::real::Next::new(name),
                Err(_) => panic!("a function's name holds no zero"),
            }
        };
        pub(crate) unsafe fn $name($($argument: $type),*) -> $result {
            let Some(address) = $place.address() else { return $default };
            // SAFETY: the next library's function with this name has this signature, because it
            // is libc's or DPDK's function, according to their headers, or a replacement for it.
            let function = unsafe {
                core::mem::transmute::<usize, unsafe extern "C" fn($($type),*) -> $result>(address)
            };
            // SAFETY: the caller's promise is that function's.
            unsafe { function($($argument),*) }
        }
    };
}
pub(crate) use next;

type Block = *mut c_void;

next!(MALLOC = malloc(size: usize) -> Block, else core::ptr::null_mut());
next!(CALLOC = calloc(count: usize, size: usize) -> Block, else core::ptr::null_mut());
next!(REALLOC = realloc(block: Block, size: usize) -> Block, else core::ptr::null_mut());
next!(FREE = free(block: Block) -> (), else Default::default());
next!(POSIX_MEMALIGN = posix_memalign(block: *mut Block, align: usize, size: usize) -> i32, else libc::ENOMEM);
next!(ALIGNED_ALLOC = aligned_alloc(align: usize, size: usize) -> Block, else core::ptr::null_mut());
next!(MEMALIGN = memalign(align: usize, size: usize) -> Block, else core::ptr::null_mut());
next!(VALLOC = valloc(size: usize) -> Block, else core::ptr::null_mut());
next!(PVALLOC = pvalloc(size: usize) -> Block, else core::ptr::null_mut());
next!(SIGACTION = sigaction(number: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int, else -1);
next!(SIGNAL = signal(number: c_int, handler: usize) -> usize, else libc::SIG_ERR);
next!(SIGPROCMASK = sigprocmask(how: c_int, new: *const libc::sigset_t, old: *mut libc::sigset_t) -> c_int, else -1);
next!(PTHREAD_SIGMASK = pthread_sigmask(how: c_int, new: *const libc::sigset_t, old: *mut libc::sigset_t) -> c_int, else libc::ENOSYS);
next!(PRCTL = prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int, else -1);
next!(SYSCALL = syscall(number: c_long, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong, e: c_ulong, f: c_ulong) -> c_long, else -1);
next!(MALLOC_USABLE_SIZE = malloc_usable_size(block: Block) -> usize, else 0);

/// Whether the program and its libraries call a malloc other than this library's. A malloc that
/// is linked into the program precedes all preloaded ones.
pub(crate) fn program_has_own_malloc() -> bool {
    // SAFETY: the name is a C string, and RTLD_DEFAULT means the order of all libraries.
    let called = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr()) };
    let own: *const c_void = (&raw const STATE).cast();
    matches!((object_of(called), object_of(own)), (Some(called), Some(own)) if called != own)
}

/// The start of the program or library that contains an address.
fn object_of(address: *const c_void) -> Option<usize> {
    let mut about = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the call accepts any address and writes its result to `about`.
    let found = unsafe { libc::dladdr(address, about.as_mut_ptr()) };
    // SAFETY: all zeros are a valid value of this structure of pointers, and so is the structure
    // after the call has written to it.
    let about = unsafe { about.assume_init() };
    (found != 0).then_some(about.dli_fbase.addr())
}

/// Whether the real functions are known.
static STATE: AtomicU32 = AtomicU32::new(NOT_YET);
const NOT_YET: u32 = 0;
const RESOLVING: u32 = 1;
const READY: u32 = 2;

/// Whether the real functions can be called. The real functions cannot be called while they are
/// looked up; then [`early`](crate::early) serves allocations.
pub(crate) fn is_ready() -> bool {
    STATE.load(Ordering::Acquire) == READY || resolve_all()
}

#[cold]
fn resolve_all() -> bool {
    if STATE.compare_exchange(NOT_YET, RESOLVING, Ordering::Acquire, Ordering::Relaxed).is_err() {
        return STATE.load(Ordering::Acquire) == READY;
    }
    let all = [
        &MALLOC,
        &CALLOC,
        &REALLOC,
        &FREE,
        &POSIX_MEMALIGN,
        &ALIGNED_ALLOC,
        &MEMALIGN,
        &VALLOC,
        &PVALLOC,
        &MALLOC_USABLE_SIZE,
        &SIGACTION,
        &SIGNAL,
        &SIGPROCMASK,
        &PTHREAD_SIGMASK,
        &PRCTL,
        &SYSCALL,
    ];
    // All functions are looked up now, because a look-up may allocate, and that allocation must
    // not start another look-up.
    for next in all {
        next.address();
    }
    STATE.store(READY, Ordering::Release);
    true
}
