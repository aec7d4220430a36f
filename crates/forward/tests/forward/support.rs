//! Connected ports, and waiting for conditions.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use haul_forward::{
    Link, Mode, Pool, Port, Retry, Running, Settings, Vhost, VhostSettings, Virtio, VirtioSettings,
};
use tempfile::TempDir;

/// Time limit, on a loaded machine, for work that takes milliseconds.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// Calls `is_so` until it returns true.
pub(crate) fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LONG, "{what}: not within {LONG:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A folder for sockets.
pub(crate) fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

pub(crate) fn socket(folder: &TempDir) -> PathBuf {
    folder.path().join("vm")
}

/// Settings of workers that share a processor.
pub(crate) fn settings(mode: Mode) -> Settings {
    Settings {
        mode,
        retry: Retry::UntilSent,
        yields: true,
        linger: Duration::from_secs(10),
        ..Settings::default()
    }
}

/// Like `settings`, but for a worker that is stopped when all packets have arrived.
pub(crate) fn quick(mode: Mode) -> Settings {
    Settings { linger: Duration::from_millis(200), ..settings(mode) }
}

pub(crate) fn vhost(name: &str, path: &Path) -> Vhost {
    Vhost::open(name, &VhostSettings::new(path)).unwrap().pop().unwrap()
}

/// The layout of a guest's rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    Mergeable,
    NotMergeable,
    InOrder,
    Packed,
    PackedNotMergeable,
    PackedInOrder,
}

impl Layout {
    pub(crate) const ALL: [Self; 6] = [
        Self::Mergeable,
        Self::NotMergeable,
        Self::InOrder,
        Self::Packed,
        Self::PackedNotMergeable,
        Self::PackedInOrder,
    ];

    pub(crate) fn is_mergeable(self) -> bool {
        !matches!(self, Self::NotMergeable | Self::PackedNotMergeable)
    }
}

pub(crate) fn virtio(name: &str, path: &Path, layout: Layout) -> Virtio {
    virtios(name, path, layout, 1).pop().unwrap()
}

/// The queue pairs of a device.
pub(crate) fn virtios(name: &str, path: &Path, layout: Layout, queues: u16) -> Vec<Virtio> {
    use Layout::{InOrder, Packed, PackedInOrder, PackedNotMergeable};
    let settings = VirtioSettings {
        size: 256,
        queues,
        is_mergeable: layout.is_mergeable(),
        is_packed: matches!(layout, Packed | PackedNotMergeable | PackedInOrder),
        is_in_order: matches!(layout, InOrder | PackedInOrder),
        ..VirtioSettings::new(path)
    };
    Virtio::open(name, &settings).unwrap()
}

/// A guest that returns every packet.
pub(crate) fn guest(path: &Path, layout: Layout) -> Running {
    let port = Box::new(virtio("guest", path, layout));
    let pool = Pool::new(2048).unwrap();
    Running::start("guest", [port as Box<dyn Port>], pool, quick(Mode::MacSwap)).unwrap()
}

/// A pcap file of packets from 60 to 1,514 B.
pub(crate) fn capture() -> Vec<u8> {
    let header = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1].into_iter();
    let mut file: Vec<u8> = header.flat_map(u32::to_le_bytes).collect();
    for length in (60..=1514).step_by(101) {
        file.extend([0, 0, length, length].into_iter().flat_map(u32::to_le_bytes));
        file.resize(file.len() + length as usize, 0x5a);
    }
    file
}

/// A guest's port, linked to a host's, each with its pool.
pub(crate) struct Linked {
    pub(crate) host: Vhost,
    pub(crate) host_pool: Pool,
    pub(crate) guest: Virtio,
    pub(crate) pool: Pool,
    /// The folder of the socket.
    pub(crate) folder: TempDir,
}

pub(crate) fn linked(layout: Layout) -> Linked {
    let folder = folder();
    let path = socket(&folder);
    let mut host = vhost("host", &path);
    let mut guest = virtio("guest", &path, layout);
    let (mut pool, mut host_pool) = (Pool::new(2048).unwrap(), Pool::new(2048).unwrap());
    wait("the link", || {
        guest.service(&mut pool).unwrap();
        host.service(&mut host_pool).unwrap();
        guest.link() == Link::Up
    });
    Linked { host, host_pool, guest, pool, folder }
}
