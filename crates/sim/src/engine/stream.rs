//! A piece of a copy in an engine: the lines that it reads and writes, and its progress.

/// What an engine does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Enqueue the next read.
    Read,
    /// Enqueue the next write.
    Write,
    /// Do nothing until a request completes.
    Wait,
}

/// A piece and its stream buffer. The buffer holds copied data in the alignment of the target, one
/// slot per line of the target. Bytes of a source line that belong to the next slot wait in the
/// shifter that aligns source and target, and occupy no slot.
///
/// Reads go in this order: the first line of the target, if the piece covers only its end (the
/// engine reads, modifies and writes it); the lines of the source; the last line of the target, if
/// the piece covers only its beginning. Writes go line by line through the target.
#[derive(Clone, Debug)]
pub struct Stream {
    source: u64,
    target: u64,
    bytes: u64,
    line_bytes: u64,
    lines_max: u32,
    merges_first: bool,
    merges_last: bool,
    reads_issued: u32,
    arrived: Vec<bool>,
    arrived_prefix: u32,
    writes_issued: u32,
    writes_done: u32,
    writing: bool,
}

impl Stream {
    /// A piece that has not begun. `bytes` must not be 0, and both ranges must end inside the
    /// address space.
    #[must_use]
    pub fn new(source: u64, target: u64, bytes: u64, line_bytes: u64, lines_max: u32) -> Self {
        let partial_first = !target.is_multiple_of(line_bytes);
        let partial_last = !(target + bytes).is_multiple_of(line_bytes);
        let one_line = target / line_bytes == (target + bytes - 1) / line_bytes;
        let mut stream = Self {
            source,
            target,
            bytes,
            line_bytes,
            lines_max,
            merges_first: partial_first || (one_line && partial_last),
            merges_last: partial_last && !one_line,
            reads_issued: 0,
            arrived: Vec::new(),
            arrived_prefix: 0,
            writes_issued: 0,
            writes_done: 0,
            writing: false,
        };
        stream.arrived = vec![false; stream.reads() as usize];
        stream
    }

    /// Lines to read in all.
    #[must_use]
    pub fn reads(&self) -> u32 {
        self.source_lines() + u32::from(self.merges_first) + u32::from(self.merges_last)
    }

    /// Lines to write in all.
    #[must_use]
    pub fn writes(&self) -> u32 {
        lines(self.target, self.bytes, self.line_bytes)
    }

    /// Lines of the stream buffer in use.
    #[must_use]
    pub fn buffered(&self) -> u32 {
        let begun = self.reads_issued.checked_sub(1).map_or(0, |last| self.place_of(last) + 1);
        begun.saturating_sub(self.writes_done)
    }

    /// Whether another read is left and the stream buffer has room for it.
    #[must_use]
    pub fn may_read(&self) -> bool {
        self.reads_issued < self.reads()
            && self.place_of(self.reads_issued) < self.writes_done + self.lines_max
    }

    /// Whether another write is left and its data has arrived.
    #[must_use]
    pub fn may_write(&self) -> bool {
        self.writes_issued < self.writes() && self.arrived_prefix >= self.needed(self.writes_issued)
    }

    /// The next step by the paper's method: read until the buffer is full or no read is left; once
    /// all those reads have arrived, write until the buffer is empty.
    #[must_use]
    pub fn batches(&self) -> Step {
        if !self.writing && self.may_read() {
            Step::Read
        } else if self.may_write() && (self.writing || self.arrived_prefix == self.reads_issued) {
            Step::Write
        } else if self.writing && self.writes_issued == self.writes_done && self.may_read() {
            Step::Read
        } else {
            Step::Wait
        }
    }

    /// Whether all lines are written.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.writes_done == self.writes()
    }

    /// Whether the whole line belongs to the source.
    #[must_use]
    pub fn is_whole_source(&self, line: u64) -> bool {
        let first = line * self.line_bytes;
        first >= self.source && first + self.line_bytes <= self.source + self.bytes
    }

    /// Begins the next read. Returns its number and its line.
    pub(crate) fn read(&mut self) -> (u32, u64) {
        let number = self.reads_issued;
        self.reads_issued += 1;
        self.writing = false;
        let first_line = u32::from(self.merges_first);
        let line = if number < first_line {
            self.target / self.line_bytes
        } else if number - first_line < self.source_lines() {
            self.source / self.line_bytes + u64::from(number - first_line)
        } else {
            (self.target + self.bytes - 1) / self.line_bytes
        };
        (number, line)
    }

    /// Marks a read's data as arrived in the stream buffer.
    pub(crate) fn arrive(&mut self, number: u32) {
        self.arrived[number as usize] = true;
        while self.arrived.get(self.arrived_prefix as usize) == Some(&true) {
            self.arrived_prefix += 1;
        }
    }

    /// Begins the next write. Returns its line.
    pub(crate) fn write(&mut self) -> u64 {
        let line = self.target / self.line_bytes + u64::from(self.writes_issued);
        self.writes_issued += 1;
        self.writing = true;
        line
    }

    /// Marks a write as done.
    pub(crate) fn written(&mut self) {
        self.writes_done += 1;
    }

    fn source_lines(&self) -> u32 {
        lines(self.source, self.bytes, self.line_bytes)
    }

    /// The number of reads that must have arrived before the write of this number.
    fn needed(&self, write: u32) -> u32 {
        if write + 1 == self.writes() {
            return self.reads();
        }
        let end = (self.target / self.line_bytes + u64::from(write) + 1) * self.line_bytes;
        let last_line = (self.source + end - self.target - 1) / self.line_bytes;
        let before = last_line - self.source / self.line_bytes;
        u32::try_from(before).expect("inside a page") + 1 + u32::from(self.merges_first)
    }

    /// The first write that needs the read of this number.
    fn place_of(&self, read: u32) -> u32 {
        let Some(line) = read.checked_sub(u32::from(self.merges_first)) else {
            return 0;
        };
        if line >= self.source_lines() {
            return self.writes() - 1;
        }
        let first = (self.source / self.line_bytes + u64::from(line)) * self.line_bytes;
        let copied = first.saturating_sub(self.source);
        let place = (self.target % self.line_bytes + copied) / self.line_bytes;
        u32::try_from(place).expect("inside a page")
    }
}

fn lines(first: u64, bytes: u64, line_bytes: u64) -> u32 {
    let last = (first + bytes - 1) / line_bytes;
    u32::try_from(last - first / line_bytes + 1).expect("a piece is inside a page")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_piece_reads_and_writes_each_line_once() {
        let stream = Stream::new(0, 4096, 1024, 64, 16);
        assert_eq!((stream.reads(), stream.writes()), (16, 16));
    }

    #[test]
    fn partial_target_line_is_read_as_well() {
        let reads_and_writes = |source, target, bytes| {
            let stream = Stream::new(source, target, bytes, 64, 16);
            (stream.reads(), stream.writes())
        };
        assert_eq!(reads_and_writes(0, 4097, 64), (1 + 2, 2));
        assert_eq!(reads_and_writes(0, 4096, 10), (1 + 1, 1));
        assert_eq!(reads_and_writes(60, 4100, 10), (2 + 1, 1));
        assert_eq!(reads_and_writes(0, 4096, 65), (2 + 1, 2));
    }

    /// Runs a piece to its end, each request done `delay` steps after it was issued.
    fn run(mut stream: Stream, step: fn(&Stream) -> Step, delay: usize) -> Vec<(Step, u64)> {
        let mut under_way = std::collections::VecDeque::new();
        let mut done = Vec::new();
        for now in 0.. {
            assert!(now < 10_000, "stuck: {stream:?}");
            while under_way.front().is_some_and(|(due, _)| *due <= now) {
                match under_way.pop_front() {
                    Some((_, Some(number))) => stream.arrive(number),
                    _ => stream.written(),
                }
            }
            if stream.is_complete() {
                break;
            }
            match step(&stream) {
                Step::Read => {
                    let (number, line) = stream.read();
                    done.push((Step::Read, line));
                    under_way.push_back((now + delay, Some(number)));
                }
                Step::Write => {
                    done.push((Step::Write, stream.write()));
                    under_way.push_back((now + delay, None));
                }
                Step::Wait => {}
            }
        }
        done
    }

    fn pipelined(stream: &Stream) -> Step {
        match (stream.may_write(), stream.may_read()) {
            (true, _) => Step::Write,
            (false, true) => Step::Read,
            _ => Step::Wait,
        }
    }

    #[test]
    fn every_piece_writes_each_line_once_after_its_data() {
        for lines_max in [1, 2, 3, 16] {
            for (source, target, bytes) in [
                (0, 4096, 4096),
                (1, 4159, 1400),
                (63, 4097, 3),
                (5, 4096 + 5, 60),
                (40, 8000, 192),
            ] {
                for step in [Stream::batches, pipelined] {
                    let stream = Stream::new(source, target, bytes, 64, lines_max);
                    let (reads, writes) = (stream.reads(), stream.writes());
                    let done = run(stream, step, 7);
                    let count = |of| done.iter().filter(|(step, _)| *step == of).count();
                    assert_eq!(count(Step::Read), reads as usize);
                    assert_eq!(count(Step::Write), writes as usize);
                    let written: Vec<u64> = done
                        .iter()
                        .filter(|(step, _)| *step == Step::Write)
                        .map(|(_, line)| *line)
                        .collect();
                    assert!(written.windows(2).all(|pair| pair[0] + 1 == pair[1]));
                }
            }
        }
    }

    #[test]
    fn buffer_holds_target_lines_for_every_source_alignment() {
        for source in [0, 1, 56, 63] {
            let done = run(Stream::new(source, 4096, 1024, 64, 16), Stream::batches, 3);
            let turn = done.iter().position(|(step, _)| *step == Step::Write);
            let reads = done.iter().filter(|(step, _)| *step == Step::Read).count();
            assert_eq!(turn, Some(reads), "one round, from {source}");
            assert_eq!(reads, 16 + usize::from(source > 0));
        }
    }

    #[test]
    fn batches_fill_buffer_before_writing_it_out() {
        let done = run(Stream::new(0, 4096, 2048, 64, 16), Stream::batches, 3);
        let steps: Vec<Step> = done.iter().map(|(step, _)| *step).collect();
        let batch = |step| vec![step; 16];
        let expected =
            [batch(Step::Read), batch(Step::Write), batch(Step::Read), batch(Step::Write)].concat();
        assert_eq!(steps, expected);
    }
}
