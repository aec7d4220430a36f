//! The cost of a transfer.

use std::time::Duration;

use super::names::Mechanism;

/// The cost of a transfer at one end. The cost of the whole transfer is the sum of both ends'
/// accounts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// The mechanism that moved the bytes. If the first mechanism was given up, the mechanism
    /// that replaced it.
    pub mechanism: Mechanism,
    /// The mechanism that the transfer began with, if it was given up.
    pub fell_back_from: Option<Mechanism>,
    /// The message's size in bytes.
    pub size_bytes: u64,
    /// Bytes that this end copied, by the processor or by the kernel on its behalf. A mechanism's
    /// copies per byte are the sum of this value at both ends, divided by the size.
    pub copied_bytes: u64,
    /// Whether the receiver compared the bytes that it keeps with a checksum.
    pub is_checked: bool,
    /// Processor time of the calling thread, user and system. `None` for a message under 128 KiB:
    /// the system calls to measure the time would take a tenth of the transfer or more.
    pub cpu: Option<Duration>,
    /// Page faults of the calling thread, minor and major. `None` in the same cases as for `cpu`.
    pub faults: Option<u64>,
    /// Number of the transfer's system calls, without those for this account, and without the
    /// check before a message whether the peer lives.
    pub system_calls: u64,
    /// Memory beyond source and target that this end used for the transfer, at its peak. The sender
    /// counts the part that both ends share.
    pub extra_memory_bytes: u64,
}

/// From this size on, a transfer takes much longer than the four system calls that measure it. In
/// a guest these calls take 1.2 us at either end; a transfer of 64 KiB takes 10 us.
const METERED_BYTES_MIN: u64 = 128 << 10;

impl Account {
    /// Whether much of the target had no pages before: there were faults for at least an eighth of
    /// its pages. If both ends copy, this end handles half of the faults.
    pub(crate) fn received_into_new(&self) -> bool {
        let pages = self.size_bytes / PAGE_BYTES;
        self.faults.is_some_and(|faults| faults > 0 && faults >= pages / 8)
    }
}

/// The smallest page of this architecture's processors, in bytes.
const PAGE_BYTES: u64 = 4096;

/// Processor time and page faults at the beginning of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    cpu: Duration,
    faults: u64,
}

impl Meter {
    /// Begins a measurement now, if the message is large enough.
    pub(crate) fn of(length: u64) -> Option<Self> {
        (length >= METERED_BYTES_MIN).then(Self::start)
    }

    /// Begins a measurement now. Costs two system calls.
    fn start() -> Self {
        Self { cpu: time_of_thread(), faults: faults_of_thread() }
    }

    /// Writes the time and faults since the beginning. Must be called by the thread that began
    /// the measurement.
    pub(crate) fn write_to(&self, account: &mut Account) {
        let now = Self::start();
        account.cpu = Some(now.cpu.saturating_sub(self.cpu));
        account.faults = Some(now.faults.saturating_sub(self.faults));
    }
}

/// Calls libc, because rustix reads the vDSO itself, which does not exist under valgrind.
fn time_of_thread() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the target is a structure of the right type that nothing else refers to.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
    match result {
        0 => Duration::new(now.tv_sec as u64, now.tv_nsec as u32),
        _ => Duration::ZERO,
    }
}

fn faults_of_thread() -> u64 {
    // SAFETY: all bytes zero are a value of this plain structure of numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the target is a structure of the right type that nothing else refers to.
    let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    if result == 0 { (usage.ru_minflt + usage.ru_majflt) as u64 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_counts_as_new_from_fault_per_eight_pages_on() {
        let account = |faults| {
            Account { size_bytes: 1 << 20, faults, ..Account::default() }.received_into_new()
        };
        assert!(account(Some(256)) && account(Some(128)) && account(Some(32)));
        assert!(!account(Some(31)) && !account(Some(0)) && !account(None));
    }
}
