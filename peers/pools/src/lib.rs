//! The pools of threads to which Rust programs give work, with the interface of `peers/copier.h`:
//! `rayon::spawn` and tokio's `spawn_blocking`.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use tokio::runtime::{Builder, Runtime};

/// The pool in use: 0 for none.
static POOL: AtomicU8 = AtomicU8::new(0);
const RAYON: u8 = 1;
const TOKIO: u8 = 2;

static RUNTIME: OnceLock<Runtime> = OnceLock::new();
static ENDED: AtomicU64 = AtomicU64::new(0);

/// A copy on its way to a thread.
struct Job {
    target: *mut u8,
    source: *const u8,
    bytes: usize,
}

// SAFETY: the caller keeps both ranges valid until the copy has ended.
unsafe impl Send for Job {}

impl Job {
    fn run(self) {
        // SAFETY: the ranges are valid until the copy has ended, and the caller uses neither.
        let target = unsafe { std::slice::from_raw_parts_mut(self.target, self.bytes) };
        // SAFETY: as above.
        let source = unsafe { std::slice::from_raw_parts(self.source, self.bytes) };
        haul_copy::copy(target, source);
        ENDED.fetch_add(1, Ordering::Release);
    }
}

/// The processors of the process at the first open, before the caller was placed.
static CPUS: OnceLock<libc::cpu_set_t> = OnceLock::new();

/// Lets a thread of a pool run where the process may. It would inherit the place of the caller.
fn free_thread() {
    if let Some(cpus) = CPUS.get() {
        // SAFETY: the set outlives the call.
        unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), cpus) };
    }
}

/// Keeps the processors of the process, and makes rayon's pool.
fn prepare() {
    CPUS.get_or_init(|| {
        // SAFETY: a set of processors is plain integers.
        let mut cpus: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: the set is writable.
        unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut cpus) };
        cpus
    });
    // It fails if the pool exists.
    let _ = rayon::ThreadPoolBuilder::new().start_handler(|_| free_thread()).build_global();
}

/// Whether tokio's runtime exists.
fn is_running() -> bool {
    if RUNTIME.get().is_none()
        && let Ok(runtime) = Builder::new_current_thread().on_thread_start(free_thread).build()
    {
        let _ = RUNTIME.set(runtime);
    }
    RUNTIME.get().is_some()
}

/// # Safety
/// `name` is a C string. See `peers/copier.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_copier_open(
    name: *const c_char,
    _own_cpu: c_uint,
    _copier_cpu: c_uint,
) -> *const c_char {
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    prepare();
    let pool = match name.to_bytes() {
        b"rayon" => RAYON,
        b"tokio" if is_running() => TOKIO,
        _ => return c"no pool of this name, or no threads for it".as_ptr(),
    };
    POOL.store(pool, Ordering::Relaxed);
    ENDED.store(0, Ordering::Release);
    ptr::null()
}

/// The pools' threads sleep when they have nothing to do.
#[unsafe(no_mangle)]
pub extern "C" fn haul_copier_close() {}

/// # Safety
/// See `peers/copier.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_copier_submit(
    target: *mut c_void,
    source: *const c_void,
    bytes: usize,
) -> c_int {
    let job = Job { target: target.cast(), source: source.cast(), bytes };
    match (POOL.load(Ordering::Relaxed), RUNTIME.get()) {
        (RAYON, _) => rayon::spawn(move || job.run()),
        (TOKIO, Some(runtime)) => drop(runtime.spawn_blocking(move || job.run())),
        _ => return 0,
    }
    1
}

#[unsafe(no_mangle)]
pub extern "C" fn haul_copier_ended() -> u64 {
    ENDED.load(Ordering::Acquire)
}

#[unsafe(no_mangle)]
pub extern "C" fn haul_copier_version() -> *const c_char {
    static VERSIONS: OnceLock<[CString; 2]> = OnceLock::new();
    let versions = VERSIONS.get_or_init(|| ["rayon", "tokio"].map(version));
    versions[usize::from(POOL.load(Ordering::Relaxed) == TOKIO)].as_ptr()
}

/// The version of a package that this library was built with.
fn version(package: &str) -> CString {
    let lock = include_str!("../Cargo.lock");
    let after = lock.split(&format!("name = \"{package}\"\nversion = \"")).nth(1);
    let version = after.and_then(|text| text.split('"').next()).unwrap_or("unknown");
    CString::new(version).unwrap_or_default()
}
