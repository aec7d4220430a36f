//! Whole flows, in which nothing is lost.

use std::time::Duration;

use haul::forward::{
    Copy, Generator, Link, Mode, Pool, Port, Running, Sink, Sizes, Traffic, Vhost, VhostSettings,
};

use crate::support::{Layout, folder, guest, quick, settings, socket, vhost, wait};

/// Waits until a worker's port has a link.
fn wait_for_link(running: &Running, port: usize) {
    wait("a link", || running.snapshot().links.get(port) == Some(&Link::Up));
}

fn traffic(sizes: Sizes, packets: u64) -> Traffic {
    Traffic { sizes, packets: Some(packets), flows: 7, ..Traffic::default() }
}

#[test]
fn from_a_generator_to_a_sink_nothing_is_lost() {
    for sizes in [Sizes::Fixed(60), Sizes::Imix, Sizes::Each { from: 60, to: 9000, step: 447 }] {
        let generator = Generator::new("gen", &traffic(sizes.clone(), 10_000)).unwrap();
        let (sink, pace) = (Sink::new("sink"), generator.pace());
        let watch = sink.watch();
        let ports: [Box<dyn Port>; 2] = [Box::new(generator), Box::new(sink)];
        let pool = Pool::new(512).unwrap();
        let running = Running::start("flow", ports, pool, settings(Mode::Io)).unwrap();
        wait("all packets", || pace.made() == 10_000);
        let snapshot = running.stop().unwrap();
        let order = watch.findings().sum();
        assert_eq!((order.unique, order.expected, order.duplicates), (10_000, 10_000, 0));
        assert_eq!((order.reordered, order.lost()), (0, 0));
        assert_eq!(watch.findings().latency.len(), 10_000);
        let [(_, _, from), (_, _, to)] = &snapshot.ports[..] else { panic!("two ports") };
        assert_eq!((from.rx.packets, from.rx.bytes), (to.tx.packets, to.tx.bytes), "{sizes:?}");
        let in_batches = |batches: &[u64]| -> u64 {
            batches.iter().enumerate().map(|(size, count)| size as u64 * count).sum()
        };
        assert_eq!(in_batches(&from.rx.batches), 10_000);
    }
}

/// The flow through a virtual machine and back, in one process.
#[test]
fn through_a_guest_and_back_nothing_is_lost() {
    let mixes = [
        Sizes::Fixed(60),
        Sizes::Imix,
        Sizes::Each { from: 60, to: 9000, step: 131 },
        Sizes::List(vec![2035, 2036, 2037, 2047, 2048, 2049, 4083, 4084, 4096]),
    ];
    let every = mixes
        .iter()
        .flat_map(|mix| ["haul", "libc"].map(|copy| (Layout::Mergeable, copy, mix.clone())));
    let packed = mixes[2..].iter().map(|mix| (Layout::Packed, "haul", mix.clone()));
    let others = [Layout::NotMergeable, Layout::PackedNotMergeable];
    let others = others.map(|layout| (layout, "haul", Sizes::Imix));
    for (layout, copy, sizes) in every.chain(packed).chain(others) {
        let is_mergeable = matches!(layout, Layout::Mergeable | Layout::Packed);
        let folder = folder();
        let settings_here = VhostSettings {
            is_mergeable,
            copy: Copy::named(copy).unwrap(),
            ..VhostSettings::new(socket(&folder))
        };
        let vhost = Vhost::open("vhost0", &settings_here).unwrap().pop().unwrap();
        let guest = guest(&socket(&folder), layout);
        wait_for_link(&guest, 0);
        let count = 3000;
        let generator = Generator::new("gen", &traffic(sizes.clone(), count)).unwrap();
        let watch = generator.watch();
        let ports: [Box<dyn Port>; 2] = [Box::new(generator), Box::new(vhost)];
        let pool = Pool::new(4096).unwrap();
        let switch = Running::start("switch", ports, pool, quick(Mode::Io)).unwrap();
        wait(&format!("{layout:?}, {sizes:?}"), || watch.findings().sum().unique == count);
        let snapshot = switch.stop().unwrap();
        let order = watch.findings().sum();
        assert_eq!((order.unique, order.lost(), order.reordered), (count, 0, 0), "{sizes:?}");
        let (_, _, port) = &snapshot.ports[1];
        assert_eq!((port.rx.packets, port.tx.packets), (count, count));
        assert_eq!((port.rx.bytes, port.rx.drops_sum()), (port.tx.bytes, 0));
        assert_eq!((port.tx.drops_sum(), port.resets), (0, 0));
        let guest = guest.stop().unwrap();
        assert_eq!(guest.ports[0].2.rx.packets, count);
    }
}

#[test]
fn a_worker_that_is_stopped_lets_what_is_under_way_arrive() {
    let folder = folder();
    let vhost = vhost("vhost0", &socket(&folder));
    let guest = guest(&socket(&folder), Layout::Mergeable);
    wait_for_link(&guest, 0);
    let generator = Generator::new("gen", &Traffic::default()).unwrap();
    let (watch, pace) = (generator.watch(), generator.pace());
    let ports: [Box<dyn Port>; 2] = [Box::new(generator), Box::new(vhost)];
    let pool = Pool::new(4096).unwrap();
    let switch = Running::start("switch", ports, pool, settings(Mode::Io)).unwrap();
    wait("packets", || pace.made() > 50_000);
    switch.stop().unwrap();
    let order = watch.findings().sum();
    assert_eq!((order.unique, order.lost()), (pace.made(), 0));
}

#[test]
fn a_generator_keeps_its_rate() {
    let rate = 20_000.0;
    let traffic = Traffic { rate: Some(rate), packets: Some(4000), ..Traffic::default() };
    let generator = Generator::new("gen", &traffic).unwrap();
    let (pace, sink) = (generator.pace(), Sink::new("sink"));
    let ports: [Box<dyn Port>; 2] = [Box::new(generator), Box::new(sink)];
    let start = std::time::Instant::now();
    let running =
        Running::start("flow", ports, Pool::new(512).unwrap(), settings(Mode::Io)).unwrap();
    wait("all packets", || pace.made() == 4000);
    // 4,000 intervals of 50 us are 200 ms: it may be late on a busy machine, never early.
    assert!(start.elapsed() > Duration::from_millis(199));
    drop(running);
}
