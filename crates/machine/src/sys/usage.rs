//! What is used now: memory by this process, time by all processors and by others' guests.

use std::fs;

use super::Sys;
use super::memory::field_bytes;

impl Sys {
    /// Seconds of all CPUs that the hypervisor gave to others, and seconds of all CPUs together.
    /// From the first line of `/proc/stat` (proc(5)), in hundredths.
    #[must_use]
    pub fn steal_and_total_seconds(&self) -> Option<(f64, f64)> {
        let text = self.text("proc/stat")?;
        let line = text.lines().find(|line| line.starts_with("cpu "))?;
        let ticks: Vec<f64> =
            line.split_whitespace().skip(1).map_while(|field| field.parse().ok()).collect();
        // user nice system idle iowait irq softirq steal; guest time is in user already.
        let total: f64 = ticks.get(..8)?.iter().sum();
        Some((ticks[7] / 100.0, total / 100.0))
    }

    /// The most memory this process has had at once, in bytes, since [`Sys::reset_peak`].
    #[must_use]
    pub fn peak_bytes(&self) -> Option<u64> {
        field_bytes(&self.text("proc/self/status")?, "VmHWM:")
    }

    /// Makes [`Sys::peak_bytes`] count from now on; false where the kernel does not.
    #[must_use]
    pub fn reset_peak(&self) -> bool {
        fs::write(self.path("proc/self/clear_refs"), "5").is_ok()
    }

    /// Memory that this process has in its pages now, in bytes, huge ones of every kind included
    /// (proc(5), `smaps_rollup`: `Rss` leaves out what comes from hugetlbfs).
    #[must_use]
    pub fn resident_bytes(&self) -> Option<u64> {
        let text = self.text("proc/self/smaps_rollup")?;
        let huge = ["Shared_Hugetlb:", "Private_Hugetlb:"].map(|name| field_bytes(&text, name));
        let huge: u64 = huge.into_iter().flatten().sum();
        field_bytes(&text, "Rss:")?.checked_add(huge)
    }

    /// Memory in this process's pages that is no file's: its own, and what it shares with others
    /// (proc(5), `status`: RssAnon and RssShmem).
    #[must_use]
    pub fn own_and_shared_bytes(&self) -> Option<u64> {
        let text = self.text("proc/self/status")?;
        field_bytes(&text, "RssAnon:")?.checked_add(field_bytes(&text, "RssShmem:")?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::root_with;
    use super::*;

    #[test]
    fn nothing_without_proc() {
        let absent = Sys::at("/nonexistent");
        assert_eq!(absent.steal_and_total_seconds(), None);
        assert_eq!(absent.memory_available_bytes(), None);
        assert_eq!(absent.peak_bytes(), None);
        assert_eq!(absent.resident_bytes(), None);
        assert!(!absent.reset_peak());
    }

    #[test]
    fn nothing_from_garbage() {
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
    fn huge_pages_are_resident_too() {
        let text = "Rss:  8 kB\nShared_Hugetlb:  2048 kB\nPrivate_Hugetlb:  4096 kB\n";
        let (_folder, sys) = root_with(&[("proc/self/smaps_rollup", text)]);
        assert_eq!(sys.resident_bytes(), Some((8 + 2048 + 4096) * 1024));
        // The machine's own, where it tells.
        assert!(Sys::new().resident_bytes().is_none_or(|bytes| bytes > 4096));
    }
}
