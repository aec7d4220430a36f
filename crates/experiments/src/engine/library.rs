//! Peers outside this program, each a shared library with the interface of `peers/copier.h`.

use std::collections::VecDeque;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_uint, c_void};
use std::hint::spin_loop;
use std::mem::ManuallyDrop;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, io};

use haul_measure::sys;

use super::subject::{Copies, Job};
use crate::drive::{Folder, compile, run};
use crate::dynamic;
use crate::error::Error;

const COPIER_H: &str = include_str!("../../../../peers/copier.h");
const DMA_SKELETON_C: &str = include_str!("../../../../peers/dpdk/dma_skeleton.c");

/// The library of `peers/pools`, and the variable with its path.
const POOLS: &str = "libhaul_peer_pools.so";
const POOLS_VARIABLE: &str = "HAUL_PEER_POOLS";

/// Where a peer's library comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A driver in C, which is compiled against the installed DPDK.
    Dpdk,
    /// The library of `peers/pools`, which the user has built.
    Pools,
}

/// The functions of a loaded library.
#[derive(Debug)]
struct Functions {
    open: unsafe extern "C" fn(*const c_char, c_uint, c_uint) -> *const c_char,
    close: unsafe extern "C" fn(),
    submit: unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> c_int,
    ended: unsafe extern "C" fn() -> u64,
    version: unsafe extern "C" fn() -> *const c_char,
}

/// A library that was loaded once for this process, and whether one of its engines is started.
#[derive(Debug)]
struct Loaded {
    functions: Result<Functions, String>,
    is_used: AtomicBool,
}

impl Source {
    fn remedy(self) -> &'static str {
        match self {
            Self::Dpdk => "apt-get install gcc libdpdk-dev librte-dma-skeleton23",
            Self::Pools => {
                "build it in haul's tree (cargo build --release --manifest-path \
                 peers/pools/Cargo.toml) and name it in HAUL_PEER_POOLS"
            }
        }
    }

    fn loaded(self) -> &'static Loaded {
        static DPDK: OnceLock<Loaded> = OnceLock::new();
        static POOLS: OnceLock<Loaded> = OnceLock::new();
        let load = || Loaded { functions: self.load(), is_used: AtomicBool::new(false) };
        match self {
            Self::Dpdk => DPDK.get_or_init(load),
            Self::Pools => POOLS.get_or_init(load),
        }
    }

    fn load(self) -> Result<Functions, String> {
        match self {
            Self::Dpdk => {
                let folder = compiled()?;
                Functions::of(folder.path().join("driver").as_os_str())
            }
            Self::Pools => Functions::of(pools()?.as_os_str()),
        }
    }
}

/// A folder with the driver of dma_skeleton, which can be removed after the library is loaded.
fn compiled() -> Result<Folder, String> {
    let written = || -> io::Result<Folder> {
        let folder = Folder::new("engine")?;
        fs::write(folder.path().join("copier.h"), COPIER_H)?;
        fs::write(folder.path().join("driver.c"), DMA_SKELETON_C)?;
        Ok(folder)
    };
    let folder = written().map_err(|error| format!("its driver cannot be written: {error}"))?;
    let flags = run(Command::new("pkg-config").args(["--cflags", "libdpdk"]), "pkg-config")?;
    if !flags.status.success() {
        return Err("pkg-config knows no libdpdk".into());
    }
    let flags = String::from_utf8_lossy(&flags.stdout).into_owned();
    let mut compiler = Command::new("cc");
    compiler.args(flags.split_whitespace());
    compiler.args(["-shared", "-fPIC", "-lrte_dmadev", "-lrte_eal"]);
    compile(&mut compiler, folder.path())?;
    Ok(folder)
}

/// The library that the variable names, or the one in the folder of this program.
fn pools() -> Result<PathBuf, String> {
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join(POOLS)));
    let named = std::env::var_os(POOLS_VARIABLE).map(PathBuf::from);
    let found = named.into_iter().chain(beside).find(|path| path.is_file());
    found.ok_or_else(|| format!("no {POOLS} in {POOLS_VARIABLE} or beside haul"))
}

impl Functions {
    fn of(path: &OsStr) -> Result<Self, String> {
        type Open = unsafe extern "C" fn(*const c_char, c_uint, c_uint) -> *const c_char;
        type Submit = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> c_int;
        type Version = unsafe extern "C" fn() -> *const c_char;
        let library = dynamic::Library::load(path)?;
        let of = |name: &CStr| library.function(name).map(std::ptr::NonNull::as_ptr);
        Ok(Self {
            // SAFETY: copier.h declares these functions with these types, and a function's address
            // is as large as a data pointer (POSIX).
            open: unsafe { std::mem::transmute::<*mut c_void, Open>(of(c"haul_copier_open")?) },
            // SAFETY: as above.
            close: unsafe {
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn()>(of(
                    c"haul_copier_close",
                )?)
            },
            // SAFETY: as above.
            submit: unsafe {
                std::mem::transmute::<*mut c_void, Submit>(of(c"haul_copier_submit")?)
            },
            // SAFETY: as above.
            ended: unsafe {
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> u64>(of(
                    c"haul_copier_ended",
                )?)
            },
            // SAFETY: as above.
            version: unsafe {
                std::mem::transmute::<*mut c_void, Version>(of(c"haul_copier_version")?)
            },
        })
    }
}

/// A peer's engine. Its jobs stay here until the peer has ended them, so that no buffer is freed
/// while the peer writes it.
#[derive(Debug)]
pub struct Library {
    functions: &'static Functions,
    is_used: &'static AtomicBool,
    source: Source,
    name: &'static str,
    version: String,
    /// The processors of the caller and of the peer's thread.
    cpus: [c_uint; 2],
    is_started: bool,
    pending: VecDeque<Job>,
    /// The numbers of copies since the start.
    submitted: u64,
    ended: u64,
}

impl Library {
    /// Loads the peer's library, and starts the engine once to see that it works.
    pub(super) fn open(source: Source, name: &'static str) -> Result<Self, Error> {
        let Loaded { functions, is_used } = source.loaded();
        let functions = functions.as_ref().map_err(|reason| missing(source, name, reason))?;
        let cpus = sys::affinity();
        let cpu = |cpu: Option<&usize>| cpu.map_or(0, |cpu| *cpu as c_uint);
        let mut opened = Self {
            functions,
            is_used,
            source,
            name,
            version: String::new(),
            cpus: [cpu(cpus.first()), cpu(cpus.last())],
            is_started: false,
            pending: VecDeque::new(),
            submitted: 0,
            ended: 0,
        };
        opened.resume()?;
        // SAFETY: it has no preconditions.
        let version = unsafe { (functions.version)() };
        // SAFETY: it returns a C string that lives as long as the process.
        opened.version = unsafe { CStr::from_ptr(version) }.to_string_lossy().into_owned();
        opened.pause();
        Ok(opened)
    }

    /// The version of the library that copies.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    pub(super) fn resume(&mut self) -> Result<(), Error> {
        if self.is_started {
            return Ok(());
        }
        let name = CString::new(self.name).unwrap_or_default();
        if self.is_used.swap(true, Ordering::AcqRel) {
            return Err(missing(self.source, self.name, "its library is in use in this process"));
        }
        let [own, copier] = self.cpus;
        // SAFETY: the name is a C string, and no engine of the library is started.
        let failed = unsafe { (self.functions.open)(name.as_ptr(), own, copier) };
        if !failed.is_null() {
            self.is_used.store(false, Ordering::Release);
            // SAFETY: the reason is a C string that is valid until the next call.
            let reason = unsafe { CStr::from_ptr(failed) }.to_string_lossy();
            return Err(missing(self.source, self.name, &reason));
        }
        (self.is_started, self.submitted, self.ended) = (true, 0, 0);
        Ok(())
    }

    pub(super) fn pause(&mut self) {
        self.end_all();
        if std::mem::take(&mut self.is_started) {
            // SAFETY: the engine is started, and no copy is pending.
            unsafe { (self.functions.close)() };
            self.is_used.store(false, Ordering::Release);
        }
    }

    fn are_done(&mut self) -> bool {
        if self.ended < self.submitted {
            // SAFETY: copies are pending, so the engine is started.
            self.ended = unsafe { (self.functions.ended)() };
        }
        self.ended >= self.submitted
    }

    fn end_all(&mut self) {
        while !self.are_done() {
            spin_loop();
        }
    }
}

impl Copies for Library {
    type Started = ();

    fn submit(&mut self, mut job: Job) {
        let (target, source) = (job.target.as_mut_ptr().cast(), job.source.as_ptr().cast());
        // SAFETY: the job is kept until its copy has ended; the lengths are the same.
        let is_accepted = unsafe { (self.functions.submit)(target, source, job.target.len()) } != 0;
        if is_accepted {
            self.submitted += 1;
        } else {
            haul_copy::copy(&mut job.target, &job.source);
        }
        self.pending.push_back(job);
    }

    /// The caller keeps the job, as it waits.
    fn execute(&mut self, job: Job) -> Job {
        let mut job = ManuallyDrop::new(job);
        let (target, source) = (job.target.as_mut_ptr().cast(), job.source.as_ptr().cast());
        // SAFETY: the job is leaked if this unwinds before its copy has ended; the lengths are the
        // same.
        if unsafe { (self.functions.submit)(target, source, job.target.len()) } != 0 {
            self.submitted += 1;
            self.end_all();
        } else {
            let Job { target, source, .. } = &mut *job;
            haul_copy::copy(target, source);
        }
        ManuallyDrop::into_inner(job)
    }

    /// Whether all of the peer's copies are done.
    fn is_done(&mut self, (): &()) -> bool {
        self.are_done()
    }

    /// Waits for all copies, and hands back the oldest job.
    fn wait(&mut self, (): ()) -> Job {
        self.end_all();
        self.pending.pop_front().expect("each submitted job is waited for once")
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        self.pause();
    }
}

fn missing(source: Source, peer: &'static str, reason: &str) -> Error {
    Error::ProgramMissing { peer, reason: reason.to_owned(), remedy: source.remedy() }
}
