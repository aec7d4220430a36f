//! The probe in Debian's testpmd, against testpmd's own statistics.
//!
//! - [`testpmd`]: the program, and what the probe says of it;
//! - [`cost`]: what an empty poll costs with it and without.

mod cost;
mod testpmd;

use std::time::{Duration, Instant};

use haul::forward::{
    Generator, Link, Mode, Pool, Port, Running, Settings, Traffic, Vhost, VhostSettings,
};
use haul::telemetry::Telemetry;
use serde_json::Value;
use testpmd::{Histogram, Testpmd, histogram, is_here, own_statistics};

/// How long packets flow where a test counts them.
const FLOW: Duration = Duration::from_millis(300);

fn ask(telemetry: &mut Telemetry, command: &str) -> Value {
    telemetry.ask(command).unwrap_or_else(|error| panic!("{error}"))
}

fn attach(telemetry: &mut Telemetry) -> u64 {
    ask(telemetry, "/haul/burst/attach")["attached"].as_u64().expect("it attaches")
}

/// Sums agree, and as many bursts and the same shares as testpmd counted itself.
fn agrees(histogram: &Histogram, text: &str, direction: &str) {
    let bursts: u64 = histogram.batches.iter().map(|(_, bursts)| bursts).sum();
    let packets: u64 = histogram.batches.iter().map(|(size, bursts)| size * bursts).sum();
    assert_eq!((bursts, packets), (histogram.polls, histogram.packets), "{histogram:?}");
    let (own_bursts, shares) = own_statistics(text, direction);
    assert_eq!(bursts, own_bursts, "{direction}: {histogram:?}\n{text}");
    let sum: u64 = shares.iter().map(|(_, percent)| percent).sum();
    for (place, (size, percent)) in shares.iter().enumerate() {
        let found = histogram.batches.iter().find(|(own, _)| own == size);
        let count = found.map_or(0, |(_, bursts)| *bursts);
        // Where it names every size, it prints what is left to 100 of the last one.
        let is_rest = sum == 100 && place > 0 && place + 1 == shares.len();
        let is_it = if is_rest { count > 0 } else { count * 100 / bursts == *percent };
        assert!(is_it, "{percent}% {direction} of {size}: {histogram:?}\n{text}");
    }
}

#[test]
fn null_devices_are_counted_as_testpmd_counts_them() {
    if !is_here("null_devices_are_counted_as_testpmd_counts_them") {
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
        agrees(&counted, &text, direction);
        assert_eq!(counted.bytes_sized, 64 * counted.packets_sized, "net_null has 64 B packets");
    }
    let stats = ask(&mut telemetry, "/ethdev/stats,0");
    let received = histogram(&mut telemetry, "0,0,rx").packets;
    assert_eq!(stats["ipackets"], received);
}

#[test]
fn rings_with_batches_of_several_sizes_are_counted_as_testpmd_counts_them() {
    if !is_here("rings_with_batches_of_several_sizes_are_counted_as_testpmd_counts_them") {
        return;
    }
    let mut testpmd = Testpmd::start(&["-l0-1", "--vdev=net_ring0"], &["--burst=20"]);
    let mut telemetry = testpmd.telemetry();
    testpmd.say("set record-burst-stats on");
    attach(&mut telemetry);
    // Ring 0 is its own other end: five bursts of 20 go round.
    testpmd.say("start tx_first 5");
    std::thread::sleep(FLOW);
    let text = testpmd.say("stop");
    for (queue, direction) in [("0,0,rx", "RX"), ("0,0,tx", "TX")] {
        let counted = histogram(&mut telemetry, queue);
        assert!(counted.packets > 0, "{counted:?}");
        agrees(&counted, &text, direction);
    }
}

/// The guest's card, with haul as the switch: it is polled as packets come, so that calls find
/// whatever number is there.
#[test]
fn a_virtio_card_behind_hauls_vhost_port_is_counted_as_testpmd_counts_it() {
    if !is_here("a_virtio_card_behind_hauls_vhost_port_is_counted_as_testpmd_counts_it") {
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
    // What is left over where a ring is full is in the probe's bursts, and not in testpmd's.
    let number = |key: &str| -> u64 {
        let word = text.split(key).nth(1).and_then(|rest| rest.split_whitespace().next());
        word.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no {key} in {text}"))
    };
    for (queue, direction) in [("0,0,rx", "RX"), ("0,0,tx", "TX")] {
        let counted = histogram(&mut telemetry, queue);
        assert!(counted.packets > 0, "{counted:?}");
        assert_eq!(counted.packets, number(&format!("{direction}-total: ")), "{text}");
        if direction == "RX" || number("TX-dropped: ") == 0 {
            agrees(&counted, &text, direction);
        }
        assert_eq!(counted.bytes_sized, 64 * counted.packets_sized, "haul sends 64 B packets");
    }
    // And as haul counts what it put into the ring, and found there.
    let received = histogram(&mut telemetry, "0,0,rx").packets;
    let sent = ask(&mut telemetry, "/ethdev/stats,0")["opackets"].as_u64().unwrap();
    drop(testpmd);
    let snapshot = switch.stop().unwrap();
    let (_, _, counters) = &snapshot.ports[1];
    assert!(counters.tx.packets >= received, "{received} of {}", counters.tx.packets);
    assert!(counters.rx.packets <= sent, "{} of {sent}", counters.rx.packets);
}

/// A generator and a vhost port, between which haul forwards.
fn switch(socket: &std::path::Path) -> Running {
    let traffic = Traffic { rate: Some(100e3), flows: 4, ..Traffic::default() };
    let generator = Generator::new("gen0", &traffic).unwrap();
    let vhost = Vhost::open("vhost0", &VhostSettings::new(socket)).unwrap().pop().unwrap();
    let ports: [Box<dyn Port>; 2] = [Box::new(generator), Box::new(vhost)];
    let settings = Settings { mode: Mode::Io, yields: true, ..Settings::default() };
    Running::start("haul-forward", ports, Pool::new(4096).unwrap(), settings).unwrap()
}

#[test]
fn empty_polls_are_counted_to_the_last() {
    if !is_here("empty_polls_are_counted_to_the_last") {
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
    agrees(&counted, &text, "RX");
}

#[test]
fn a_batch_has_a_size_for_each_of_its_packets() {
    if !is_here("a_batch_has_a_size_for_each_of_its_packets") {
        return;
    }
    // Bursts grow in size: more sizes than one answer has, so that it has pages of one moment.
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
fn several_cores_and_queues_are_counted_each() {
    if !is_here("several_cores_and_queues_are_counted_each") {
        return;
    }
    let cores = "--lcores=0@0,1@0,2@1";
    let options = ["--nb-cores=2", "--rxq=2", "--txq=2"];
    let mut testpmd = Testpmd::start(&[cores, "--vdev=net_null0", "--vdev=net_null1"], &options);
    let mut telemetry = testpmd.telemetry();
    assert_eq!(attach(&mut telemetry), 8);
    testpmd.say("start");
    std::thread::sleep(FLOW);
    // While they run, sums agree.
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
fn attached_and_detached_under_traffic_nothing_is_lost_or_left() {
    if !is_here("attached_and_detached_under_traffic_nothing_is_lost_or_left") {
        return;
    }
    let mut testpmd = Testpmd::start(&["-l0-1", "--vdev=net_null0", "--vdev=net_ring0"], &[]);
    let (mut telemetry, mut other) = (testpmd.telemetry(), testpmd.telemetry());
    testpmd.say("start");
    std::thread::scope(|scope| {
        // A second client reads and lists meanwhile; queues come and go under it.
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
    // Whoever was not seen to have left is looked for again by each command.
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let waiting = ask(&mut telemetry, "/haul/burst/detach")["waiting"].clone();
        if waiting == 0 {
            break;
        }
        assert!(Instant::now() < end, "{waiting} callbacks are never freed");
    }
    attach(&mut telemetry);
    std::thread::sleep(FLOW);
    assert!(histogram(&mut telemetry, "0,0,rx").packets > 0);
    testpmd.say("stop");
}

#[test]
fn ports_stop_start_go_and_come_back() {
    if !is_here("ports_stop_start_go_and_come_back") {
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
    // Unplugged: the queue is gone, and what is attached to the other port goes on.
    for line in ["port stop 0", "port close 0", "device detach net_null0"] {
        testpmd.say(line);
    }
    let listed = ask(&mut telemetry, "/haul/burst/list");
    assert_eq!(listed["queues"], serde_json::json!(["1,0,rx", "1,0,tx"]), "{listed}");
    let answer = ask(&mut telemetry, "/haul/burst/histogram,0,0,rx");
    assert!(answer["error"].as_str().is_some_and(|text| text.contains("not attached")), "{answer}");
    // Plugged in again under the same number: nothing of it is counted before it is attached.
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
fn words_that_are_none_are_answered_with_what_to_write() {
    if !is_here("words_that_are_none_are_answered_with_what_to_write") {
        return;
    }
    let testpmd = Testpmd::start(&["-l0-1", "--vdev=net_null0"], &[]);
    let mut telemetry = testpmd.telemetry();
    for (command, part) in [
        ("/haul/burst/attach,9", "no port 9"),
        ("/haul/burst/attach,x", "a number"),
        ("/haul/burst/attach,0,1", "one port"),
        ("/haul/burst/detach,1,2", "at most a port"),
        ("/haul/burst/port", "write a port"),
        ("/haul/burst/histogram", "a port and a queue"),
        ("/haul/burst/histogram,0", "a port and a queue"),
        ("/haul/burst/histogram,0,0,up", "rx or tx"),
        ("/haul/burst/histogram,0,0,rx", "attach first"),
        ("/haul/burst/histogram,0,0,rx,7,0", "forgotten"),
        ("/haul/burst/histogram,0,0,rx,7", "where to begin"),
        ("/haul/burst/list,1,2", "where to begin"),
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
fn attached_a_burst_costs_little() {
    if !is_here("attached_a_burst_costs_little") {
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
    let ratios: Vec<f64> = (0..9)
        .map(|_| {
            let without = rate(&mut testpmd);
            attach(&mut client);
            let with = rate(&mut testpmd);
            ask(&mut client, "/haul/burst/detach");
            with / without
        })
        .collect();
    let median = haul_model::statistics::median(&ratios).unwrap();
    // Beside bursts of 32 packets it is below the noise; what is far from it is another thing: a
    // lock, a clock read for each burst, counters that two threads share.
    assert!(median > 0.8, "packets a second, attached over detached: {ratios:.3?}");
}
