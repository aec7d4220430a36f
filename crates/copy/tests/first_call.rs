//! The first copy of a process, made by many threads at once: each thread determines the
//! instruction set and the thresholds at the same time as the others. This test is a separate
//! process, because only the first copy of a process does this.

use std::sync::Barrier;

/// Threads that start at once.
const THREADS: usize = if cfg!(miri) { 4 } else { 64 };

#[test]
fn concurrent_first_copies_are_right() {
    let barrier = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let barrier = &barrier;
            scope.spawn(move || {
                // The lengths use a block of 65 to 256 bytes, a longer block, a loop, and a
                // method that the thresholds choose.
                let length = [70, 300, 1000, 5000][thread % 4] + thread;
                let source: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
                let mut target = vec![0; length];
                barrier.wait();
                if thread % 2 == 0 {
                    haul_copy::copy(&mut target, &source);
                    assert_eq!(target, source);
                    haul_copy::fill(&mut target, 7);
                } else {
                    haul_copy::fill(&mut target, 7);
                    assert!(target.iter().all(|&byte| byte == 7));
                    haul_copy::copy(&mut target, &source);
                }
                let expected = if thread % 2 == 0 { vec![7; length] } else { source };
                assert_eq!(target, expected);
            });
        }
    });
}
