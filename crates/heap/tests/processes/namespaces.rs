//! Processes of a heap that cannot see each other: they are in different PID namespaces, or
//! `/proc` hides the processes of other users. A live process must not count as dead for this
//! reason.

use std::ffi::{CStr, c_int};
use std::ptr::{null, null_mut};

use haul_heap::{Heap, Request};

use crate::builder;
use crate::fork::{read_byte, write_byte};
use crate::support::child::{exit, in_child, start};

/// The exit status of a child if the system refuses a call that its test needs.
const REFUSED: c_int = 77;

/// The unprivileged user `nobody`, which may not inspect another user's process.
const UNPRIVILEGED: libc::uid_t = 65_534;

/// Runs `work` in a child that is the first process of a new PID namespace; `None` if this is not
/// allowed.
fn in_new_namespace(more: c_int, work: impl FnOnce() -> bool) -> Option<bool> {
    let status = in_child(|| {
        // SAFETY: the call changes the namespaces of this child and its children only.
        let is_refused = unsafe { libc::unshare(libc::CLONE_NEWPID | more) } != 0;
        if is_refused {
            exit(REFUSED);
        }
        in_child(work)
    });
    (status != REFUSED).then_some(status == 0)
}

/// The processes to which blocks belong.
fn owners(heap: &Heap) -> u32 {
    let mut seen = 0_u128;
    heap.walk(|block| seen |= 1 << block.process);
    seen.count_ones()
}

fn alloc(heap: &Heap) -> bool {
    heap.alloc(Request::new(640)).is_ok()
}

/// A pipe: its read end and its write end.
fn pipe() -> [c_int; 2] {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    ends
}

#[test]
fn process_in_another_pid_namespace_counts_as_alive() {
    let heap = builder().shared_fd().unwrap();
    assert!(alloc(&heap));
    let (ready, done) = (pipe(), pipe());
    let result = std::thread::scope(|scope| {
        let child = scope.spawn(|| {
            let result = in_new_namespace(0, || {
                let is_first = alloc(&heap) && heap.reap().processes == 0 && owners(&heap) == 2;
                // This process can detect a death in its own namespace.
                let is_seen = in_child(|| alloc(&heap)) == 0 && heap.reap().processes == 1;
                write_byte(ready[1]);
                let is_alone = is_first && is_seen && read_byte(done[0]);
                // A process has the same PID as this process, and its /proc belongs to another
                // namespace.
                let within = in_new_namespace(0, || {
                    alloc(&heap) && owners(&heap) == 3 && heap.reap().processes == 0
                });
                is_alone && within == Some(true) && heap.reap().processes == 0
            });
            write_byte(ready[1]);
            result
        });
        assert!(read_byte(ready[0]));
        let reaped = heap.reap();
        write_byte(done[1]);
        let result = child.join().unwrap();
        assert_eq!(reaped.processes, 0, "{reaped:?}");
        result
    });
    match result {
        Some(is_right) => assert!(is_right, "a check in a child failed"),
        None => eprintln!("SKIPPED: members in PID namespaces: no PID namespaces: run as root"),
    }
    // This process cannot detect their death, so their blocks stay.
    assert_eq!(heap.reap().processes, 0);
    heap.validate().unwrap();
}

/// Hides the processes of other users from each user, in a mount namespace of this child.
fn hide_processes() -> bool {
    let mount =
        |source: *const libc::c_char, target: &CStr, flags, options: *const libc::c_char| {
            let kind = c"proc".as_ptr();
            // SAFETY: the pointers name static strings, or are null if the call accepts this.
            unsafe { libc::mount(source, target.as_ptr(), kind, flags, options.cast()) == 0 }
        };
    mount(null(), c"/", libc::MS_REC | libc::MS_PRIVATE, null())
        && mount(c"proc".as_ptr(), c"/proc", 0, c"hidepid=2".as_ptr())
}

/// Changes this child's user to one that may not inspect another user's process.
fn drop_privileges() -> bool {
    // SAFETY: the call changes the user of this child only, and the list of groups is empty.
    let groups = unsafe { libc::setgroups(0, null()) };
    // SAFETY: as above.
    let group = unsafe { libc::setresgid(UNPRIVILEGED, UNPRIVILEGED, UNPRIVILEGED) };
    // SAFETY: as above.
    let user = unsafe { libc::setresuid(UNPRIVILEGED, UNPRIVILEGED, UNPRIVILEGED) };
    [groups, group, user] == [0; 3]
}

#[test]
fn process_hidden_by_proc_counts_as_alive() {
    const WHAT: &str = "members that /proc hides";
    // SAFETY: the call only returns a number.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("SKIPPED: {WHAT}: not running as root: run as root");
        return;
    }
    let heap = builder().shared_fd().unwrap();
    assert!(alloc(&heap));
    let joined = pipe();
    let result = in_new_namespace(libc::CLONE_NEWNS, || {
        if !hide_processes() {
            exit(REFUSED);
        }
        let member = start(|| -> bool {
            if alloc(&heap) {
                write_byte(joined[1]);
            }
            loop {
                // SAFETY: the call only waits for a signal.
                unsafe { libc::pause() };
            }
        });
        let is_joined = read_byte(joined[0]);
        let is_spared = in_child(|| {
            drop_privileges() && alloc(&heap) && heap.reap().processes == 0 && owners(&heap) == 3
        }) == 0;
        // SAFETY: the signal goes to a child of this process for which it has not waited.
        unsafe { libc::kill(member, libc::SIGKILL) };
        let has_ended = ends(member);
        // The member is still hidden, and no process has waited for it. This is also true of the
        // child that checked before.
        let is_reaped = in_child(|| drop_privileges() && heap.reap().processes == 2) == 0;
        // SAFETY: the call waits for a child of this process that has ended.
        unsafe { libc::waitpid(member, null_mut(), 0) };
        is_joined && is_spared && has_ended && is_reaped
    });
    match result {
        Some(is_right) => assert!(is_right, "a check in a child failed"),
        None => eprintln!("SKIPPED: {WHAT}: no hidden processes: run as root of the machine"),
    }
    heap.reap();
    heap.validate().unwrap();
}

/// Waits until a child has ended, without reaping it.
fn ends(child: libc::pid_t) -> bool {
    // SAFETY: zeros are a valid record.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let how = libc::WEXITED | libc::WNOWAIT;
    // SAFETY: the record is a local value.
    unsafe { libc::waitid(libc::P_PID, child as libc::id_t, &raw mut info, how) == 0 }
}
