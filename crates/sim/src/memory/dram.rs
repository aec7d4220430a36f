//! The memory chips: channels, banks and rows, and the time of each access.

use crate::configuration::{Cycle, DramSettings, cycles_of_ns};

/// The state in which an access found its bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    /// The row of the access was open.
    Hit,
    /// No row was open.
    Open,
    /// Another row was open and had to be closed.
    Conflict,
}

/// When the data of an access is on the channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// The state in which the access found its bank.
    pub row: Row,
    /// The beginning of the data.
    pub begins: Cycle,
    /// The end of the data.
    pub ends: Cycle,
}

/// One channel and its banks.
pub struct Channel {
    timing: Timing,
    banks: Vec<Bank>,
    data_free: Cycle,
    last_wrote: bool,
}

/// [`DramSettings`] in cycles, and the location of a line in them.
#[derive(Clone, Debug)]
pub struct Timing {
    precharge: Cycle,
    row: Cycle,
    column: Cycle,
    write_to_read: Cycle,
    read_to_write: Cycle,
    write_recovery: Cycle,
    row_idle: Cycle,
    burst: Cycle,
    channels: u64,
    columns: u64,
    banks: u64,
}

#[derive(Clone, Default)]
struct Bank {
    open: Option<u64>,
    /// The end of the data of its last access.
    ended: Cycle,
    wrote: bool,
}

impl Timing {
    /// The timing of a memory with lines of this size.
    #[must_use]
    pub fn new(settings: &DramSettings, line_bytes: u64) -> Self {
        Self {
            precharge: cycles_of_ns(settings.precharge_ns),
            row: cycles_of_ns(settings.row_ns),
            column: cycles_of_ns(settings.column_ns),
            write_to_read: cycles_of_ns(settings.write_to_read_ns),
            read_to_write: cycles_of_ns(settings.read_to_write_ns),
            write_recovery: cycles_of_ns(settings.write_recovery_ns),
            row_idle: cycles_of_ns(settings.row_idle_ns),
            burst: settings.burst_cycles(line_bytes),
            channels: settings.independent_channels().into(),
            columns: settings.row_lines(line_bytes),
            banks: settings.banks.into(),
        }
    }

    /// The independent channel of a line. Consecutive lines alternate between channels. The rest of
    /// an address is column, bank and row from the lowest bit up, so that neighbours share a row,
    /// and consecutive rows are in different banks.
    #[must_use]
    pub fn channel(&self, line: u64) -> usize {
        (line % self.channels) as usize
    }

    fn bank_and_row(&self, line: u64) -> (usize, u64) {
        let above = line / self.channels / self.columns;
        ((above % self.banks) as usize, above / self.banks)
    }
}

impl Channel {
    /// An idle channel with all rows closed.
    #[must_use]
    pub fn new(timing: &Timing) -> Self {
        Self {
            timing: timing.clone(),
            banks: vec![Bank::default(); timing.banks as usize],
            data_free: 0,
            last_wrote: false,
        }
    }

    /// Reads or writes a line, beginning at `now`. The model includes the limits of the data
    /// lines, of the banks and of the switch between reading and writing, but no limit of
    /// commands.
    pub fn access(&mut self, now: Cycle, line: u64, write: bool) -> Burst {
        let t = &self.timing;
        let (bank, row) = t.bank_and_row(line);
        let bank = &mut self.banks[bank];
        let recovered = bank.ended + if bank.wrote { t.write_recovery } else { 0 };
        let closing = recovered.max(bank.ended + t.row_idle);
        let (found, column_at) = match bank.open {
            Some(open) if now < closing && open == row => (Row::Hit, now),
            Some(_) if now < closing => (Row::Conflict, now.max(recovered) + t.precharge + t.row),
            // The row is closed after its last access, which may still be under way.
            Some(_) => (Row::Open, now.max(closing + t.precharge) + t.row),
            None => (Row::Open, now + t.row),
        };
        let turn = match (self.last_wrote, write) {
            (true, false) => t.write_to_read + t.column,
            (false, true) => t.read_to_write,
            _ => 0,
        };
        let begins = (column_at + t.column).max(self.data_free + turn);
        let ends = begins + t.burst;
        *bank = Bank { open: Some(row), ended: ends, wrote: write };
        self.data_free = ends;
        self.last_wrote = write;
        Burst { row: found, begins, ends }
    }

    /// When the channel should choose its next access: early enough that an access that has to open
    /// a row follows without a gap.
    #[must_use]
    pub fn next_choice(&self) -> Cycle {
        self.data_free.saturating_sub(self.timing.row + self.timing.column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(channels: u32) -> (Channel, Timing) {
        let settings = DramSettings { channels, row_idle_ns: 50, ..DramSettings::default() };
        let timing = Timing::new(&settings, 64);
        (Channel::new(&timing), timing)
    }

    #[test]
    fn access_takes_burst_time_and_row_time() {
        let (mut channel, _) = channel(1);
        // A row of 8 KB holds 128 lines, and rows alternate over 8 banks: line 1024 is in bank 0.
        let opened = channel.access(1000, 0, false);
        assert_eq!(opened, Burst { row: Row::Open, begins: 1090, ends: 1150 });
        let hit = channel.access(1150, 1, false);
        assert_eq!(hit, Burst { row: Row::Hit, begins: 1195, ends: 1255 });
        let conflict = channel.access(1255, 1024, false);
        assert_eq!(conflict, Burst { row: Row::Conflict, begins: 1390, ends: 1450 });
        let idle = channel.access(9000, 1025, false);
        assert_eq!(idle, Burst { row: Row::Open, begins: 9090, ends: 9150 }, "closed when idle");
        let queued = channel.access(channel.next_choice(), 1026, false);
        assert_eq!((queued.row, queued.begins), (Row::Hit, 9150), "open for queued requests");
    }

    #[test]
    fn row_hits_stream_without_gap_and_direction_switch_costs_time() {
        let (mut channel, _) = channel(1);
        let mut last = channel.access(0, 0, false);
        for line in 1..16 {
            let next = channel.access(channel.next_choice(), line, false);
            assert_eq!((next.row, next.begins), (Row::Hit, last.ends), "line {line}");
            last = next;
        }
        let write = channel.access(channel.next_choice(), 16, true);
        assert_eq!(write.begins, last.ends + 15);
        let read = channel.access(write.ends, 17, false);
        assert_eq!(read.begins, write.ends + 30 + 45, "the command waits, and its data follows");
        let write = channel.access(channel.next_choice(), 18, true);
        let conflict = channel.access(channel.next_choice(), 2048, true);
        assert_eq!(conflict.begins, write.ends + 45 + 135, "write recovery, then a new row");
    }

    #[test]
    fn neighbouring_lines_alternate_between_channels() {
        let settings = DramSettings { lockstep: false, ..DramSettings::default() };
        let timing = Timing::new(&settings, 64);
        assert_eq!((timing.channel(0), timing.channel(1), timing.channel(2)), (0, 1, 0));
        assert_eq!(timing.bank_and_row(255), (0, 0), "two rows of 128 lines");
        assert_eq!(timing.bank_and_row(256), (1, 0));
        assert_eq!(timing.bank_and_row(256 * 8), (0, 1));
    }

    #[test]
    fn lockstep_channels_act_as_one_of_twice_the_width() {
        let (mut channel, timing) = channel(2);
        assert_eq!((timing.channel(0), timing.channel(1)), (0, 0));
        assert_eq!((timing.bank_and_row(255), timing.bank_and_row(256)), ((0, 0), (1, 0)));
        let opened = channel.access(1000, 0, false);
        assert_eq!(opened, Burst { row: Row::Open, begins: 1090, ends: 1120 });
    }
}
