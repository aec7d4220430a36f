//! Ports on interfaces of this machine: packets pass from one end of a veth pair to the other, and
//! interfaces go down, disappear, or cannot be used.

use std::process::Command;
use std::time::{Duration, Instant};

use haul_forward::{
    AfPacket, AfXdp, Burst, DropReason, Error, Generator, Link, Mode, Pool, Port, Running, Sizes,
    Traffic,
};

use crate::network::{ip, make_pair, with_pair};
use crate::support::{quick, wait};

type Open = fn(&str, &str) -> Result<Box<dyn Port>, Error>;

/// Each port on an interface: its name, and a function that opens it.
const PORTS: [(&str, Open); 2] = [
    ("afpacket", |name, interface| Ok(Box::new(AfPacket::open(name, interface)?))),
    ("afxdp", |name, interface| Ok(Box::new(AfXdp::open(name, interface, 0)?))),
];

fn each_pair(mut check: impl FnMut(&str, Open, Open)) {
    for (first, open_first) in PORTS {
        for (second, open_second) in PORTS {
            check(&format!("{first} to {second}"), open_first, open_second);
        }
    }
}

/// Fewer packets than the rings of either side and the kernel's queues hold, so that neither side
/// must keep up. The shortest queue is a ring of 256 packets, which each interface of a pair has.
const PACKETS: u64 = 200;

#[test]
fn flow_through_veth_pair_and_back_loses_nothing() {
    with_pair("a flow through a pair of interfaces", || {
        each_pair(|name, open_first, open_second| {
            let echo = open_second("echo", "haul1").unwrap();
            let pool = Pool::new(2048).unwrap();
            let echo = Running::start("echo", [echo], pool, quick(Mode::MacSwap)).unwrap();
            wait("a link", || echo.snapshot().links == [Link::Up]);
            let sizes = Sizes::Each { from: 60, to: 1514, step: 7 };
            let traffic = Traffic { sizes, packets: Some(PACKETS), ..Traffic::default() };
            let generator = Generator::new("gen", &traffic).unwrap();
            let watch = generator.watch();
            let ports: [Box<dyn Port>; 2] =
                [Box::new(generator), open_first("port", "haul0").unwrap()];
            let pool = Pool::new(2048).unwrap();
            let flow = Running::start("flow", ports, pool, quick(Mode::Io)).unwrap();
            wait(name, || watch.findings().sum().unique == PACKETS);
            let order = watch.findings().sum();
            assert_eq!((order.reordered, order.duplicates), (0, 0), "{name}");
            let (here, there) = (flow.stop().unwrap(), echo.stop().unwrap());
            for (_, _, counters) in [&here.ports[1], &there.ports[0]] {
                assert_eq!((counters.rx.packets, counters.tx.packets), (PACKETS, PACKETS));
                assert_eq!(counters.rx.bytes, counters.tx.bytes, "{name}");
                assert_eq!((counters.rx.drops_sum(), counters.tx.drops_sum()), (0, 0), "{name}");
            }
        });
    });
}

/// The kernel reports the link of an interface some time after a port was opened.
fn wait_for(link: Link, mut ports: [&mut dyn Port; 2], pool: &mut Pool) {
    wait(&format!("{link:?} of both"), || {
        ports.iter_mut().all(|port| {
            port.service(pool).unwrap();
            port.link() == link
        })
    });
}

/// Sends one packet with these bytes, and returns the packet that arrived at the other side.
fn sent(from: &mut dyn Port, to: &mut dyn Port, pool: &mut Pool, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut burst = Burst::new();
    let packet = pool.take(bytes.len()).unwrap();
    assert!(pool.write(&packet, 0, bytes));
    burst.push(packet);
    if from.tx_burst(pool, &mut burst) == 0 {
        pool.free_burst(&mut burst);
        return None;
    }
    let mut found = None;
    wait("the packet", || {
        from.service(pool).unwrap();
        to.rx_burst(pool, &mut burst) == 1
    });
    while let Some(packet) = burst.pop() {
        let mut bytes = vec![0; pool.length(&packet)];
        assert!(pool.read(&packet, 0, &mut bytes));
        found = Some(bytes);
        pool.free(packet);
    }
    found
}

/// Like [`sent`], but sends the packet again each second until one arrives, because the kernel may
/// drop packets of a link that has just come up. Returns the first packet that arrived.
fn sent_again(from: &mut dyn Port, to: &mut dyn Port, pool: &mut Pool, bytes: &[u8]) -> Vec<u8> {
    let (mut burst, mut last) = (Burst::new(), None::<Instant>);
    wait("one of the packets", || {
        if last.is_none_or(|last| last.elapsed() > Duration::from_secs(1)) {
            let packet = pool.take(bytes.len()).unwrap();
            assert!(pool.write(&packet, 0, bytes));
            burst.push(packet);
            from.tx_burst(pool, &mut burst);
            pool.free_burst(&mut burst);
            last = Some(Instant::now());
        }
        from.service(pool).unwrap();
        to.rx_burst(pool, &mut burst) > 0
    });
    let packet = burst.pop().unwrap();
    let mut found = vec![0; pool.length(&packet)];
    assert!(pool.read(&packet, 0, &mut found));
    pool.free(packet);
    pool.free_burst(&mut burst);
    found
}

/// A frame with an EtherType for local experiments, which the kernel does not answer, with or
/// without a tag.
fn frame(length: usize, is_tagged: bool) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    if is_tagged {
        frame.extend([0x81, 0x00, 0x20, 0x07]);
    }
    frame.extend([0x88, 0xb5]);
    while frame.len() < length {
        frame.push(frame.len() as u8);
    }
    frame
}

#[test]
fn every_byte_arrives_and_oversized_packets_are_dropped() {
    with_pair("bytes through a pair of interfaces", || {
        each_pair(|name, open_first, open_second| {
            let mut from = open_first("from", "haul0").unwrap();
            let mut to = open_second("to", "haul1").unwrap();
            let mut pool = Pool::new(256).unwrap();
            wait_for(Link::Up, [&mut *from, &mut *to], &mut pool);
            for (length, is_tagged) in
                [(14, false), (60, false), (61, true), (1514, false), (1518, true)]
            {
                let bytes = frame(length, is_tagged);
                let found = sent(&mut *from, &mut *to, &mut pool, &bytes);
                assert_eq!(found.as_ref(), Some(&bytes), "{name}: {length} B, {is_tagged}");
            }
            for (length, is_tagged, reason) in [
                (0, false, DropReason::TooShort),
                (13, false, DropReason::TooShort),
                (1515, false, DropReason::TooLong),
                (1519, true, DropReason::TooLong),
                (9000, false, DropReason::TooLong),
            ] {
                let before = from.counters().tx.drops_for(reason);
                let bytes = &frame(length, is_tagged)[..length];
                assert_eq!(sent(&mut *from, &mut *to, &mut pool, bytes), None, "{name}: {length}");
                assert_eq!(from.counters().tx.drops_for(reason), before + 1, "{name}: {length}");
            }
            assert_eq!(from.counters().tx.packets, 5, "{name}");
            from.stop(&mut pool);
            to.stop(&mut pool);
            assert_eq!(pool.available(), pool.size());
        });
    });
}

#[test]
fn port_survives_interface_going_down_and_away() {
    with_pair("interfaces that go and come", || {
        each_pair(|name, open_first, open_second| {
            let mut from = open_first("from", "haul0").unwrap();
            let mut to = open_second("to", "haul1").unwrap();
            let mut pool = Pool::new(256).unwrap();
            let bytes = frame(200, false);
            wait_for(Link::Up, [&mut *from, &mut *to], &mut pool);
            assert_eq!(sent_again(&mut *from, &mut *to, &mut pool, &bytes), bytes, "{name}");
            type Comes = fn() -> bool;
            for (goes, comes) in [
                ("link set dev haul0 down", (|| ip("link set dev haul0 up")) as Comes),
                ("link set dev haul1 down", || ip("link set dev haul1 up")),
                ("link del dev haul0", make_pair),
            ] {
                assert!(ip(goes));
                wait_for(Link::Down, [&mut *from, &mut *to], &mut pool);
                // A packet that was sent again may follow the one that arrived first.
                let mut late = Burst::new();
                to.rx_burst(&mut pool, &mut late);
                pool.free_burst(&mut late);
                let before = from.counters().tx.drops_for(DropReason::NoLink);
                assert_eq!(sent(&mut *from, &mut *to, &mut pool, &bytes), None, "{name}");
                assert_eq!(from.counters().tx.drops_for(DropReason::NoLink), before + 1);
                assert_eq!(to.rx_burst(&mut pool, &mut Burst::new()), 0);
                assert!(comes());
                wait_for(Link::Up, [&mut *from, &mut *to], &mut pool);
                let found = sent_again(&mut *from, &mut *to, &mut pool, &bytes);
                assert_eq!(found, bytes, "{name} after {goes}");
            }
            assert_eq!((from.counters().resets, to.counters().resets), (1, 1), "{name}");
        });
    });
}

/// Alternative names of an interface, longer than the kernel's older calls accept.
#[test]
fn recreated_interface_is_found_by_long_name() {
    with_pair("interfaces by other names", || {
        let long = "a-name-that-is-much-longer-than-sixteen-bytes";
        let name = format!("link property add dev haul0 altname {long}");
        if !ip(&name) {
            eprintln!(
                "SKIPPED: interfaces by other names: no Linux 5.5: run on that kernel or a newer one"
            );
            return;
        }
        for (kind, open) in PORTS {
            let mut port = open("port", long).unwrap();
            let mut other = open("other", "haul1").unwrap();
            let mut pool = Pool::new(256).unwrap();
            wait_for(Link::Up, [&mut *port, &mut *other], &mut pool);
            let bytes = frame(200, false);
            assert_eq!(sent_again(&mut *port, &mut *other, &mut pool, &bytes), bytes, "{kind}");
            assert!(ip("link del dev haul0"));
            wait_for(Link::Down, [&mut *port, &mut *other], &mut pool);
            let why = port.obstacle().unwrap();
            assert!(
                why.contains(&format!("the interface {long} has disappeared")),
                "{kind}: {why}"
            );
            assert!(make_pair() && ip(&name));
            wait_for(Link::Up, [&mut *port, &mut *other], &mut pool);
            assert_eq!(port.obstacle(), None, "{kind}");
            assert_eq!(sent_again(&mut *port, &mut *other, &mut pool, &bytes), bytes, "{kind}");
        }
    });
}

#[test]
fn interface_without_ethernet_headers_is_refused() {
    with_pair("interfaces without Ethernet headers", || {
        if !ip("tuntap add dev haul2 mode tun") {
            eprintln!(
                "SKIPPED: interfaces without Ethernet headers: no file /dev/net/tun: modprobe tun"
            );
            return;
        }
        for (kind, open) in PORTS {
            let message = open("port", "haul2").err().expect(kind).to_string();
            for part in ["haul2", "no Ethernet header", "tun, WireGuard", "type 65534", "a tap"] {
                assert!(message.contains(part), "{kind}: {part}: {message}");
            }
            assert!(open("port", "lo").is_ok() || kind == "afxdp", "the loopback has such headers");
            let mut port = open("port", "haul0").unwrap();
            let mut pool = Pool::new(256).unwrap();
            let mut wait_until = |port: &mut dyn Port, what: &str| {
                wait(what, || {
                    port.service(&mut pool).unwrap();
                    port.obstacle().is_some_and(|why| why.contains(what))
                });
                assert_eq!(port.link(), Link::Down, "{kind}");
            };
            assert!(ip("link set dev haul0 down"));
            wait_until(&mut *port, "haul0 is down");
            assert!(ip("link del dev haul0") && ip("tuntap add dev haul0 mode tun"));
            assert!(ip("link set dev haul0 up"));
            wait_until(&mut *port, "its packets have no Ethernet header");
            assert!(ip("tuntap del dev haul0 mode tun") && make_pair());
            wait("a link", || {
                port.service(&mut pool).unwrap();
                port.link() == Link::Up && port.obstacle().is_none()
            });
        }
    });
}

fn links() -> String {
    let output = Command::new("ip").args(["-d", "link"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn unusable_interface_is_refused_with_remedy() {
    with_pair("interfaces that are refused", || {
        let refused = |open: Open, interface: &str, parts: &[&str]| {
            let message = open("port", interface).err().expect(interface).to_string();
            assert!(parts.iter().all(|part| message.contains(part)), "{parts:?}: {message}");
        };
        for (_, open) in PORTS {
            refused(open, "haul9", &["haul9", "ip link show"]);
            refused(open, "", &["ip link show"]);
            refused(open, "a name that no interface can have", &["ip link show"]);
        }
        let first = AfXdp::open("port", "haul0", 0).unwrap();
        assert_eq!(first.is_zero_copy_and_in_driver(), Some((false, true)));
        assert!(links().contains("xdp"), "{}", links());
        refused(PORTS[1].1, "haul0", &["another program uses it", "xdp off"]);
        drop(first);
        wait("the program to go", || !links().contains("prog/xdp"));
        let message = AfXdp::open("port", "haul0", 70).unwrap_err().to_string();
        assert!(message.contains("ethtool -l"), "{message}");
        assert!(AfXdp::open("port", "haul0", u32::MAX).is_err());
        assert!(ip("link set dev haul0 mtu 9000"));
        refused(PORTS[1].1, "haul0", &["MTU is 9000", "mtu 1500"]);
        assert!(!links().contains("prog/xdp"), "{}", links());
        assert!(ip("link set dev haul0 mtu 1500"));
        // This comes last because it is irreversible: this thread gives up being root.
        rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(65_534)).unwrap();
        for (_, open) in PORTS {
            refused(open, "haul0", &["run as root", "NET_RAW"]);
        }
    });
}
