//! From what a person named to the port.

use haul::forward::{
    AfPacket, AfXdp, Copy, Generator, Nic, NicSettings, Null, PACKET_BYTES_MAX, Pace, Pcap,
    PcapSettings, Port, Role, Sink, Sizes, Traffic, Vhost, VhostSettings, Virtio, VirtioSettings,
    Watch,
};

use haul::telemetry::PortAbout;

use super::spec::{self, Spec};
use crate::error::Error;

/// A port, and where what it finds is seen.
pub(super) struct Opened {
    pub(super) port: Box<dyn Port>,
    pub(super) about: PortAbout,
    pub(super) pace: Option<Pace>,
    pub(super) watch: Option<Watch>,
}

impl Opened {
    fn of(port: impl Port + 'static) -> Self {
        Self { port: Box::new(port), about: PortAbout::default(), pace: None, watch: None }
    }
}

/// Opens a port under this name.
///
/// # Errors
/// A value is not possible, or the system refuses something.
pub(super) fn open(spec: &Spec, name: &str) -> Result<Opened, Error> {
    let mut opened = open_port(spec, name)?;
    opened.about.driver = format!("haul_{}", spec.kind());
    Ok(opened)
}

fn open_port(spec: &Spec, name: &str) -> Result<Opened, Error> {
    Ok(match spec {
        Spec::Gen { sizes, rate, count, flows } => {
            let sizes = match sizes {
                spec::Sizes::Fixed(size) => Sizes::Fixed(*size),
                spec::Sizes::Imix => Sizes::Imix,
                spec::Sizes::Each(from, to) => Sizes::Each { from: *from, to: *to, step: 1 },
            };
            let (rate, packets, flows) = (*rate, *count, *flows);
            let traffic = Traffic { sizes, rate, packets, flows, ..Traffic::default() };
            let port = Generator::new(name, &traffic)?;
            let (pace, watch) = (Some(port.pace()), Some(port.watch()));
            Opened { pace, watch, ..Opened::of(port) }
        }
        Spec::Sink => {
            let port = Sink::new(name);
            let watch = Some(port.watch());
            Opened { watch, ..Opened::of(port) }
        }
        Spec::Nic { modelled, size, rate, group, count } => {
            let port = |reason| Error::Port { port: spec.kind().to_owned(), reason };
            let setup = modelled.setup().map_err(port)?;
            let settings = NicSettings {
                size_bytes: *size,
                rate: *rate,
                group: *group,
                packets: *count,
                ..NicSettings::new(setup)
            };
            let mut opened = Opened::of(Nic::open(name, settings)?);
            opened.about.modelled = Some(modelled.said(&setup));
            opened
        }
        Spec::Vhost { path, is_server, copy } => {
            let Some(copy) = Copy::named(copy) else {
                let known: Vec<&str> = Copy::names().collect();
                return Err(Error::Copy { name: copy.clone(), known: known.join(", ") });
            };
            let role = role(*is_server);
            let settings = VhostSettings { role, copy, ..VhostSettings::new(path) };
            let queue = Vhost::open(name, &settings)?.into_iter().next();
            Opened::of(queue.expect("a device of one queue pair has one"))
        }
        Spec::Virtio { path, is_server, is_packed } => {
            let (role, is_packed) = (role(*is_server), *is_packed);
            let settings = VirtioSettings { role, is_packed, ..VirtioSettings::new(path) };
            Opened::of(Virtio::open(name, &settings)?)
        }
        Spec::Pcap { input, output, passes, replay } => {
            let (input, output, passes) = (input.clone(), output.clone(), *passes);
            let settings = PcapSettings { input, passes, replay: *replay, output };
            Opened::of(Pcap::open(name, &settings)?)
        }
        Spec::AfPacket { interface } => Opened::of(AfPacket::open(name, interface)?),
        Spec::AfXdp { interface, queue } => Opened::of(AfXdp::open(name, interface, *queue)?),
        Spec::Null { size_bytes: 0 } => Opened::of(Null::new(name)),
        Spec::Null { size_bytes } if *size_bytes <= PACKET_BYTES_MAX => {
            Opened::of(Null::source(name, *size_bytes))
        }
        Spec::Null { size_bytes } => {
            return Err(haul::forward::Error::Value {
                what: "a packet size of",
                value: format!("{size_bytes} B"),
                limit: "a packet has 9216 B at most",
            }
            .into());
        }
    })
}

fn role(is_server: bool) -> Role {
    if is_server { Role::Server } else { Role::Client }
}
