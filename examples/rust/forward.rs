//! Packets in bursts from a capture, or from a generator, to a port that this program defines.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::mpsc::{self, Sender};
use std::time::Duration;
use std::{env, thread};

use haul::forward::{
    Burst, Counters, Generator, Link, Pcap, PcapSettings, Pool, Port, Running, Settings, Traffic,
};

fn main() -> Result<(), Box<dyn Error>> {
    let source: Box<dyn Port> = match env::args_os().nth(1).map(Into::into) {
        input @ Some(_) => {
            let settings = PcapSettings { input, passes: Some(1), ..Default::default() };
            Box::new(Pcap::open("pcap0", &settings)?)
        }
        None => {
            let traffic = Traffic { packets: Some(1000), ..Default::default() };
            Box::new(Generator::new("gen0", &traffic)?)
        }
    };
    let (report, reported) = mpsc::channel();
    let census = Census { kinds: BTreeMap::new(), report, counters: Counters::default() };
    let ports: [Box<dyn Port>; 2] = [source, Box::new(census)];
    // The worker runs on a separate thread, which ends once both ports are finished.
    let worker = Running::start("example", ports, Pool::new(1024)?, Settings::default())?;
    while !worker.is_over() {
        thread::sleep(Duration::from_millis(1));
    }
    let counted = worker.stop()?;
    for (kind, packets) in reported.recv()? {
        println!("EtherType {kind:#06x}: {packets} packets");
    }
    let (name, _, counters) = &counted.ports[0];
    println!("{} packets in {} B from {name}", counters.rx.packets, counters.rx.bytes);
    Ok(())
}

/// Counts packets by their EtherType and frees them.
struct Census {
    kinds: BTreeMap<u16, u64>,
    report: Sender<BTreeMap<u16, u64>>,
    counters: Counters,
}

impl Port for Census {
    fn name(&self) -> &str {
        "census"
    }

    fn rx_burst(&mut self, _: &mut Pool, _: &mut Burst) -> usize {
        0
    }

    fn tx_burst(&mut self, pool: &mut Pool, burst: &mut Burst) -> usize {
        let (packets, mut bytes) = (burst.len(), 0);
        while let Some(packet) = burst.pop() {
            let mut kind = [0; 2];
            // The EtherType follows two Ethernet addresses of 6 bytes each.
            if pool.read(&packet, 12, &mut kind) {
                *self.kinds.entry(u16::from_be_bytes(kind)).or_default() += 1;
            }
            bytes += pool.length(&packet) as u64;
            pool.free(packet);
        }
        self.counters.tx.batch(packets, bytes);
        packets
    }

    /// This port has no packets to give, so the worker may end as soon as the source is finished.
    fn link(&self) -> Link {
        Link::Finished
    }

    fn stop(&mut self, _: &mut Pool) {
        let _ = self.report.send(std::mem::take(&mut self.kinds));
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }
}
