//! Children of fork, which have a copy of the memory and neither the queue nor its threads.

use std::time::Duration;

use super::{Pages, Rig, WRITTEN, copy};
use crate::contract::Engine as _;
use crate::dsa::Options;
use crate::dsa::fake::{Event, Settings, When};
use crate::outcome::Refusal;

/// The exit code of a child in which `act` returned true.
const HELD: i32 = 7;

/// Runs `act` in a child of fork, and returns whether it returned true.
pub(super) fn holds_in_child(act: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child only calls `act` and _exit. The fake's locks are those of threads that the
    // child does not wait for.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
        let code = if matches!(result, Ok(true)) { HELD } else { 1 };
        // SAFETY: the call has no conditions.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: the status is a variable of this function.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == HELD
}

/// DTO#35: the child after a fork used the parent's queue. Here copies are pending in the parent;
/// the child is refused until it opens the queue again, and then copies; the parent goes on.
#[test]
fn fork_with_pending_copies_leaves_both_processes_working() {
    for only_write in [false, true] {
        let delay = Event::Delay(Duration::from_millis(50));
        let settings = Settings::default().inject(When::At(1), delay);
        let options = Options { only_write, ..Options::default() };
        let rig = Rig::with(settings, 0, options, 16);
        let (source, target, other) = (Pages::filled(2), Pages::new(2), Pages::new(2));
        let pending = rig.start(copy(&source, &target, 5000)).unwrap();
        assert!(holds_in_child(|| {
            let refused = rig.start(copy(&source, &other, 5000)) == Err(Refusal::Forked);
            let opened = rig.engine.reopen() == Ok(());
            let copied = rig.run(copy(&source, &other, 5000)) == WRITTEN;
            refused && opened && copied && other.bytes()[..5000] == source.bytes()[..5000]
        }));
        assert_eq!(rig.wait(pending), WRITTEN);
        assert_eq!(target.bytes()[..5000], source.bytes()[..5000]);
        assert_eq!(rig.run(copy(&source, &other, 100)), WRITTEN);
    }
}

#[test]
fn child_drops_the_parents_engine_without_a_wait() {
    let rig = Rig::new(Settings::default());
    let (source, target) = (Pages::filled(1), Pages::new(1));
    rig.fake.wedge();
    let pending = rig.start(copy(&source, &target, 64)).unwrap();
    let Rig { fake, slots, engine } = rig;
    let mut engine = Some(engine);
    assert!(holds_in_child(|| {
        drop(engine.take());
        true
    }));
    fake.reset();
    let rig = Rig { fake, slots, engine: engine.take().unwrap() };
    assert_eq!(rig.wait(pending), WRITTEN);
}
