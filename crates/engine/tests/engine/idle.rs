//! An idle engine uses no processor.

use std::time::{Duration, Instant};

use haul_engine::{Copy, Queue};

/// Set in the process that has no other test.
const ALONE: &str = "HAUL_TEST_ALONE";

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
    // In a process of its own: other tests of this process have helper threads too.
    if std::env::var_os(ALONE).is_some() {
        return idle_process();
    }
    let own = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "idle::helper_thread_uses_no_processor_while_idle", "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&own.stdout);
    assert!(own.status.success() && printed.contains("1 passed"), "{own:?}");
}

fn idle_process() {
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
