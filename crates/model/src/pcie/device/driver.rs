//! The driver: announces buffers and packets to the device.

use super::Setup;
use super::counts::{Counts, Kind};
use super::hardware::Hardware;
use crate::pcie::estimate::{COMBINED_BYTES, ENTRY_BYTES_MAX};
use crate::pcie::link::WRITE_HEADER_BYTES;
use crate::pcie::nic::{Nic, RxDoorbell, Thresholds, TxDescriptors, TxDoorbell};

/// `*_RX_MAX_BURST` of the vector functions: a longer poll is split into pieces of this size.
const VECTOR_BURST: u32 = 32;

#[derive(Clone, Debug)]
pub(super) struct Driver {
    nic: Nic,
    rx: RxDoorbell,
    /// The number of packets in a batch, for the rule with fixed batches.
    rx_batch: u32,
    tx: TxDoorbell,
    thresholds: Thresholds,
    segments: u32,
    context: u32,
    /// The number of descriptors of received packets that have not been returned to the device.
    held: u32,
    /// The number of sent descriptors whose completions have not been checked.
    in_hardware: u32,
}

impl Driver {
    pub(super) fn new(setup: &Setup) -> Self {
        let (rx, tx) = setup.nic.doorbells(setup.mode);
        Self {
            nic: setup.nic,
            rx,
            rx_batch: rx.batch(setup.version).unwrap_or(1),
            tx,
            thresholds: setup.thresholds,
            segments: setup.segments,
            context: u32::from(setup.context),
            held: 0,
            in_hardware: 0,
        }
    }

    /// The largest number of descriptors that may wait to be announced.
    pub(super) fn held_most(&self) -> u32 {
        match self.rx {
            RxDoorbell::Above | RxDoorbell::AtLeast | RxDoorbell::Threshold => {
                self.thresholds.rx_free
            }
            RxDoorbell::Batch(_) => 2 * self.rx_batch,
            RxDoorbell::Fours(held) => held,
            RxDoorbell::Poll | RxDoorbell::Memory => 0,
        }
    }

    pub(super) fn poll(&mut self, most: u32, hardware: &mut Hardware, counts: &mut Counts) -> u32 {
        let piece = match self.rx {
            RxDoorbell::Batch(_) => VECTOR_BURST,
            RxDoorbell::Fours(held) => held,
            _ => u32::MAX,
        };
        let mut taken = 0;
        while taken < most {
            let asked = piece.min(most - taken);
            self.before_piece(hardware, counts);
            let found = hardware.ready().min(asked);
            hardware.taken(found);
            self.held += found * self.segments;
            if found > 0 && self.nic.completion_doorbells.is_some() {
                self.doorbell(Kind::RxCompletionDoorbell, counts);
            }
            taken += found;
            if found < asked {
                break;
            }
        }
        self.after_poll(taken, hardware, counts);
        taken
    }

    /// Announces held descriptors before the poll checks for packets, as vector functions do.
    fn before_piece(&mut self, hardware: &mut Hardware, counts: &mut Counts) {
        let given = match self.rx {
            // A packet has one descriptor in this mode; with several, the driver uses another rule.
            RxDoorbell::Batch(_) if self.held > self.rx_batch => self.rx_batch,
            RxDoorbell::Fours(held) if self.held >= held => self.held & !3,
            _ => return,
        };
        self.announce(given, hardware, counts);
    }

    fn after_poll(&mut self, taken: u32, hardware: &mut Hardware, counts: &mut Counts) {
        if taken == 0 {
            return;
        }
        let free = self.thresholds.rx_free;
        match self.rx {
            RxDoorbell::Above if self.held > free => self.announce(self.held, hardware, counts),
            RxDoorbell::AtLeast if self.held >= free => {
                self.announce(self.held, hardware, counts);
            }
            RxDoorbell::Poll => self.announce(self.held, hardware, counts),
            RxDoorbell::Threshold => {
                while self.held >= free {
                    self.announce(free, hardware, counts);
                }
            }
            RxDoorbell::Memory => {
                hardware.announce(self.held);
                self.held = 0;
            }
            _ => {}
        }
    }

    fn announce(&mut self, given: u32, hardware: &mut Hardware, counts: &mut Counts) {
        self.doorbell(Kind::RxDoorbell, counts);
        hardware.announce(given);
        self.held -= given;
    }

    pub(super) fn send(&mut self, sizes: &[u32], hardware: &mut Hardware, counts: &mut Counts) {
        if sizes.is_empty() {
            return;
        }
        let waited = self.nic.completion_doorbells.map(|rule| rule.tx_descriptors);
        if waited.is_some_and(|least| self.in_hardware >= least) {
            self.in_hardware = 0;
            self.doorbell(Kind::TxCompletionDoorbell, counts);
        }
        let chunk = match self.tx {
            TxDoorbell::Burst => sizes.len(),
            TxDoorbell::Chunk(packets) => packets as usize,
            TxDoorbell::ReportStatus => self.thresholds.tx_rs as usize,
        };
        let descriptors = self.segments + self.context;
        let most = self.nic.tx_descriptors.packets_until_doorbell(descriptors) as usize;
        for packets in sizes.chunks(chunk.min(most)) {
            self.send_chunk(packets, hardware, counts);
        }
    }

    fn send_chunk(&mut self, sizes: &[u32], hardware: &mut Hardware, counts: &mut Counts) {
        let descriptors = self.segments + self.context;
        self.in_hardware += descriptors * sizes.len() as u32;
        let mut room = 0;
        let fetched = match self.nic.tx_descriptors {
            TxDescriptors::Ring { bytes } => {
                Some((sizes.len() as u32 * descriptors * bytes, bytes))
            }
            TxDescriptors::Entries { .. } => Some((self.entries(sizes), 16)),
            TxDescriptors::Pushed { entry_bytes, each_bytes, before_header, .. } => {
                room = entry_bytes - each_bytes * before_header;
                let entries = self.nic.tx_descriptors.pushes(descriptors);
                for _ in 0..sizes.len() as u32 * entries {
                    let lines = u64::from(entry_bytes.div_ceil(COMBINED_BYTES));
                    counts.add(Kind::TxPush, entry_bytes, lines * WRITE_HEADER_BYTES, 0);
                }
                None
            }
        };
        self.doorbell(Kind::TxDoorbell, counts);
        if let Some((bytes, each)) = fetched {
            hardware.fetch(bytes, each, counts);
        }
        for size in sizes {
            let left = if self.is_inlined(*size) { 0 } else { size.saturating_sub(room) };
            hardware.transmit(left, descriptors, counts);
        }
        hardware.announced_are_sent(counts);
    }

    fn is_inlined(&self, size: u32) -> bool {
        self.nic.inline.is_some_and(|inline| size <= inline.bytes_max && self.segments == 1)
    }

    /// The bytes of the work entries of one burst. Each entry is filled before the next one starts.
    fn entries(&self, sizes: &[u32]) -> u32 {
        let TxDescriptors::Entries { head_bytes, each_bytes, block_bytes, packets } =
            self.nic.tx_descriptors
        else {
            return 0;
        };
        let (mut all, mut entry, mut inside) = (0, 0, 0);
        for size in sizes {
            let each = match self.nic.inline {
                Some(inline) if self.is_inlined(*size) => {
                    (size + inline.extra_bytes).next_multiple_of(inline.align_bytes)
                }
                _ => each_bytes * self.segments,
            };
            let is_full = inside == packets || entry + each > ENTRY_BYTES_MAX as u32;
            if inside > 0 && is_full {
                all += u32::next_multiple_of(entry, block_bytes);
                inside = 0;
            }
            if inside == 0 {
                entry = head_bytes;
            }
            entry += each;
            inside += 1;
        }
        all + u32::next_multiple_of(entry, block_bytes)
    }

    fn doorbell(&self, kind: Kind, counts: &mut Counts) {
        counts.add(kind, self.nic.doorbell_bytes, WRITE_HEADER_BYTES, 0);
    }
}
