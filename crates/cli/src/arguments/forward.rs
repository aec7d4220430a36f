//! The command line of `haul forward`.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Subcommand};
use haul_engine::Queue;
use haul_experiments::forward::{Buffers, Flow, Layout, VhostPort};
use haul_model::Sizes;

use super::engine::{queue, usable};
use super::number::number;
use super::settings::Settings;
use super::sizes::swept;
use super::switch::Switch;
use super::time::time;
use super::users::Allowed;

/// Forwards packets in bursts: between two ports, and through a whole virtual machine.
///
/// Forwards packets in bursts between two ports, and counts packets, bytes, drops by reason,
/// packets moved by each receive and send call (empty polls included), and cycles per packet and
/// per poll. One thread, or one for each queue, polls both ports until --for is over, Ctrl-C
/// arrives, or the ports have no more packets. Packets sent until then still arrive.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
#[command(
    after_help = "Example:\n  haul forward --port gen:size=64,rate=1M --port sink --for 5s\n  \
    haul forward --port gen:size=imix --port vhost:path=/tmp/vm.sock,server --action mac\n  \
    haul forward --port virtio:path=/tmp/vm.sock --port sink --for 5s --json\n  \
    haul forward --port gen:size=9000 --port vhost:path=/tmp/vm.sock,server --engine worker\n  \
    haul forward --port pcap:in=trace.pcap --port vhost:path=/tmp/vm.sock\n  \
    haul forward --port gen:flows=64 --port vhost:path=/tmp/vm.sock,server,queues=2 --cpu 0,1\n  \
    haul forward pvp\n\n\
    Ports, each with its options after a colon, separated by commas:\n  \
    gen      makes numbered packets, and checks those that return: size=64 (or imix, or\n           \
    60..1514:1), rate=1M packets a second, or rate=1Gbit/s of a line (without a rate: as fast\n           \
    as possible), count=N, flows=N\n  \
    sink     takes packets, and checks their numbers: loss, order, latency\n  \
    null     takes packets; with size=64 also gives packets without content\n  \
    nic      a modelled NIC that counts what would cross PCIe: model=ice, rate=1M or rate=1Gbit/s,\n           \
    group=N packets at once, size=64, count=N; driver, mode, option, link, mps, mrrs, rx-free, tx-rs as in\n           \
    haul pcie estimate\n  \
    vhost    a virtual machine's NIC, the hypervisor's side: path=SOCKET, server, copy=haul\n           \
    (or libc, or a kernel of `haul copy list`), queues=N (1), offloads=on (or off)\n  \
    virtio   a virtual machine's NIC, the virtual machine's side: path=SOCKET, server,\n           \
    packed, queues=N (1)\n  \
    pcap     reads packets from a capture, and writes them to one: in=FILE, loop=N times (loop: without\n           \
    end), rate=1M or timed (as they were captured; without either, as fast as possible),\n           \
    pause=TIME (the longest pause that timed keeps, 1m), out=FILE (.pcap or .pcapng)\n  \
    afpacket an interface, beside the kernel's own network: interface=NAME\n  \
    afxdp    a queue of an interface, instead of the kernel's network: interface=NAME, queue=N"
)]
pub(crate) struct Forward {
    #[command(subcommand)]
    pub(crate) command: Option<Verb>,
    #[command(flatten)]
    pub(crate) between: Option<Between>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Pvp(Box<Pvp>),
    /// One side of a flow; `haul forward pvp` starts it
    #[command(hide = true)]
    Drive,
}

/// Two ports, and how packets are forwarded between them.
#[derive(Debug, Args)]
pub(crate) struct Between {
    /// A port; given twice; see below
    #[arg(long, value_name = "PORT", required = true)]
    pub(crate) port: Vec<String>,
    /// Action on each packet: io (forwards it unchanged), mac (writes new addresses), macswap
    /// (swaps the addresses), echo (answers ARP and ping for --address; drops everything else)
    #[arg(long, value_name = "ACTION", default_value = "io", value_parser = ["io", "mac", "macswap", "echo"])]
    pub(crate) action: String,
    /// Address for which --action echo answers
    #[arg(long, value_name = "IPV4", required_if_eq("action", "echo"))]
    pub(crate) address: Option<Ipv4Addr>,
    /// Running time [default: until Ctrl-C, or until the ports have no more packets]
    #[arg(long = "for", value_name = "TIME", value_parser = time::<1, 86_400>)]
    pub(crate) time: Option<Duration>,
    /// Largest number of packets that one call moves
    #[arg(long, value_name = "PACKETS", default_value_t = 32, value_parser = number::<u16, 1, 256>)]
    pub(crate) burst: u16,
    /// Processor that polls; or several, each for one or more queues of both ports. Packets are
    /// spread over the queues by a hash of their flow [default: any; one thread for each queue]
    #[arg(long, value_name = "CPU", value_delimiter = ',', value_parser = number::<usize, 0, { u32::MAX as u64 }>)]
    pub(crate) cpu: Vec<usize>,
    /// Engine that copies long bursts to the guests of vhost ports while the threads go on: inline,
    /// worker, auto, dsa, or a queue such as dsa:wq0.1 [default: none; the threads copy]
    #[arg(long, value_name = "NAME", value_parser = queue)]
    pub(crate) engine: Option<Queue>,
    /// Socket on which `haul pcie watch` observes the bursts live [default:
    /// haul/forward-PROCESS/dpdk_telemetry.v2 in /var/run, or the user's runtime folder]
    #[arg(long, value_name = "PATH")]
    pub(crate) telemetry: Option<PathBuf>,
    /// Make no telemetry socket
    #[arg(long, conflicts_with = "telemetry")]
    pub(crate) no_telemetry: bool,
    /// Another user whose process may be at the other end of a vhost, virtio or telemetry socket: a
    /// name, a number, or any; may be given several times. Opens the sockets made here to everyone
    /// who can reach their folder; users not named here are refused
    #[arg(long, value_name = "USER", value_parser = Allowed::parse)]
    pub(crate) allow_user: Vec<Allowed>,
    /// Folder for forward.jsonl (the records) and report.html (the page)
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print each record as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Measures a whole flow through a virtual machine: physical, virtual, physical.
///
/// Sets up a whole flow on this machine, without an external traffic generator: a generator and a
/// switch on one processor, a guest with a virtio NIC on another. Compares copies in haul's switch,
/// and haul with DPDK's testpmd and Open vSwitch. Restarts of one program differ, so the restarts
/// of all programs are interleaved in one run. Shows for each size which program forwards more,
/// and where packets were lost.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haul forward pvp\n  \
    haul forward pvp --sizes 64 --copy haul,libc --restarts 3 --json\n  \
    haul forward pvp --switch haul,testpmd --guest testpmd --restarts 15 --out pvp\n  \
    haul forward pvp --switch haul,ovs --guest testpmd\n  \
    haul forward pvp --switch ovs,ovs:lib=target/openvswitch/memcpy --guest testpmd\n  \
    haul forward pvp --sizes 64 --search ndr --settings short-trials.toml\n  \
    haul forward pvp --flow return --switch haul,testpmd --search ndr --set searches=5\n  \
    haul forward pvp --flow enqueue --sweep 60..256:1 --copy haul,libc --restarts 3 --out sweep\n  \
    haul forward pvp --set queues=4 --copy haul,libc\n  \
    haul forward pvp --guest qemu --sizes 64 --search ndr\n  \
    haul forward pvp --flow enqueue --sizes 1500,9000 --copy haul --engine worker,auto\n  \
    haul forward pvp --switch ovs:turns=target/release/libhaul_rte_vhost.so --guest testpmd \\\n    \
    --sizes 60,1500,9000 --set layout=packed --for 2s\n\n\
    testpmd is in Debian's package dpdk-dev, Open vSwitch in openvswitch-switch-dpdk. Flows: pvp (generator,\n\
    switch, guest, switch), enqueue (switch to guest), dequeue (guest to switch), loopback (packets circulate),\n\
    return (the guest's packets to the switch and back).\n\n\
    Settings, in a file or by --set: guest_image, testpmd, simd, layout, buffers, queues, ovs_port, source,\n\
    searches, trial, trial_sum, latency. docs/forward-pvp.md describes each.")]
pub(crate) struct Pvp {
    /// Sizes of packets, without the frame check sequence: a list such as 64,1500, or a range
    /// FIRST..LAST[:STEP]
    #[arg(long, value_name = "SIZES", default_value = "64,512,1500")]
    pub(crate) sizes: Sizes,
    /// Sizes to measure in sequence within each restart, with haul as switch: a list, or a range
    /// FIRST..LAST:STEP
    #[arg(long, value_name = "SIZES", value_parser = swept, conflicts_with_all = ["sizes", "search"])]
    pub(crate) sweep: Option<Sizes>,
    /// Copy function of haul's switch: haul, libc, a kernel of `haul copy list`, or the path of a
    /// library with a memcpy (./libmine.so). none and empty are ceilings that copy nothing; empty
    /// is called for each packet with a size of 0. Several may be given [default: haul,libc,none;
    /// with QEMU's guest haul,libc]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) copy: Vec<String>,
    /// Measure haul's switch with haul's copy also with these engines, which copy long bursts to
    /// the guest: inline, worker, auto, dsa, or a queue such as dsa:wq0.1; several may be given
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = usable)]
    pub(crate) engine: Vec<String>,
    /// The guest: haul, testpmd, or qemu (the driver of a Linux kernel: --flow pvp with haul or
    /// testpmd as switch, split or packed rings)
    #[arg(long, value_name = "PROGRAM", default_value = "haul", value_parser = ["haul", "testpmd", "qemu"])]
    pub(crate) guest: String,
    /// The switch: haul, testpmd, ovs (Open vSwitch with DPDK, only --flow pvp and --flow return),
    /// or several. testpmd:preload=FILE and ovs:preload=FILE preload a library in the switch alone;
    /// testpmd:lib=DIR and ovs:lib=DIR take librte_vhost from a folder; with
    /// ovs:turns=libhaul_rte_vhost.so, that library and DPDK serve in turns of 100 ms, so that
    /// each restart has a ratio of its own
    #[arg(long, value_name = "PROGRAM", default_value = "haul", value_delimiter = ',', value_parser = Switch::parse)]
    pub(crate) switch: Vec<Switch>,
    /// The packets' path: pvp, enqueue, dequeue, loopback or return
    #[arg(long, value_name = "FLOW", default_value = "pvp")]
    pub(crate) flow: Flow,
    /// Restarts of each program [default: 9; with QEMU's guest 3, which boots first and looks for a
    /// switch only once a second]
    #[arg(long, value_name = "N", value_parser = number::<u16, 1, 1000>)]
    pub(crate) restarts: Option<u16>,
    /// Measured time of each restart [default: 500ms; 50ms for each size of a sweep]
    #[arg(long = "for", value_name = "TIME", value_parser = time::<1, 86_400>)]
    pub(crate) time: Option<Duration>,
    /// Search for the highest loads that reach a goal, by MLRsearch (RFC 9971), with haul as
    /// switch, or with any switch for --flow return: ndr (no loss in half of the trials' time), pdr
    /// (0.5% loss there), rfc2544 (no loss at all); several may be given
    #[arg(long, value_name = "GOAL", value_delimiter = ',', value_parser = ["ndr", "pdr", "rfc2544"])]
    pub(crate) search: Vec<String>,
    #[command(flatten)]
    pub(crate) settings: Settings,
    /// Folder for forward.jsonl (the records) and report.html (the page)
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print each record as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The settings of `haul forward pvp`.
#[derive(Debug, Args)]
pub(crate) struct PvpSettings {
    /// Folder with the kernel of QEMU's guest, made by scripts/vhost-guest --image. HAUL_QEMU names
    /// a QEMU other than the one on PATH [default: target/forward-guest]
    #[arg(long, value_name = "DIR")]
    pub(crate) guest_image: Option<PathBuf>,
    /// Path of testpmd [default: dpdk-testpmd on PATH]
    #[arg(long, value_name = "FILE")]
    pub(crate) testpmd: Option<PathBuf>,
    /// Widest vectors that testpmd uses, in bits [default: as its EAL chooses; on x86-64 256]
    #[arg(long, value_name = "BITS", value_parser = simd_bits)]
    pub(crate) simd: Option<u32>,
    /// Layout of the rings: split or packed (both with mergeable buffers), split-in-order,
    /// packed-in-order (with mergeable buffers), split-vector or packed-vector (without mergeable
    /// buffers)
    #[arg(long, value_name = "LAYOUT", default_value = "split")]
    pub(crate) layout: Layout,
    /// Buffers in which testpmd as guest holds a packet longer than 2048 B: one, or several of
    /// 2048 B each [default: several; one in a layout without mergeable buffers]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) buffers: Option<Buffers>,
    /// Number of queues between switch and guest, in each direction; flows are spread over the
    /// queues. Each queue has a thread on each side if there are two processors for it; otherwise
    /// threads serve several queues
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number::<u16, 1, 8>)]
    pub(crate) queues: u16,
    /// Kind of Open vSwitch's port to the guest: dpdkvhostuser, or dpdkvhostuserclient, whose
    /// statistics are then compared with the packets that the guest counted
    #[arg(long, value_name = "KIND", default_value = "dpdkvhostuser")]
    pub(crate) ovs_port: VhostPort,
    /// Source of haul's packets: gen (each numbered) or null (without content) [default: gen; null
    /// beside testpmd, whose source has no content either]
    #[arg(long, value_name = "SOURCE", value_parser = ["gen", "null"])]
    pub(crate) source: Option<String>,
    /// Searches of each program, in turn, each after a restart
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number::<u16, 1, 1000>)]
    pub(crate) searches: u16,
    /// Duration of one trial of a search [default: 1s; 60s for rfc2544]
    #[arg(long, value_name = "TIME", value_parser = time::<1, 60>)]
    pub(crate) trial: Option<Duration>,
    /// Total duration of the trials of one load [default: 21s; 60s for rfc2544]
    #[arg(long, value_name = "TIME", value_parser = time::<1, 86_400>)]
    pub(crate) trial_sum: Option<Duration>,
    /// Measure latency at 10, 50 and 90% of the first load that is found, from the time at which
    /// each packet was due
    #[arg(long, default_value_t = false, action = ArgAction::Set)]
    pub(crate) latency: bool,
}

/// Vector widths that DPDK's EAL accepts.
fn simd_bits(text: &str) -> Result<u32, String> {
    let bits = text.parse().ok().filter(|bits| [128, 256, 512].contains(bits));
    bits.ok_or_else(|| "write 128, 256 or 512".into())
}

/// Default number of restarts, for processes and for switches with a kernel as guest.
const RESTARTS: u16 = 9;
const RESTARTS_OF_KERNEL: u16 = 3;

impl Pvp {
    /// Whether the guest is a kernel.
    pub(crate) fn is_to_kernel(&self) -> bool {
        self.guest == "qemu"
    }

    /// The copy functions of haul's switch. A kernel drops packets that were not copied, because
    /// they have no addresses.
    pub(crate) fn copies(&self) -> Vec<String> {
        let default =
            if self.is_to_kernel() { &["haul", "libc"][..] } else { &["haul", "libc", "none"] };
        let default = || default.iter().map(|name| (*name).to_owned()).collect();
        if self.copy.is_empty() { default() } else { self.copy.clone() }
    }

    /// The number of restarts of each program.
    pub(crate) fn restarts(&self) -> usize {
        let default = if self.is_to_kernel() { RESTARTS_OF_KERNEL } else { RESTARTS };
        self.restarts.unwrap_or(default).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pvp(words: &[&str]) -> Pvp {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            pvp: Pvp,
        }
        let words = ["haul"].iter().chain(words);
        <Line as clap::Parser>::try_parse_from(words).unwrap().pvp
    }

    #[test]
    fn kernel_guest_changes_defaults() {
        let usual = pvp(&[]);
        assert_eq!((usual.is_to_kernel(), usual.restarts()), (false, 9));
        assert_eq!(usual.copies(), ["haul", "libc", "none"]);
        let kernel = pvp(&["--guest", "qemu"]);
        assert_eq!((kernel.is_to_kernel(), kernel.restarts()), (true, 3));
        assert_eq!(kernel.copies(), ["haul", "libc"]);
        let words =
            ["--guest", "qemu", "--set", "guest_image=image", "--restarts", "7", "--copy", "libc"];
        let own = pvp(&words);
        assert_eq!((own.restarts(), own.copies()), (7, vec!["libc".to_owned()]));
        let settings: PvpSettings = own.settings.read().unwrap();
        assert_eq!(settings.guest_image, Some("image".into()));
    }
}
