//! Counters of the kernel's perf events, for whole units outside of the cores.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::FromRawFd;

/// An event of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The unit's number (`type` in its folder of `/sys`).
    pub unit: u32,
    /// The event, with its masks.
    pub config: u64,
    /// The processor on which the counter is read.
    pub cpu: u32,
}

/// The value of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// The number of events while the counter ran.
    pub count: u64,
    /// Nanoseconds since the counter was opened.
    pub enabled_ns: u64,
    /// The part of that time in which the counter ran. This part is shorter than the time if
    /// events use a unit's registers alternately.
    pub running_ns: u64,
}

/// An open counter.
pub trait Counter: Send {
    /// The present value of the counter.
    ///
    /// # Errors
    /// The system refuses, or the unit has vanished.
    fn read(&mut self) -> io::Result<Value>;
}

/// A factory of counters.
pub trait Counters {
    /// # Errors
    /// The system's error: the access is forbidden, the event is unknown, or no register is free.
    fn open(&self, event: &Event) -> io::Result<Box<dyn Counter>>;
}

/// The kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kernel;

/// The first version of `struct perf_event_attr` (include/uapi/linux/perf_event.h,
/// PERF_ATTR_SIZE_VER0), which every kernel accepts.
#[repr(C)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    breakpoint_address: u64,
}

const _: () = assert!(size_of::<Attributes>() == 64);

/// PERF_FORMAT_TOTAL_TIME_ENABLED and PERF_FORMAT_TOTAL_TIME_RUNNING.
const WITH_TIMES: u64 = 1 | 2;
/// PERF_FLAG_FD_CLOEXEC.
const CLOSE_ON_EXEC: u64 = 8;

impl Counters for Kernel {
    fn open(&self, event: &Event) -> io::Result<Box<dyn Counter>> {
        let attributes = Attributes {
            kind: event.unit,
            size: size_of::<Attributes>() as u32,
            config: event.config,
            sample_period: 0,
            sample_type: 0,
            read_format: WITH_TIMES,
            flags: 0,
            wakeup_events: 0,
            breakpoint_type: 0,
            breakpoint_address: 0,
        };
        // SAFETY: the structure lives during the call and contains its size. Process -1 means all
        // processes on one processor, and group -1 no group.
        let result = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                -1_i64,
                i64::from(event.cpu),
                -1_i64,
                CLOSE_ON_EXEC,
            )
        };
        let Ok(descriptor) = i32::try_from(result) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, and nothing else owns it.
        let file = unsafe { File::from_raw_fd(descriptor) };
        Ok(Box::new(Open(file)))
    }
}

struct Open(File);

impl Counter for Open {
    fn read(&mut self) -> io::Result<Value> {
        let mut bytes = [0; 24];
        self.0.read_exact(&mut bytes)?;
        let word = |at: usize| {
            let word = bytes[at..at + 8].try_into().expect("8 bytes");
            u64::from_ne_bytes(word)
        };
        Ok(Value { count: word(0), enabled_ns: word(8), running_ns: word(16) })
    }
}
