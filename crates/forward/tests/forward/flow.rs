//! Whole flows, in which no packet is lost.

use std::path::PathBuf;
use std::time::Duration;

use haul_engine::Queue;
use haul_forward::{
    CopyMethod, Generator, Link, Mode, Pool, Port, Running, Sink, Sizes, Traffic, Vhost,
    VhostSettings, Virtio, VirtioSettings,
};

use crate::support::{
    Layout, folder, guest, quick, settings, socket, vhost, virtio, virtios, wait,
};

/// Waits until a worker's port has a link.
fn wait_for_link(running: &Running, port: usize) {
    wait("a link", || running.snapshot().links.get(port) == Some(&Link::Up));
}

fn traffic(sizes: Sizes, packets: u64) -> Traffic {
    Traffic { sizes, packets: Some(packets), flows: 7, ..Traffic::default() }
}

#[test]
fn flow_from_generator_to_sink_loses_nothing() {
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

/// The polls of a worker while the last packets arrive are not part of the run's histogram.
#[test]
fn polls_after_the_end_are_not_counted() {
    let traffic = Traffic { packets: None, ..traffic(Sizes::Fixed(60), 0) };
    let generator = Generator::new("gen", &traffic).unwrap();
    let pace = generator.pace();
    let ports: [Box<dyn Port>; 2] = [Box::new(generator), Box::new(Sink::new("sink"))];
    let pool = Pool::new(512).unwrap();
    let running = Running::start("flow", ports, pool, quick(Mode::Io)).unwrap();
    wait("packets", || pace.made() > 1000);
    let snapshot = running.stop().unwrap();
    let generated = &snapshot.ports[0].2.rx;
    assert!(generated.batches[0] <= snapshot.wasted_polls, "{generated:?} {snapshot:?}");
    assert!(generated.calls() > generated.batches[0]);
}

/// The settings of a port whose packets this copy function copies, or with `worker` a helper
/// thread.
fn copied_by(copy: &str, path: PathBuf) -> VhostSettings {
    let engine = (copy == "worker").then(|| Queue::worker().unwrap());
    let copy = CopyMethod::named(copy).unwrap_or_default();
    VhostSettings { copy, engine, engine_bytes_min: 1000, ..VhostSettings::new(path) }
}

/// The flow through a virtual machine and back, in one process.
#[test]
fn flow_through_guest_and_back_loses_nothing() {
    let mixes = [
        Sizes::Fixed(60),
        Sizes::Imix,
        Sizes::Each { from: 60, to: 9000, step: 131 },
        Sizes::List(vec![2035, 2036, 2037, 2047, 2048, 2049, 4083, 4084, 4096]),
    ];
    let every = mixes.iter().flat_map(|mix| {
        ["haul", "libc", "worker"].map(|copy| (Layout::Mergeable, copy, mix.clone()))
    });
    let others = Layout::ALL.into_iter().filter(|layout| *layout != Layout::Mergeable);
    let others = others.flat_map(|layout| {
        let mixes = if layout.is_mergeable() { &mixes[2..] } else { &mixes[1..2] };
        let copies = mixes.iter().flat_map(|mix| ["haul", "worker"].map(|copy| (copy, mix)));
        copies.map(move |(copy, mix)| (layout, copy, mix.clone()))
    });
    for (layout, copy, sizes) in every.chain(others) {
        let is_mergeable = layout.is_mergeable();
        let folder = folder();
        let settings_here = VhostSettings { is_mergeable, ..copied_by(copy, socket(&folder)) };
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

/// Two workers each drive a queue pair of the switch and of the guest, or one worker drives several
/// pairs and spreads flows over them.
#[test]
fn flow_through_several_queue_pairs_loses_nothing_and_is_spread() {
    for (switches, guests, layout, copy) in [
        (2, 2, Layout::Mergeable, "haul"),
        (1, 2, Layout::Packed, "haul"),
        (2, 1, Layout::PackedInOrder, "worker"),
        (1, 1, Layout::InOrder, "haul"),
        (2, 2, Layout::Packed, "worker"),
    ] {
        let folder = folder();
        let queues = 4;
        let settings_here = VhostSettings { queues, ..copied_by(copy, socket(&folder)) };
        let outside = shared(Vhost::open("vhost0", &settings_here).unwrap(), switches);
        let inside = shared(virtios("guest", &socket(&folder), layout, queues), guests);
        let start = |ports: Vec<Box<dyn Port>>, mode| {
            Running::start("worker", ports, Pool::new(4096).unwrap(), quick(mode)).unwrap()
        };
        let guests: Vec<_> = inside.map(|ports| start(ports, Mode::MacSwap)).collect();
        let (count, mut watches) = (2000, Vec::new());
        for guest in &guests {
            let is_up = || guest.snapshot().links.iter().all(|link| *link == Link::Up);
            wait("a link of each", || !guest.snapshot().links.is_empty() && is_up());
        }
        let switches: Vec<_> = outside
            .enumerate()
            .map(|(index, ports)| {
                let (flow_first, stream) = (100 * index as u32, index as u8);
                let traffic = traffic(Sizes::Imix, count);
                let traffic = Traffic { flows: 64, flow_first, stream, ..traffic };
                let generator = Generator::new("gen", &traffic).unwrap();
                watches.push(generator.watch());
                let generator = Box::new(generator) as Box<dyn Port>;
                start(std::iter::once(generator).chain(ports).collect(), Mode::Io)
            })
            .collect();
        let came = || watches.iter().map(|watch| watch.findings().sum().unique).sum::<u64>();
        let all = count * switches.len() as u64;
        wait(&format!("{layout:?}: {all} packets"), || came() == all);
        switches.iter().chain(&guests).for_each(Running::stop_soon);
        let lost: Vec<_> = watches.iter().map(|it| it.findings().sum().duplicates).collect();
        assert!(lost.iter().all(|duplicates| *duplicates == 0), "{lost:?}");
        let mut sent = Vec::new();
        for switch in switches {
            let snapshot = switch.stop().unwrap();
            for (_, queue, counters) in &snapshot.ports[1..] {
                assert_eq!((counters.tx.drops_sum(), counters.resets), (0, 0), "queue {queue}");
                sent.push((*queue, counters.tx.packets));
            }
        }
        sent.sort_unstable();
        assert_eq!(sent.iter().map(|(_, packets)| packets).sum::<u64>(), all);
        // 64 flows over four queues, or over two: each queue carries at least a tenth of its share.
        let least = all / 40;
        let numbers: Vec<_> = sent.iter().map(|(queue, _)| *queue).collect();
        assert_eq!(numbers, [0, 1, 2, 3]);
        assert!(sent.iter().all(|(_, packets)| *packets > least), "{layout:?}: {sent:?}");
        guests.into_iter().for_each(|guest| drop(guest.stop().unwrap()));
    }
}

/// A guest that uses only some of the queue pairs receives the packets of all flows through these
/// pairs, whether one worker drives all pairs or each pair has a worker.
#[test]
fn guest_with_fewer_queue_pairs_gets_every_packet() {
    for (workers, used, copy) in
        [(1, 1, "haul"), (1, 3, "haul"), (4, 1, "haul"), (2, 3, "haul"), (4, 1, "worker")]
    {
        let folder = folder();
        let settings_here = VhostSettings { queues: 4, ..copied_by(copy, socket(&folder)) };
        let outside = shared(Vhost::open("vhost0", &settings_here).unwrap(), workers);
        let inside = virtios("guest", &socket(&folder), Layout::Mergeable, used);
        let sink = Sink::new("sink");
        let mut ports: Vec<Box<dyn Port>> = Vec::new();
        inside.into_iter().for_each(|port| ports.push(Box::new(port)));
        ports.push(Box::new(sink));
        let pool = Pool::new(8192).unwrap();
        let guest = Running::start("guest", ports, pool, quick(Mode::Io)).unwrap();
        let is_up = || {
            let links = guest.snapshot().links;
            !links.is_empty() && links.iter().all(|link| *link == Link::Up)
        };
        wait("a link of each", is_up);
        let count = 1500;
        let switches: Vec<_> = outside
            .enumerate()
            .map(|(index, ports)| {
                let (flow_first, stream) = (100 * index as u32, index as u8);
                let traffic = traffic(Sizes::Fixed(60), count);
                let traffic = Traffic { flows: 64, flow_first, stream, ..traffic };
                let generator = Box::new(Generator::new("gen", &traffic).unwrap()) as Box<dyn Port>;
                let ports: Vec<_> = std::iter::once(generator).chain(ports).collect();
                let pool = Pool::new(4096).unwrap();
                Running::start("switch", ports, pool, quick(Mode::Io)).unwrap()
            })
            .collect();
        let all = count * workers as u64;
        let came = || -> u64 {
            let ports = guest.snapshot().ports;
            ports.iter().map(|(_, _, counters)| counters.rx.packets).sum()
        };
        wait(&format!("{all} packets by {used} of 4 pairs"), || came() == all);
        for switch in switches {
            let snapshot = switch.stop().unwrap();
            let note = ("vhost0".to_owned(), format!("the guest uses {used} of 4 queue pairs"));
            let is_said = |said: &(String, String)| said.0 == note.0 && said.1.contains(&note.1);
            assert!(snapshot.notes.iter().any(is_said), "{:?}", snapshot.notes);
            for (_, queue, counters) in &snapshot.ports[1..] {
                assert_eq!(counters.tx.drops_sum(), 0, "{workers} workers, queue {queue}");
            }
        }
        drop(guest.stop().unwrap());
    }
}

/// Distributes queue pairs over `workers` workers.
fn shared<P: Port + 'static>(
    queues: Vec<P>,
    workers: usize,
) -> impl Iterator<Item = Vec<Box<dyn Port>>> {
    let mut shares: Vec<Vec<Box<dyn Port>>> = (0..workers).map(|_| Vec::new()).collect();
    for (index, queue) in queues.into_iter().enumerate() {
        shares[index % workers].push(Box::new(queue));
    }
    shares.into_iter()
}

/// The guest does not use a device with fewer queue pairs than it requests. When a device with
/// enough pairs connects, all pairs get a link; this repeats when that device is replaced.
#[test]
fn all_queue_pairs_have_a_link_or_none() {
    let folder = folder();
    let path = socket(&folder);
    let open =
        |queues| Vhost::open("vhost", &VhostSettings { queues, ..VhostSettings::new(&path) });
    let mut pool = Pool::new(4096).unwrap();
    let mut other = Pool::new(4096).unwrap();
    let mut pairs = virtios("guest", &path, Layout::Mergeable, 2);
    let [first, second] = &mut pairs[..] else { panic!("two pairs") };
    let mut serve = |pools: [&mut Pool; 2]| {
        let [one, two] = pools;
        first.service(one).unwrap();
        second.service(two).unwrap();
        [first.link(), second.link()]
    };
    let few = open(1).unwrap();
    for _ in 0..50 {
        assert_eq!(serve([&mut pool, &mut other]), [Link::Down; 2]);
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(few[0].link(), Link::Down);
    drop(few);
    for _ in 0..3 {
        let device = open(2).unwrap();
        wait("both links", || serve([&mut pool, &mut other]) == [Link::Up; 2]);
        wait("both links of the device", || device.iter().all(|it| it.link() == Link::Up));
        drop(device);
        wait("no link", || serve([&mut pool, &mut other]) == [Link::Down; 2]);
    }
    pairs[0].stop(&mut pool);
    pairs[1].stop(&mut other);
    assert_eq!((pool.available(), other.available()), (pool.size(), other.size()));
    for queues in [0, 9] {
        let settings = VirtioSettings { queues, ..VirtioSettings::new(&path) };
        assert!(Virtio::open("guest", &settings).unwrap_err().to_string().contains("1 to 8"));
    }
}

#[test]
fn missing_queue_pairs_are_reported_on_both_sides() {
    let folder = folder();
    let path = socket(&folder);
    let device = Vhost::open("vhost", &VhostSettings::new(&path)).unwrap().pop().unwrap();
    let mut pool = Pool::new(4096).unwrap();
    let mut pairs = virtios("guest", &path, Layout::Mergeable, 2);
    assert_eq!((device.obstacle(), pairs[0].obstacle()), (None, None));
    wait("a reason of either side", || {
        pairs.iter_mut().for_each(|pair| pair.service(&mut pool).unwrap());
        device.obstacle().is_some() && pairs.iter().all(|pair| pair.obstacle().is_some())
    });
    let (host, guest) = (device.obstacle().unwrap(), pairs[1].obstacle().unwrap());
    assert!(host.contains("this port reported 1 queue pairs"), "{host}");
    assert!(guest.contains("has 1 of the 2 requested queue pairs"), "{guest}");
    pairs.iter_mut().for_each(|pair| pair.stop(&mut pool));
    drop(pairs);
    let mut one = virtio("guest", &path, Layout::Mergeable);
    wait("a link", || {
        one.service(&mut pool).unwrap();
        one.link() == Link::Up && device.link() == Link::Up
    });
    assert_eq!((device.obstacle(), one.obstacle()), (None, None));
    one.stop(&mut pool);
}

#[test]
fn stopped_worker_lets_packets_in_flight_arrive() {
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
fn generator_keeps_its_rate() {
    let rate = 20_000.0;
    let traffic = Traffic { rate: Some(rate), packets: Some(4000), ..Traffic::default() };
    let generator = Generator::new("gen", &traffic).unwrap();
    let (pace, sink) = (generator.pace(), Sink::new("sink"));
    let ports: [Box<dyn Port>; 2] = [Box::new(generator), Box::new(sink)];
    let start = std::time::Instant::now();
    let running =
        Running::start("flow", ports, Pool::new(512).unwrap(), settings(Mode::Io)).unwrap();
    wait("all packets", || pace.made() == 4000);
    // 4,000 intervals of 50 us are 200 ms: the generator may be late on a busy machine, but never
    // early.
    let elapsed = start.elapsed();
    assert!(elapsed > Duration::from_millis(199));
    drop(running);
    let paced = Duration::from_nanos(pace.took_ns());
    assert!(Duration::from_millis(199) < paced && paced <= elapsed, "{paced:?} of {elapsed:?}");
}
