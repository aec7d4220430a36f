//! What a forwarding experiment measures: one flow with packets of one size, its subjects, and the
//! number of restarts.

use std::time::Duration;

use super::flow::{Buffers, Flow, Layout};
use super::protocol::{ENGINE, Source, copy_and_engine};
use super::search::Goal;
use super::sides::Forwarder;
use crate::drive::Program;

/// The time of a restart of both sides in addition to the measured window, with haul's own
/// processes. The second constant is the additional time of each process of DPDK.
const RESTART: Duration = Duration::from_millis(580);
const RESTART_OF_DPDK: Duration = Duration::from_millis(600);

/// The additional time of a restart with a kernel as guest, which tries to connect to its switch
/// once a second. The second constant is the time in which the kernel boots under emulation: once
/// per switch program, or once per restart.
const RESTART_OF_KERNEL: Duration = Duration::from_millis(1200);
const BOOT: Duration = Duration::from_secs(4);

/// The time from a change of the packet size to the measured window: both sides publish their
/// counters every 20 ms.
pub(super) const BEFORE_NEW_SIZE: Duration = Duration::from_millis(30);

/// A switch that is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The program.
    pub switch: Forwarder,
    /// The copy function of the switch, if the program is haul: `haul`, `libc`, `none`, the name
    /// of a kernel, or the path of a library with a memcpy; or `haul` beside an engine, see
    /// [`Subject::beside`].
    pub copy: String,
}

/// A flow with packets of one size.
#[derive(Clone, Debug)]
pub struct Bench {
    /// The path of the packets.
    pub flow: Flow,
    /// The layout of the rings.
    pub layout: Layout,
    /// Queue pairs between switch and guest.
    pub queues: u16,
    /// The size of a packet from the Ethernet header on, without the frame check sequence.
    pub size_bytes: usize,
    /// The switches that are measured, each with its own restarts.
    pub subjects: Vec<Subject>,
    /// The guest that all switches use.
    pub guest: Forwarder,
    /// How testpmd as guest holds a long packet.
    pub buffers: Buffers,
    /// The source of haul's packets.
    pub source: Source,
    /// Whether memory comes from the kernel's pool of huge pages.
    pub is_huge: bool,
    /// The command that starts haul's own processes.
    pub driver: Program,
    /// Requested subjects that are not installed.
    pub left_out: Vec<String>,
    /// The smallest and the largest number of restarts per subject. Between these limits, the
    /// budget decides.
    pub restarts: (usize, usize),
    /// The measured time of each restart.
    pub window: Duration,
    /// The longest time of the experiment.
    pub budget: Duration,
    /// Further searches: each has a name and a goal, and finds the highest load that meets the
    /// goal.
    pub searches: Vec<(&'static str, Goal)>,
    /// The number of searches for each goal. The searches for different goals alternate.
    pub searches_each: usize,
    /// Whether latency is measured at fractions of the load that the first search finds.
    pub latency: bool,
    /// Packet sizes that each restart measures, instead of `size_bytes` alone.
    pub sweep: Vec<usize>,
    /// The seed of the order of subjects and of sizes.
    pub seed: u64,
}

impl Subject {
    /// haul as switch, with haul's own copy and an engine that copies long bursts to the guest.
    #[must_use]
    pub fn beside(engine: &str) -> Self {
        Self { switch: Forwarder::Haul, copy: format!("haul{ENGINE}{engine}") }
    }

    /// The engine that copies long bursts to the guest.
    #[must_use]
    pub fn engine(&self) -> Option<&str> {
        copy_and_engine(&self.copy).1
    }

    /// The name that distinguishes this subject from the others: the copy, if the program is
    /// haul.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.switch {
            Forwarder::Haul => self.copy.clone(),
            Forwarder::Testpmd(_) | Forwarder::OpenVswitch(_) | Forwarder::Qemu(_) => {
                self.switch.name()
            }
        }
    }
}

impl Bench {
    /// The subject that the other subjects are compared with: testpmd, or else Open vSwitch,
    /// libc's copy, or the first.
    #[must_use]
    pub fn baseline(&self) -> usize {
        let named = |name: &str| self.subjects.iter().position(|subject| subject.name() == name);
        named("testpmd").or(named("ovs")).or(named("libc")).unwrap_or(0)
    }

    /// The subjects that take part twice, so that their difference from themselves is known: the
    /// baseline, and libc's copy if haul's copy is also compared with it.
    pub(super) fn again(&self) -> Vec<usize> {
        let baseline = self.baseline();
        let named = |name: &str| self.subjects.iter().position(|subject| subject.name() == name);
        let libc = named("libc").filter(|&libc| named("haul").is_some() && libc != baseline);
        std::iter::once(baseline).chain(libc).collect()
    }

    /// The number of threads per side if a process may run on this number of processors. A thread
    /// serves one queue pair or several.
    #[must_use]
    pub fn threads(&self, processors: usize) -> usize {
        usize::from(self.queues).min(processors / 2).max(1)
    }

    /// Whether a guest outlives its switches, so that only the switch restarts. With packed
    /// rings, QEMU 7.2 does not know the position of a switch that has ended, and gives the next
    /// switch the position at which the previous switch began.
    pub(super) fn keeps_guest(&self) -> bool {
        self.guest.is_kernel() && !self.layout.is_packed()
    }

    /// The time of one restart of every subject.
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
            let measured =
                if sizes > 0 { (self.window + BEFORE_NEW_SIZE) * sizes } else { self.window };
            RESTART + RESTART_OF_DPDK * peers + of_kernel + measured
        };
        let again = if self.sweep.is_empty() { self.again() } else { Vec::new() };
        let all = self.subjects.iter().chain(again.iter().map(|&index| &self.subjects[index]));
        all.map(|subject| restart(&subject.switch)).sum()
    }

    /// The time of this number of restarts of every subject.
    #[must_use]
    pub fn time_of(&self, restarts: usize) -> Duration {
        let mut switches: Vec<String> = self.subjects.iter().map(|it| it.switch.name()).collect();
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
            buffers: Buffers::Several,
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
    fn each_queue_has_a_thread_if_processors_suffice() {
        let bench = Bench { queues: 4, ..bench(&["haul"]) };
        assert_eq!([1, 2, 3, 4, 7, 8, 64].map(|it| bench.threads(it)), [1, 1, 1, 2, 3, 4, 4]);
        assert_eq!(Bench { queues: 1, ..bench }.threads(64), 1);
    }

    #[test]
    fn libc_is_baseline_without_testpmd() {
        assert_eq!(bench(&["haul", "libc", "none"]).baseline(), 1);
        assert_eq!(bench(&["haul", "libc", "none"]).again(), [1]);
        assert_eq!(bench(&["haul", "none"]).baseline(), 0);
        assert_eq!(bench(&["haul", "libc"]).time_of(9), Duration::from_millis(9 * 3 * 880));
    }
}
