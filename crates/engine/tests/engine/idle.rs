//! An idle engine uses no processor.

use std::time::{Duration, Instant};

use haul_engine::{Copy, Queue};

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
    // A name of its own: other tests of this process have helper threads too.
    let queue = Queue::worker().unwrap();
    let _ = queue.submit(Copy::new(vec![0; 5000], vec![1; 5000])).wait();
    let own = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "idle::idle_process", "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&own.stdout);
    assert!(own.status.success() && printed.contains("1 passed"), "{printed}");
}

#[test]
#[ignore = "run alone by helper_thread_uses_no_processor_while_idle"]
fn idle_process() {
    let queue = Queue::worker().unwrap();
    let _ = queue.submit(Copy::new(vec![0; 1 << 20], vec![1; 1 << 20])).wait();
    std::thread::sleep(Duration::from_millis(50));
    let (before, begun) = (time_of("haul-engine"), Instant::now());
    std::thread::sleep(Duration::from_secs(2));
    let used = time_of("haul-engine") - before;
    assert!(before > 0, "the helper thread is not listed");
    assert_eq!(used, 0, "ns of processor time in {:?}", begun.elapsed());
    drop(queue);
}
