//! The counted traffic of a link, by transaction.

use crate::pcie::transaction::{Direction, Transaction};

/// The count of one kind of transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// The purpose. The estimate uses the same names.
    pub what: &'static str,
    /// The initiator and the direction of the data.
    pub direction: Direction,
    /// The number of transactions.
    pub count: u64,
    /// The data of all these transactions, in bytes.
    pub payload_bytes: u64,
    /// The headers, framing and padding of all these transactions, in both directions, in bytes.
    pub header_bytes: u64,
    /// The part of `header_bytes` in the direction opposite to the data.
    pub request_bytes: u64,
}

/// The counts of all kinds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts {
    kinds: [Count; 11],
}

/// The kinds, as indices in [`Counts`].
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
        // The order is that of Kind.
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
    /// The kinds that have occurred.
    pub fn iter(&self) -> impl Iterator<Item = &Count> {
        self.kinds.iter().filter(|kind| kind.count > 0)
    }

    /// The kind with this name, if it has occurred.
    #[must_use]
    pub fn get(&self, what: &str) -> Option<&Count> {
        self.iter().find(|kind| kind.what == what)
    }

    /// The counts since `before`, which must be an earlier copy of the same counts.
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

    /// The counts as terms, for a duration of `seconds`.
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
