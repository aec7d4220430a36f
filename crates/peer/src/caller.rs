//! Signals events that are shared with a peer, and never waits.
//!
//! An eventfd is one open file for both sides. A peer may fill the counter and clear O_NONBLOCK
//! at any instant. So even after a check, a write(2) may wait. io_uring has the same race, and
//! the kernel refuses pwritev2(2) with RWF_NOWAIT for an eventfd. But the kernel itself can
//! signal an eventfd at the end of an asynchronous read (IOCB_FLAG_RESFD of io_submit(2)), and
//! this never waits. The kernel adds one, or nothing if the counter is full, and it refuses a
//! file that is not an eventfd. So a [`Caller`] reads zero bytes from /dev/null, which completes
//! at once. A call takes 0.74 us; poll(2) and write(2) would take 0.54 us. The alternative, to
//! wake a thread that writes and may wait, would take the caller 4.9 us.

use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::fd::OwnedFd;

use super::descriptor::keep;
use super::fork::Here;

/// The number of calls after which a caller collects the completed requests from the kernel.
const CALLS: usize = 32;

/// IOCB_CMD_PREAD and IOCB_FLAG_RESFD of linux/aio_abi.h.
const READ: u16 = 0;
const HAS_EVENT: u32 = 1;

/// struct iocb of linux/aio_abi.h.
#[repr(C)]
#[derive(Default)]
struct Request {
    data: u64,
    key: u32,
    read_flags: u32,
    operation: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event: u32,
}

const _: () = assert!(size_of::<Request>() == 64);

/// struct io_event. Its fields are not read.
type Over = [u64; 4];

/// Whether a descriptor is an eventfd. Compares the whole text of the link in `/proc`. For a file
/// with a path, the text begins with a slash. Reading the link calls no file system.
pub fn is_event(file: &OwnedFd) -> bool {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::readlink(path, Vec::new())
        .is_ok_and(|kind| kind.as_bytes() == b"anon_inode:[eventfd]")
}

/// Signals events that are shared with peers. Each thread should have its own `Caller`, because
/// threads that use the same value wait for each other.
#[derive(Debug)]
pub struct Caller {
    context: libc::c_ulong,
    nothing: OwnedFd,
    /// The process to which the context belongs. A child of fork has no copy of the context.
    here: Here,
}

impl Caller {
    /// # Errors
    /// The error of io_setup(2) if the system has the maximum number of contexts (fs.aio-max-nr),
    /// or if a filter refuses the system call; the error of open(2) for /dev/null.
    pub fn new() -> Result<Self> {
        let nothing = keep(File::open("/dev/null")?.into())?;
        let mut context: libc::c_ulong = 0;
        // SAFETY: `context` is zero and writable.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, CALLS, &raw mut context) };
        if made != 0 {
            return Err(Error::last_os_error());
        }
        Ok(Self { context, nothing, here: Here::now() })
    }

    /// Adds one to an event, unless its counter is full. Has no effect on another kind of file.
    #[cold]
    #[inline]
    pub fn call(&self, event: BorrowedFd<'_>) {
        let request = Request {
            operation: READ,
            file: self.nothing.as_raw_fd() as u32,
            flags: HAS_EVENT,
            event: event.as_raw_fd() as u32,
            ..Request::default()
        };
        if self.submit(&request) == Err(libc::EAGAIN) {
            self.take_over();
            // The signal is lost if the kernel has no memory for the request.
            let _ = self.submit(&request);
        }
    }

    #[inline]
    fn submit(&self, request: &Request) -> std::result::Result<(), i32> {
        let requests = [std::ptr::from_ref(request)];
        let at = requests.as_ptr();
        // SAFETY: one request, which reads zero bytes; the kernel copies it before it returns.
        let count = unsafe { libc::syscall(libc::SYS_io_submit, self.context, 1, at) };
        if count == 1 { Ok(()) } else { Err(Error::last_os_error().raw_os_error().unwrap_or(0)) }
    }

    /// Collects the completed requests from the kernel. The context has room for [`CALLS`]
    /// requests.
    fn take_over(&self) {
        let mut over: [Over; CALLS] = [[0; 4]; CALLS];
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let at = over.as_mut_ptr();
        // SAFETY: `over` has room for the requested number, and the time is only read.
        unsafe {
            libc::syscall(libc::SYS_io_getevents, self.context, 0, CALLS, at, &raw const now)
        };
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        if self.here.is_here() {
            // SAFETY: the context belongs to this process and is not used after this call.
            unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    fn count(event: &OwnedFd) -> u64 {
        let mut bytes = [0; 8];
        rustix::io::read(event, &mut bytes).unwrap();
        u64::from_ne_bytes(bytes)
    }

    #[test]
    fn call_adds_one_and_does_not_wait_for_full_event() {
        let caller = Caller::new().unwrap();
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        (0..10 * CALLS).for_each(|_| caller.call(event.as_fd()));
        assert_eq!(count(&event), 10 * CALLS as u64);
        // The event's counter is full and O_NONBLOCK is not set, so a write would wait forever.
        rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        (0..10 * CALLS).for_each(|_| caller.call(event.as_fd()));
        assert_eq!(count(&event), u64::MAX);
        caller.call(event.as_fd());
        assert_eq!(count(&event), 1);
    }

    #[test]
    fn is_event_refuses_file_with_name_of_event() {
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        assert!(is_event(&event));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("anon_inode:[eventfd]");
        let file = File::create(&path).unwrap();
        Caller::new().unwrap().call(file.as_fd());
        assert_eq!(file.metadata().unwrap().len(), 0);
        assert!(!is_event(&file.into()));
        let memory =
            rustix::fs::memfd_create(c"anon_inode:[eventfd]", rustix::fs::MemfdFlags::CLOEXEC);
        assert!(!is_event(&memory.unwrap()));
    }
}
