//! The permissions of this process, which harmless attempts determine.

use std::mem::MaybeUninit;

use haul_channel::Mechanism;
use rustix::fs::{MemfdFlags, SealFlags};

use rustix::pipe::{IoSliceRaw, PipeFlags, SpliceFlags};
use rustix::process::Resource;

use super::Sys;

/// Permissions that determine which mechanisms for moving bytes are available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permissions {
    /// Whether `process_vm_readv` works at all: the kernel supports it and no seccomp filter
    /// forbids it.
    pub cross_memory_attach: bool,
    /// Yama's `ptrace_scope`: which processes a process may read. 0: any process of the same
    /// user. 1: only descendants. 2: any, but only for administrators. 3: none. `None` if the
    /// kernel has no Yama, which means 0.
    pub ptrace_scope: Option<u64>,
    /// The most memory that may be locked, in bytes; `None` for no limit.
    pub locked_bytes_max: Option<u64>,
    /// `perf_event_paranoid`: at most 2 allows a process to count its own user-space events. `None`
    /// if `/proc` does not report it.
    pub perf_event_paranoid: Option<i64>,
    /// Whether `vmsplice` moves a page into a pipe.
    pub vmsplice: bool,
    /// The largest size of an ordinary user's pipe, in bytes; `None` if `/proc` does not report
    /// it.
    pub pipe_bytes_max: Option<u64>,
    /// Whether `memfd_create` provides memory that can be sealed so that it cannot shrink.
    pub sealed_memory: bool,
}

impl Permissions {
    /// The reason why a mechanism cannot work on this machine with any peer; `None` if it can
    /// work. A particular peer may still refuse the mechanism. Both ends try the mechanism during
    /// their handshake.
    #[must_use]
    pub fn obstacle(&self, mechanism: Mechanism) -> Option<&'static str> {
        match mechanism {
            _ if !self.sealed_memory => Some("memfd_create with seals is refused"),
            _ if !mechanism.reads_the_peer() => None,
            _ if !self.cross_memory_attach => Some("process_vm_readv is refused"),
            _ if self.ptrace_scope.is_some_and(|scope| scope > 1) => {
                Some("ptrace_scope allows only administrators")
            }
            _ => None,
        }
    }
}

impl Sys {
    /// The current permissions. Costs some fifteen system calls; leaves nothing behind.
    #[must_use]
    pub fn permissions(&self) -> Permissions {
        Permissions {
            cross_memory_attach: can_read_own_memory_by_system_call(),
            ptrace_scope: self.number("proc/sys/kernel/yama/ptrace_scope"),
            locked_bytes_max: rustix::process::getrlimit(Resource::Memlock).current,
            perf_event_paranoid: self
                .text("proc/sys/kernel/perf_event_paranoid")
                .and_then(|text| text.parse().ok()),
            vmsplice: can_vmsplice(),
            pipe_bytes_max: self.number("proc/sys/fs/pipe-max-size"),
            sealed_memory: can_seal_memory(),
        }
    }
}

/// A process may always read itself. So if the call is refused, the kernel or a filter refuses
/// it, not Yama.
fn can_read_own_memory_by_system_call() -> bool {
    let source = 0x5a_u8;
    let mut target = 0_u8;
    let local = libc::iovec { iov_base: (&raw mut target).cast(), iov_len: 1 };
    let remote = libc::iovec { iov_base: (&raw const source).cast_mut().cast(), iov_len: 1 };
    let own = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: both vectors contain one element that names one byte, which lives longer than the
    // call. The call writes the local byte, and nothing else refers to this byte. It only reads
    // the remote byte, which is in this process.
    let read = unsafe { libc::process_vm_readv(own, &raw const local, 1, &raw const remote, 1, 0) };
    read == 1 && target == source
}

fn can_vmsplice() -> bool {
    static BYTE: [u8; 1] = [0x5a];
    let Ok((reader, writer)) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
    else {
        return false;
    };
    let slices = [IoSliceRaw::from_slice(&BYTE)];
    // SAFETY: the page that moves into the pipe is static and never written, so the reader cannot
    // see it change, and the page outlives the pipe.
    let spliced = unsafe { rustix::pipe::vmsplice(&writer, &slices, SpliceFlags::NONBLOCK) };
    let mut received = [MaybeUninit::new(0_u8)];
    spliced == Ok(1)
        && rustix::io::read(&reader, &mut received).is_ok_and(|(bytes, _)| *bytes == BYTE)
}

fn can_seal_memory() -> bool {
    rustix::fs::memfd_create("haul", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .and_then(|memory| rustix::fs::fcntl_add_seals(&memory, SealFlags::SHRINK))
        .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::tests::root_with;

    #[test]
    fn limits_are_read_from_proc() {
        let (_folder, sys) = root_with(&[
            ("proc/sys/kernel/yama/ptrace_scope", "1\n"),
            ("proc/sys/kernel/perf_event_paranoid", "-1\n"),
            ("proc/sys/fs/pipe-max-size", "1048576\n"),
        ]);
        let permissions = sys.permissions();
        assert_eq!(permissions.ptrace_scope, Some(1));
        assert_eq!(permissions.perf_event_paranoid, Some(-1));
        assert_eq!(permissions.pipe_bytes_max, Some(1 << 20));
    }

    #[test]
    fn probes_do_not_depend_on_proc() {
        let here = Sys::new().permissions();
        let blind = Sys::at("/nonexistent").permissions();
        assert_eq!(here.vmsplice, blind.vmsplice);
        assert_eq!(here.sealed_memory, blind.sealed_memory);
        assert_eq!(here.cross_memory_attach, blind.cross_memory_attach);
        assert_eq!(blind.ptrace_scope, None);
    }

    #[test]
    fn probe_leaves_no_descriptor_open() {
        let open = || std::fs::read_dir("/proc/self/fd").map(Iterator::count);
        let Ok(before) = open() else {
            eprintln!("SKIPPED: descriptors of a probe: no file /proc/self/fd: mount /proc");
            return;
        };
        for _ in 0..50 {
            let _ = Sys::new().permissions();
        }
        // Other tests in this process also open files, but never keep fifty files open.
        assert!(open().unwrap() < before + 25);
    }
}
