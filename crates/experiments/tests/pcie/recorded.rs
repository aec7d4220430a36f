//! Recorded trees, counters and programs.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::{Arc, Mutex};

use haul::telemetry::Error;
use haul_experiments::pcie::source::Tree;
use haul_experiments::pcie::source::ethdev::{Ask, Program};
use haul_experiments::pcie::source::perf::{Counter, Counters, Event, Value};
use serde_json::{Value as Json, json};

/// Files of a tree. A path that ends in `@` is a link to its content.
pub(crate) type Files = Vec<(String, String)>;

pub(crate) fn write(root: &Path, files: &Files) {
    for (path, text) in files {
        let profile = root.join(path.trim_end_matches('@'));
        fs::create_dir_all(profile.parent().unwrap()).unwrap();
        match path.ends_with('@') {
            true => symlink(text, profile).unwrap(),
            false => fs::write(profile, text).unwrap(),
        }
    }
}

pub(crate) fn tree(files: &Files) -> (tempfile::TempDir, Tree) {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), files);
    let tree = Tree::at(folder.path());
    (folder, tree)
}

pub(crate) fn cpu(vendor: &str, family: &str, model: &str) -> String {
    format!("processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n")
}

/// A unit of `/sys/bus/event_source/devices`.
fn unit(files: &mut Files, name: &str, kind: u32, cpus: &str, formats: &[(&str, &str)]) {
    let folder = format!("sys/bus/event_source/devices/{name}");
    files.push((format!("{folder}/type"), format!("{kind}\n")));
    files.push((format!("{folder}/cpumask"), format!("{cpus}\n")));
    for (field, bits) in formats {
        files.push((format!("{folder}/format/{field}"), format!("{bits}\n")));
    }
}

/// A device below a root port, as the kernel lays it out.
fn device(files: &mut Files, bridges: &[&str]) {
    let folder = format!("sys/devices/{}", bridges.join("/"));
    files.push((format!("{folder}/class"), "0x020000\n".into()));
    let address = bridges.last().unwrap();
    files.push((format!("sys/bus/pci/devices/{address}@"), format!("../../../../{folder}")));
}

/// Emerald Rapids (model 207) with two sockets, with `/sys` as in drivers/perf/../uncore_snbep.c:
/// the stack of bus 5d is unit 3 on the first socket.
pub(crate) fn emerald_rapids() -> Files {
    const FORMATS: [(&str, &str); 6] = [
        ("event", "config:0-7"),
        ("umask", "config:8-15"),
        ("edge", "config:18"),
        ("inv", "config:23"),
        ("ch_mask", "config:36-47"),
        ("fc_mask", "config:48-50"),
    ];
    let mut files = vec![("proc/cpuinfo".to_owned(), cpu("GenuineIntel", "6", "207"))];
    for (number, (first, second)) in [
        ("0000:00", "0001:80"),
        ("0000:15", "0001:95"),
        ("0000:26", "0001:a6"),
        ("0000:5d", "0001:dd"),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("uncore_iio_{number}");
        unit(&mut files, &name, 60 + number as u32, "0,32", &FORMATS);
        let folder = format!("sys/bus/event_source/devices/{name}");
        files.push((format!("{folder}/die0"), format!("{first}\n")));
        files.push((format!("{folder}/die1"), format!("{second}\n")));
    }
    // The names of free-running counters begin in the same way, but these counters must not be
    // used.
    unit(&mut files, "uncore_iio_free_running_0", 70, "0,32", &FORMATS[..2]);
    device(&mut files, &["pci0000:5d", "0000:5d:01.0", "0000:5e:00.0"]);
    files
}

/// Zen 5, one socket; formats of arch/x86/events/amd/uncore.c.
pub(crate) fn amd() -> Files {
    let mut files = vec![("proc/cpuinfo".to_owned(), cpu("AuthenticAMD", "26", "2"))];
    let formats = [("event", "config:0-7,32-37"), ("umask", "config:8-15,24-27")];
    unit(&mut files, "amd_df", 12, "0", &formats);
    files
}

/// A root port of Synopsys's design; formats of drivers/perf/dwc_pcie_pmu.c.
pub(crate) fn arm() -> Files {
    let mut files = vec![("proc/cpuinfo".to_owned(), "processor\t: 0\n".to_owned())];
    let formats = [("eventid", "config:0-15"), ("type", "config:16-19"), ("lane", "config:20-27")];
    unit(&mut files, "dwc_rootport_20008", 33, "0", &formats);
    device(&mut files, &["pci0002:00", "0002:00:01.0", "0002:01:00.0"]);
    files
}

/// Counters with recorded values, one per read. All further reads return the last value again.
#[derive(Clone, Default)]
pub(crate) struct Recorded {
    values: Vec<(u32, u64, Vec<u64>)>,
    any: Vec<u64>,
    asked: Arc<Mutex<Vec<Event>>>,
    pub(crate) refusal: Option<i32>,
    pub(crate) enabled_ns: u64,
    pub(crate) running_ns: u64,
}

impl Recorded {
    /// Unit, event and values; any other event is refused.
    pub(crate) fn new(values: &[(u32, u64, &[u64])]) -> Self {
        let values = values.iter().map(|(unit, config, all)| (*unit, *config, all.to_vec()));
        Self { values: values.collect(), ..Self::default() }
    }

    /// The same values for every event.
    pub(crate) fn any(values: &[u64]) -> Self {
        Self { any: values.to_vec(), ..Self::default() }
    }

    pub(crate) fn asked(&self) -> Vec<Event> {
        self.asked.lock().unwrap().clone()
    }
}

impl Counters for Recorded {
    fn open(&self, event: &Event) -> io::Result<Box<dyn Counter>> {
        self.asked.lock().unwrap().push(*event);
        if let Some(refusal) = self.refusal {
            return Err(io::Error::from_raw_os_error(refusal));
        }
        let found = self
            .values
            .iter()
            .find(|(unit, config, _)| (*unit, *config) == (event.unit, event.config));
        let values = found.map(|(_, _, values)| values.clone());
        let values = values.or((!self.any.is_empty()).then(|| self.any.clone()));
        let values = values.unwrap_or_else(|| panic!("no recorded answer to {event:x?}"));
        Ok(Box::new(Values(values, self.enabled_ns, self.running_ns)))
    }
}

struct Values(Vec<u64>, u64, u64);

impl Counter for Values {
    fn read(&mut self) -> io::Result<Value> {
        let count = if self.0.len() > 1 { self.0.remove(0) } else { self.0[0] };
        Ok(Value { count, enabled_ns: self.1, running_ns: self.2 })
    }
}

/// A program with one port of one queue, which has received packets at the second read.
pub(crate) struct Played {
    name: &'static str,
    driver: &'static str,
    reads: u64,
}

impl Played {
    pub(crate) fn program(name: &'static str, driver: &'static str) -> Program {
        Arc::new(Mutex::new(Box::new(Self { name, driver, reads: 0 })))
    }
}

impl Ask for Played {
    fn ask(&mut self, command: &str) -> Result<Json, Error> {
        let bursts = |count: u64| {
            json!({
                "batches": [0, count, 32, count], "polls": 2 * count, "packets": 32 * count,
                "larger_polls": 0, "larger_packets": 0, "packets_sized": count,
                "bytes_sized": 64 * count, "gaps": 0, "gap_cycles": 0, "cycles": count,
                "cycles_per_s": 1,
            })
        };
        Ok(match command {
            "/haul/burst/list" => json!({ "queues": ["0,0,rx"] }),
            "/haul/burst/attach" => json!({ "attached": 1 }),
            "/haul/burst/port,0" => {
                json!({ "name": self.name, "driver": self.driver, "rx_mode": "Vector AVX512" })
            }
            "/haul/burst/histogram,0,0,rx" => {
                self.reads += 1;
                bursts((self.reads - 1) * 1000)
            }
            "/ethdev/stats,0" => json!({ "ipackets": (self.reads - 1) * 32_000, "opackets": 0 }),
            _ => panic!("no recorded answer to {command}"),
        })
    }
}
