//! Current use of the machine: memory of this process, and processor time of this process and its
//! descendants, of other programs, of other guests, and in total.

use std::collections::BTreeMap;
use std::fs;

use super::Sys;
use super::memory::field_bytes;

impl Sys {
    /// The CPU seconds that the hypervisor gave to other guests, and all CPU seconds. Both are
    /// sums over all CPUs, with a resolution of a hundredth of a second, from the first line of
    /// `/proc/stat` (proc(5)).
    #[must_use]
    pub fn steal_and_total_seconds(&self) -> Option<(f64, f64)> {
        let seconds = self.seconds_by_kind()?;
        Some((seconds[7], seconds.iter().sum()))
    }

    /// The CPU seconds for all programs of this machine, and the CPU seconds for this process and
    /// its descendants (proc(5), `/proc/PID/stat`). The difference is the time for other
    /// programs. Reads one file per process on the machine.
    #[must_use]
    pub fn busy_and_own_seconds(&self) -> Option<(f64, f64)> {
        let [user, nice, system, _idle, _iowait, irq, softirq, _steal] = self.seconds_by_kind()?;
        let own = family_seconds(&self.processes(), std::process::id())?;
        Some((user + nice + system + irq + softirq, own))
    }

    /// The CPU seconds of the children of this process that have ended and that it has waited for,
    /// with those that they have waited for, at a resolution of a hundredth of a second (proc(5),
    /// `/proc/PID/stat`).
    #[must_use]
    pub fn ended_children_seconds(&self) -> Option<f64> {
        let text = self.text(&format!("proc/{}/stat", std::process::id()))?;
        Some(Process::parse(&text)?.of_children_seconds)
    }

    /// CPU seconds, as sums over all CPUs: user, nice, system, idle, iowait, irq, softirq, steal.
    /// `user` includes a guest's time.
    fn seconds_by_kind(&self) -> Option<[f64; 8]> {
        let text = self.text("proc/stat")?;
        let line = text.lines().find(|line| line.starts_with("cpu "))?;
        let ticks: Vec<f64> =
            line.split_whitespace().skip(1).map_while(|field| field.parse().ok()).collect();
        let ticks: [f64; 8] = ticks.get(..8)?.try_into().ok()?;
        Some(ticks.map(|ticks| ticks / TICKS_A_SECOND))
    }

    fn processes(&self) -> BTreeMap<u32, Process> {
        let ids = self.names("proc").into_iter().filter_map(|name| name.parse::<u32>().ok());
        let read = |id| Some((id, Process::parse(&self.text(&format!("proc/{id}/stat"))?)?));
        ids.filter_map(read).collect()
    }

    /// The peak memory of this process in bytes since [`Sys::reset_peak`].
    #[must_use]
    pub fn peak_bytes(&self) -> Option<u64> {
        field_bytes(&self.text("proc/self/status")?, "VmHWM:")
    }

    /// Sets the peak of [`Sys::peak_bytes`] back to the present value. Returns false if the
    /// kernel does not support this.
    #[must_use]
    pub fn reset_peak(&self) -> bool {
        fs::write(self.path("proc/self/clear_refs"), "5").is_ok()
    }

    /// Resident memory of this process in bytes, with all kinds of huge pages (proc(5),
    /// `smaps_rollup`: `Rss` does not include hugetlbfs).
    #[must_use]
    pub fn resident_bytes(&self) -> Option<u64> {
        let text = self.text("proc/self/smaps_rollup")?;
        let huge = ["Shared_Hugetlb:", "Private_Hugetlb:"].map(|name| field_bytes(&text, name));
        let huge: u64 = huge.into_iter().flatten().sum();
        field_bytes(&text, "Rss:")?.checked_add(huge)
    }

    /// Resident memory of this process that does not belong to a file: its private memory, and
    /// the memory that it shares with other processes (proc(5), `status`: RssAnon and RssShmem).
    #[must_use]
    pub fn own_and_shared_bytes(&self) -> Option<u64> {
        let text = self.text("proc/self/status")?;
        field_bytes(&text, "RssAnon:")?.checked_add(field_bytes(&text, "RssShmem:")?)
    }
}

/// The unit in which the kernel reports processor time to programs (proc(5), USER_HZ).
const TICKS_A_SECOND: f64 = 100.0;

/// A process, as `/proc/PID/stat` describes it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Process {
    parent: u32,
    /// The processor time of the process and its ended children, in seconds.
    seconds: f64,
    /// The part of its ended children.
    of_children_seconds: f64,
}

impl Process {
    /// Parses `1234 (name) S 1 ...`; the name may contain spaces and parentheses.
    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        // In proc(5), which counts from 1, the state is field 3, and utime, stime, cutime, cstime
        // are fields 14 to 17.
        let parent = fields.get(1)?.parse().ok()?;
        let ticks = fields.get(11..15)?.iter().map(|field| field.parse::<f64>().ok());
        let ticks: Vec<f64> = ticks.collect::<Option<_>>()?;
        let seconds = |ticks: &[f64]| ticks.iter().sum::<f64>() / TICKS_A_SECOND;
        Some(Self { parent, seconds: seconds(&ticks), of_children_seconds: seconds(&ticks[2..]) })
    }
}

/// The processor time of a process and its living descendants.
fn family_seconds(processes: &BTreeMap<u32, Process>, first: u32) -> Option<f64> {
    let mut seconds = processes.get(&first)?.seconds;
    let mut family = vec![first];
    while let Some(parent) = family.pop() {
        for (&id, process) in processes.iter().filter(|(_, process)| process.parent == parent) {
            seconds += process.seconds;
            family.push(id);
        }
    }
    Some(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::tests::root_with;

    #[test]
    fn family_time_includes_all_descendants() {
        let line = |id: u32, parent: u32, ticks: [u32; 4]| {
            let [user, system, user_ended, system_ended] = ticks;
            let times = format!("{user} {system} {user_ended} {system_ended}");
            format!("{id} (a (b) c) S {parent} 1 1 0 -1 4194304 1 0 0 0 {times} 20 0 1 0 9")
        };
        let own = std::process::id();
        let (child, grandchild, other) = (own + 1, own + 2, own + 3);
        let files = [
            ("proc/stat".to_owned(), "cpu  100 20 30 900 40 5 6 70 0 0\n".to_owned()),
            (format!("proc/{own}/stat"), line(own, 1, [10, 20, 300, 400])),
            (format!("proc/{child}/stat"), line(child, own, [1, 0, 0, 0])),
            (format!("proc/{grandchild}/stat"), line(grandchild, child, [0, 2, 0, 0])),
            (format!("proc/{other}/stat"), line(other, 1, [9999, 0, 0, 0])),
            ("proc/self/stat".to_owned(), "nonsense".to_owned()),
        ];
        let files: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let (_folder, sys) = root_with(&files);
        let (busy, seconds) = sys.busy_and_own_seconds().unwrap();
        assert!((busy - 1.61).abs() < 1e-9, "{busy}");
        assert!((seconds - 7.33).abs() < 1e-9, "{seconds}");
        assert_eq!(sys.ended_children_seconds(), Some(7.0));
        for bad in ["", "1 (a", "1 (a) S", "1 (a) S x 1 1", "1 (a) S 1 1 1 0 -1 4 1 0 0 0 1 x 3 4"]
        {
            assert_eq!(Process::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn work_of_this_process_counts_as_its_own() {
        let sys = Sys::new();
        let Some((_, before)) = sys.busy_and_own_seconds() else { return };
        // The kernel counts ticks of 10 ms. This thread may have no processor for a while.
        let start = std::time::Instant::now();
        loop {
            let (busy, after) = sys.busy_and_own_seconds().unwrap();
            if after > before && busy >= 0.0 {
                return;
            }
            assert!(start.elapsed().as_secs() < 60, "{before} {after} {busy}");
        }
    }

    #[test]
    fn usage_is_unknown_without_proc() {
        let absent = Sys::at("/nonexistent");
        assert_eq!(absent.steal_and_total_seconds(), None);
        assert_eq!(absent.busy_and_own_seconds(), None);
        assert_eq!(absent.ended_children_seconds(), None);
        assert_eq!(absent.memory_available_bytes(), None);
        assert_eq!(absent.peak_bytes(), None);
        assert_eq!(absent.resident_bytes(), None);
        assert!(!absent.reset_peak());
    }

    #[test]
    fn malformed_files_give_no_usage() {
        let (_folder, garbage) = root_with(&[
            ("proc/stat", "cpu 1 2 x"),
            ("proc/meminfo", "MemAvailable: 99999999999999999999 kB"),
            ("proc/self/status", "VmHWM: 18446744073709551615 kB"),
        ]);
        assert_eq!(garbage.steal_and_total_seconds(), None);
        assert_eq!(garbage.memory_available_bytes(), None);
        assert_eq!(garbage.peak_bytes(), None);
    }

    #[test]
    fn huge_pages_count_as_resident() {
        let text = "Rss:  8 kB\nShared_Hugetlb:  2048 kB\nPrivate_Hugetlb:  4096 kB\n";
        let (_folder, sys) = root_with(&[("proc/self/smaps_rollup", text)]);
        assert_eq!(sys.resident_bytes(), Some((8 + 2048 + 4096) * 1024));
        // Also checks the running machine, if it reports the value.
        assert!(Sys::new().resident_bytes().is_none_or(|bytes| bytes > 4096));
    }
}
