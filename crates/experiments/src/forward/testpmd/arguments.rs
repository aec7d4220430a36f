//! The command line of testpmd, as switch and as guest.

use std::ffi::OsString;
use std::path::Path;

use crate::forward::flow::{Buffers, Flow, GUEST_ROOM_BYTES, Layout};
use crate::forward::protocol::Role;

/// The number of descriptors of a ring, and the number of packets of the pool, which is four
/// times the number that the rings hold.
const RING: u32 = 1024;
const PACKETS: u32 = 16_384;

/// testpmd's memory: pool and rings take 40 MiB, and 160 MiB with buffers for the longest packets.
const MEMORY_MIB: u32 = 256;

/// The longest packet for which testpmd's defaults suffice: an MTU of 1,500 B, and the header of
/// Ethernet.
const SIZE_BYTES_PLAIN: usize = 1514;

/// The bytes that a driver adds to the MTU at most when it checks a packet's length: the header of
/// Ethernet, two tags, the check sequence, and virtio's header; rounded up.
const FRAME_BYTES_MORE: usize = 64;

/// The bytes in front of a packet in a buffer (RTE_PKTMBUF_HEADROOM).
const HEADROOM_BYTES: usize = 128;

/// The offload by which a port may send packets of several buffers (RTE_ETH_TX_OFFLOAD_MULTI_SEGS).
const SEVERAL_SEGMENTS: u32 = 1 << 15;

/// The settings of a session.
#[derive(Clone, Debug)]
pub(in crate::forward) struct Setting<'a> {
    pub(in crate::forward) role: Role,
    pub(in crate::forward) flow: Flow,
    pub(in crate::forward) layout: Layout,
    pub(in crate::forward) size_bytes: usize,
    /// How the guest holds a long packet. The switch has one buffer for each packet, as Open
    /// vSwitch has for the packets of its ports' MTU.
    pub(in crate::forward) buffers: Buffers,
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
    long_packets(setting).into_iter().for_each(add);
    words
}

/// The options for packets that are longer than testpmd's defaults allow.
fn long_packets(setting: &Setting<'_>) -> Vec<String> {
    if setting.size_bytes <= SIZE_BYTES_PLAIN {
        return Vec::new();
    }
    let frame = setting.size_bytes + FRAME_BYTES_MORE;
    let mut words = vec![format!("--max-pkt-len={frame}")];
    if has_one_buffer(setting) {
        let buffer = HEADROOM_BYTES + frame.max(GUEST_ROOM_BYTES);
        words.push(format!("--mbuf-size={}", buffer.next_multiple_of(64)));
    } else {
        words.push("--enable-scatter".to_owned());
        words.push(format!("--tx-offloads={SEVERAL_SEGMENTS:#x}"));
    }
    words
}

fn has_one_buffer(setting: &Setting<'_>) -> bool {
    setting.role == Role::Switch || setting.buffers == Buffers::One
}

/// The command that sets the packets that testpmd makes: the lengths of their segments.
pub(super) fn packet_command(setting: &Setting<'_>) -> String {
    let longest = if has_one_buffer(setting) { setting.size_bytes } else { GUEST_ROOM_BYTES };
    let mut segments = vec![longest; setting.size_bytes / longest];
    segments.extend(Some(setting.size_bytes % longest).filter(|rest| *rest > 0));
    let segments: Vec<String> = segments.iter().map(ToString::to_string).collect();
    format!("set txpkts {}", segments.join(","))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_packets_get_one_long_buffer_or_several_usual_ones() {
        let of = |role, size_bytes, buffers| {
            let setting = Setting {
                role,
                flow: Flow::Dequeue,
                layout: Layout::Split,
                size_bytes,
                buffers,
                socket: Path::new("/none"),
                folder: Path::new("/"),
                cpu: 0,
                cpus: &[0],
                is_huge: false,
                guest_listens: false,
                is_to_kernel: false,
            };
            (long_packets(&setting).join(" "), packet_command(&setting))
        };
        let (guest, switch) = (Role::Guest, Role::Switch);
        for (role, size_bytes, buffers, words, command) in [
            (guest, 1514, Buffers::Several, "", "1514"),
            (guest, 1515, Buffers::One, "--max-pkt-len=1579 --mbuf-size=2176", "1515"),
            (guest, 9000, Buffers::One, "--max-pkt-len=9064 --mbuf-size=9216", "9000"),
            (switch, 9000, Buffers::Several, "--max-pkt-len=9064 --mbuf-size=9216", "9000"),
            (
                guest,
                9000,
                Buffers::Several,
                "--max-pkt-len=9064 --enable-scatter --tx-offloads=0x8000",
                "2048,2048,2048,2048,808",
            ),
            (
                guest,
                4096,
                Buffers::Several,
                "--max-pkt-len=4160 --enable-scatter --tx-offloads=0x8000",
                "2048,2048",
            ),
        ] {
            let expected = (words.to_owned(), format!("set txpkts {command}"));
            assert_eq!(of(role, size_bytes, buffers), expected);
        }
    }
}
