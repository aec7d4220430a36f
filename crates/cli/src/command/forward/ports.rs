//! Opens the ports that the command line names: a list for each worker.

use haul::forward::{
    AfPacket, AfXdp, CopyMethod, Generator, Nic, NicSettings, Null, PACKET_BYTES_MAX, Pace, Pcap,
    PcapSettings, Port, Role, Sink, Sizes, Traffic, Users, Vhost, VhostSettings, Virtio,
    VirtioSettings, Watch,
};
use haul::telemetry::PortAbout;
use haul_engine::Queue;

use super::spec::{self, Spec};
use crate::error::Error;

/// A port, and the handles to its findings.
#[derive(Default)]
pub(super) struct Opened {
    /// The queue pairs of each worker.
    pub(super) of_workers: Vec<Vec<Box<dyn Port>>>,
    pub(super) about: PortAbout,
    pub(super) paces: Vec<Pace>,
    pub(super) watches: Vec<Watch>,
}

impl Opened {
    /// Distributes queue pairs over the workers in turn.
    fn of<P: Port + 'static>(queues: Vec<P>, workers: usize) -> Self {
        let mut opened = Self::default();
        opened.of_workers.resize_with(workers, Vec::new);
        for (index, queue) in queues.into_iter().enumerate() {
            opened.of_workers[index % workers].push(Box::new(queue));
        }
        opened
    }

    /// A port that consists of one port per worker.
    fn each<P: Port + 'static>(
        workers: usize,
        open: impl FnMut(usize) -> Result<P, haul::forward::Error>,
    ) -> Result<Self, Error> {
        let queues = (0..workers).map(open).collect::<Result<_, _>>()?;
        Ok(Self::of(queues, workers))
    }
}

/// Opens a port under this name for `workers` workers, each of which gets at least one queue pair.
/// Processes of `users` may be at the other end of the port's socket. The engine copies long
/// bursts to a guest.
///
/// # Errors
/// A value is not possible, or the system refuses a call.
pub(super) fn open(
    spec: &Spec,
    name: &str,
    (users, engine): (&Users, Option<&Queue>),
    workers: usize,
) -> Result<Opened, Error> {
    let mut opened = open_queues(spec, name, (users, engine), workers)?;
    opened.about.name = name.to_owned();
    opened.about.driver = format!("haul_{}", spec.kind());
    Ok(opened)
}

fn open_queues(
    spec: &Spec,
    name: &str,
    (users, engine): (&Users, Option<&Queue>),
    workers: usize,
) -> Result<Opened, Error> {
    Ok(match spec {
        Spec::Gen { .. } => generators(spec, name, workers)?,
        Spec::Sink => {
            let sinks: Vec<Sink> = (0..workers).map(|_| Sink::new(name)).collect();
            let watches = sinks.iter().map(Sink::watch).collect();
            Opened { watches, ..Opened::of(sinks, workers) }
        }
        Spec::Nic { .. } => nics(spec, name, workers)?,
        Spec::Vhost { path, is_server, copy, queues, has_offloads } => {
            let Some(copy) = CopyMethod::named(copy) else {
                let known: Vec<&str> = CopyMethod::names().collect();
                return Err(Error::Copy { name: copy.clone(), known: known.join(", ") });
            };
            let (role, users, queues) = (role(*is_server), users.clone(), *queues);
            let (new, engine) = (VhostSettings::new(path), engine.cloned());
            let has_offloads = *has_offloads;
            let settings = VhostSettings { role, users, copy, queues, has_offloads, engine, ..new };
            Opened::of(Vhost::open(name, &settings)?, workers)
        }
        Spec::Virtio { path, is_server, is_packed, queues } => {
            let (role, is_packed, queues) = (role(*is_server), *is_packed, *queues);
            let new = VirtioSettings { users: users.clone(), ..VirtioSettings::new(path) };
            let settings = VirtioSettings { role, is_packed, queues, ..new };
            Opened::of(Virtio::open(name, &settings)?, workers)
        }
        Spec::Pcap { input, output, passes, replay, pause_max } => {
            let (input, output, passes) = (input.clone(), output.clone(), *passes);
            let (replay, pause_max) = (*replay, *pause_max);
            let settings = PcapSettings { input, passes, replay, pause_max, output };
            Opened::of(vec![Pcap::open(name, &settings)?], workers)
        }
        Spec::AfPacket { interface } => Opened::of(vec![AfPacket::open(name, interface)?], workers),
        Spec::AfXdp { interface, queue } => {
            Opened::of(vec![AfXdp::open(name, interface, *queue)?], workers)
        }
        Spec::Null { size_bytes } if *size_bytes <= PACKET_BYTES_MAX => {
            Opened::each(workers, |_| Ok(Null::source(name, *size_bytes)))?
        }
        Spec::Null { size_bytes } => {
            return Err(haul::forward::Error::Value {
                what: "a packet size of",
                value: format!("{size_bytes} B"),
                limit: "a packet has at most 9216 B",
            }
            .into());
        }
    })
}

/// A generator for each worker. The generators share the rate and the packets; their flows are
/// distinct.
fn generators(spec: &Spec, name: &str, workers: usize) -> Result<Opened, Error> {
    let Spec::Gen { sizes, rate, count, flows } = spec else { return Ok(Opened::default()) };
    let sizes = match sizes {
        spec::Sizes::Fixed(size) => Sizes::Fixed(*size),
        spec::Sizes::Imix => Sizes::Imix,
        spec::Sizes::Each { from, to, step } => Sizes::Each { from: *from, to: *to, step: *step },
    };
    let (mut paces, mut watches) = (Vec::new(), Vec::new());
    let opened = Opened::each(workers, |worker| {
        let traffic = Traffic {
            sizes: sizes.clone(),
            rate: rate.map(|rate| rate / workers as f64),
            packets: count.map(|count| share(count, worker, workers)),
            flows: *flows,
            flow_first: flows.saturating_mul(worker as u32),
            stream: worker as u8,
            ..Traffic::default()
        };
        let generator = Generator::new(name, &traffic)?;
        paces.push(generator.pace());
        watches.push(generator.watch());
        Ok(generator)
    })?;
    Ok(Opened { paces, watches, ..opened })
}

/// A modelled NIC for each worker. The NICs share the rate and the packets.
fn nics(spec: &Spec, name: &str, workers: usize) -> Result<Opened, Error> {
    let Spec::Nic { modelled, size, rate, group, count } = spec else {
        return Ok(Opened::default());
    };
    let port = |reason| Error::Port { port: spec.kind().to_owned(), reason };
    let setup = modelled.setup().map_err(port)?;
    let mut opened = Opened::each(workers, |worker| {
        let settings = NicSettings {
            size_bytes: *size,
            rate: rate.map(|rate| rate / workers as f64),
            group: *group,
            packets: count.map(|count| share(count, worker, workers)),
            ..NicSettings::new(setup)
        };
        Nic::open(name, settings)
    })?;
    opened.about.modelled = Some(modelled.json(&setup));
    Ok(opened)
}

/// One worker's share of a number of packets.
fn share(whole: u64, worker: usize, workers: usize) -> u64 {
    whole / workers as u64 + u64::from((worker as u64) < whole % workers as u64)
}

fn role(is_server: bool) -> Role {
    if is_server { Role::Server } else { Role::Client }
}
