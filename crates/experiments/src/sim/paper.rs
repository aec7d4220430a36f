//! The paper's published figures: Table 2, and the text's figures for Figure 8 (Zhao et al., ICCD
//! 2005).

/// The method of copying packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// By the processor.
    Base,
    /// By an engine, synchronously, without load bypass.
    SyncNlb,
    /// Like [`SyncNlb`](Self::SyncNlb), but with load bypass.
    SyncWlb,
    /// By an engine, asynchronously.
    Async,
}

/// A row of Table 2: execution time reduction over BASE, in percent.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Payload of every packet.
    pub payload_bytes: u64,
    /// The engine's mode.
    pub mode: Mode,
    /// Whether the processor issues in order.
    pub in_order: bool,
    /// The overall reduction.
    pub overall: f64,
    /// The part due to faster copies.
    pub faster_copies: f64,
    /// The part due to overlap with computation.
    pub overlap: f64,
    /// The reason why the figures are not reliable; `None` if they are reliable.
    pub disputed: Option<&'static str>,
}

impl Mode {
    /// All modes, in the order of the paper.
    pub const ALL: [Self; 4] = [Self::Base, Self::SyncNlb, Self::SyncWlb, Self::Async];

    /// The paper's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Base => "BASE",
            Self::SyncNlb => "SYNC_NLB",
            Self::SyncWlb => "SYNC_WLB",
            Self::Async => "ASYNC",
        }
    }

    /// The engine's policy; `None` if the processor copies.
    #[must_use]
    pub fn policy(self) -> Option<&'static str> {
        match self {
            Self::Base => None,
            Self::SyncNlb => Some("sync-nlb"),
            Self::SyncWlb => Some("sync-wlb"),
            Self::Async => Some("async"),
        }
    }
}

const MISPRINT: &str =
    "the row repeats that of 1024 B; the text says 43% to 58%, so about 58 was meant";
const SUSPECT: &str =
    "faster copies rise from no bypass (22.7) to bypass (32.0), against every other row";

const fn row(
    payload_bytes: u64,
    mode: Mode,
    in_order: bool,
    figures: [f64; 3],
    disputed: Option<&'static str>,
) -> Row {
    let [overall, faster_copies, overlap] = figures;
    Row { payload_bytes, mode, in_order, overall, faster_copies, overlap, disputed }
}

/// Table 2.
pub const TABLE_2: [Row; 18] = [
    row(512, Mode::SyncNlb, true, [42.5, 40.7, 1.8], None),
    row(512, Mode::SyncNlb, false, [14.6, 12.1, 2.5], None),
    row(512, Mode::SyncWlb, true, [50.5, 37.4, 13.1], None),
    row(512, Mode::SyncWlb, false, [27.1, 7.5, 19.6], None),
    row(512, Mode::Async, true, [68.2, 50.5, 17.7], Some(MISPRINT)),
    row(512, Mode::Async, false, [48.5, 7.5, 41.1], None),
    row(1024, Mode::SyncNlb, true, [52.5, 51.4, 1.1], None),
    row(1024, Mode::SyncNlb, false, [21.9, 20.4, 1.5], None),
    row(1024, Mode::SyncWlb, true, [58.9, 50.5, 8.4], None),
    row(1024, Mode::SyncWlb, false, [30.1, 17.4, 12.7], None),
    row(1024, Mode::Async, true, [68.2, 50.5, 17.7], None),
    row(1024, Mode::Async, false, [48.0, 17.4, 30.6], None),
    row(1400, Mode::SyncNlb, true, [56.3, 55.4, 0.9], None),
    row(1400, Mode::SyncNlb, false, [23.8, 22.7, 1.1], None),
    row(1400, Mode::SyncWlb, true, [61.2, 54.5, 6.7], None),
    row(1400, Mode::SyncWlb, false, [40.3, 32.0, 8.3], Some(SUSPECT)),
    row(1400, Mode::Async, true, [72.1, 54.5, 17.6], None),
    row(1400, Mode::Async, false, [43.9, 32.0, 11.9], None),
];

/// The share of copying in BASE's in-order time, in percent, by payload. These shares follow from
/// the paper's in-order rows without bypass (`T = C + aP` fits them within 0.1 point).
pub const COPY_SHARES: [(u64, f64); 3] = [(512, 58.0), (1024, 74.0), (1400, 79.0)];

/// The text's figures for Figure 8 (1024 B, out of order): reduction of execution time, in percent
/// of BASE at 110 ns.
pub const FIGURE_8: [(Mode, u64, f64); 5] = [
    (Mode::Base, 110, 0.0),
    (Mode::Base, 95, 10.0),
    (Mode::Base, 80, 18.0),
    (Mode::SyncNlb, 110, 33.7),
    (Mode::SyncNlb, 80, 36.1),
];

/// The change of the other modes from 110 to 80 ns, in points.
pub const FIGURE_8_CHANGES: [(Mode, f64); 2] = [(Mode::SyncWlb, 1.0), (Mode::Async, 0.2)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_every_row_add_up() {
        for row in TABLE_2 {
            let sum = row.faster_copies + row.overlap;
            assert!((sum - row.overall).abs() < 0.11, "{row:?}");
        }
        assert_eq!(TABLE_2.iter().filter(|row| row.disputed.is_none()).count(), 16);
    }
}
