//! What crossed the link, by transaction.

use crate::pcie::transaction::{Direction, Transaction};

/// One kind of transaction, as often as it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// What it is for; the names are those of the estimate.
    pub what: &'static str,
    /// Who starts it.
    pub direction: Direction,
    /// How many.
    pub count: u64,
    /// Data of all, in bytes.
    pub payload_bytes: u64,
    /// Headers, framing and padding of all, both ways, in bytes.
    pub header_bytes: u64,
    /// The part of them that goes against the data.
    pub request_bytes: u64,
}

/// All kinds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts {
    kinds: [Count; 11],
}

/// The kinds, as places in [`Counts`].
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    RxFetch,
    RxPacket,
    RxWriteBack,
    RxDoorbell,
    RxCompletionDoorbell,
    TxPush,
    TxDoorbell,
    TxFetch,
    TxPacket,
    TxWriteBack,
    TxCompletionDoorbell,
}

impl Default for Counts {
    fn default() -> Self {
        use Direction::{InboundRead, InboundWrite, OutboundWrite};
        let none = |(what, direction)| Count {
            what,
            direction,
            count: 0,
            payload_bytes: 0,
            header_bytes: 0,
            request_bytes: 0,
        };
        // In the order of Kind.
        let kinds = [
            ("rx descriptor fetch", InboundRead),
            ("rx packet", InboundWrite),
            ("rx write-back", InboundWrite),
            ("rx doorbell", OutboundWrite),
            ("rx completion doorbell", OutboundWrite),
            ("tx push", OutboundWrite),
            ("tx doorbell", OutboundWrite),
            ("tx descriptor fetch", InboundRead),
            ("tx packet", InboundRead),
            ("tx write-back", InboundWrite),
            ("tx completion doorbell", OutboundWrite),
        ];
        Self { kinds: kinds.map(none) }
    }
}

impl Counts {
    /// Those that happened at all.
    pub fn iter(&self) -> impl Iterator<Item = &Count> {
        self.kinds.iter().filter(|kind| kind.count > 0)
    }

    /// One by its name, where it happened.
    #[must_use]
    pub fn get(&self, what: &str) -> Option<&Count> {
        self.iter().find(|kind| kind.what == what)
    }

    /// What was counted since `before`, an earlier copy of the same counts.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut since = self.clone();
        for (now, before) in since.kinds.iter_mut().zip(&before.kinds) {
            now.count -= before.count;
            now.payload_bytes -= before.payload_bytes;
            now.header_bytes -= before.header_bytes;
            now.request_bytes -= before.request_bytes;
        }
        since
    }

    /// The same as terms, where it took so long.
    #[must_use]
    pub fn terms(&self, seconds: f64) -> Vec<Transaction> {
        let term = |kind: &Count| {
            let mean = |bytes: u64| bytes as f64 / kind.count as f64;
            Transaction {
                what: kind.what,
                direction: kind.direction,
                count_per_s: kind.count as f64 / seconds,
                payload_bytes: mean(kind.payload_bytes),
                header_bytes: mean(kind.header_bytes),
                request_bytes: mean(kind.request_bytes),
            }
        };
        self.iter().map(term).collect()
    }

    #[inline]
    pub(super) fn add(&mut self, kind: Kind, payload: u32, header: u64, request: u64) {
        let count = &mut self.kinds[kind as usize];
        count.count += 1;
        count.payload_bytes += u64::from(payload);
        count.header_bytes += header;
        count.request_bytes += request;
    }
}
