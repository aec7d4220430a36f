//! The probe in Debian's testpmd, compared with testpmd's own statistics.
//!
//! - [`testpmd`]: the program, and its counters from the probe;
//! - [`cost`]: the cost of an empty poll with the probe and without.

mod cost;
mod testpmd;

use std::time::{Duration, Instant};

use haul::forward::{
    Generator, Link, Mode, Pool, Port, Running, Settings, Traffic, Vhost, VhostSettings,
};
use haul::telemetry::Telemetry;
use serde_json::Value;
use testpmd::{Histogram, Testpmd, histogram, is_here, own_statistics};

/// How long packets flow while a test counts them.
const FLOW: Duration = Duration::from_millis(300);

fn ask(telemetry: &mut Telemetry, command: &str) -> Value {
    telemetry.ask(command).unwrap_or_else(|error| panic!("{error}"))
}

fn attach(telemetry: &mut Telemetry) -> u64 {
    ask(telemetry, "/haul/burst/attach")["attached"].as_u64().expect("it attaches")
}

/// Asserts that the sums agree, and that bursts and shares agree with testpmd's own statistics.
fn assert_agrees(histogram: &Histogram, text: &str, direction: &str) {
    let bursts: u64 = histogram.batches.iter().map(|(_, bursts)| bursts).sum();
    let packets: u64 = histogram.batches.iter().map(|(size, bursts)| size * bursts).sum();
    assert_eq!((bursts, packets), (histogram.polls, histogram.packets), "{histogram:?}");
    let (own_bursts, shares) = own_statistics(text, direction);
    assert_eq!(bursts, own_bursts, "{direction}: {histogram:?}\n{text}");
    let sum: u64 = shares.iter().map(|(_, percent)| percent).sum();
    for (place, (size, percent)) in shares.iter().enumerate() {
        let found = histogram.batches.iter().find(|(own, _)| own == size);
        let count = found.map_or(0, |(_, bursts)| *bursts);
        // If testpmd names every size, it prints the remainder to 100 for the last size.
        let is_rest = sum == 100 && place > 0 && place + 1 == shares.len();
        let is_it = if is_rest { count > 0 } else { count * 100 / bursts == *percent };
        assert!(is_it, "{percent}% {direction} of {size}: {histogram:?}\n{text}");
    }
}

#[test]
fn probe_matches_testpmd_on_null_device() {
    if !is_here("probe_matches_testpmd_on_null_device") {
        return;
    }
    let mut testpmd = Testpmd::start(&["-l0-1", "--vdev=net_null0"], &[]);
    let mut telemetry = testpmd.telemetry();
    testpmd.say("set record-burst-stats on");
    assert_eq!(attach(&mut telemetry), 2);
    testpmd.say("start");
    std::thread::sleep(FLOW);
    let text = testpmd.say("stop");
    for (queue, direction) in [("0,0,rx", "RX"), ("0,0,tx", "TX")] {
        let counted = histogram(&mut telemetry, queue);
        assert!(counted.packets > 0, "{counted:?}");
        assert_agrees(&counted, &text, direction);
        assert_eq!(counted.bytes_sized, 64 * counted.packets_sized, "net_null has 64 B packets");
    }
    let stats = ask(&mut telemetry, "/ethdev/stats,0");
    let received = histogram(&mut telemetry, "0,0,rx").packets;
    assert_eq!(stats["ipackets"], received);
}

#[test]
fn probe_matches_testpmd_on_ring() {
    if !is_here("probe_matches_testpmd_on_ring") {
        return;
    }
    let mut testpmd = Testpmd::start(&["-l0-1", "--vdev=net_ring0"], &["--burst=20"]);
    let mut telemetry = testpmd.telemetry();
    testpmd.say("set record-burst-stats on");
    attach(&mut telemetry);
    // Both ends of ring 0 are the same port, so five bursts of 20 circulate.
    testpmd.say("start tx_first 5");
    std::thread::sleep(FLOW);
    let text = testpmd.say("stop");
    for (queue, direction) in [("0,0,rx", "RX"), ("0,0,tx", "TX")] {
        let counted = histogram(&mut telemetry, queue);
        assert!(counted.packets > 0, "{counted:?}");
        assert_agrees(&counted, &text, direction);
    }
}

/// The port is the guest's card, with haul as the switch. testpmd polls the card while packets
/// arrive, so bursts have varying sizes.
#[test]
fn probe_matches_testpmd_on_virtio_card() {
    if !is_here("probe_matches_testpmd_on_virtio_card") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("vm");
    let switch = switch(&socket);
    let device = format!("--vdev=net_virtio_user0,path={},queue_size=1024", socket.display());
    let mut testpmd = Testpmd::start(&["-l0-1", &device], &[]);
    let end = Instant::now() + Duration::from_secs(30);
    while switch.snapshot().links.get(1) != Some(&Link::Up) {
        assert!(Instant::now() < end, "no link: {:?}", switch.snapshot());
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut telemetry = testpmd.telemetry();
    testpmd.say("set record-burst-stats on");
    assert_eq!(attach(&mut telemetry), 2);
    testpmd.say("start");
    std::thread::sleep(FLOW);
    let text = testpmd.say("stop");
    // If a ring is full, the probe's bursts include the dropped packets and testpmd's do not.
    let number = |key: &str| -> u64 {
        let word = text.split(key).nth(1).and_then(|rest| rest.split_whitespace().next());
        word.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no {key} in {text}"))
    };
    for (queue, direction) in [("0,0,rx", "RX"), ("0,0,tx", "TX")] {
        let counted = histogram(&mut telemetry, queue);
        assert!(counted.packets > 0, "{counted:?}");
        assert_eq!(counted.packets, number(&format!("{direction}-total: ")), "{text}");
        if direction == "RX" || number("TX-dropped: ") == 0 {
            assert_agrees(&counted, &text, direction);
        }
        assert_eq!(counted.bytes_sized, 64 * counted.packets_sized, "haul sends 64 B packets");
    }
    // The counts also agree with the packets that haul put into the rings and found there.
    let received = histogram(&mut telemetry, "0,0,rx").packets;
    let sent = ask(&mut telemetry, "/ethdev/stats,0")["opackets"].as_u64().unwrap();
    drop(testpmd);
    let snapshot = switch.stop().unwrap();
    let (_, _, counters) = &snapshot.ports[1];
    assert!(counters.tx.packets >= received, "{received} of {}", counters.tx.packets);
    assert!(counters.rx.packets <= sent, "{} of {sent}", counters.rx.packets);
}

/// A worker that forwards between a generator and a vhost port.
fn switch(socket: &std::path::Path) -> Running {
    let traffic = Traffic { rate: Some(100e3), flows: 4, ..Traffic::default() };
    let generator = Generator::new("gen0", &traffic).unwrap();
    let vhost = Vhost::open("vhost0", &VhostSettings::new(socket)).unwrap().pop().unwrap();
    let ports: [Box<dyn Port>; 2] = [Box::new(generator), Box::new(vhost)];
    let settings = Settings { mode: Mode::Io, yields: true, ..Settings::default() };
    Running::start("haul-forward", ports, Pool::new(4096).unwrap(), settings).unwrap()
}

#[test]
fn probe_counts_every_empty_poll() {
    if !is_here("probe_counts_every_empty_poll") {
        return;
    }
    let mut testpmd = Testpmd::start(&["-l0-1", "--vdev=net_ring0"], &[]);
    let mut telemetry = testpmd.telemetry();
    testpmd.say("set record-burst-stats on");
    attach(&mut telemetry);
    testpmd.say("start");
    std::thread::sleep(FLOW);
    let text = testpmd.say("stop");
    let counted = histogram(&mut telemetry, "0,0,rx");
    assert_eq!((counted.packets, counted.empty), (0, counted.polls));
    assert_agrees(&counted, &text, "RX");
}

#[test]
fn exact_probe_adds_size_of_every_packet() {
    if !is_here("exact_probe_adds_size_of_every_packet") {
        return;
    }
    // There are more sizes than fit into one answer, so the answer has several pages of one
    // moment.
    let mut testpmd = Testpmd::start(&["-l0-1", "--vdev=net_null0"], &["--burst=1"]);
    let mut telemetry = testpmd.telemetry();
    assert_eq!(ask(&mut telemetry, "/haul/burst/attach,0,exact")["queues"], 2);
    for size in 1..=150 {
        testpmd.say(&format!("set burst {size}"));
        testpmd.say("start");
        testpmd.say("stop");
    }
    let counted = histogram(&mut telemetry, "0,0,rx");
    let stats = ask(&mut telemetry, "/ethdev/stats,0");
    assert_eq!(stats["ipackets"], counted.packets);
    assert_eq!(counted.bytes_sized, 64 * counted.packets);
    assert!(counted.batches.len() > 100, "{} sizes fit into one answer", counted.batches.len());
    let sum: u64 = counted.batches.iter().map(|(size, bursts)| size * bursts).sum();
    assert_eq!(sum, counted.packets);
}

#[test]
fn probe_counts_each_core_and_queue() {
    if !is_here("probe_counts_each_core_and_queue") {
        return;
    }
    let cores = "--lcores=0@0,1@0,2@1";
    let options = ["--nb-cores=2", "--rxq=2", "--txq=2"];
    let mut testpmd = Testpmd::start(&[cores, "--vdev=net_null0", "--vdev=net_null1"], &options);
    let mut telemetry = testpmd.telemetry();
    assert_eq!(attach(&mut telemetry), 8);
    testpmd.say("start");
    std::thread::sleep(FLOW);
    // The sums agree while both cores run.
    for _ in 0..50 {
        for queue in ["0,0,rx", "0,1,tx", "1,1,rx"] {
            let counted = histogram(&mut telemetry, queue);
            let sum: u64 = counted.batches.iter().map(|(size, bursts)| size * bursts).sum();
            assert_eq!(sum, counted.packets, "{counted:?}");
        }
    }
    testpmd.say("stop");
    for port in 0..2 {
        let stats = ask(&mut telemetry, &format!("/ethdev/stats,{port}"));
        for (direction, name) in [("rx", "ipackets"), ("tx", "opackets")] {
            let queues = (0..2).map(|queue| {
                histogram(&mut telemetry, &format!("{port},{queue},{direction}")).packets
            });
            let packets: u64 = queues.sum();
            assert!(packets > 0 && stats[name] == packets, "{port} {direction}: {stats}");
        }
    }
}

#[test]
fn detach_under_traffic_frees_callbacks() {
    if !is_here("detach_under_traffic_frees_callbacks") {
        return;
    }
    let mut testpmd = Testpmd::start(&["-l0-1", "--vdev=net_null0", "--vdev=net_ring0"], &[]);
    let (mut telemetry, mut other) = (testpmd.telemetry(), testpmd.telemetry());
    testpmd.say("start");
    std::thread::scope(|scope| {
        // A second client reads and lists while queues are attached and detached.
        let reads = scope.spawn(|| {
            for _ in 0..200 {
                ask(&mut other, "/haul/burst/list");
                ask(&mut other, "/haul/burst/histogram,0,0");
            }
        });
        for _ in 0..20 {
            assert_eq!(attach(&mut telemetry), 4);
            let off = ask(&mut telemetry, "/haul/burst/detach");
            assert_eq!((&off["queues"], &off["attached"]), (&4.into(), &0.into()), "{off}");
        }
        reads.join().expect("it ends");
    });
    // Each command checks again whether the remaining threads have left.
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let waiting = ask(&mut telemetry, "/haul/burst/detach")["waiting"].clone();
        if waiting == 0 {
            break;
        }
        assert!(Instant::now() < end, "{waiting} callbacks are never freed");
    }
    attach(&mut telemetry);
    let end = Instant::now() + Duration::from_secs(60);
    while histogram(&mut telemetry, "0,0,rx").packets == 0 {
        assert!(Instant::now() < end, "no packet is counted");
    }
    testpmd.say("stop");
}

#[test]
fn probe_follows_ports_that_stop_and_return() {
    if !is_here("probe_follows_ports_that_stop_and_return") {
        return;
    }
    let mut testpmd = Testpmd::start(&["-l0-1", "--vdev=net_null0", "--vdev=net_null1"], &[]);
    let mut telemetry = testpmd.telemetry();
    assert_eq!(attach(&mut telemetry), 4);
    for round in 1..=3 {
        testpmd.say("start");
        std::thread::sleep(FLOW / 3);
        testpmd.say("stop");
        let polls = histogram(&mut telemetry, "0,0,rx").polls;
        assert!(polls > 0);
        for line in ["port stop all", "port start all"] {
            testpmd.say(line);
        }
        assert_eq!(histogram(&mut telemetry, "0,0,rx").polls, polls, "round {round}");
    }
    // The port is unplugged: its queue is gone, and the other port stays attached.
    for line in ["port stop 0", "port close 0", "device detach net_null0"] {
        testpmd.say(line);
    }
    let listed = ask(&mut telemetry, "/haul/burst/list");
    assert_eq!(listed["queues"], serde_json::json!(["1,0,rx", "1,0,tx"]), "{listed}");
    let answer = ask(&mut telemetry, "/haul/burst/histogram,0,0,rx");
    assert!(answer["error"].as_str().is_some_and(|text| text.contains("not attached")), "{answer}");
    // The port is plugged in again with the same number: it is not counted before it is attached.
    for line in ["port attach net_null0", "port start 0"] {
        testpmd.say(line);
    }
    let answer = ask(&mut telemetry, "/haul/burst/attach");
    assert_eq!((&answer["queues"], &answer["attached"]), (&2.into(), &4.into()), "{answer}");
    assert_eq!(histogram(&mut telemetry, "0,0,rx").polls, 0);
    testpmd.say("start");
    std::thread::sleep(FLOW / 3);
    testpmd.say("stop");
    assert!(histogram(&mut telemetry, "0,0,rx").polls > 0);
    ask(&mut telemetry, "/haul/burst/detach");
}

#[test]
fn command_rejects_wrong_parameters() {
    if !is_here("command_rejects_wrong_parameters") {
        return;
    }
    let testpmd = Testpmd::start(&["-l0-1", "--vdev=net_null0"], &[]);
    let mut telemetry = testpmd.telemetry();
    for (command, part) in [
        ("/haul/burst/attach,9", "no port 9"),
        ("/haul/burst/attach,x", "a number"),
        ("/haul/burst/attach,0,1", "one port"),
        ("/haul/burst/detach,1,2", "at most one parameter"),
        ("/haul/burst/port", "needs a port"),
        ("/haul/burst/histogram", "a port and a queue"),
        ("/haul/burst/histogram,0", "a port and a queue"),
        ("/haul/burst/histogram,0,0,up", "rx or tx"),
        ("/haul/burst/histogram,0,0,rx", "attach first"),
        ("/haul/burst/histogram,0,0,rx,7,0", "forgotten"),
        ("/haul/burst/histogram,0,0,rx,7", "the first entry"),
        ("/haul/burst/list,1,2", "at most one parameter"),
        ("/haul/burst/list,99999", "a number"),
        ("/haul/burst/histogram,0,\"\\,rx", "a number"),
    ] {
        let answer = ask(&mut telemetry, command);
        let error = answer["error"].as_str().unwrap_or_else(|| panic!("{command}: {answer}"));
        assert!(error.contains(part), "{command}: {error}");
    }
    let port = ask(&mut telemetry, "/haul/burst/port,0");
    assert_eq!((&port["name"], &port["driver"]), (&"net_null0".into(), &"net_null".into()));
}

#[test]
fn attached_probe_costs_little_per_burst() {
    if !is_here("attached_probe_costs_little_per_burst") {
        return;
    }
    let mut testpmd = Testpmd::start(&["-l0-1", "--vdev=net_null0"], &[]);
    let mut telemetry = testpmd.telemetry();
    let mut rate = |testpmd: &mut Testpmd| {
        testpmd.say("clear port stats all");
        testpmd.say("start");
        let begun = Instant::now();
        std::thread::sleep(FLOW);
        testpmd.say("stop");
        let packets = ask(&mut telemetry, "/ethdev/stats,0")["ipackets"].as_f64().unwrap_or(0.0);
        packets / begun.elapsed().as_secs_f64()
    };
    let mut client = testpmd.telemetry();
    // The best window of each state counts, because other programs can only make a window slower.
    let mut tries = Vec::new();
    let costs_little = (0..4).any(|_| {
        let (mut without, mut with) = (0.0_f64, 0.0_f64);
        for _ in 0..5 {
            without = without.max(rate(&mut testpmd));
            attach(&mut client);
            with = with.max(rate(&mut testpmd));
            ask(&mut client, "/haul/burst/detach");
        }
        tries.push(with / without);
        with > 0.8 * without
    });
    // For bursts of 32 packets the cost is below the noise. A lock, a read of the clock per
    // burst, or counters that two threads share would cost far more.
    assert!(costs_little, "packets a second, attached over detached: {tries:.3?}");
}
