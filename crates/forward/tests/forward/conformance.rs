//! The properties of every port, with and without a peer.

use std::path::Path;
use std::time::Instant;

use haul_engine::Queue;
use haul_forward::{
    AfPacket, AfXdp, BURST_MAX, Burst, Counters, Direction, Generator, Link, Mode, Nic,
    NicSettings, Null, PACKET_BYTES_MAX, Pcap, PcapSettings, Pool, Port, Running, Sink, Traffic,
    Vhost, VhostSettings,
};
use haul_model::pcie::Setup;
use tempfile::TempDir;

use crate::network::with_pair;
use crate::support::{LONG, Layout, capture, folder, guest, settings, socket, vhost, virtio, wait};

/// A port, and everything that must live as long as it.
struct Subject {
    port: Box<dyn Port>,
    _other: Option<Running>,
    _folder: Option<TempDir>,
}

fn alone(port: impl Port + 'static) -> Subject {
    Subject { port: Box::new(port), _other: None, _folder: None }
}

/// The host's side, with a guest that returns every packet.
fn with_guest(layout: Layout) -> Subject {
    with_guest_of(|path| VhostSettings::new(path), layout)
}

/// The host's side, whose packets a helper thread copies.
fn with_helper(layout: Layout) -> Subject {
    let engine = Some(Queue::worker().unwrap());
    let beside = |path: &Path| VhostSettings {
        engine: engine.clone(),
        engine_bytes_min: 0,
        ..VhostSettings::new(path)
    };
    with_guest_of(beside, layout)
}

fn with_guest_of(settings: impl Fn(&Path) -> VhostSettings, layout: Layout) -> Subject {
    let folder = folder();
    let settings = settings(&socket(&folder));
    let port = Box::new(Vhost::open("port", &settings).unwrap().pop().unwrap());
    let other = Some(guest(&socket(&folder), layout));
    Subject { port, _other: other, _folder: Some(folder) }
}

/// The guest's side, with a host that returns every packet.
fn with_switch(layout: Layout) -> Subject {
    let folder = folder();
    let switch = vhost("switch", &socket(&folder));
    let port = Box::new(virtio("port", &socket(&folder), layout));
    let pool = Pool::new(1024).unwrap();
    let ports = [Box::new(switch) as Box<dyn Port>];
    let other = Running::start("switch", ports, pool, settings(Mode::Io)).unwrap();
    Subject { port, _other: Some(other), _folder: Some(folder) }
}

type Make = fn() -> Subject;

/// Every port: its name, and a function that opens it.
fn subjects() -> Vec<(&'static str, Make)> {
    vec![
        ("null", || alone(Null::new("port"))),
        ("null source", || alone(Null::source("port", 64))),
        ("generator", || alone(Generator::new("port", &Traffic::default()).unwrap())),
        ("sink", || alone(Sink::new("port"))),
        ("pcap", || {
            let folder = folder();
            let file = folder.path().join("in.pcap");
            std::fs::write(&file, capture()).unwrap();
            let output = Some(folder.path().join("out.pcap"));
            let settings = PcapSettings { input: Some(file), output, ..PcapSettings::default() };
            let port = Box::new(Pcap::open("port", &settings).unwrap());
            Subject { port, _other: None, _folder: Some(folder) }
        }),
        ("pcap that is read", || {
            let folder = folder();
            let file = folder.path().join("in.pcap");
            std::fs::write(&file, capture()).unwrap();
            let settings = PcapSettings { input: Some(file), ..PcapSettings::default() };
            let port = Box::new(Pcap::open("port", &settings).unwrap());
            Subject { port, _other: None, _folder: Some(folder) }
        }),
        ("afpacket", || alone(AfPacket::open("port", "haul0").unwrap())),
        ("afxdp", || alone(AfXdp::open("port", "haul0", 0).unwrap())),
        ("nic", || {
            let nic: &haul_model::pcie::Nic = "ice".parse().unwrap();
            let setup = Setup { ring: 256, ..Setup::of(*nic, "gen3x8".parse().unwrap()) };
            alone(Nic::open("port", NicSettings::new(setup)).unwrap())
        }),
        ("nic at a rate", || {
            let nic: &haul_model::pcie::Nic = "mlx5".parse().unwrap();
            let setup = Setup { ring: 512, ..Setup::of(*nic, "gen4x16".parse().unwrap()) };
            let rate = Some(1e6);
            alone(Nic::open("port", NicSettings { rate, ..NicSettings::new(setup) }).unwrap())
        }),
        ("vhost without a guest", || {
            let folder = folder();
            let port = Box::new(vhost("port", &socket(&folder)));
            Subject { port, _other: None, _folder: Some(folder) }
        }),
        ("vhost", || with_guest(Layout::Mergeable)),
        ("vhost with offloads", || {
            let folder = folder();
            let new = VhostSettings::new(socket(&folder));
            let settings = VhostSettings { has_offloads: true, ..new };
            let port = Box::new(Vhost::open("port", &settings).unwrap().remove(0));
            let other = Some(guest(&socket(&folder), Layout::Mergeable));
            Subject { port, _other: other, _folder: Some(folder) }
        }),
        ("vhost in order", || with_guest(Layout::InOrder)),
        ("vhost with packed rings", || with_guest(Layout::Packed)),
        ("vhost with packed rings in order", || with_guest(Layout::PackedInOrder)),
        ("vhost with an engine", || with_helper(Layout::Mergeable)),
        ("vhost with an engine and packed rings", || with_helper(Layout::Packed)),
        ("vhost with an engine and packed rings in order", || with_helper(Layout::PackedInOrder)),
        ("virtio without a switch", || {
            let folder = folder();
            let port = Box::new(virtio("port", &socket(&folder), Layout::Mergeable));
            Subject { port, _other: None, _folder: Some(folder) }
        }),
        ("virtio", || with_switch(Layout::Mergeable)),
        ("virtio in order", || with_switch(Layout::InOrder)),
        ("virtio with packed rings", || with_switch(Layout::Packed)),
        ("virtio with packed rings in order", || with_switch(Layout::PackedInOrder)),
    ]
}

/// Calls `check` with each port. If a port has a peer, its link is up before the call.
fn for_each(mut check: impl FnMut(&str, &mut dyn Port, &mut Pool) + Send) {
    for (name, make) in subjects() {
        if name.starts_with("af") {
            with_pair(name, || for_one(name, make, &mut check));
        } else {
            for_one(name, make, &mut check);
        }
    }
}

fn for_one(name: &str, make: Make, check: &mut dyn FnMut(&str, &mut dyn Port, &mut Pool)) {
    let mut subject = make();
    let mut pool = Pool::new(2048).unwrap();
    let port = &mut *subject.port;
    if subject._other.is_some() {
        wait("a link", || {
            port.service(&mut pool).unwrap();
            port.link() == Link::Up
        });
    }
    check(name, port, &mut pool);
    port.stop(&mut pool);
    assert_eq!(pool.available(), pool.size(), "{name}: packets that were not returned");
}

fn packets_in(direction: &Direction) -> u64 {
    direction.batches.iter().enumerate().map(|(size, count)| size as u64 * count).sum()
}

fn check_sums(name: &str, counters: &Counters) {
    for direction in [&counters.rx, &counters.tx] {
        assert_eq!(packets_in(direction), direction.packets, "{name}: histogram and packets");
    }
}

#[test]
fn burst_stays_within_limit_and_calls_are_counted() {
    for_each(|name, port, pool| {
        for limit in [1, 7, 32, BURST_MAX] {
            let before = port.counters().clone();
            let mut burst = Burst::with_limit(limit);
            for _ in 0..100 {
                let came = port.rx_burst(pool, &mut burst);
                assert!(came == burst.len() && came <= limit, "{name}: {came} of {limit}");
                pool.free_burst(&mut burst);
            }
            let since = port.counters().since(&before);
            assert!(since.rx.calls() <= 100, "{name}: {} calls of 100", since.rx.calls());
        }
        assert!(port.counters().rx.calls() > 0, "{name}");
        check_sums(name, port.counters());
    });
}

#[test]
fn packet_is_sent_or_dropped_by_reason_or_left() {
    for_each(|name, port, pool| {
        let before = port.counters().clone();
        let mut given = 0;
        let start = Instant::now();
        for round in 0.. {
            // The peer may need some time until it has room.
            if round >= 200 && (given > 100 || start.elapsed() > LONG) {
                break;
            }
            let mut burst = Burst::with_limit(1 + round % 64);
            while burst.room() > 0 {
                let length = [0, 1, 13, 14, 60, 64, 1514, 2048, 2049, 9000, PACKET_BYTES_MAX]
                    [given as usize % 11];
                let Some(packet) = pool.take(length) else { break };
                assert!(pool.write(&packet, 0, &vec![given as u8; length]));
                burst.push(packet);
                given += 1;
            }
            port.tx_burst(pool, &mut burst);
            port.service(pool).unwrap();
            given -= burst.len() as u64;
            pool.free_burst(&mut burst);
        }
        assert!(given > 100, "{name}: {given} packets");
        // A port that keeps packets until the other side has them counts them then.
        while name.contains("engine") && !port.drain(pool) {
            assert!(start.elapsed() < 2 * LONG, "{name}: packets are on their way");
        }
        let since = port.counters().since(&before);
        assert_eq!(since.tx.packets + since.tx.drops_sum(), given, "{name}: {:?}", since.tx.drops);
        check_sums(name, port.counters());
    });
}

#[test]
fn empty_pool_stops_only_packets() {
    for_each(|name, port, pool| {
        let mut all = Vec::new();
        while let Some(packet) = pool.take(64) {
            all.push(packet);
        }
        let mut burst = Burst::new();
        for _ in 0..100 {
            port.rx_burst(pool, &mut burst);
            port.service(pool).unwrap();
        }
        let came: Vec<_> = std::iter::from_fn(|| burst.pop()).collect();
        all.into_iter().chain(came).for_each(|packet| pool.free(packet));
        check_sums(name, port.counters());
    });
}

#[test]
fn no_call_waits_and_all_are_allowed_after_stop() {
    for_each(|name, port, pool| {
        let start = Instant::now();
        for _ in 0..50 {
            let mut burst = Burst::new();
            port.rx_burst(pool, &mut burst);
            port.tx_burst(pool, &mut burst);
            pool.free_burst(&mut burst);
            port.service(pool).unwrap();
            port.drain(pool);
        }
        port.quiesce();
        for _ in 0..3 {
            port.stop(pool);
            let mut burst = Burst::new();
            port.rx_burst(pool, &mut burst);
            if burst.room() > 0 {
                burst.push(pool.take(64).unwrap());
            }
            port.tx_burst(pool, &mut burst);
            pool.free_burst(&mut burst);
            port.service(pool).unwrap();
            assert!(!port.name().is_empty());
        }
        assert!(start.elapsed() < LONG / 2, "{name}: {:?}", start.elapsed());
    });
}
