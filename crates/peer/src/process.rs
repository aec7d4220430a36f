//! The process at the other end of a socket: its identity, whether it lives, and its permission
//! to read this process's memory.

use std::sync::OnceLock;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, OwnedFd};
use rustix::process::{Pid, PidfdFlags};

use super::descriptor::kept;
use super::fork::{Here, Lock};

/// The identity of the process at the other end, as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The PID; `None` if the process is not visible in this PID namespace.
    pub process: Option<i32>,
    /// Its user's number.
    pub user: u32,
    /// Its group's number.
    pub group: u32,
}

/// A peer, and a descriptor that shows whether it lives.
#[derive(Debug)]
pub struct Peer {
    /// The peer's process, user and group.
    pub identity: Identity,
    /// A pidfd. It still identifies the peer after the kernel has reused the PID.
    watch: Option<OwnedFd>,
}

impl Peer {
    /// Begins to watch a process. Afterwards the caller must receive from the same process a
    /// value that the process could send only after this call. Otherwise another process may have
    /// got the PID before the call.
    pub fn watch((process, user, group): (i32, u32, u32)) -> Self {
        let pid = Pid::from_raw(process);
        // On a kernel without pidfds, only the socket shows the process's death.
        let watch =
            pid.and_then(|pid| kept(rustix::process::pidfd_open(pid, PidfdFlags::empty())).ok());
        let identity =
            Identity { process: pid.map(Pid::as_raw_nonzero).map(Into::into), user, group };
        Self { identity, watch }
    }

    /// A peer with an unknown process. Only the socket shows its death, and its memory is not
    /// accessed.
    pub fn unknown(user: u32, group: u32) -> Self {
        Self { identity: Identity { process: None, user, group }, watch: None }
    }

    /// A peer whose credentials the kernel reported together with `watch`, a pidfd that the peer
    /// sent.
    pub fn named((process, user, group): (i32, u32, u32), watch: Option<OwnedFd>) -> Self {
        let process = Pid::from_raw(process).map(Pid::as_raw_nonzero).map(Into::into);
        Self { identity: Identity { process, user, group }, watch }
    }

    /// Whether `sender` is the watched process, and the watched process lives.
    pub fn is(&self, sender: Option<(i32, u32, u32)>) -> bool {
        sender.is_some_and(|(process, ..)| {
            Pid::from_raw(process).map(Pid::as_raw_nonzero).map(i32::from) == self.identity.process
        }) && !self.is_dead()
    }

    /// Whether the process has ended. False if it cannot be watched. Costs one system call.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        let Some(watch) = &self.watch else { return false };
        is_any(&mut [PollFd::from_borrowed_fd(watch.as_fd(), PollFlags::IN)])
    }

    /// What remains of the peer at the other end of the socket. Costs one system call. After the
    /// peer's death, another process may get its PID. So code that writes to the peer's memory
    /// must check this before the write, and code that reads the memory must check it after the
    /// read.
    pub fn left(&self, socket: &OwnedFd) -> Left {
        let socket = PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::RDHUP);
        let Some(watch) = &self.watch else {
            return if is_any(&mut [socket]) { Left::Nothing } else { Left::All };
        };
        let mut set = [socket, PollFd::from_borrowed_fd(watch.as_fd(), PollFlags::IN)];
        if !is_any(&mut set) {
            return Left::All;
        }
        if set[0].revents().is_empty() { Left::Socket } else { Left::Nothing }
    }
}

/// What remains of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// The peer lives, as far as this process can see.
    All,
    /// The peer died, but a child of the peer has the peer's end of the socket open.
    Socket,
    /// No process has the peer's end of the socket open.
    Nothing,
}

/// A descriptor with which other processes can watch this process; `None` without pidfds.
pub fn own_watch() -> Option<OwnedFd> {
    kept(rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty())).ok()
}

/// Whether one of the descriptors is now in the requested state, or in an error state.
fn is_any(set: &mut [PollFd<'_>]) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(rustix::event::poll(set, Some(&now)), Ok(count) if count > 0)
}

/// The process that this process has named to Yama, and the number of transfers that need this.
/// Yama stores only one name per process. A child of fork has named no process.
static NAMED: Lock<(i32, usize)> = Lock::new((0, 0), |named| *named = (0, 0));

/// While this value lives, the peer may read this process's memory, which Yama would otherwise
/// forbid.
///
/// The permission replaces the process that the program itself may have named with
/// PR_SET_PTRACER.
#[derive(Debug)]
pub struct Readable {
    is_named: bool,
    /// The process that created this value, whose memory the peer may read.
    here: Here,
}

impl Readable {
    /// Names the peer to Yama. Returns `None` while another process is named. Does nothing if the
    /// kernel has no Yama.
    pub fn to(peer: Identity) -> Option<Self> {
        let process = peer.process?;
        if !has_yama() {
            return Some(Self { is_named: false, here: Here::now() });
        }
        let mut named = NAMED.lock();
        if named.1 > 0 && named.0 != process {
            return None;
        }
        if named.1 == 0 {
            name_tracer(process);
        }
        *named = (process, named.1 + 1);
        Some(Self { is_named: true, here: Here::now() })
    }
}

impl Drop for Readable {
    fn drop(&mut self) {
        if !self.is_named || !self.here.is_here() {
            return;
        }
        let mut named = NAMED.lock();
        named.1 -= 1;
        if named.1 == 0 {
            name_tracer(0);
        }
    }
}

/// Whether the kernel has Yama. On a kernel without Yama, withdrawing a name is an error.
fn has_yama() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| name_tracer(0))
}

fn name_tracer(process: i32) -> bool {
    // SAFETY: PR_SET_PTRACER takes a number and touches no memory.
    let result = unsafe { libc::prctl(libc::PR_SET_PTRACER, process as libc::c_ulong, 0, 0, 0) };
    result == 0
}
