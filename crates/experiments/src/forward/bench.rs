//! What is measured: one flow with packets of one size, by whom, and how often.

use std::time::Duration;

use super::flow::{Flow, Layout};
use super::protocol::Source;
use super::search::Goal;
use super::sides::Forwarder;
use crate::drive::Program;

/// What a restart of both sides takes beside what is measured of it: of haul's own processes, and
/// more of each of DPDK's.
const RESTART: Duration = Duration::from_millis(580);
const RESTART_OF_DPDK: Duration = Duration::from_millis(600);

/// The same of a kernel, which looks for its switch once a second; and how long it boots, once for
/// each program that is a switch, or for each restart: under emulation.
const RESTART_OF_KERNEL: Duration = Duration::from_millis(1200);
const BOOT: Duration = Duration::from_secs(4);

/// How long packets of a new size flow before they are measured: what both sides counted is
/// published every 20 ms.
pub(super) const SETTLE: Duration = Duration::from_millis(30);

/// Who is measured as switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The program.
    pub switch: Forwarder,
    /// Who copies in it, where it is haul: `haul`, `libc`, `none`, a kernel's name, or the path of
    /// a library that has a memcpy.
    pub copy: String,
}

/// A flow with packets of one size.
#[derive(Clone, Debug)]
pub struct Bench {
    /// What packets go through.
    pub flow: Flow,
    /// How the rings are laid out.
    pub layout: Layout,
    /// Queue pairs between switch and guest.
    pub queues: u16,
    /// The size of a packet, from the Ethernet header on, without the frame check sequence.
    pub size_bytes: usize,
    /// Who is measured, each with its own restarts.
    pub subjects: Vec<Subject>,
    /// The guest of all of them.
    pub guest: Forwarder,
    /// Where haul's packets come from.
    pub source: Source,
    /// Whether memory is of the kernel's pool of huge pages.
    pub is_huge: bool,
    /// How haul's own processes are started.
    pub driver: Program,
    /// Who was asked for and is not there.
    pub left_out: Vec<String>,
    /// Restarts of each at least and at most; in between the budget says.
    pub restarts: (usize, usize),
    /// How long is measured of each restart.
    pub window: Duration,
    /// How long all of it may take.
    pub budget: Duration,
    /// What else is looked for: the highest loads that hold these goals, by name.
    pub searches: Vec<(&'static str, Goal)>,
    /// Searches of each, in turn.
    pub searches_each: usize,
    /// Whether latency is measured at parts of the first of these loads.
    pub latency: bool,
    /// Sizes that one restart goes through, instead of `size_bytes` alone.
    pub sweep: Vec<usize>,
    /// What orders are drawn from.
    pub seed: u64,
}

impl Subject {
    /// What tells it from the others: the copy where it is haul.
    #[must_use]
    pub fn name(&self) -> &str {
        match &self.switch {
            Forwarder::Haul => &self.copy,
            Forwarder::Testpmd(_) | Forwarder::OpenVswitch(_) | Forwarder::Qemu(_) => {
                self.switch.name()
            }
        }
    }
}

impl Bench {
    /// The subject that the others are compared with: testpmd, else Open vSwitch, else libc's copy,
    /// else the first.
    #[must_use]
    pub fn baseline(&self) -> usize {
        let named = |name: &str| self.subjects.iter().position(|subject| subject.name() == name);
        named("testpmd").or(named("ovs")).or(named("libc")).unwrap_or(0)
    }

    /// The subjects that take part twice, so that their difference from themselves is known: the
    /// baseline, and libc's copy where haul's is compared with it as well.
    pub(super) fn again(&self) -> Vec<usize> {
        let baseline = self.baseline();
        let named = |name: &str| self.subjects.iter().position(|subject| subject.name() == name);
        let libc = named("libc").filter(|&libc| named("haul").is_some() && libc != baseline);
        std::iter::once(baseline).chain(libc).collect()
    }

    /// Threads of each side where a process may run on so many processors: one for each queue pair,
    /// or for several of them.
    #[must_use]
    pub fn threads(&self, processors: usize) -> usize {
        usize::from(self.queues).min(processors / 2).max(1)
    }

    /// Whether a guest outlives its switches, so that a restart is the switch's alone. In packed
    /// rings QEMU 7.2 does not know how far a switch was that is gone, and hands the next one the
    /// place where that one began.
    pub(super) fn keeps_guest(&self) -> bool {
        self.guest.is_kernel() && !self.layout.is_packed()
    }

    /// How long one restart of everybody takes.
    fn round(&self) -> Duration {
        let is_dpdk = |it: &Forwarder| !matches!(it, Forwarder::Haul | Forwarder::Qemu(_));
        let of_kernel = match self.guest.is_kernel() {
            true if self.keeps_guest() => RESTART_OF_KERNEL,
            true => BOOT,
            false => Duration::ZERO,
        };
        let restart = |switch: &Forwarder| {
            let peers = u32::from(is_dpdk(switch)) + u32::from(is_dpdk(&self.guest));
            let sizes = u32::try_from(self.sweep.len()).unwrap_or(u32::MAX);
            let measured = if sizes > 0 { (self.window + SETTLE) * sizes } else { self.window };
            RESTART + RESTART_OF_DPDK * peers + of_kernel + measured
        };
        let again = if self.sweep.is_empty() { self.again() } else { Vec::new() };
        let all = self.subjects.iter().chain(again.iter().map(|&index| &self.subjects[index]));
        all.map(|subject| restart(&subject.switch)).sum()
    }

    /// How long so many restarts of everybody take.
    #[must_use]
    pub fn time_of(&self, restarts: usize) -> Duration {
        let mut switches: Vec<&str> = self.subjects.iter().map(|it| it.switch.name()).collect();
        switches.dedup();
        let boots = if self.keeps_guest() { switches.len() as u32 } else { 0 };
        BOOT * boots + self.round() * u32::try_from(restarts).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bench(subjects: &[&str]) -> Bench {
        let subject = |name: &&str| Subject { switch: Forwarder::Haul, copy: (*name).to_owned() };
        Bench {
            flow: Flow::Pvp,
            layout: Layout::Split,
            queues: 1,
            size_bytes: 64,
            subjects: subjects.iter().map(subject).collect(),
            guest: Forwarder::Haul,
            source: Source::Generator,
            is_huge: false,
            driver: Program::new("/bin/false"),
            left_out: Vec::new(),
            restarts: (3, 9),
            window: Duration::from_millis(300),
            budget: Duration::from_secs(10),
            searches: Vec::new(),
            searches_each: 1,
            latency: false,
            sweep: Vec::new(),
            seed: 1,
        }
    }

    #[test]
    fn queues_have_a_thread_each_as_long_as_there_are_processors() {
        let bench = Bench { queues: 4, ..bench(&["haul"]) };
        assert_eq!([1, 2, 3, 4, 7, 8, 64].map(|it| bench.threads(it)), [1, 1, 1, 2, 3, 4, 4]);
        assert_eq!(Bench { queues: 1, ..bench }.threads(64), 1);
    }

    #[test]
    fn libc_is_compared_with_where_there_is_no_testpmd() {
        assert_eq!(bench(&["haul", "libc", "none"]).baseline(), 1);
        assert_eq!(bench(&["haul", "libc", "none"]).again(), [1]);
        assert_eq!(bench(&["haul", "none"]).baseline(), 0);
        assert_eq!(bench(&["haul", "libc"]).time_of(9), Duration::from_millis(9 * 3 * 880));
    }
}
