//! `haul forward` through a guest: rates, layouts, peers, searches, the names that checks rely on,
//! and every wrong argument.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};

use haul_model::Record;
use rustix::process::Pid;

use crate::{Ran, haul, run};

/// Records of this metric whose parameters have these values.
pub(crate) fn of<'a>(
    records: &'a [Record],
    metric: &str,
    values: &[(&str, &str)],
) -> Vec<&'a Record> {
    let has = |record: &Record, (name, value): &(&str, &str)| {
        record.shown(name).as_deref() == Some(*value)
    };
    let is_it =
        |record: &&Record| record.metric == metric && values.iter().all(|value| has(record, value));
    records.iter().filter(is_it).collect()
}

/// The only record of this metric with these values, and its only sample.
#[track_caller]
pub(crate) fn value(records: &[Record], metric: &str, values: &[(&str, &str)]) -> f64 {
    let found = of(records, metric, values);
    let [record] = found[..] else { panic!("{metric} {values:?}: {found:#?}") };
    record.median().unwrap()
}

pub(crate) fn has_two_processors() -> bool {
    let processors = haul_measure::sys::affinity().len();
    if processors < 2 {
        eprintln!("SKIPPED: a flow through a guest: only one CPU: allow it two");
    }
    processors >= 2
}

pub(crate) fn has_testpmd() -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders).any(|it| it.join("dpdk-testpmd").is_file());
    if !found {
        eprintln!(
            "SKIPPED: a flow through testpmd: no dpdk-testpmd on PATH: apt-get install dpdk-dev"
        );
    }
    found
}

pub(crate) fn pid(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap()
}

#[test]
fn forward_refuses_impossible_ports_before_running() {
    let long = format!("vhost:path=/tmp/{},server", "x".repeat(200));
    for (arguments, code, parts) in [
        (&["--port", "gen"][..], 2, &["1 ports", "--port twice"][..]),
        (&["--port", "gen", "--port", "sink", "--port", "null"], 2, &["3 ports"]),
        (&["--port", "eth0", "--port", "sink"], 2, &["no port is \"eth0\"", "gen, sink, null"]),
        (&["--port", "gen:size=59", "--port", "sink"], 2, &["59 B", "60 to 9216"]),
        (&["--port", "gen:size=imax", "--port", "sink"], 2, &["gen:size=imax is not possible"]),
        (&["--port", "gen:rate=2G", "--port", "sink"], 2, &["rate of", "1e9"]),
        (&["--port", "null:size=9999", "--port", "null"], 2, &["9999 B"]),
        (&["--port", "vhost", "--port", "null"], 2, &["needs a socket"]),
        (&["--port", "vhost:path=s,queues=0", "--port", "null"], 2, &["0", "1 to 64"]),
        (&["--port", "virtio:path=s,queues=9", "--port", "null"], 2, &["9", "1 to 8"]),
        (&["--port", "virtio:path=s", "--port", "null", "--cpu", "0,1"], 2, &["queues=N"]),
        (&["--port", "vhost:path=s,copy=best", "--port", "null"], 2, &["copy", "haul"]),
        (&["--port", &long, "--port", "null", "--for", "1s"], 1, &["xxx"]),
        (&["--port", "gen", "--port", "sink", "--burst", "257"], 2, &["257"]),
        (&["--port", "gen", "--port", "sink", "--for", "0"], 2, &["500ms"]),
        (
            &["--port", "gen", "--port", "sink", "--cpu", "100000"],
            2,
            &["processor 100000", "taskset"],
        ),
        (&["pvp", "--sizes", "59"], 2, &["59 B", "60 B"]),
        (&["pvp", "--sizes", "0"], 2, &["0 B"]),
        (&["pvp", "--copy", "best"], 2, &["\"best\"", "haul, libc, ", ", none, empty"]),
        (&["pvp", "--flow", "circle"], 2, &["loopback"]),
        (&["pvp", "--set", "layout=round"], 2, &["split-vector"]),
        (&["pvp", "--guest", "xen"], 2, &["haul, testpmd, qemu"]),
        (&["pvp", "--switch", "ovs", "--flow", "enqueue"], 2, &["--switch ovs", "--flow pvp"]),
        (
            &["pvp", "--guest", "testpmd", "--set", "testpmd=/none"],
            1,
            &["/none", "apt-get install"],
        ),
        (&["pvp", "--search", "best"], 2, &["rfc2544"]),
        (&["pvp", "--search", "ndr", "--flow", "enqueue"], 2, &["--search", "--flow pvp"]),
        (&["pvp", "--search", "ndr", "--set", "trial=2m"], 2, &["from 1ms to 1m"]),
        (&["pvp", "--set", "latency=true"], 2, &["the setting latency", "--search"]),
        (&["pvp", "--restarts", "0"], 2, &["from 1 to 1000"]),
        (&["pvp", "--engine", "turbine"], 2, &["turbine", "inline, worker, auto, dsa"]),
        (&["pvp", "--copy", "libc", "--engine", "worker"], 2, &["--engine", "--copy haul"]),
        (&["--port", "gen", "--port", "sink", "--engine", "turbine"], 2, &["inline, worker"]),
        (&["--port", "gen", "--port", "sink", "--engine", "worker"], 2, &["--engine", "vhost"]),
        (&["--port", "gen", "pvp"], 2, &["pvp"]),
        (&["drive"], 1, &["standard input"]),
    ] {
        run(&mut haul(&[&["forward"], arguments].concat())).expect(code).says(parts);
    }
}

/// Flows take turns: two of them on two processors would disturb each other.
static TURN: Mutex<()> = Mutex::new(());

pub(crate) fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One short flow. On a busy machine, one of its sides may have no processor time while the rates
/// are measured. In this case the flow runs again for twice the time, up to four times in all.
pub(crate) fn pvp(arguments: &[&str]) -> Ran {
    pvp_until(arguments, |_| true)
}

/// As [`pvp`]; these records, too, count as incomplete unless the condition holds.
pub(crate) fn pvp_until(arguments: &[&str], is_complete: impl Fn(&[Record]) -> bool) -> Ran {
    const POSITIVE: [&str; 5] =
        ["rate_peak", "processors", "guest_ceiling", "cycles_ring", "cycles_guest"];
    let is_zero = |it: &Record| POSITIVE.contains(&&*it.metric) && it.median() <= Some(0.0);
    let _turn = turn();
    let before = taps();
    let mut ran = pvp_for(arguments, "300ms");
    for time in ["600ms", "1200ms", "2400ms"] {
        let records = if ran.code == Some(0) { ran.records() } else { break };
        if !records.iter().any(is_zero) && is_complete(&records) {
            break;
        }
        ran = pvp_for(arguments, time);
    }
    // The flow removes what a killed run has left.
    let left: Vec<_> = taps().into_iter().filter(|tap| !before.contains(tap)).collect();
    assert!(left.is_empty(), "interfaces that were left behind: {left:?}");
    ran
}

/// One flow; it must leave nothing in the folder for temporary files.
fn pvp_for(arguments: &[&str], time: &str) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let short = ["forward", "pvp", "--json", "--restarts", "1", "--for", time];
    let mut command = haul(&[&short[..], arguments].concat());
    let ran = run(command.env("TMPDIR", folder.path()));
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    ran
}

#[test]
fn pvp_needs_no_installation_and_closes_its_ledger() {
    if !has_two_processors() {
        return;
    }
    let ran = pvp(&["--sizes", "64,1500", "--copy", "haul,libc,none"]).expect(0);
    let records = ran.records();
    for size in ["64", "1500"] {
        for copy in ["haul", "libc", "none"] {
            let this =
                [("size_bytes", size), ("copy", copy), ("guest", "haul"), ("layout", "split")];
            let found = of(&records, "rate_peak", &this);
            let [record] = found[..] else { panic!("{this:?}: {found:#?}") };
            assert_eq!(
                (record.experiment.as_str(), record.unit.as_str()),
                ("forward.pvp", "packets/s")
            );
            assert!(record.median().unwrap() > 0.0, "{record:#?}");
            assert_eq!(record.comparison.as_ref().unwrap().baseline, "libc");
            for receipt in
                ["version", "guest_version", "guest_rx", "guest_tx", "features", "ring_size"]
            {
                assert!(record.parameters.contains_key(receipt), "{receipt}: {record:#?}");
            }
            if copy == "none" {
                // The packets have no numbers, so their loss is unknown.
                continue;
            }
            let lost = |stage| value(&records, "lost", &[&this[..], &[("stage", stage)]].concat());
            assert_eq!(lost("unaccounted"), 0.0, "{records:#?}");
            assert_eq!(lost("switch_in") + lost("switch_out"), 0.0);
        }
    }
    ran.says(&["64 B, switch, guest and back through haul", "Mpps"]);
}

#[test]
fn other_flows_record_rates() {
    if !has_two_processors() {
        return;
    }
    for flow in ["enqueue", "dequeue", "loopback"] {
        let records =
            pvp(&["--sizes", "512", "--copy", "haul", "--flow", flow]).expect(0).records();
        let found = of(&records, "rate_peak", &[("size_bytes", "512")]);
        let [record] = found[..] else { panic!("{flow}: {found:#?}") };
        assert_eq!(record.experiment, format!("forward.{flow}"));
        assert!(record.median().unwrap() > 0.0, "{record:#?}");
    }
}

#[test]
fn engines_are_subjects_beside_the_copy() {
    if !has_two_processors() {
        return;
    }
    let engines = ["--copy", "haul", "--engine", "inline,worker", "--flow", "enqueue"];
    let records = pvp(&[&["--sizes", "9000"][..], &engines].concat()).expect(0).records();
    for metric in ["rate_peak", "processors"] {
        let found = of(&records, metric, &[("size_bytes", "9000")]);
        let engine = |record: &&Record| record.parameters.get("engine").map(ToString::to_string);
        let expected = [None, Some("\"inline\"".to_owned()), Some("\"worker\"".to_owned())];
        assert_eq!(found.iter().map(engine).collect::<Vec<_>>(), expected, "{metric}");
        assert!(found.iter().all(|record| record.subject == "haul"));
        assert!(found.iter().all(|record| record.median().unwrap() > 0.0), "{found:#?}");
    }
}

#[test]
fn layout_is_negotiated_by_both_sides() {
    if !has_two_processors() {
        return;
    }
    let is_there = has_testpmd();
    // VIRTIO_NET_F_MRG_RXBUF, VIRTIO_F_RING_PACKED, VIRTIO_F_IN_ORDER.
    let bits = [1 << 15, 1 << 34, 1_u64 << 35];
    for (guest, layout, has) in [
        ("haul", "split-in-order", [true, false, true]),
        ("haul", "packed", [true, true, false]),
        ("testpmd", "packed-in-order", [true, true, true]),
        ("testpmd", "packed-vector", [false, true, true]),
    ] {
        if guest == "testpmd" && !is_there {
            continue;
        }
        let setting = format!("layout={layout}");
        let flow = ["--sizes", "64", "--copy", "haul", "--guest", guest, "--set", &setting];
        let records = pvp(&flow).expect(0).records();
        let rates = of(&records, "rate_peak", &[("layout", layout), ("guest", guest)]);
        let [record] = rates[..] else { panic!("{layout}, {guest}: {records:#?}") };
        assert!(record.median().unwrap() > 0.0, "{record:#?}");
        let features = record.parameters["features"].as_str().unwrap();
        let features = u64::from_str_radix(features.trim_start_matches("0x"), 16).unwrap();
        assert_eq!(bits.map(|bit| features & bit != 0), has, "{layout}, {guest}");
    }
}

#[test]
fn testpmd_serves_as_switch_and_guest() {
    if !has_two_processors() || !has_testpmd() {
        return;
    }
    let compared = ["--copy", "haul,libc", "--switch", "haul,testpmd", "--guest", "testpmd"];
    let ran = pvp(&[&["--sizes", "64"][..], &compared].concat()).expect(0);
    let records = ran.records();
    let rates = of(&records, "rate_peak", &[("guest", "testpmd"), ("layout", "split")]);
    assert_eq!(rates.len(), 3, "{rates:#?}");
    for record in rates {
        assert!(record.median().unwrap() > 0.0, "{record:#?}");
        assert_eq!(record.comparison.as_ref().unwrap().baseline, "testpmd");
        let rx = record.parameters["guest_rx"].as_str().unwrap();
        assert!(rx.contains("mergeable"), "{rx}");
        assert!(record.parameters["guest_version"].as_str().unwrap().contains('.'));
    }
    assert_eq!(of(&records, "copy_gain", &[]).len(), 1);
}

/// Debian's Open vSwitch with DPDK, installed in addition to Open vSwitch without DPDK.
pub(crate) const OPEN_VSWITCH: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";

/// The interfaces with the names of a run's bridges.
pub(crate) fn taps() -> Vec<String> {
    let names = std::fs::read_dir("/sys/class/net").unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut taps: Vec<String> = names.filter(|name| name.starts_with("haul")).collect();
    taps.sort();
    taps
}

#[test]
fn open_vswitch_serves_as_switch() {
    if !has_two_processors() {
        return;
    }
    let client = "ovs_port=dpdkvhostuserclient";
    let switch = ["--sizes", "512", "--copy", "haul", "--switch", "haul,ovs", "--set", client];
    if !Path::new(OPEN_VSWITCH).exists() {
        let alone = run(&mut haul(&["forward", "pvp", "--switch", "ovs"]));
        alone.expect(1).says(&["Open vSwitch", "apt-get install openvswitch-switch-dpdk"]);
        eprintln!(
            "SKIPPED: a flow through Open vSwitch: no file {OPEN_VSWITCH}: \
             apt-get install openvswitch-switch-dpdk"
        );
        return;
    }
    let records = pvp(&switch).expect(0).records();
    for subject in ["haul", "ovs"] {
        let rates = of(&records, "rate_peak", &[("size_bytes", "512")]);
        let own: Vec<_> = rates.into_iter().filter(|record| record.subject == subject).collect();
        assert_eq!(own.len(), 1, "{records:#?}");
        assert!(own[0].median().unwrap() > 0.0, "{own:#?}");
        assert_eq!(own[0].comparison.as_ref().unwrap().baseline, "ovs");
    }
    let version = |record: &&Record| record.subject == "ovs" && record.metric == "rate_peak";
    let ovs = records.iter().find(version).unwrap();
    assert!(ovs.parameters["version"].as_str().unwrap().contains(" with DPDK "), "{ovs:#?}");
    assert_eq!(ovs.parameters["ovs_port"], "dpdkvhostuserclient");
    // The switch's own statistics are right to the packet. haul as switch has none.
    assert_eq!(value(&records, "miscounted", &[("ovs_port", "dpdkvhostuserclient")]), 0.0);
}

#[test]
fn search_finds_load_without_loss_and_latency_below_it() {
    if !has_two_processors() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("short-trials.toml");
    fs::write(&file, "trial = \"100ms\"\ntrial_sum = \"200ms\"\nlatency = true\n").unwrap();
    let search = ["--search", "ndr,pdr", "--settings", file.to_str().unwrap()];
    let ran = pvp(&[&["--sizes", "64", "--copy", "haul"][..], &search].concat()).expect(0);
    let records = ran.records();
    // If other programs keep the machine busy, every load may have loss.
    for metric in ["rate_ndr", "rate_pdr"] {
        let found = of(&records, metric, &[("size_bytes", "64"), ("copy", "haul")]);
        let upper = of(&records, &metric.replace("rate", "upper"), &[]);
        assert!(found.len() <= 1 && found.len() + upper.len() > 0, "{records:#?}");
    }
    if let [ndr] = of(&records, "rate_ndr", &[])[..] {
        assert!(ndr.median().unwrap() >= 1e4);
        for load in ["10", "50", "90"] {
            let latency = of(&records, "latency", &[("load_percent", load), ("quantile", "0.5")]);
            assert!(latency.iter().all(|record| record.median().unwrap() > 0.0));
            let missing = value(&records, "missing", &[("load_percent", load)]);
            assert!(latency.len() == 1 || missing > 0.0, "{records:#?}");
        }
    }
}

#[test]
fn pvp_measures_memcpy_of_a_library() {
    if !has_two_processors() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (source, library) = (folder.path().join("mine.c"), folder.path().join("libmine.so"));
    let code = "#include <stddef.h>\n\
        void *memcpy(void *target, const void *source, size_t length) {\n\
        void *to = target;\n\
        __asm__ volatile(\"rep movsb\" : \"+D\"(to), \"+S\"(source), \"+c\"(length) : : \"memory\");\n\
        return target;\n}\n";
    if !cfg!(target_arch = "x86_64") {
        eprintln!("SKIPPED: a memcpy of one's own in a flow: not x86_64: run it there");
        return;
    }
    fs::write(&source, code).unwrap();
    // The loader would ignore a file that is not a library, and libc's copy would be measured under
    // its name.
    let none = pvp(&["--sizes", "512", "--copy", source.to_str().unwrap()]).expect(2);
    none.says(&["a library with a memcpy"]);
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-o"]).args([&library, &source]);
    assert!(compiler.status().unwrap().success());
    let copies = format!("libc,{}", library.display());
    let records = pvp(&["--sizes", "512", "--copy", &copies]).expect(0).records();
    let mine = of(&records, "rate_peak", &[("copy", "libmine.so")]);
    assert_eq!(mine.len(), 1, "{records:#?}");
    assert!(mine[0].median().unwrap() > 0.0);
}

#[test]
fn pvp_refuses_one_processor() {
    let mut command = Command::new("taskset");
    let program = env!("CARGO_BIN_EXE_haul");
    command.args(["-c", &first_processor(), program, "forward", "pvp", "--sizes", "64"]);
    let ran = run(&mut command).expect(1);
    ran.says(&["may run on 1 processor", "each on its own", "taskset"]);
}

fn first_processor() -> String {
    haul_measure::sys::affinity().first().unwrap().to_string()
}

/// Processes that have this folder in their command line or environment.
pub(crate) fn processes_of(folder: &Path) -> Vec<String> {
    let needle = folder.to_str().unwrap().as_bytes();
    let mut found = Vec::new();
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let read = |file: &str| fs::read(process.path().join(file)).unwrap_or_default();
        let is_it = |bytes: Vec<u8>| bytes.windows(needle.len()).any(|part| part == needle);
        if is_it(read("cmdline")) || is_it(read("environ")) {
            found.push(String::from_utf8_lossy(&read("cmdline")).into_owned());
        }
    }
    found
}
