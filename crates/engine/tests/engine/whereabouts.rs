//! The processor of the helper thread, as the kernel reports it.

use std::fs;
use std::time::Duration;

use haul_engine::{Copy, Queue};
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_getcpu, sched_setaffinity};

use crate::support::is_alone;

/// The helper thread of this process, once it has run.
fn helper() -> Pid {
    let of = |task: fs::DirEntry| {
        let comm = fs::read_to_string(task.path().join("comm")).ok()?;
        let number = task.file_name().to_str()?.parse().ok()?;
        (comm.trim() == "haul-engine").then(|| Pid::from_raw(number))?
    };
    loop {
        let mut threads = fs::read_dir("/proc/self/task").unwrap().flatten();
        if let Some(helper) = threads.find_map(of) {
            return helper;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The processor on which the thread runs, or ran last.
fn processor_of(thread: Pid) -> usize {
    let stat = format!("/proc/self/task/{}/stat", thread.as_raw_nonzero());
    let stat = fs::read_to_string(stat).unwrap();
    // The processor is field 39; the third field follows the name.
    stat.rsplit_once(')').unwrap().1.split_whitespace().nth(36).unwrap().parse().unwrap()
}

/// Caller and helper thread begin on one processor, the helper thread asleep.
#[test]
fn helper_thread_leaves_its_callers_processor() {
    if !is_alone("whereabouts::helper_thread_leaves_its_callers_processor") {
        return;
    }
    let all = sched_getaffinity(None).unwrap();
    if all.count() < 2 {
        eprintln!("SKIPPED: a helper thread on two processors: only one CPU: give it two");
        return;
    }
    let here = sched_getcpu();
    let mut one = CpuSet::new();
    one.set(here);
    sched_setaffinity(None, &one).unwrap();
    let queue = Queue::worker().unwrap();
    let copy = || queue.submit(Copy::new(vec![0; 4096], vec![7; 4096])).wait().0.target[4095];
    assert_eq!(copy(), 7);
    std::thread::sleep(Duration::from_millis(20));
    let helper = helper();
    assert_eq!(processor_of(helper), here, "it inherits the processor");
    sched_setaffinity(Some(helper), &all).unwrap();
    // The kernel moves it too, after a thousand.
    for submissions in 0.. {
        if processor_of(helper) != here {
            break;
        }
        assert!(submissions < 100, "it stays on its caller's processor");
        assert_eq!(copy(), 7);
        // It falls asleep, and is woken again.
        std::thread::sleep(Duration::from_millis(1));
    }
}
