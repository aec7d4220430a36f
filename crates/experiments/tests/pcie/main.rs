//! Tests the sources of counters with recorded trees of `/sys` and recorded counters, a whole
//! watch with a recorded program, and the modelled NIC's counter against the estimate.
//!
//! - [`recorded`]: recorded trees, counters and programs;
//! - [`counted`]: every NIC at every rate, estimated and counted.

mod counted;
mod recorded;

use std::time::Duration;

use haul_experiments::pcie::profile::Overrides;
use haul_experiments::pcie::records::Recorder;
use haul_experiments::pcie::source::others::Other;
use haul_experiments::pcie::source::{
    Gap, Meter, Quantity, Source, Tree, iio::Iio, kernel::Kernel, of_device,
};
use haul_experiments::pcie::watch::{Settings, Watch};
use haul_machine::sys::{PcieDevice, PcieLink};
use haul_model::Kind;
use haul_model::pcie::{Direction, Sums};
use recorded::{Played, Recorded, amd, arm, emerald_rapids, tree};

const CARD: &str = "0000:5e:00.0";

/// The counters of one read, by name.
fn read(source: &mut dyn Source) -> Vec<(String, f64)> {
    let counts = source.read().expect("the recorded counters can be read");
    counts.into_iter().map(|count| (count.quantity.name().to_owned(), count.value)).collect()
}

#[test]
fn iio_counts_stack_above_device_with_events_of_model() {
    let (_folder, tree) = tree(&emerald_rapids());
    // unit, config: uncore_iio_3 is type 63, the stack of bus 5d; words of 4 B.
    let parts = 0xff_u64 << 36 | 0x7 << 48;
    let counters = Recorded::new(&[
        (63, parts | 0x0183, &[100, 350]),
        (63, parts | 0x0483, &[10, 20]),
        (63, parts | 0x01c0, &[1, 3]),
        (63, parts | 0x8083, &[0, 0]),
    ]);
    let mut source = Iio::open(&tree, &counters, CARD).unwrap().expect("it exists");
    assert!(source.about().granularity.contains("0000:5d"), "{:?}", source.about());
    assert_eq!(
        read(&mut source),
        [
            ("inbound_write".to_owned(), 400.0),
            ("inbound_read".to_owned(), 40.0),
            ("outbound_write".to_owned(), 4.0),
            ("outbound_read".to_owned(), 0.0)
        ]
    );
    let mut meter = Meter::new(Box::new(source));
    assert_eq!(meter.rates(Duration::from_secs(1)).unwrap(), [], "the first gives none");
}

#[test]
fn iio_events_depend_on_model() {
    for (model, event) in [("85", 0x04c0), ("173", 0x04c0), ("143", 0x8083)] {
        let mut files = emerald_rapids();
        files.retain(|(path, _)| path != "proc/cpuinfo");
        files.push(("proc/cpuinfo".into(), recorded::cpu("GenuineIntel", "6", model)));
        let (_folder, tree) = tree(&files);
        let parts = 0xff_u64 << 36 | 0x7 << 48;
        let counters = Recorded::new(&[
            (63, parts | 0x0183, &[1]),
            (63, parts | 0x0483, &[1]),
            (63, parts | 0x01c0, &[1]),
            (63, parts | event, &[25]),
        ]);
        let mut source = Iio::open(&tree, &counters, CARD).unwrap().expect("it exists");
        assert!(read(&mut source).contains(&("outbound_read".into(), 100.0)), "{model}");
    }
}

#[test]
fn iio_scales_shared_counters_and_omits_those_that_never_ran() {
    let (_folder, tree) = tree(&emerald_rapids());
    let mut counters = Recorded::any(&[100]);
    (counters.enabled_ns, counters.running_ns) = (1000, 250);
    let mut source = Iio::open(&tree, &counters, CARD).unwrap().unwrap();
    assert_eq!(read(&mut source)[0].1, 1600.0);
    counters.running_ns = 0;
    let mut source = Iio::open(&tree, &counters, CARD).unwrap().unwrap();
    assert_eq!(read(&mut source), []);
}

#[test]
fn errors_name_remedy_of_forbidden_and_missing_part_of_unknown_counters() {
    let (_folder, whole) = tree(&emerald_rapids());
    let mut counters = Recorded::any(&[1]);
    counters.refusal = Some(libc::EACCES);
    let error = Iio::open(&whole, &counters, CARD).err().expect("it is forbidden").to_string();
    assert!(error.contains("perf_event_paranoid") && error.contains("CAP_PERFMON"), "{error}");
    counters.refusal = Some(libc::EINVAL);
    let error = Iio::open(&whole, &counters, CARD).err().expect("it is refused").to_string();
    assert!(error.contains("another profiler"), "{error}");

    let counters = Recorded::any(&[1]);
    let without = |gone: &str| {
        let mut files = emerald_rapids();
        files.retain(|(path, _)| !path.contains(gone));
        let (_folder, tree) = tree(&files);
        Iio::open(&tree, &counters, CARD).map(|source| source.is_some())
    };
    for (gone, part) in
        [("ch_mask", "ch_mask"), ("/die0", "root bus"), ("cpumask", ""), ("cpuinfo", "")]
    {
        match without(gone) {
            Ok(is_there) => assert!(part.is_empty() && !is_there, "{gone}"),
            Err(error) => {
                let error = error.to_string();
                assert!(!part.is_empty() && error.contains(part), "{gone}: {error}");
            }
        }
    }
    assert!(Iio::open(&Tree::at("/nonexistent"), &counters, CARD).unwrap().is_none());
    let mut files = emerald_rapids();
    files.retain(|(path, _)| path != "proc/cpuinfo");
    files.push(("proc/cpuinfo".into(), recorded::cpu("GenuineIntel", "6", "999")));
    let (_folder, newer) = tree(&files);
    let error = Iio::open(&newer, &counters, CARD).err().unwrap().to_string();
    assert!(error.contains("this model"), "{error}");
    assert!(Iio::open(&whole, &counters, "0000:99:00.0").is_err(), "no such device");
}

#[test]
fn amd_and_arm_counters_are_marked_untested() {
    let (_folder, zen) = tree(&amd());
    let counters = Recorded::any(&[10]);
    let mut source = Other::open(&zen, &counters, None).unwrap().expect("Zen 5 has it");
    assert!(!source.about().is_tested && source.about().granularity.contains("socket"));
    // Four units of 64 B in each direction.
    assert_eq!(
        read(&mut source),
        [("inbound_read".to_owned(), 2560.0), ("inbound_write".to_owned(), 2560.0)]
    );
    // The unit's format splits event 0x81f into two fields.
    assert!(
        counters.asked().iter().any(|event| event.config == 0x8_0700_fe1f),
        "{:x?}",
        counters.asked()
    );

    let (_folder, neoverse) = tree(&arm());
    let mut source = Other::open(&neoverse, &counters, Some("0002:01:00.0")).unwrap().unwrap();
    assert_eq!(read(&mut source), [("to_device".to_owned(), 10.0), ("to_host".to_owned(), 10.0)]);
    assert!(Other::open(&neoverse, &counters, Some("0002:09:00.0")).unwrap().is_none());
    assert!(Other::open(&Tree::at("/nonexistent"), &counters, None).unwrap().is_none());
}

#[test]
fn interface_counters_wrap_and_vanish() {
    let net = |packets: &str, bytes: &str| {
        let folder = "sys/class/net/eth0/statistics";
        vec![
            (format!("{folder}/rx_packets"), packets.to_owned()),
            (format!("{folder}/rx_bytes"), bytes.to_owned()),
            (format!("{folder}/tx_packets"), "many".to_owned()),
        ]
    };
    let (folder, eth) = tree(&net("4294967290\n", "1000"));
    let source = Kernel::open(&eth, "eth0").expect("it exists");
    assert!(Kernel::open(&eth, "../eth0").is_none() && Kernel::open(&eth, "eth1").is_none());
    let mut meter = Meter::new(Box::new(source));
    assert_eq!(meter.rates(Duration::ZERO).unwrap(), []);
    recorded::write(folder.path(), &net("10\n", "0"));
    let rates = meter.rates(Duration::from_secs(2)).unwrap();
    let rate = |name: &str| {
        let found = rates.iter().find(|rate| rate.quantity.name() == name);
        found.unwrap_or_else(|| panic!("{name}: {rates:?}")).per_s
    };
    assert_eq!(rate("rx_packets"), Ok(8.0), "16 more, over the end of 32 bits");
    assert_eq!(rate("rx_bytes"), Err(Gap::SetBack));
    std::fs::remove_dir_all(folder.path().join("sys")).unwrap();
    assert!(meter.rates(Duration::from_secs(3)).unwrap_err().to_string().contains("has vanished"));
    recorded::write(folder.path(), &net("10", "0"));
    assert_eq!(meter.rates(Duration::from_secs(4)).unwrap(), [], "it begins again");
}

#[test]
fn of_device_finds_sources_and_reports_forbidden_ones() {
    let mut files = emerald_rapids();
    files.push(("sys/class/net/eth0/statistics/rx_packets".into(), "5".into()));
    let (_folder, tree) = tree(&files);
    let names = |counters: &Recorded| {
        let (sources, why) = of_device(&tree, counters, Some(CARD), &["eth0".to_owned()]);
        (sources.iter().map(|source| source.name()).collect::<Vec<_>>(), why)
    };
    let (found, why) = names(&Recorded::any(&[1]));
    assert_eq!((found, why.len()), (vec!["intel-iio", "kernel"], 0));
    let mut counters = Recorded::any(&[1]);
    counters.refusal = Some(libc::EPERM);
    let (found, why) = names(&counters);
    assert_eq!(found, ["kernel"]);
    assert!(why[0].contains("CAP_PERFMON"), "{why:?}");
}

#[test]
fn direction_has_same_name_everywhere() {
    for direction in Direction::ALL {
        assert_eq!(Quantity::of(direction).name(), direction.name());
        assert_eq!(Quantity::of(direction).rate_unit(), "bytes/s");
    }
}

/// An E810 card in the recorded tree. The card's port has received 32,000 packets of 64 B in
/// bursts of 32, and the counters report this many words of inbound writes.
fn watched(inbound_write_words: u64) -> (Vec<String>, Vec<haul_model::Record>) {
    let (_folder, tree) = tree(&emerald_rapids());
    let parts = 0xff_u64 << 36 | 0x7 << 48;
    let counters = Recorded::new(&[
        (63, parts | 0x0183, &[0, inbound_write_words]),
        (63, parts | 0x0483, &[0, 8000 * 32]),
        (63, parts | 0x01c0, &[0, 500]),
        (63, parts | 0x8083, &[0]),
    ]);
    let link = PcieLink { generation: Some(4), lanes: Some(16) };
    let card = PcieDevice {
        address: CARD.into(),
        now: link,
        mps_bytes: Some(256),
        mrrs_bytes: Some(512),
        ..PcieDevice::default()
    };
    let settings = Settings {
        program: Played::program(CARD, "net_ice"),
        version: "DPDK 22.11.11",
        devices: vec![card],
        tree,
        counters: Box::new(counters),
        overrides: Overrides::default(),
    };
    let mut watch = Watch::begin(settings).unwrap();
    let interval = watch.interval().unwrap();
    let port = &interval.ports[0];
    assert_eq!((port.sum(true).packets(), port.sum(true).empty()), (32_000, 1000));
    let sums = Sums::of(&port.terms);
    let written = sums.payload_bytes_per_s(Direction::InboundWrite) * interval.seconds;
    // The 64 B of each packet, and a descriptor of 32 B that is written back.
    assert!((written / (32_000.0 * 96.0) - 1.0).abs() < 1e-9, "{written}");
    let mut recorder = Recorder::default();
    recorder.add(&interval);
    watch.end().unwrap();
    (port.notes.clone(), recorder.records("DPDK 22.11.11", "haul pcie watch"))
}

#[test]
fn watch_compares_counts_with_estimate() {
    let (notes, records) = watched(32_000 * 96 / 4);
    assert!(!notes.iter().any(|note| note.contains("it counts")), "{notes:?}");
    assert!(notes.iter().any(|note| note.contains("not compared")), "{notes:?}");
    let both: Vec<_> = records.iter().filter(|record| record.metric == "inbound_write").collect();
    assert_eq!(both.len(), 2, "{records:#?}");
    let of = |kind| both.iter().find(|record| record.kind == kind).unwrap().samples[0];
    assert!((of(Kind::Measured) / of(Kind::Modelled) - 1.0).abs() < 1e-9);
}

#[test]
fn counter_of_wrong_scale_is_flagged() {
    let (notes, _) = watched(8 * 32_000 * 96 / 4);
    assert!(notes.iter().any(|note| note.contains("factor of 8")), "{notes:?}");
    let (notes, _) = watched(0);
    assert!(notes.iter().any(|note| note.contains("does not change")), "{notes:?}");
}
