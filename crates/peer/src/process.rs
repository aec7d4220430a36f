//! The process at the other end: who it is, whether it lives, and what it may read here.

use std::sync::OnceLock;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, OwnedFd};
use rustix::process::{Pid, PidfdFlags};

use super::descriptor::kept;
use super::fork::{Here, Lock};

/// Who is at the other end, as the kernel vouches for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its process; `None` where it lives in a PID namespace that this one cannot see.
    pub process: Option<i32>,
    /// Its user.
    pub user: u32,
    /// Its group.
    pub group: u32,
}

/// The peer, watched.
#[derive(Debug)]
pub struct Peer {
    /// Its process, user and group.
    pub identity: Identity,
    /// Names this very process, also after its number went to another one.
    watch: Option<OwnedFd>,
}

impl Peer {
    /// Begins to watch. The caller must afterwards hear from the same process something that it
    /// could say only after this: else the number may have changed hands before.
    pub fn watch((process, user, group): (i32, u32, u32)) -> Self {
        let pid = Pid::from_raw(process);
        // Where pidfds are not to be had, the socket alone tells of its death.
        let watch =
            pid.and_then(|pid| kept(rustix::process::pidfd_open(pid, PidfdFlags::empty())).ok());
        let identity =
            Identity { process: pid.map(Pid::as_raw_nonzero).map(Into::into), user, group };
        Self { identity, watch }
    }

    /// One that nobody vouches for: it is heard of by the socket alone, and nothing of it is
    /// reached.
    pub fn unknown(user: u32, group: u32) -> Self {
        Self { identity: Identity { process: None, user, group }, watch: None }
    }

    /// One that the kernel names as it sends what it is watched by.
    pub fn named((process, user, group): (i32, u32, u32), watch: Option<OwnedFd>) -> Self {
        let process = Pid::from_raw(process).map(Pid::as_raw_nonzero).map(Into::into);
        Self { identity: Identity { process, user, group }, watch }
    }

    /// Whether this is the process that is being watched, alive.
    pub fn is(&self, sender: Option<(i32, u32, u32)>) -> bool {
        sender.is_some_and(|(process, ..)| {
            Pid::from_raw(process).map(Pid::as_raw_nonzero).map(i32::from) == self.identity.process
        }) && !self.is_dead()
    }

    /// Whether the process has ended. `false` if it cannot be watched. Costs one system call.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        let Some(watch) = &self.watch else { return false };
        is_any(&mut [PollFd::from_borrowed_fd(watch.as_fd(), PollFlags::IN)])
    }

    /// What is left of it, by a socket to it. One system call. From its death on its number may be
    /// another process's: who reaches into the peer's memory asks before, and who read there asks
    /// afterwards.
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

/// What is left of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// As far as can be seen it lives.
    All,
    /// It died, and another process has its end of the socket: one that it forked.
    Socket,
    /// No process has its end of the socket any more.
    Nothing,
}

/// What this process is watched by, elsewhere; `None` where there are no pidfds to be had.
pub fn own_watch() -> Option<OwnedFd> {
    kept(rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty())).ok()
}

/// Whether one of the descriptors is in the state that is asked for, or in error, right now.
fn is_any(set: &mut [PollFd<'_>]) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(rustix::event::poll(set, Some(&now)), Ok(count) if count > 0)
}

/// The process that is named to Yama, and how many transfers need that: there is room for one name.
/// A child of fork has named none.
static NAMED: Lock<(i32, usize)> = Lock::new((0, 0), |named| *named = (0, 0));

/// While this lives, the peer may read this process, where Yama would otherwise forbid it.
///
/// A name that the program itself gave with PR_SET_PTRACER is lost by it.
#[derive(Debug)]
pub struct Readable {
    is_named: bool,
    /// The process that the peer may read.
    here: Here,
}

impl Readable {
    /// Names the peer; `None` while another one is named. Does nothing where there is no Yama.
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

/// Whether there is anybody to tell: withdrawing a name is refused where there is no Yama.
fn has_yama() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| name_tracer(0))
}

fn name_tracer(process: i32) -> bool {
    // SAFETY: PR_SET_PTRACER takes a number and touches no memory.
    let result = unsafe { libc::prctl(libc::PR_SET_PTRACER, process as libc::c_ulong, 0, 0, 0) };
    result == 0
}
