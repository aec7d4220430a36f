//! Checks whether a polling thread was the only one on its processor.

use std::fs;

/// The names of the threads that forward: the names in several releases of DPDK, in haul, and in
/// Open vSwitch.
const NAMES: [&str; 3] = ["worker", "haul-forward", "pmd-c"];

/// Nanoseconds for which the forwarding threads of a process have run, and those for which they
/// were ready to run but waited for their processor; `None` if the kernel does not report them.
pub(super) fn of(process: u32) -> Option<(u64, u64)> {
    let folder = fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let mut sum = None;
    for task in folder.flatten() {
        let read = |file: &str| fs::read_to_string(task.path().join(file));
        let Ok(name) = read("comm") else { continue };
        if !NAMES.iter().any(|own| name.contains(own)) {
            continue;
        }
        if let Some((ran, waited)) = read("schedstat").ok().and_then(|text| parse(&text)) {
            let (ran_so_far, waited_so_far) = sum.unwrap_or((0, 0));
            sum = Some((ran_so_far + ran, waited_so_far + waited));
        }
    }
    sum
}

/// `run wait slices`, in nanoseconds, as in the kernel's Documentation/scheduler/sched-stats.rst.
fn parse(text: &str) -> Option<(u64, u64)> {
    let mut numbers = text.split_whitespace().map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// The share of waiting in the time between two readings.
pub(super) fn share(before: Option<(u64, u64)>, after: Option<(u64, u64)>) -> Option<f64> {
    let ((ran_before, waited_before), (ran_after, waited_after)) = (before?, after?);
    let waited = waited_after.saturating_sub(waited_before) as f64;
    let ran = ran_after.saturating_sub(ran_before) as f64;
    (ran + waited > 0.0).then(|| waited / (ran + waited))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_uses_time_between_readings() {
        assert_eq!(parse("100 20 3\n"), Some((100, 20)));
        assert_eq!(parse("100"), None);
        assert_eq!(share(Some((100, 20)), Some((170, 50))), Some(0.3));
        assert_eq!(share(Some((100, 20)), Some((100, 20))), None);
        assert_eq!(share(None, Some((1, 1))), None);
    }

    #[test]
    fn thread_is_found_by_name() {
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let (named, is_named) = std::sync::mpsc::channel();
        let builder = std::thread::Builder::new().name("haul-forward".into());
        let thread = builder.spawn(move || {
            // A thread sets its name before its closure runs.
            named.send(()).unwrap();
            receiver.recv().is_err()
        });
        let thread = thread.unwrap();
        is_named.recv().unwrap();
        let found = of(std::process::id());
        drop(sender);
        assert!(thread.join().unwrap());
        if std::path::Path::new("/proc/self/schedstat").exists() {
            assert!(found.is_some());
        }
    }
}
