//! A port whose other end says anything, with the packets that it was given and that came of it.

use haul::forward::{Burst, Pool, Port};

/// The port, its pool, and what went through it.
pub struct Victim<P> {
    /// The port.
    pub port: P,
    /// Its pool.
    pub pool: Pool,
    /// Packets that it took.
    pub given: u64,
    /// Packets that came of it.
    pub came: u64,
}

impl<P: Port> Victim<P> {
    /// A victim to which nothing has happened.
    pub fn new(port: P, pool: Pool) -> Self {
        Self { port, pool, given: 0, came: 0 }
    }

    /// Takes a burst of the port and gives it one of so many packets of a length.
    pub fn poll(&mut self, packets: u8, length: u16) {
        let mut burst = Burst::new();
        self.came += self.port.rx_burst(&mut self.pool, &mut burst) as u64;
        self.pool.free_burst(&mut burst);
        for _ in 0..packets % 32 {
            let Some(packet) = self.pool.take(usize::from(length) % 9217) else { break };
            burst.push(packet);
        }
        self.given += burst.len() as u64;
        self.port.tx_burst(&mut self.pool, &mut burst);
        self.given -= burst.len() as u64;
        self.pool.free_burst(&mut burst);
        self.port.service(&mut self.pool).expect("a port that goes on");
    }
}
