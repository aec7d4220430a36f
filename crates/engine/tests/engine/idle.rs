//! An idle engine uses no processor.

use std::time::{Duration, Instant};

use haul_engine::{Copy, Queue};

use crate::support::is_alone;

/// The processor time of the threads of this process with this name.
fn time_of(name: &str) -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let of_task = |task: std::fs::DirEntry| {
        let comm = std::fs::read_to_string(task.path().join("comm")).ok()?;
        let stat = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        (comm.trim() == name).then(|| stat.split(' ').next()?.parse::<u64>().ok())?
    };
    tasks.filter_map(of_task).sum()
}

#[test]
fn helper_thread_uses_no_processor_while_idle() {
    // Other tests have helper threads too.
    if !is_alone("idle::helper_thread_uses_no_processor_while_idle") {
        return;
    }
    /// For this time, the thread must use no processor.
    const IDLE: Duration = Duration::from_secs(10);
    let queue = Queue::worker().unwrap();
    let _ = queue.submit(Copy::new(vec![0; 1 << 20], vec![1; 1 << 20])).wait();
    // The thread polls for a while before it sleeps, and longer on a busy machine.
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let before = time_of("haul-engine");
        std::thread::sleep(IDLE);
        let used = time_of("haul-engine") - before;
        // On a busy machine, this thread may have copied all before the helper thread first ran.
        if used == 0 && before > 0 {
            break;
        }
        assert!(
            Instant::now() < deadline,
            "{before} ns of processor time, and {used} ns in {IDLE:?} after them"
        );
    }
    drop(queue);
}
