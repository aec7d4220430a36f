//! Packets that are divided for a port with several queue pairs: their parts go to that port, also
//! those that did not fit into one burst.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use haul_forward::{Burst, Checksum, Counters, Header, Pool, Port, Running, Settings};

use crate::merged::frame;
use crate::support::wait;

const PAYLOAD: usize = 9_000;
const SEGMENT_BYTES: u16 = 200;
const PARTS: usize = PAYLOAD.div_ceil(SEGMENT_BYTES as usize);

/// A queue pair that receives one long packet of TCP, or none, and counts what is sent to it. It
/// takes no work.
struct Pair {
    name: &'static str,
    queue: u16,
    has_packet: bool,
    sent: Arc<AtomicUsize>,
    counters: Counters,
}

impl Port for Pair {
    fn name(&self) -> &str {
        self.name
    }

    fn queue(&self) -> u16 {
        self.queue
    }

    fn rx_burst(&mut self, pool: &mut Pool, burst: &mut Burst) -> usize {
        if burst.room() == 0 || !std::mem::take(&mut self.has_packet) {
            return 0;
        }
        let bytes = frame(true, PAYLOAD);
        let packet = pool.take(bytes.len()).unwrap();
        assert!(pool.write(&packet, 0, &bytes));
        let checksum = Checksum { start: 34, offset: 16 };
        let header = Header {
            flags: 1,
            segmentation: 1,
            header_bytes: 54,
            segment_bytes: SEGMENT_BYTES,
            checksum,
        };
        pool.set_header(&packet, header);
        burst.push(packet);
        1
    }

    fn tx_burst(&mut self, pool: &mut Pool, burst: &mut Burst) -> usize {
        let sent = burst.len();
        pool.free_burst(burst);
        self.sent.fetch_add(sent, Ordering::Relaxed);
        sent
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }
}

#[test]
fn parts_that_wait_for_a_burst_go_to_their_port() {
    for giver in 0..4 {
        let sent = ["left", "right"].map(|name| (name, Arc::new(AtomicUsize::new(0))));
        let mut ports: Vec<Box<dyn Port>> = Vec::new();
        for (name, sent) in &sent {
            for queue in 0..2 {
                let has_packet = ports.len() == giver;
                let (sent, counters) = (Arc::clone(sent), Counters::default());
                ports.push(Box::new(Pair { name, queue, has_packet, sent, counters }));
            }
        }
        let settings = Settings { burst: 32, yields: true, ..Settings::default() };
        let running = Running::start("worker", ports, Pool::new(512).unwrap(), settings).unwrap();
        let count = |side: usize| sent[side].1.load(Ordering::Relaxed);
        wait("all parts are sent", || count(0) + count(1) >= PARTS);
        std::thread::sleep(Duration::from_millis(20));
        let other = 1 - giver / 2;
        assert_eq!((count(other), count(1 - other)), (PARTS, 0), "from queue pair {giver}");
        running.stop().unwrap();
    }
}
