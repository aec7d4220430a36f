//! CPU time, page faults and peak memory of a subject, in addition to its time.

use std::time::Duration;

use crate::sys::Usage;

/// The resources that a subject used in all its timed samples together, over all threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// CPU time, user and system.
    pub cpu: Duration,
    /// Page faults served without a disk.
    pub faults_minor: u64,
    /// Page faults that read from a disk.
    pub faults_major: u64,
    /// The number of times that the kernel preempted the thread within a sample.
    pub switches_involuntary: u64,
    /// The number of operations in all these samples.
    pub operations: u64,
    /// The process's peak memory while the subject ran one sample, including the buffers of all
    /// subjects; `None` if the kernel does not report it.
    pub peak_bytes: Option<u64>,
}

impl Account {
    /// Adds the difference of two readings of one thread.
    pub fn add(&mut self, before: Usage, after: Usage, operations: u64) {
        self.cpu += after.cpu.saturating_sub(before.cpu);
        self.faults_minor += after.faults_minor.saturating_sub(before.faults_minor);
        self.faults_major += after.faults_major.saturating_sub(before.faults_major);
        self.switches_involuntary +=
            after.switches_involuntary.saturating_sub(before.switches_involuntary);
        self.operations += operations;
    }

    /// CPU nanoseconds per operation; `None` before the first.
    #[must_use]
    pub fn cpu_ns_per_operation(&self) -> Option<f64> {
        (self.operations > 0).then(|| self.cpu.as_nanos() as f64 / self.operations as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_add_up() {
        let usage = |n: u64| Usage {
            cpu: Duration::from_micros(n),
            faults_minor: 2 * n,
            faults_major: 3 * n,
            switches_involuntary: 4 * n,
        };
        let mut account = Account::default();
        account.add(usage(1), usage(3), 10);
        account.add(usage(10), usage(11), 20);
        assert_eq!(
            (account.faults_minor, account.faults_major, account.switches_involuntary),
            (6, 9, 12)
        );
        assert_eq!(account.cpu_ns_per_operation(), Some(100.0));
        assert_eq!(Account::default().cpu_ns_per_operation(), None);
    }
}
