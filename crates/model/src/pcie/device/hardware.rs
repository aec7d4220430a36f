//! The device: reads descriptors, writes packets and completions.

use super::Setup;
use super::counts::{Counts, Kind};
use crate::pcie::link::Link;
use crate::pcie::nic::{Completion, Nic, WriteBack};

#[derive(Clone, Debug)]
pub(super) struct Hardware {
    nic: Nic,
    link: Link,
    segments: u32,
    offset: u32,
    tx_rs: u32,
    rx: Receive,
    tx: Transmit,
}

/// The receive ring. All numbers count from the start.
#[derive(Clone, Debug)]
struct Receive {
    announced: u64,
    fetched: u64,
    used: u64,
    /// The number of completions that are due, and the number of them that are written.
    due: u64,
    written: u64,
    polled: u64,
    dropped: u64,
}

#[derive(Clone, Debug, Default)]
struct Transmit {
    /// The number of descriptors since the last report, and the number of packets since the last
    /// completion.
    unreported: u32,
    uncompleted: u32,
    /// The number of completions that are due and not written.
    waiting: u32,
}

impl Hardware {
    pub(super) fn new(setup: &Setup) -> Self {
        let rx = Receive {
            announced: u64::from(setup.ring),
            fetched: 0,
            used: 0,
            due: 0,
            written: 0,
            polled: 0,
            dropped: 0,
        };
        Self {
            nic: setup.nic,
            link: setup.link,
            segments: setup.segments,
            offset: setup.offset,
            tx_rs: setup.thresholds.tx_rs,
            rx,
            tx: Transmit::default(),
        }
    }

    /// Accepts empty buffers from the driver.
    pub(super) fn announce(&mut self, descriptors: u32) {
        self.rx.announced += u64::from(descriptors);
    }

    /// The number of packets that the driver can see and has not taken.
    pub(super) fn ready(&self) -> u32 {
        let each = match self.nic.rx_completion.every {
            WriteBack::Each => u64::from(self.segments),
            _ => 1,
        };
        (self.rx.written / each - self.rx.polled) as u32
    }

    /// The number of packets that fit into the empty buffers.
    pub(super) fn free_buffers(&self) -> u32 {
        ((self.rx.announced - self.rx.used) / u64::from(self.segments)) as u32
    }

    pub(super) fn taken(&mut self, packets: u32) {
        self.rx.polled += u64::from(packets);
    }

    pub(super) fn dropped(&self) -> u64 {
        self.rx.dropped
    }

    pub(super) fn receive(&mut self, bytes: u32, counts: &mut Counts) -> bool {
        while self.rx.fetched - self.rx.used < u64::from(self.segments) {
            let most = u64::from(self.nic.rx_fetch.descriptors);
            let some = most.min(self.rx.announced - self.rx.fetched) as u32;
            if some == 0 {
                self.rx.dropped += 1;
                return false;
            }
            self.read(Kind::RxFetch, 0, some * self.nic.rx_descriptor_bytes, counts);
            self.rx.fetched += u64::from(some);
        }
        self.rx.used += u64::from(self.segments);
        for piece in 0..self.segments {
            self.write(Kind::RxPacket, self.offset, self.piece(bytes, piece), counts);
        }
        self.rx.due += match self.nic.rx_completion.every {
            WriteBack::Each => u64::from(self.segments),
            _ => 1,
        };
        let Completion { bytes, together, .. } = self.nic.rx_completion;
        while self.rx.due - self.rx.written >= u64::from(together) {
            self.write(Kind::RxWriteBack, 0, bytes * together, counts);
            self.rx.written += u64::from(together);
        }
        true
    }

    pub(super) fn flush(&mut self, counts: &mut Counts) {
        let waiting = (self.rx.due - self.rx.written) as u32;
        if waiting > 0 {
            self.write(Kind::RxWriteBack, 0, self.nic.rx_completion.bytes * waiting, counts);
            self.rx.written = self.rx.due;
        }
        let waiting = std::mem::take(&mut self.tx.waiting);
        if waiting > 0 {
            self.write(Kind::TxWriteBack, 0, self.nic.tx_completion.bytes * waiting, counts);
        }
    }

    /// Reads the descriptors of the packets of one doorbell.
    pub(super) fn fetch(&self, bytes: u32, descriptor_bytes: u32, counts: &mut Counts) {
        let most = self.nic.tx_fetch.descriptors * descriptor_bytes;
        let mut left = bytes;
        while left > 0 {
            let some = left.min(most);
            self.read(Kind::TxFetch, 0, some, counts);
            left -= some;
        }
    }

    /// Sends a packet with this many descriptors. The device must still read `left` bytes of it.
    pub(super) fn transmit(&mut self, left: u32, descriptors: u32, counts: &mut Counts) {
        for piece in 0..self.segments {
            self.read(Kind::TxPacket, self.offset, self.piece(left, piece), counts);
        }
        match self.nic.tx_completion.every {
            WriteBack::Each => self.complete(descriptors, counts),
            WriteBack::Packet => self.complete(1, counts),
            WriteBack::ReportStatus => {
                self.tx.unreported += descriptors;
                if self.tx.unreported >= self.tx_rs {
                    self.tx.unreported = 0;
                    self.complete(1, counts);
                }
            }
            WriteBack::Packets(packets) => {
                self.tx.uncompleted += 1;
                if self.tx.uncompleted == packets {
                    self.tx.uncompleted = 0;
                    self.complete(1, counts);
                }
            }
            WriteBack::Doorbell => {}
        }
    }

    /// Completes a doorbell after all of its packets were sent.
    pub(super) fn announced_are_sent(&mut self, counts: &mut Counts) {
        if self.nic.tx_completion.every == WriteBack::Doorbell {
            self.complete(1, counts);
        }
    }

    fn complete(&mut self, completions: u32, counts: &mut Counts) {
        let Completion { bytes, together, .. } = self.nic.tx_completion;
        self.tx.waiting += completions;
        while self.tx.waiting >= together {
            self.write(Kind::TxWriteBack, 0, bytes * together, counts);
            self.tx.waiting -= together;
        }
    }

    /// The bytes in one of a packet's buffers. Bytes are distributed as evenly as possible.
    fn piece(&self, bytes: u32, piece: u32) -> u32 {
        bytes / self.segments + u32::from(piece < bytes % self.segments)
    }

    fn read(&self, kind: Kind, offset: u32, bytes: u32, counts: &mut Counts) {
        if bytes > 0 {
            let read = self.link.read(offset, bytes);
            let headers = read.requests.bytes + read.completions.bytes;
            counts.add(kind, bytes, headers, read.requests.bytes);
        }
    }

    fn write(&self, kind: Kind, offset: u32, bytes: u32, counts: &mut Counts) {
        if bytes > 0 {
            counts.add(kind, bytes, self.link.write(offset, bytes).bytes, 0);
        }
    }
}
