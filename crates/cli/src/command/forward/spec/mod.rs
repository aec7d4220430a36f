//! A port, as the command line names it: `gen:size=64,rate=1M`.
//!
//! - `options`: the options after the colon.

mod options;

use std::path::PathBuf;
use std::time::Duration;

use haul::forward::Replay;
use haul_model::pcie::{Packets, PcieError};

use super::modelled::Modelled;
use options::{Options, on_or_off, whole};

/// A port of the command line.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Spec {
    /// Makes packets, and checks those that return.
    Gen { sizes: Sizes, rate: Option<f64>, count: Option<u64>, flows: u32 },
    /// Takes packets, and checks their numbers.
    Sink,
    /// Takes packets; gives packets of this size, if any.
    Null { size_bytes: usize },
    /// A virtual machine's NIC, the hypervisor's side.
    Vhost { path: PathBuf, is_server: bool, copy: String, queues: u16, has_offloads: bool },
    /// A virtual machine's NIC, the virtual machine's side.
    Virtio { path: PathBuf, is_server: bool, is_packed: bool, queues: u16 },
    /// Reads packets from a capture, in this number of passes (`None`: without end), and writes
    /// received packets to a capture.
    Pcap {
        input: Option<PathBuf>,
        output: Option<PathBuf>,
        passes: Option<u64>,
        replay: Replay,
        pause_max: Option<Duration>,
    },
    /// A modelled NIC, which receives packets at a rate.
    Nic { modelled: Modelled, size: u32, rate: Option<f64>, group: u32, count: Option<u64> },
    /// An interface of the kernel, through an AF_PACKET socket.
    AfPacket { interface: String },
    /// A queue of an interface, through an AF_XDP socket.
    AfXdp { interface: String, queue: u32 },
}

/// The sizes of a generator's packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sizes {
    Fixed(usize),
    Imix,
    /// Each size in turn, in steps.
    Each {
        from: usize,
        to: usize,
        step: usize,
    },
}

impl Sizes {
    /// The packets of these sizes, with which a rate in bits of the line becomes a number of
    /// packets.
    fn packets(&self) -> Result<Packets, PcieError> {
        let of = |size: usize| u32::try_from(size).unwrap_or(u32::MAX);
        match self {
            Self::Fixed(size) => Packets::of_one(of(*size)),
            Self::Imix => "imix".parse::<Packets>()?.without_fcs(),
            Self::Each { from, to, step } => Packets::of_each(of(*from), of(*to), of(*step)),
        }
    }
}

/// The names of the ports.
const PORTS: &str = "gen, sink, null, nic, vhost, virtio, pcap, afpacket and afxdp";

impl Spec {
    /// # Errors
    ///
    /// The reason why the port cannot exist.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (kind, options) = text.split_once(':').unwrap_or((text, ""));
        let mut options = Options::of(kind, options);
        let spec = match kind {
            "gen" => {
                let sizes = options.sizes()?;
                let rate = options.rate(&sizes.packets())?;
                let count = options.take("count", whole)?;
                let flows = options.take("flows", |text| whole(text)?.try_into().ok())?;
                Self::Gen { sizes, rate, count, flows: flows.unwrap_or(1) }
            }
            "sink" => Self::Sink,
            "null" => Self::Null {
                size_bytes: options.take("size", |text| text.parse().ok())?.unwrap_or(0),
            },
            "nic" => {
                let modelled = options.modelled()?;
                let size = options.take("size", |text| text.parse().ok())?.unwrap_or(64);
                let rate = options.rate(&Packets::of_one(size))?;
                let group = options.take("group", |text| text.parse().ok())?.unwrap_or(1);
                Self::Nic { modelled, size, rate, group, count: options.take("count", whole)? }
            }
            "vhost" => Self::Vhost {
                path: options.path()?,
                is_server: options.flag("server")?,
                copy: options.copy()?,
                queues: options.queues()?,
                has_offloads: options.take("offloads", on_or_off)?.unwrap_or(true),
            },
            "virtio" => Self::Virtio {
                path: options.path()?,
                is_server: options.flag("server")?,
                is_packed: options.flag("packed")?,
                queues: options.queues()?,
            },
            "pcap" => options.pcap()?,
            "afpacket" => Self::AfPacket { interface: options.interface()? },
            "afxdp" => Self::AfXdp {
                interface: options.interface()?,
                queue: options.take("queue", |text| text.parse().ok())?.unwrap_or(0),
            },
            _ => return Err(format!("no port is {kind:?}; the ports are {PORTS}")),
        };
        options.end().map(|()| spec)
    }

    /// Number of queue pairs; `None` if each worker has its own.
    pub(super) fn queues(&self) -> Option<usize> {
        match self {
            Self::Gen { .. } | Self::Sink | Self::Null { .. } | Self::Nic { .. } => None,
            Self::Vhost { queues, .. } | Self::Virtio { queues, .. } => Some((*queues).into()),
            Self::Pcap { .. } | Self::AfPacket { .. } | Self::AfXdp { .. } => Some(1),
        }
    }

    /// The file from which the port reads packets.
    pub(super) fn input(&self) -> Option<&PathBuf> {
        if let Self::Pcap { input, .. } = self { input.as_ref() } else { None }
    }

    /// The file to which the port writes packets.
    pub(super) fn output(&self) -> Option<&PathBuf> {
        if let Self::Pcap { output, .. } = self { output.as_ref() } else { None }
    }

    /// The name of its kind.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Gen { .. } => "gen",
            Self::Sink => "sink",
            Self::Null { .. } => "null",
            Self::Nic { .. } => "nic",
            Self::Vhost { .. } => "vhost",
            Self::Virtio { .. } => "virtio",
            Self::Pcap { .. } => "pcap",
            Self::AfPacket { .. } => "afpacket",
            Self::AfXdp { .. } => "afxdp",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spec_parses_ports() {
        let each = |from, to, step| Sizes::Each { from, to, step };
        let generator = |sizes, rate, count, flows| Spec::Gen { sizes, rate, count, flows };
        let virtio = |path: &str, is_packed, queues| Spec::Virtio {
            path: path.into(),
            is_server: false,
            is_packed,
            queues,
        };
        let vhost = |path: &str, is_server, copy: &str, queues, has_offloads| {
            let (path, copy) = (path.into(), copy.into());
            Spec::Vhost { path, is_server, copy, queues, has_offloads }
        };
        let pcap = |input: Option<&str>, output: Option<&str>, passes, replay| {
            let (input, output) = (input.map(PathBuf::from), output.map(PathBuf::from));
            Spec::Pcap { input, output, passes, replay, pause_max: None }
        };
        let patient = Spec::Pcap {
            input: Some("a".into()),
            output: None,
            passes: Some(1),
            replay: Replay::Recorded,
            pause_max: Some(Duration::from_secs(7200)),
        };
        for (text, spec) in [
            ("gen", generator(Sizes::Fixed(64), None, None, 1)),
            ("gen:rate=14.88Mpps,size=60", generator(Sizes::Fixed(60), Some(14.88e6), None, 1)),
            // A packet needs 84 B of the line.
            ("gen:rate=672Mbit/s,size=60", generator(Sizes::Fixed(60), Some(1e6), None, 1)),
            ("gen:rate=6.76Mbps,size=60..61:1", generator(each(60, 61, 1), Some(1e4), None, 1)),
            ("gen:size=imix,rate=1.5M", generator(Sizes::Imix, Some(1.5e6), None, 1)),
            ("gen:count=9,flows=4,size=60..90:8", generator(each(60, 90, 8), None, Some(9), 4)),
            ("sink", Spec::Sink),
            ("null", Spec::Null { size_bytes: 0 }),
            ("null:size=1500", Spec::Null { size_bytes: 1500 }),
            ("vhost:path=/a,server,copy=libc", vhost("/a", true, "libc", 1, true)),
            ("vhost:path=a,offloads=off,queues=2", vhost("a", false, "haul", 2, false)),
            ("vhost:path=a,offloads=on", vhost("a", false, "haul", 1, true)),
            ("virtio:path=a b", virtio("a b", false, 1)),
            ("virtio:path=a,packed", virtio("a", true, 1)),
            ("virtio:queues=4,path=a", virtio("a", false, 4)),
            (
                "nic:model=igb,option=82576,rate=2M,group=4",
                Spec::Nic {
                    modelled: Modelled {
                        model: Some("igb".into()),
                        options: vec!["82576".into()],
                        ..Modelled::default()
                    },
                    size: 64,
                    rate: Some(2e6),
                    group: 4,
                    count: None,
                },
            ),
            ("afpacket:interface=eth0", Spec::AfPacket { interface: "eth0".into() }),
            ("afxdp:interface=e", Spec::AfXdp { interface: "e".into(), queue: 0 }),
            ("afxdp:queue=3,interface=e", Spec::AfXdp { interface: "e".into(), queue: 3 }),
            ("pcap:in=a", pcap(Some("a"), None, Some(1), Replay::Free)),
            ("pcap:loop,out=b,in=a", pcap(Some("a"), Some("b"), None, Replay::Free)),
            ("pcap:in=a,loop=7,rate=2k", pcap(Some("a"), None, Some(7), Replay::Rate(2e3))),
            ("pcap:in=a,timed", pcap(Some("a"), None, Some(1), Replay::Recorded)),
            ("pcap:in=a,timed,pause=2h", patient),
            ("pcap:out=b", pcap(None, Some("b"), Some(1), Replay::Free)),
        ] {
            assert_eq!(Spec::parse(text), Ok(spec), "{text}");
        }
    }

    #[test]
    fn parse_refuses_impossible_ports_with_reason() {
        for (text, holds) in [
            ("", "no port is \"\""),
            ("eth0", "the ports are gen"),
            ("sink:size=64", "no option \"size\""),
            ("nic:model=quick", "not a modelled NIC"),
            ("nic:link=gen3x8,link=gen3x4", "no option \"link\""),
            ("gen:size=60..64", "gen:size=60..64 has no step; write 60..64:1 "),
            ("gen:size=60..64:0,rate=1Gbps", "step of packet sizes"),
            ("gen:size=60..:1", "gen:size=60..:1 is not possible"),
            ("gen:rate=0", "gen:rate=0 is not possible"),
            ("gen:rate=NaN", "not possible"),
            ("gen:rate=1e6", "not possible"),
            ("gen:rate=1GB/s", "not possible"),
            ("gen:rate=1Gbps,size=0", "packet size"),
            ("pcap:in=a,rate=1Gbit/s", "not possible"),
            ("gen:rate", "needs a value"),
            ("gen:size=64,size=65", "or has it only once"),
            ("gen:count=0", "not possible"),
            ("gen:flows=99999999999", "not possible"),
            ("vhost", "vhost needs a socket"),
            ("vhost:path=", "not possible"),
            ("vhost:path=s,copy=none", "copies nothing, so the guest would receive"),
            ("vhost:path=s,copy=empty", "haul forward pvp --copy empty"),
            ("vhost:path=s,server=yes", "has no value"),
            ("vhost:path=s,offloads=some", "vhost:offloads=some is not possible"),
            ("vhost:path=s,offloads", "needs a value"),
            ("virtio:path=s,servers", "no option \"servers\""),
            ("virtio:path=s,queues=-1", "virtio:queues=-1 is not possible"),
            ("sink:queues=2", "no option \"queues\""),
            ("afpacket", "afpacket needs an interface"),
            ("afpacket:interface=a,queue=1", "no option \"queue\""),
            ("afxdp:interface=", "not possible"),
            ("afxdp:interface=a,queue=-1", "not possible"),
            ("pcap", "pcap needs a file"),
            ("pcap:in=", "not possible"),
            ("pcap:in=a,rate=1k,timed", "both rate and timed"),
            ("pcap:out=a,loop", "are for a file that is read"),
            ("pcap:out=a,timed", "are for a file that is read"),
            ("pcap:in=a,loop=0", "pcap:loop=0 is not possible"),
            ("pcap:in=a,pause=1m", "as they were captured; add timed"),
            ("pcap:in=a,timed,pause=never", "pcap:pause=never is not possible"),
            ("pcap:in=a,loop,loop=2", "no option \"loop\""),
        ] {
            let message = Spec::parse(text).unwrap_err();
            assert!(message.contains(holds), "{text}: {message}");
        }
    }
}
