//! The library in Debian's testpmd as switch, with haul as the guest, compared with the same
//! testpmd without the library.
//!
//! - [`testpmd`]: the program;
//! - [`guest`]: haul's guest, which checks the bytes of every packet that returns;
//! - [`front`]: a front end that sends and writes anything;
//! - `checksums`: packets that lack a checksum, with any headers;
//! - `offloads`: packets to such a front end that ask for checksums and segmentation;
//! - `announcements`: such a front end, which asks for announcements of its address;
//! - `logging`: such a front end, which logs writes;
//! - `kernel`: a kernel's own driver as the guest, behind the library;
//! - `orders`: such front ends, which send messages in random orders.

mod announcements;
mod checksums;
#[expect(dead_code, reason = "the tests of the crate forward use the rest")]
#[path = "../../../../../crates/forward/tests/vhost/front.rs"]
mod front;
mod guest;
mod kernel;
mod logging;
mod offloads;
mod orders;
mod testpmd;

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use guest::{Guest, LAYOUTS, Layout};
use testpmd::{Preload, Testpmd, is_here, library, skip};

/// Packets of one test.
const PACKETS: u64 = 4000;

/// The time of some turns of the library and of DPDK.
const SEVERAL_TURNS: Duration = Duration::from_millis(700);

/// Sizes that fit into a buffer of either side.
const PLAIN: &[usize] = &[14, 60, 64, 65, 128, 512, 1023, 1024, 1500, 1518, 1519, 2000];

/// Sizes of which some need several buffers.
const MIXED: &[usize] = &[60, 9000, 64, 2100, 1500, 4000];

#[test]
fn packets_return_unchanged_in_every_layout() {
    if !is_here("packets_return_unchanged_in_every_layout") {
        return;
    }
    for layout in LAYOUTS {
        let mut testpmd = Testpmd::start(&Preload::TELL);
        let mut guest = Guest::connect(testpmd.socket(), layout);
        let bytes = guest.exchange(PACKETS, PLAIN);
        let counters = testpmd.counters();
        assert_eq!(counters["rx_q0_good_packets"], PACKETS, "{layout:?}");
        assert_eq!(counters["tx_q0_good_packets"], PACKETS, "{layout:?}");
        assert_eq!(counters["rx_q0_good_bytes"], bytes, "{layout:?}");
        drop(guest);
        let text = testpmd.quit();
        assert_eq!(served(&text), [(2 * PACKETS, 0)], "{layout:?}: {text}");
    }
}

#[test]
fn packets_of_several_buffers_pass_in_order() {
    if !is_here("packets_of_several_buffers_pass_in_order") {
        return;
    }
    for layout in LAYOUTS.into_iter().filter(|layout| layout.is_mergeable) {
        // In half of the layouts, each packet fits into one buffer of testpmd, so that the library
        // gathers it; else DPDK receives the long ones, and the library sends their segments.
        let is_one = layout.is_packed != layout.is_in_order;
        let own: &[&str] = if is_one { &["--mbuf-size=9600"] } else { &[] };
        let testpmd = Testpmd::start_with(&Preload::TELL, "", own);
        let mut guest = Guest::connect(testpmd.socket(), layout);
        guest.exchange(PACKETS, MIXED);
        drop(guest);
        let text = testpmd.quit();
        let [(here, there)] = served(&text)[..] else { panic!("one device: {text}") };
        assert_eq!(here + there, 2 * PACKETS, "{layout:?}");
        let is_served = if is_one { there == 0 } else { (PACKETS / 2..PACKETS).contains(&there) };
        assert!(is_served, "{layout:?}: {here} {there}");
    }
}

/// The library and DPDK take the rings over from each other at the boundaries of bursts, a tenth of
/// a second each.
#[test]
fn sides_take_turns_in_every_layout() {
    if !is_here("sides_take_turns_in_every_layout") {
        return;
    }
    for layout in LAYOUTS {
        let testpmd = Testpmd::start_with(&Preload::TURNS, "", &["--mbuf-size=9600"]);
        let mut guest = Guest::connect(testpmd.socket(), layout);
        let sizes = if layout.is_mergeable { MIXED } else { PLAIN };
        let (mut packets, start) = (0, Instant::now());
        // On a busy machine, a single exchange may take as long as several turns but move most of
        // its packets within one. Hence the pauses.
        while start.elapsed() < SEVERAL_TURNS || packets < 10 * PACKETS / 8 {
            guest.exchange(PACKETS / 8, sizes);
            packets += PACKETS / 8;
            std::thread::sleep(Duration::from_millis(30));
        }
        drop(guest);
        let text = testpmd.quit();
        let [(here, there)] = served(&text)[..] else { panic!("one device: {text}") };
        assert!(0 < here && here < 2 * packets, "{layout:?}: {here} of {packets} both ways");
        assert_eq!(there, 0, "{layout:?}: packets that the library handed to DPDK");
    }
}

#[test]
fn counters_equal_those_without_library() {
    if !is_here("counters_equal_those_without_library") {
        return;
    }
    for layout in [LAYOUTS[0], LAYOUTS[3]] {
        let [with, without] = [Preload::TELL, Preload::NONE].map(|preload| {
            let mut testpmd = Testpmd::start(&preload);
            let mut guest = Guest::connect(testpmd.socket(), layout);
            guest.exchange(PACKETS, MIXED);
            guest.exchange(PACKETS, PLAIN);
            let mut counters = testpmd.counters();
            // Whether a guest polls when a burst ends depends on time.
            counters.retain(|name, _| name.contains("_q0_") && !name.contains("notif"));
            testpmd.say("clear port xstats 0");
            let cleared = testpmd.counters();
            (counters, cleared)
        });
        assert!(with.0.len() > 12 && with.0.values().any(|value| *value > 0), "{with:?}");
        let differences: BTreeMap<_, _> =
            with.0.iter().filter(|(name, value)| without.0.get(*name) != Some(value)).collect();
        assert!(differences.is_empty(), "{layout:?}: {differences:?} without: {:?}", without.0);
        let is_own = |name: &str| name.contains("_q0_good") || name.contains("_q0_size");
        let left = with.1.iter().find(|(name, value)| is_own(name) && **value > 0);
        assert_eq!(left, None, "a cleared counter");
    }
}

#[test]
fn guests_come_and_go() {
    if !is_here("guests_come_and_go") {
        return;
    }
    let testpmd = Testpmd::start(&Preload::TELL);
    for layout in LAYOUTS {
        // The last exchange of each is cut off with packets in the rings.
        let mut guest = Guest::connect(testpmd.socket(), layout);
        guest.exchange(PACKETS / 4, PLAIN);
        guest.send_only(200);
        drop(guest);
    }
    let text = testpmd.quit();
    let devices = served(&text);
    assert_eq!(devices.len(), LAYOUTS.len(), "{text}");
    assert!(devices.iter().all(|(here, _)| *here >= PACKETS / 2), "{devices:?}");
}

#[test]
fn killed_guest_leaves_switch_serving() {
    if !is_here("killed_guest_leaves_switch_serving") {
        return;
    }
    let mut testpmd = Testpmd::start(&Preload::TELL);
    for _ in 0..3 {
        testpmd.run_guest_until_killed();
    }
    let mut guest = Guest::connect(testpmd.socket(), LAYOUTS[0]);
    guest.exchange(PACKETS, PLAIN);
    drop(guest);
    let text = testpmd.quit();
    let devices = served(&text);
    assert_eq!(devices.len(), 4, "{text}");
    assert_eq!(devices[3], (2 * PACKETS, 0));
    assert!(devices.iter().all(|(here, _)| *here > 0), "{devices:?}");
}

#[test]
fn port_that_stops_and_starts_passes_packets() {
    if !is_here("port_that_stops_and_starts_passes_packets") {
        return;
    }
    let mut testpmd = Testpmd::start(&Preload::TELL);
    let mut guest = Guest::connect(testpmd.socket(), LAYOUTS[0]);
    for round in 0..3 {
        guest.exchange(PACKETS / 4, PLAIN);
        for line in ["stop", "port stop 0", "port start 0", "start"] {
            testpmd.say(line);
        }
        guest.reconnect(round);
    }
    guest.exchange(PACKETS / 4, PLAIN);
    testpmd.quit();
}

#[test]
fn library_that_is_off_leaves_all_to_dpdk() {
    if !is_here("library_that_is_off_leaves_all_to_dpdk") {
        return;
    }
    let testpmd = Testpmd::start(&Preload::OFF);
    let mut guest = Guest::connect(testpmd.socket(), Layout::default());
    guest.exchange(PACKETS / 4, PLAIN);
    drop(guest);
    let text = testpmd.quit();
    assert!(!text.contains("haul:"), "{text}");
}

#[test]
fn library_exports_functions_of_dpdk_alone() {
    let what = "library_exports_functions_of_dpdk_alone";
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library()).output();
    let Ok(output) = output else {
        skip(what, "no nm on PATH", "apt-get install binutils");
        return;
    };
    let text = String::from_utf8(output.stdout).expect("it prints text");
    let mut names: Vec<&str> = text.lines().filter_map(|line| line.rsplit(' ').next()).collect();
    names.sort_unstable();
    let expected = [
        "rte_vhost_async_channel_register",
        "rte_vhost_async_channel_register_thread_unsafe",
        "rte_vhost_dequeue_burst",
        "rte_vhost_driver_callback_register",
        "rte_vhost_driver_register",
        "rte_vhost_enqueue_burst",
        "rte_vhost_extern_callback_register",
        "rte_vhost_vring_stats_get",
        "rte_vhost_vring_stats_reset",
    ];
    assert_eq!(names, expected);
}

/// For each device that has ended, how many packets the library moved, and how many DPDK.
fn served(text: &str) -> Vec<(u64, u64)> {
    let line = |line: &str| {
        let (_, line) = line.split_once("haul: rte_vhost: ")?;
        let (here, there) = line.split_once(": served ")?.1.split_once(" packets, handed ")?;
        let there = there.split_once(" to DPDK")?.0;
        Some((here.parse().ok()?, there.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}
