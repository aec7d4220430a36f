//! The command line of testpmd, as switch and as guest.

use std::ffi::OsString;
use std::path::Path;

use crate::forward::flow::{Flow, Layout};
use crate::forward::protocol::Role;

/// The number of descriptors of a ring, and the number of packets of the pool, which is four
/// times the number that the rings hold.
const RING: u32 = 1024;
const PACKETS: u32 = 16_384;

/// testpmd's memory: pool and rings take 40 MiB.
const MEMORY_MIB: u32 = 256;

/// The settings of a session.
#[derive(Clone, Debug)]
pub(in crate::forward) struct Setting<'a> {
    pub(in crate::forward) role: Role,
    pub(in crate::forward) flow: Flow,
    pub(in crate::forward) layout: Layout,
    pub(in crate::forward) size_bytes: usize,
    /// The socket between switch and guest.
    pub(in crate::forward) socket: &'a Path,
    /// The folder for testpmd's files while it runs.
    pub(in crate::forward) folder: &'a Path,
    /// The processor of the thread that forwards, and the processors that testpmd's other threads
    /// may use.
    pub(in crate::forward) cpu: usize,
    pub(in crate::forward) cpus: &'a [usize],
    /// Whether testpmd's memory comes from the kernel's pool of huge pages.
    pub(in crate::forward) is_huge: bool,
    /// Whether the guest listens on the socket.
    pub(in crate::forward) guest_listens: bool,
    /// Whether the other side is a kernel, which drops packets without addresses.
    pub(in crate::forward) is_to_kernel: bool,
}

pub(super) fn arguments(setting: &Setting<'_>) -> Vec<OsString> {
    let Setting { role, flow, layout, size_bytes, cpu, cpus, is_huge, is_to_kernel, .. } = setting;
    let all: Vec<String> = cpus.iter().map(ToString::to_string).collect();
    let mut words: Vec<OsString> = Vec::new();
    let mut add = |word: String| words.push(word.into());
    // The main thread may use any of the processors. The other thread, which forwards, is pinned.
    add("--lcores".into());
    add(format!("0@({}),1@{cpu}", all.join(",")));
    for word in ["--no-pci", "--no-telemetry", "-v", "-m"] {
        add(word.into());
    }
    add(MEMORY_MIB.to_string());
    if *is_huge {
        // virtio-user can pass only a few descriptors of its memory.
        add("--in-memory".into());
        add("--single-file-segments".into());
    } else {
        add("--no-huge".into());
        add(format!("--file-prefix={}", if *role == Role::Switch { "switch" } else { "guest" }));
    }
    let socket = setting.socket.as_os_str().to_string_lossy();
    let mode = match role {
        Role::Switch => {
            add(format!("--vdev=net_vhost0,iface={socket},queues=1"));
            if *flow == Flow::Pvp {
                add(format!("--vdev=net_null0,size={size_bytes},copy=0"));
            }
            // testpmd's source does not write packets; this mode writes addresses.
            if *is_to_kernel { "mac" } else { switch_mode(*flow) }
        }
        Role::Guest => {
            add("--log-level=pmd.net.virtio.init:debug".into());
            if *layout == Layout::PackedVector {
                // Without this option, testpmd uses AVX2, and scalar functions.
                add("--force-max-simd-bitwidth=512".into());
            }
            add(format!(
                "--vdev=net_virtio_user0,path={socket},queues=1,queue_size={RING},\
                 mac=00:11:22:33:44:10,{}{}",
                layout_options(*layout),
                if setting.guest_listens { ",server=1" } else { "" }
            ));
            guest_mode(*flow)
        }
    };
    // Without `--disable-link-check`, testpmd waits for links for up to nine seconds, but a link
    // exists only after the other side has started.
    for word in ["--", "-i", "--nb-cores=1", "--no-flush-rx", "--burst=32", "--disable-link-check"]
    {
        add(word.into());
    }
    for (name, value) in [("rxd", RING), ("txd", RING), ("total-num-mbufs", PACKETS)] {
        add(format!("--{name}={value}"));
    }
    add(format!("--forward-mode={mode}"));
    words
}

fn switch_mode(flow: Flow) -> &'static str {
    match flow {
        Flow::Pvp | Flow::Loopback | Flow::Return => "io",
        Flow::Enqueue => "txonly",
        Flow::Dequeue => "rxonly",
    }
}

fn guest_mode(flow: Flow) -> &'static str {
    match flow {
        Flow::Pvp | Flow::Loopback => "mac",
        Flow::Enqueue => "rxonly",
        // haul is the guest of the second flow: see `Flow::Return`.
        Flow::Dequeue | Flow::Return => "txonly",
    }
}

fn layout_options(layout: Layout) -> &'static str {
    match layout {
        Layout::Split => "mrg_rxbuf=1,in_order=0",
        Layout::SplitVector => "mrg_rxbuf=0,in_order=0,vectorized=1",
        Layout::SplitInOrder => "mrg_rxbuf=1,in_order=1",
        Layout::Packed => "packed_vq=1,mrg_rxbuf=1,in_order=0",
        Layout::PackedInOrder => "packed_vq=1,mrg_rxbuf=1,in_order=1",
        Layout::PackedVector => "packed_vq=1,mrg_rxbuf=0,in_order=1,vectorized=1",
    }
}
