//! Deadlines hold for messages of any size: an end does its own work in pieces, with a check of
//! the clock in between, and a call that does not wait returns soon. The time of the whole work
//! is measured in the same run. Only one of several attempts must be in time, because other
//! programs use this machine too; work that is not cut into pieces is never in time.

use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use haul_channel::{Buffer, Building, Channel, Error, Mechanism, Settings, pair};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::time::ClockId;

use crate::support::{by, ends, pattern};

/// About 10 to 60 ms of copying or adding.
const LARGE: usize = 128 << 20;

const ATTEMPTS: usize = 8;

/// A receiver with a deadline, to which the whole message has been sent.
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
            // The handshake may exceed that deadline as well.
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

/// Checks that an attempt ends at a deadline within work that takes as long as `whole`. If the
/// work is complete before the deadline, the machine was slower when `whole` was measured.
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
    panic!(
        "the time of the whole work, and the time until a deadline of a 16th of that: {elapsed:?}"
    );
}

#[test]
fn copy_out_of_staged_memory_ends_at_deadline() {
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
fn checksum_of_sealed_memory_ends_at_deadline() {
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

/// The duration of the whole work without a short deadline.
fn whole_by(
    settings: &Settings,
    received: impl Fn(Duration) -> (Duration, Result<(), Error>),
) -> Duration {
    let (elapsed, result) = received(settings.deadline);
    result.unwrap();
    elapsed
}

/// Whether poll(2) reports that the next call has work.
fn is_readable(file: BorrowedFd<'_>, time: Duration) -> bool {
    let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: 0 };
    rustix::event::poll(&mut [PollFd::from_borrowed_fd(file, PollFlags::IN)], Some(&time)) == Ok(1)
}

const PATIENCE: Duration = Duration::from_secs(20);

/// Processor time of this thread, without the time of other programs.
fn now() -> Duration {
    let now = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Calls until there is a result. Returns the duration of the longest call, the total duration of
/// all calls, and the result.
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
        assert!(is_due(), "poll does not report that there is more work");
    }
}

fn no_call_is_long(mut attempt: impl FnMut() -> (Duration, Duration)) {
    let mut elapsed = Vec::new();
    for _ in 0..ATTEMPTS {
        let (longest, all) = attempt();
        if longest < all / 4 {
            return;
        }
        elapsed.push((longest, all));
    }
    panic!("the longest call that does not wait, and the sum of all: {elapsed:?}");
}

#[test]
fn try_recv_returns_within_large_message() {
    let bytes = pattern(LARGE, 3);
    let staged = by(Mechanism::Staged);
    let sealed = Settings { integrity: true, mechanism: None, ..by(Mechanism::Ring) };
    for settings in [staged, sealed] {
        no_call_is_long(|| {
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
fn advance_returns_within_large_message() {
    let bytes = pattern(LARGE, 4);
    let settings = by(Mechanism::Staged);
    no_call_is_long(|| {
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

/// If both ends move bytes without a pause, each end has work until the message is complete.
#[test]
fn try_recv_returns_while_other_end_keeps_sending() {
    let bytes = pattern(LARGE, 5);
    for mechanism in [Mechanism::Ring, Mechanism::Pull, Mechanism::Double] {
        let settings = by(mechanism);
        if !ends(&settings).0.offers(mechanism) {
            continue;
        }
        no_call_is_long(|| {
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

/// A call that waits for the remainder leaves no pending work.
#[test]
fn waiting_call_clears_pending_work() {
    let bytes = pattern(LARGE, 7);
    let settings = by(Mechanism::Staged);
    let (mut one, mut other) = ends(&settings);
    let mut sending = one.start_send(&bytes).unwrap();
    assert!(!sending.advance().unwrap(), "the call did not return within the message");
    assert!(!sending.wait(Duration::ZERO).unwrap());
    assert!(sending.wait(PATIENCE).unwrap());
    sending.finish().unwrap();
    assert!(!is_readable(one.as_fd(), Duration::ZERO));
    assert!(other.try_recv().unwrap().is_none(), "the call did not return within the message");
    let mut target = vec![0; LARGE];
    other.recv_into(&mut target).unwrap();
    assert!(target == bytes && !is_readable(other.as_fd(), Duration::ZERO));
}

#[test]
fn pending_work_of_both_directions_is_readable() {
    let bytes = pattern(LARGE, 6);
    let settings = by(Mechanism::Staged);
    let (mut one, mut other) = ends(&settings);
    one.send(&bytes).unwrap();
    other.send(&bytes).unwrap();
    // Each end receives a part of its message per call, and neither end loses its wake-up.
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
    assert!(!is_readable(one.as_fd(), Duration::ZERO), "no work is pending");
}
