//! Ports, workers and telemetry in a child of fork: the child has copies of their descriptors and
//! may drop them, and its parent is not affected.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use haul_forward::telemetry::{PortAbout, Telemetry, serve};
use haul_forward::{
    Burst, Link, Null, Pcap, PcapSettings, Pool, Port, Replay, Role, Running, Settings, Vhost,
    VhostSettings, Virtio, VirtioSettings,
};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::child::{Child, alone};
use crate::front::{Front, TO_GUEST, VERSION_1};
use crate::held::{Held, Way};

const DEADLINE: Duration = Duration::from_secs(30);

/// Whether the other side has closed or shut the socket within a fifth of a second.
fn is_over(socket: &UnixStream) -> bool {
    let mut ready = [PollFd::new(socket, PollFlags::RDHUP)];
    let time = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
    rustix::event::poll(&mut ready, Some(&time)).is_ok_and(|count| count > 0)
}

#[test]
fn child_drops_port_and_parent_keeps_guest() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut ports = Some(Vhost::open("vhost0", &VhostSettings::new(&path)).unwrap());
    let guest = UnixStream::connect(&path).unwrap();
    assert!(!is_over(&guest));
    assert_eq!(Child::start(|| drop(ports.take())).wait(), 0);
    assert!(path.exists() && !is_over(&guest));
    drop(ports);
    assert!(!path.exists() && is_over(&guest));
}

/// The copies of packets that are on their way are the parent's: the child, which shares the
/// guest's memory, makes none.
#[test]
fn child_drops_port_and_parent_delivers_packets_on_their_way() {
    const BYTES: usize = 1500;
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let (held, queue) = Held::queue(Way::Holds, true);
    let new = VhostSettings::new(&path);
    let settings = VhostSettings { engine: Some(queue), engine_bytes_min: 1, ..new };
    let mut port = Vhost::open("vhost0", &settings).unwrap().pop().unwrap();
    let mut pool = Pool::new(64).unwrap();
    let mut front = Front::connect(&path);
    front.start(VERSION_1);
    front.add_buffer(0);
    while port.link() != Link::Up {
        std::thread::yield_now();
    }
    let packet = pool.take(BYTES).unwrap();
    assert!(pool.write(&packet, 0, &[7; BYTES]));
    let mut burst = Burst::new();
    burst.push(packet);
    assert_eq!(port.tx_burst(&mut pool, &mut burst), 1);
    let arrived = |front: &Front| {
        let mut bytes = [0; BYTES];
        front.get(Front::buffer(TO_GUEST, 0) + 12, &mut bytes);
        (front.used(TO_GUEST), bytes)
    };
    let mut both = Some((port, pool));
    let child = Child::start(|| {
        let (mut port, mut pool) = both.take().unwrap();
        port.rx_burst(&mut pool, &mut Burst::new());
        assert!(!port.drain(&mut pool));
        port.stop(&mut pool);
        drop(port);
    });
    assert_eq!(child.wait(), 0);
    assert_eq!(arrived(&front), (0, [0; BYTES]));
    let (mut port, mut pool) = both.take().unwrap();
    held.release();
    assert!(port.drain(&mut pool));
    assert_eq!(arrived(&front), (1, [7; BYTES]));
    assert_eq!(pool.available(), pool.size());
}

#[test]
fn child_drops_guest_device_and_parent_keeps_waiting() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let settings = VirtioSettings { role: Role::Server, ..VirtioSettings::new(&path) };
    let mut pool = Pool::new(4096).unwrap();
    let mut ports = Virtio::open("virtio0", &settings).unwrap();
    ports[0].service(&mut pool).unwrap();
    let mut ports = Some(ports);
    let back_end = UnixStream::connect(&path).unwrap();
    assert_eq!(Child::start(|| drop(ports.take())).wait(), 0);
    assert!(path.exists() && !is_over(&back_end));
    drop((ports, pool));
    assert!(!path.exists());
}

#[test]
fn child_drops_worker_and_telemetry_and_parent_keeps_both() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let ports: Vec<Box<dyn Port>> = vec![Box::new(Null::source("a", 64)), Box::new(Null::new("b"))];
    let settings = Settings { yields: true, ..Settings::default() };
    let running = Running::start("t", ports, Pool::new(4096).unwrap(), settings).unwrap();
    let observer = running.observer();
    let about = PortAbout { name: "a".into(), ..PortAbout::default() };
    let server = serve(Some(&path), move || observer.now(), vec![about]).unwrap();
    let mut both = Some((running, server));
    assert_eq!(Child::start(|| drop(both.take())).wait(), 0);
    let mut client = Telemetry::connect(&path, DEADLINE).unwrap();
    assert_eq!(client.ask("/ethdev/list").unwrap(), serde_json::json!([0]));
    let (running, server) = both.take().unwrap();
    // A live child that still has inherited copies of both does not delay the parent's calls.
    let child = Child::start(|| std::thread::sleep(Duration::from_secs(60)));
    drop(server);
    assert!(!path.exists());
    running.stop().unwrap();
    child.kill();
}

#[test]
fn ports_use_no_standard_descriptor_number() {
    let _alone = alone();
    let child = Child::start(|| {
        let standard = [0, 1, 2];
        for number in standard {
            // SAFETY: nothing in this child uses these descriptors any more.
            unsafe { libc::close(number) };
        }
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mut pool = Pool::new(4096).unwrap();
        let vhost = Vhost::open("vhost0", &VhostSettings::new(at("vhost"))).unwrap();
        let mut virtio = Virtio::open("virtio0", &VirtioSettings::new(at("vhost"))).unwrap();
        virtio[0].service(&mut pool).unwrap();
        let replay = Replay::Free;
        let output = Some(at("a.pcap"));
        let settings = PcapSettings { input: None, passes: None, replay, pause_max: None, output };
        let pcap = Pcap::open("pcap0", &settings).unwrap();
        let server = serve(Some(&at("telemetry")), Default::default, Vec::new()).unwrap();
        let client = Telemetry::connect(server.path(), DEADLINE).unwrap();
        // The two sides of vhost connect meanwhile.
        std::thread::sleep(Duration::from_millis(300));
        for number in standard {
            // SAFETY: only reads the flags of a descriptor number.
            let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
            assert_eq!(flags, -1, "descriptor {number} is in use");
        }
        drop((vhost, virtio, pcap, client, server, pool));
    });
    assert_eq!(child.wait(), 0);
}
