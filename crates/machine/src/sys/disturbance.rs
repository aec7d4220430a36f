//! Conditions of this machine that disturb a measurement: other load, and a varying clock rate.
//!
//! Each condition is a line like the lines of [`super::offer`]. haul measures nevertheless. These
//! conditions raise the noise floor, which haul's records contain.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use super::topology::parse_list;
use super::{Offer, State, Sys};

/// If more processors than this are busy on average, without the caller, a measurement may have
/// to share a processor.
const LOAD_MAX: f64 = 0.5;

/// If a hypervisor gives a larger share of the processors' time to other guests, this is
/// reported. The share is half of two percent, because most of haul's comparisons are within two
/// percent.
const STEAL_SHARE_MAX: f64 = 0.01;

/// The kernel's folder of processors.
const CPU: &str = "sys/devices/system/cpu";

impl Sys {
    /// Reports the conditions that disturb a measurement, those that do not, and those that are
    /// unknown: load, steal time, frequency governor, turbo, and threads that share a core.
    /// Watches the processors for the duration `watch`, because in a VM that has run for months,
    /// the sums since its start do not show the present load.
    #[must_use]
    pub fn disturbances(&self, watch: Duration) -> Vec<Offer> {
        let begin = self.steal_and_total_seconds();
        if begin.is_some() {
            thread::sleep(watch);
        }
        let steal = begin.zip(self.steal_and_total_seconds());
        vec![self.load(), stolen(steal), self.governor(), self.turbo(), self.siblings()]
    }

    fn load(&self) -> Offer {
        const NAME: &str = "load";
        let text = self.text("proc/loadavg").unwrap_or_default();
        let average = text.split_whitespace().next().and_then(|field| field.parse::<f64>().ok());
        let Some(average) = average.filter(|average| average.is_finite() && *average >= 0.0) else {
            return Offer::unknown(NAME, "mount /proc to see other load");
        };
        let detail = format!("{average:.2} processors busy in the last minute");
        if average < LOAD_MAX {
            return Offer::ok(NAME, detail);
        }
        let remedy = "stop other programs, or wait for them: top -o %CPU shows them";
        Offer::disturbs(NAME, detail, remedy)
    }

    fn governor(&self) -> Offer {
        const NAME: &str = "frequency governor";
        let folders = self.names(CPU);
        let read = |folder: &String| self.text(&format!("{CPU}/{folder}/cpufreq/scaling_governor"));
        let found: BTreeSet<String> = folders.iter().filter_map(read).collect();
        let found: Vec<String> = found.into_iter().collect();
        match found.as_slice() {
            [] => Offer::unknown(
                NAME,
                "on a virtual machine the host decides; elsewhere load the cpufreq driver",
            ),
            [one] if one == "performance" => Offer::ok(NAME, one.clone()),
            several => Offer::disturbs(
                NAME,
                several.join(", "),
                "keep the clock from following the load: sudo cpupower frequency-set -g performance",
            ),
        }
    }

    fn turbo(&self) -> Offer {
        const NAME: &str = "turbo";
        // Intel's driver has a flag that means "turbo off". The general driver has a flag that
        // means "turbo on".
        let (path, off) = match self.number(&format!("{CPU}/intel_pstate/no_turbo")) {
            Some(no_turbo) => ("intel_pstate/no_turbo", Some(no_turbo)),
            None => (
                "cpufreq/boost",
                self.number(&format!("{CPU}/cpufreq/boost")).map(|on| 1 - on.min(1)),
            ),
        };
        match off {
            None => Offer::unknown(
                NAME,
                "on a virtual machine the host decides; elsewhere load the cpufreq driver",
            ),
            Some(0) => {
                let value = u8::from(path.ends_with("no_turbo"));
                Offer::disturbs(
                    NAME,
                    "on: the clock rate depends on temperature and on the load of other cores",
                    &format!("for stable figures: echo {value} | sudo tee /{CPU}/{path}"),
                )
            }
            Some(_) => Offer::ok(NAME, "off".into()),
        }
    }

    /// Threads of one core share its caches and ports, so that load on one thread slows the other
    /// thread.
    fn siblings(&self) -> Offer {
        const NAME: &str = "threads of a core (SMT)";
        let read = |folder: &String| {
            let text = self.text(&format!("{CPU}/{folder}/topology/thread_siblings_list"))?;
            parse_list(&text)
        };
        let cores: BTreeSet<Vec<usize>> = self.names(CPU).iter().filter_map(read).collect();
        if cores.is_empty() {
            return Offer::unknown(NAME, "mount /sys to see which processors share a core");
        }
        let mut shared = cores.iter().filter(|core| core.len() > 1);
        let Some(first) = shared.next() else {
            return Offer::ok(NAME, "one processor per core, as far as /sys shows".into());
        };
        let names: Vec<String> = first.iter().map(ToString::to_string).collect();
        let others = if shared.next().is_some() { ", and others likewise" } else { "" };
        let detail = format!("processors {} share a core{others}", names.join(" and "));
        let one_each: Vec<String> =
            cores.iter().filter_map(|core| core.first()).map(ToString::to_string).collect();
        let remedy = match one_each.as_slice() {
            [_] => "two threads on one core are slower than on two: give the machine another core"
                .to_owned(),
            several => format!(
                "leave the other threads idle: taskset -c {} haul ...; or echo off | sudo tee \
                 /{CPU}/smt/control",
                several.join(",")
            ),
        };
        Offer::disturbs(NAME, detail, &remedy)
    }
}

/// The hypervisor's share of the processors' time, from two readings.
fn stolen(readings: Option<((f64, f64), (f64, f64))>) -> Offer {
    const NAME: &str = "steal time";
    let Some(((steal_before, before), (steal, total))) = readings.filter(|(_, now)| now.1 > 0.0)
    else {
        return Offer::unknown(
            NAME,
            "mount /proc to see the time that a hypervisor gives to others",
        );
    };
    let always = steal / total;
    // Two readings may be equal, because the kernel counts only in hundredths of a second.
    let now = if total > before { (steal - steal_before) / (total - before) } else { always };
    let detail =
        format!("{:.1}% now, {:.1}% since the machine started", now * 100.0, always * 100.0);
    if now.max(always) < STEAL_SHARE_MAX {
        return Offer::ok(NAME, detail);
    }
    Offer::disturbs(
        NAME,
        detail,
        "other guests use the processors: measure when they are idle, or on a dedicated machine",
    )
}

impl Offer {
    fn disturbs(name: &'static str, detail: impl Into<String>, remedy: &str) -> Self {
        Self { name, state: State::Disturbs, detail: detail.into(), remedy: Some(remedy.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::tests::root_with;

    /// The line with this name, for a machine with these files.
    fn line_of(files: &[(&str, &str)], name: &str) -> Offer {
        let (_folder, sys) = root_with(files);
        let lines = sys.disturbances(Duration::ZERO);
        lines.into_iter().find(|line| line.name == name).unwrap()
    }

    /// A server of 2020: Linux 5.15, two cores of two threads.
    const SERVER: [(&str, &str); 13] = [
        ("proc/loadavg", "0.07 0.11 0.20 1/412 90211\n"),
        ("proc/stat", "cpu  100 0 50 9849 1 0 0 0 0 0\ncpu0 50 0 25 4925 0 0 0 0 0 0\n"),
        ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n"),
        ("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "performance\n"),
        ("sys/devices/system/cpu/cpu2/cpufreq/scaling_governor", "performance\n"),
        ("sys/devices/system/cpu/cpu3/cpufreq/scaling_governor", "performance\n"),
        ("sys/devices/system/cpu/intel_pstate/no_turbo", "1\n"),
        ("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0\n"),
        ("sys/devices/system/cpu/cpu1/topology/thread_siblings_list", "1\n"),
        ("sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "performance\n"),
        ("sys/devices/system/cpu/smt/active", "0\n"),
        ("sys/devices/system/cpu/smt/control", "off\n"),
        ("sys/devices/system/cpu/online", "0-3\n"),
    ];

    #[test]
    fn quiet_server_reports_no_disturbance() {
        let (_folder, sys) = root_with(&SERVER);
        let lines = sys.disturbances(Duration::ZERO);
        assert_eq!(lines.len(), 5);
        assert!(lines.iter().all(|line| line.state == State::Ok), "{lines:#?}");
    }

    #[test]
    fn each_disturbance_is_reported_with_its_remedy() {
        for (name, path, text, detail, remedy) in [
            ("load", "proc/loadavg", "1.53 1.0 0.5 3/120 7", "1.53 processors", "top"),
            (
                "steal time",
                "proc/stat",
                "cpu  100 0 50 9000 1 0 0 849 0 0",
                "8.5% since the machine started",
                "other guests",
            ),
            (
                "frequency governor",
                "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor",
                "schedutil\n",
                "performance, schedutil",
                "cpupower",
            ),
            (
                "turbo",
                "sys/devices/system/cpu/intel_pstate/no_turbo",
                "0\n",
                "on",
                "echo 1 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo",
            ),
            (
                "threads of a core (SMT)",
                "sys/devices/system/cpu/cpu0/topology/thread_siblings_list",
                "0,2\n",
                "processors 0 and 2 share a core",
                "taskset -c 0,1",
            ),
        ] {
            let files: Vec<(&str, &str)> =
                SERVER.into_iter().filter(|(at, _)| *at != path).chain([(path, text)]).collect();
            let line = line_of(&files, name);
            assert_eq!(line.state, State::Disturbs, "{line:?}");
            assert!(line.detail.contains(detail), "{line:?}");
            assert!(line.remedy.as_deref().is_some_and(|it| it.contains(remedy)), "{line:?}");
            let (_folder, sys) = root_with(&files);
            let lines = sys.disturbances(Duration::ZERO);
            let others = lines.iter().filter(|line| line.state != State::Ok).count();
            assert_eq!(others, 1, "{name} alone: {lines:#?}");
        }
    }

    /// Drivers of AMD and others have a flag for "turbo on", not for "turbo off".
    #[test]
    fn general_driver_reports_turbo() {
        let path = "sys/devices/system/cpu/cpufreq/boost";
        let line = line_of(&[(path, "1\n")], "turbo");
        assert_eq!(line.state, State::Disturbs);
        assert!(line.remedy.unwrap().contains("echo 0 | sudo tee"));
        assert_eq!(line_of(&[(path, "0\n")], "turbo").state, State::Ok);
    }

    /// A guest in a cloud: no cpufreq, and one core with two threads.
    #[test]
    fn clock_of_a_guest_is_unknown() {
        let files = [
            ("proc/loadavg", "0.00 0.00 0.00 1/90 1"),
            ("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0-1\n"),
            ("sys/devices/system/cpu/cpu1/topology/thread_siblings_list", "0-1\n"),
        ];
        for name in ["frequency governor", "turbo", "steal time"] {
            assert_eq!(line_of(&files, name).state, State::Unknown, "{name}");
        }
        let line = line_of(&files, "threads of a core (SMT)");
        assert_eq!(line.detail, "processors 0 and 1 share a core");
        assert!(line.remedy.unwrap().contains("another core"));
    }

    #[test]
    fn malformed_files_are_unknown() {
        let (_folder, sys) = root_with(&[
            ("proc/loadavg", "-1 x"),
            ("proc/stat", "cpu  1 2 3"),
            ("sys/devices/system/cpu/intel_pstate/no_turbo", "maybe"),
            ("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "9-1"),
        ]);
        let lines = sys.disturbances(Duration::ZERO);
        assert!(lines.iter().all(|line| line.state == State::Unknown), "{lines:#?}");
        assert!(lines.iter().all(|line| line.remedy.is_some()));
    }

    #[test]
    fn current_steal_time_is_reported_beside_the_total() {
        let line = stolen(Some(((0.0, 100.0), (1.0, 110.0))));
        assert_eq!(line.detail, "10.0% now, 0.9% since the machine started");
        assert_eq!(line.state, State::Disturbs);
        assert_eq!(stolen(Some(((0.5, 100.0), (0.5, 110.0)))).state, State::Ok);
        assert_eq!(stolen(Some(((0.0, 0.0), (0.0, 0.0)))).state, State::Unknown);
    }
}
