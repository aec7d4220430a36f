//! The real functions: the next ones with the same name in the order of libraries.

use core::ffi::CStr;
use core::sync::atomic::{AtomicUsize, Ordering};

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

    /// The function's address; `None` if no library has the function.
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

/// Calls the next function with a name. Without such a function, sets `errno` to ENOSYS and returns
/// the default.
macro_rules! real {
    ($name:ident($($argument:expr => $type:ty),*) -> $result:ty, else $default:expr) => {{
        static NEXT: $crate::real::Next = {
            const NAME: &str = concat!(stringify!($name), "\0");
            match core::ffi::CStr::from_bytes_with_nul(NAME.as_bytes()) {
                Ok(name) => $crate::real::Next::new(name),
                Err(_) => panic!("a function's name holds no zero"),
            }
        };
        match NEXT.address() {
            None => {
                $crate::real::set_errno(libc::ENOSYS);
                $default
            }
            Some(address) => {
                // SAFETY: the next library's function with this name has this signature, because
                // it is libc's function, according to its header, or a replacement for it.
                let function = unsafe {
                    core::mem::transmute::<usize, unsafe extern "C" fn($($type),*) -> $result>(
                        address,
                    )
                };
                // SAFETY: the caller's promise is that function's.
                unsafe { function($($argument),*) }
            }
        }
    }};
}
pub(crate) use real;

pub(crate) fn set_errno(number: i32) {
    // SAFETY: the call returns this thread's variable.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { *place = number };
}
