//! A port with counts of its packets. Its other end sends arbitrary data.

use haul::forward::{Burst, Pool, Port};

/// A port, its pool, and the counts of its packets.
pub struct Victim<P> {
    /// The port.
    pub port: P,
    /// The port's pool.
    pub pool: Pool,
    /// How many packets the port accepted.
    pub sent: u64,
    /// How many packets the port received.
    pub received: u64,
}

impl<P: Port> Victim<P> {
    /// A victim that has not sent or received packets yet.
    pub fn new(port: P, pool: Pool) -> Self {
        Self { port, pool, sent: 0, received: 0 }
    }

    /// Receives a burst from the port, and sends it a burst of `packets` packets of `length`
    /// bytes.
    pub fn poll(&mut self, packets: u8, length: u16) {
        let mut burst = Burst::new();
        self.received += self.port.rx_burst(&mut self.pool, &mut burst) as u64;
        self.pool.free_burst(&mut burst);
        for _ in 0..packets % 32 {
            let Some(packet) = self.pool.take(usize::from(length) % 9217) else { break };
            burst.push(packet);
        }
        self.sent += burst.len() as u64;
        self.port.tx_burst(&mut self.pool, &mut burst);
        self.sent -= burst.len() as u64;
        self.pool.free_burst(&mut burst);
        self.port.service(&mut self.pool).expect("the port continues");
    }
}
