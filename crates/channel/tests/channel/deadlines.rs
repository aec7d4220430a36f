//! Times that are kept whatever the size of a message: what one end does by itself is done in
//! pieces, with a look at the clock in between, and a call that does not wait comes back. How long
//! the same work takes as a whole is measured in the same run. Of several attempts one in time will
//! do, for others use this machine too; one piece of work that is never cut is never in time.

use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use haul_channel::{Buffer, Building, Channel, Error, Mechanism, Settings, pair};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::time::ClockId;

use crate::support::{by, ends, pattern};

/// Some 10 to 60 ms of copying or adding.
const LARGE: usize = 128 << 20;

const ATTEMPTS: usize = 8;

/// A receiver with a deadline, to which the whole message has come by then.
fn with_message(settings: &Settings, deadline: Duration, bytes: &[u8]) -> (Channel, Channel) {
    let hasty = Settings { deadline, ..settings.clone() };
    let (mut one, other) = loop {
        let (one, other) = pair().unwrap();
        let met = thread::scope(|scope| {
            let connecting = scope.spawn(|| Channel::connect_over(one, settings));
            let accepted = Channel::accept_over(other, &hasty);
            connecting.join().unwrap().and_then(|one| Ok((one, accepted?)))
        });
        match met {
            Ok(met) => break met,
            // To meet may take longer than that as well.
            Err(Error::Deadline { .. } | Error::PeerGone { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    };
    if settings.mechanism.is_some() {
        one.send(bytes).unwrap();
    } else {
        let mut building = Building::new(bytes.len()).unwrap();
        building.copy_from_slice(bytes);
        one.send_built(building).unwrap();
    }
    (one, other)
}

/// The deadline passes in the middle of work that takes as long as `whole` says. Work that was
/// whole before the deadline says that the machine was slower when that was measured.
fn ends_in_time(
    mut whole: impl FnMut() -> Duration,
    mut attempt: impl FnMut(Duration) -> (Duration, Result<(), Error>),
) {
    let mut elapsed = Vec::new();
    for _ in 0..ATTEMPTS {
        let whole = whole();
        let (time, result) = attempt(whole / 16);
        match result {
            Ok(()) => elapsed.push((whole, None)),
            Err(Error::Deadline { .. }) if time < whole / 2 => return,
            Err(Error::Deadline { .. }) => elapsed.push((whole, Some(time))),
            Err(error) => panic!("{error}"),
        }
    }
    panic!("what all of it takes, and what came of the deadline of a 16th of that: {elapsed:?}");
}

#[test]
fn a_copy_out_of_staged_memory_ends_at_the_deadline() {
    let bytes = pattern(LARGE, 1);
    let settings = by(Mechanism::Staged);
    let received = |deadline| {
        let mut target = vec![1; LARGE];
        let (_one, mut other) = with_message(&settings, deadline, &bytes);
        let start = Instant::now();
        let result = other.recv_into(&mut target).map(drop);
        (start.elapsed(), result.inspect(|()| assert!(target == bytes)))
    };
    ends_in_time(|| whole_by(&settings, received), received);
}

#[test]
fn the_sum_of_memory_that_came_sealed_ends_at_the_deadline() {
    let bytes = pattern(LARGE, 2);
    let settings = Settings { integrity: true, mechanism: None, ..by(Mechanism::Ring) };
    let received = |deadline| {
        let (_one, mut other) = with_message(&settings, deadline, &bytes);
        let start = Instant::now();
        let result = other.recv();
        let elapsed = start.elapsed();
        let check = |got: Buffer| assert!(got.account().is_checked && got[..] == bytes);
        (elapsed, result.map(check))
    };
    ends_in_time(|| whole_by(&settings, received), received);
}

/// How long it takes where nothing ends it.
fn whole_by(
    settings: &Settings,
    received: impl Fn(Duration) -> (Duration, Result<(), Error>),
) -> Duration {
    let (elapsed, result) = received(settings.deadline);
    result.unwrap();
    elapsed
}

/// Whether there is something to call again for.
fn is_readable(file: BorrowedFd<'_>, time: Duration) -> bool {
    let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: 0 };
    rustix::event::poll(&mut [PollFd::from_borrowed_fd(file, PollFlags::IN)], Some(&time)) == Ok(1)
}

const PATIENCE: Duration = Duration::from_secs(20);

/// Processor time of this thread: what others do with the processors meanwhile is not in it.
fn now() -> Duration {
    let now = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Calls until there is something; says how long the longest call took, of how much.
fn calls<T>(
    mut call: impl FnMut() -> Option<T>,
    mut is_due: impl FnMut() -> bool,
) -> (Duration, Duration, T) {
    let (mut longest, mut all) = (Duration::ZERO, Duration::ZERO);
    loop {
        let start = now();
        let done = call();
        let elapsed = now() - start;
        (longest, all) = (longest.max(elapsed), all + elapsed);
        if let Some(done) = done {
            return (longest, all, done);
        }
        assert!(is_due(), "nothing says that there is more to do");
    }
}

fn none_is_long(mut attempt: impl FnMut() -> (Duration, Duration)) {
    let mut elapsed = Vec::new();
    for _ in 0..ATTEMPTS {
        let (longest, all) = attempt();
        if longest < all / 4 {
            return;
        }
        elapsed.push((longest, all));
    }
    panic!("the longest call of one that does not wait, and all: {elapsed:?}");
}

#[test]
fn a_receiver_that_does_not_wait_comes_back() {
    let bytes = pattern(LARGE, 3);
    let staged = by(Mechanism::Staged);
    let sealed = Settings { integrity: true, mechanism: None, ..by(Mechanism::Ring) };
    for settings in [staged, sealed] {
        none_is_long(|| {
            let (_one, other) = with_message(&settings, settings.deadline, &bytes);
            let other = std::cell::RefCell::new(other);
            let (longest, all, got) = calls(
                || other.borrow_mut().try_recv().unwrap(),
                || is_readable(other.borrow().as_fd(), PATIENCE),
            );
            assert!(got[..] == bytes);
            (longest, all)
        });
    }
}

#[test]
fn a_sender_that_does_not_wait_comes_back() {
    let bytes = pattern(LARGE, 4);
    let settings = by(Mechanism::Staged);
    none_is_long(|| {
        let (mut one, mut other) = ends(&settings);
        let sending = std::cell::RefCell::new(one.start_send(&bytes).unwrap());
        let (longest, all, ()) = calls(
            || sending.borrow_mut().advance().unwrap().then_some(()),
            || is_readable(sending.borrow().as_fd(), PATIENCE),
        );
        assert!(other.recv().unwrap()[..] == bytes);
        (longest, all)
    });
}

/// Where both ends move without a pause, each has enough to do for as long as the message lasts.
#[test]
fn a_loop_comes_back_while_the_other_end_keeps_going() {
    let bytes = pattern(LARGE, 5);
    for mechanism in [Mechanism::Ring, Mechanism::Pull, Mechanism::Double] {
        let settings = by(mechanism);
        if !ends(&settings).0.offers(mechanism) {
            continue;
        }
        none_is_long(|| {
            let (mut one, other) = ends(&settings);
            let other = std::cell::RefCell::new(other);
            thread::scope(|scope| {
                let bytes = &bytes;
                scope.spawn(move || one.send(bytes).unwrap());
                let (longest, all, got) = calls(
                    || other.borrow_mut().try_recv().unwrap(),
                    || is_readable(other.borrow().as_fd(), PATIENCE),
                );
                assert!(got[..] == bytes[..]);
                (longest, all)
            })
        });
    }
}

/// Whoever waits for the rest has left nothing.
#[test]
fn what_a_waiting_call_ends_is_not_told_any_more() {
    let bytes = pattern(LARGE, 7);
    let settings = by(Mechanism::Staged);
    let (mut one, mut other) = ends(&settings);
    let mut sending = one.start_send(&bytes).unwrap();
    assert!(!sending.advance().unwrap(), "all of it at once");
    assert!(!sending.wait(Duration::ZERO).unwrap());
    assert!(sending.wait(PATIENCE).unwrap());
    sending.finish().unwrap();
    assert!(!is_readable(one.as_fd(), Duration::ZERO));
    assert!(other.try_recv().unwrap().is_none(), "all of it at once");
    let mut target = vec![0; LARGE];
    other.recv_into(&mut target).unwrap();
    assert!(target == bytes && !is_readable(other.as_fd(), Duration::ZERO));
}

#[test]
fn what_is_left_to_do_of_two_messages_is_both_told() {
    let bytes = pattern(LARGE, 6);
    let settings = by(Mechanism::Staged);
    let (mut one, mut other) = ends(&settings);
    one.send(&bytes).unwrap();
    other.send(&bytes).unwrap();
    // Each receives what has come, a little of it, and nothing is lost to either.
    let (mut first, mut second) = (None, None);
    while first.is_none() || second.is_none() {
        if first.is_none() {
            assert!(is_readable(one.as_fd(), PATIENCE));
            first = one.try_recv().unwrap();
        }
        if second.is_none() {
            assert!(is_readable(other.as_fd(), PATIENCE));
            second = other.try_recv().unwrap();
        }
    }
    assert!(first.unwrap()[..] == bytes && second.unwrap()[..] == bytes);
    assert!(!is_readable(one.as_fd(), Duration::ZERO), "nothing is left");
}
