//! The calls for event loops: only poll waits.

use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use haul_channel::{Error, Mechanism, Settings};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::support::{BY_COPY, by, ends, pattern};

fn poll(file: std::os::fd::BorrowedFd<'_>) {
    let time = Timespec { tv_sec: 20, tv_nsec: 0 };
    let ready =
        rustix::event::poll(&mut [PollFd::from_borrowed_fd(file, PollFlags::IN)], Some(&time));
    assert_eq!(ready, Ok(1), "nothing woke the loop");
}

#[test]
fn event_loop_at_each_end_moves_all_messages() {
    for mechanism in BY_COPY {
        let (mut one, mut other) = ends(&by(mechanism));
        let bytes = pattern(3_000_000, 23);
        thread::scope(|scope| {
            let source = &bytes;
            scope.spawn(move || {
                for _ in 0..5 {
                    let mut sending = one.start_send(source).unwrap();
                    while !sending.advance().unwrap() {
                        poll(sending.as_fd());
                    }
                }
            });
            for _ in 0..5 {
                let got = loop {
                    match other.try_recv().unwrap() {
                        Some(got) => break got,
                        None => poll(other.as_fd()),
                    }
                };
                assert!(got[..] == bytes, "{mechanism}");
            }
            let end = loop {
                match other.try_recv() {
                    Ok(None) => poll(other.as_fd()),
                    result => break result,
                }
            };
            assert!(matches!(end, Err(Error::Closed)), "{end:?}");
        });
    }
}

#[test]
fn try_recv_without_message_returns_at_once() {
    let (mut one, mut other) = ends(&by(Mechanism::Ring));
    let start = Instant::now();
    assert!(other.try_recv().unwrap().is_none());
    assert!(start.elapsed() < Duration::from_secs(40));
    one.send(b"x").unwrap_or_else(|error| panic!("{error}"));
    poll(other.as_fd());
    assert_eq!(other.recv().unwrap()[..], *b"x");
}

#[test]
fn waiting_call_completes_message_that_polling_began() {
    let (mut one, mut other) = ends(&Settings { mechanism: None, ..by(Mechanism::Ring) });
    let bytes = pattern(2_000_000, 29);
    thread::scope(|scope| {
        let source = &bytes;
        scope.spawn(move || {
            one.send(source).unwrap();
            one.send(source).unwrap();
        });
        let mut count = 0;
        while count < 2 {
            if let Some(got) = other.try_recv().unwrap() {
                assert!(got[..] == bytes);
                count += 1;
            } else {
                let mut target = vec![0; bytes.len()];
                other.recv_into(&mut target).unwrap();
                assert!(target == bytes);
                count += 1;
            }
        }
    });
}

#[test]
fn abandoned_message_never_counts_as_whole() {
    for mechanism in [Mechanism::Ring, Mechanism::Pull] {
        let (mut one, mut other) = ends(&by(mechanism));
        let mut bytes = pattern(9_000_000, 31);
        let mut sending = one.start_send(&bytes).unwrap();
        assert!(!sending.advance().unwrap(), "no receiver has read it yet");
        drop(sending);
        bytes.fill(0);
        assert!(matches!(one.send(b"more"), Err(Error::Broken)));
        let error = other.recv().map(|got| got.len()).unwrap_err();
        assert!(matches!(error, Error::GivenUp { .. }), "{mechanism}: {error}");
        assert!(matches!(other.recv(), Err(Error::Broken)));
    }
}
