//! Converts the calls of several threads, which identify blocks by address, to operations on
//! numbered blocks, in one possible order.
//!
//! An address identifies a block only while the block is live, and threads pass blocks to each
//! other, so the order determines which block an address identifies. A block is live from the end
//! of the call that allocates it until the start of the call that frees it: an allocation counts
//! at its end and a free at its start. Two calls of one thread never count at the same instant.
//! If two threads' calls count at the same instant, a free comes first.

use std::collections::HashMap;

use super::{BlockHeader, Call, Event, Events, Header, TraceError};

/// The operation on a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The block is allocated.
    Allocate,
    /// The block is allocated with zeroed bytes.
    AllocateZeroed,
    /// The block gets another size.
    Reallocate,
    /// The block is freed.
    Free,
}

/// One step of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The time, in nanoseconds since the recording began. Times ascend.
    pub time_ns: u64,
    /// The new size in bytes; for a free, the size of the freed block.
    pub size: u64,
    /// The block: a number below [`History::blocks`]. It is reused after the block was freed.
    pub block: u32,
    /// The time that the recorded program waited for the call, in nanoseconds; 0 if it is
    /// unknown.
    pub took_ns: u32,
    /// The thread: an index into [`History::threads`].
    pub thread: u16,
    /// The purpose of the block: an index into [`History::tags`]; 0 if it has no tag.
    pub tag: u16,
    /// The requested alignment is 2 to this power; 0 if none was requested.
    pub align_log2: u8,
    /// The kind of operation.
    pub kind: Kind,
}

/// Defects of a trace, which a perfect recording would not have. None prevents a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Oddities {
    /// The number of frees and reallocations of blocks that were allocated before the recording, or
    /// never.
    pub unknown: u64,
    /// The number of allocations at the address of a live block: a free between the two
    /// allocations is missing.
    pub unfreed: u64,
    /// The number of allocations that failed in the recorded program.
    pub failed: u64,
    /// The number of calls that the recorder could not record.
    pub lost: u64,
    /// The number of blocks of the file that are damaged.
    pub damaged: u64,
}

/// The operations of a trace, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The operations.
    pub operations: Vec<Operation>,
    /// The kernel's thread IDs.
    pub threads: Vec<u32>,
    /// The names of tags. The first is for blocks without a tag.
    pub tags: Vec<String>,
    /// The largest number of blocks that were live at the same time: every [`Operation::block`]
    /// is below it.
    pub blocks: u32,
    /// The number of blocks that were never freed.
    pub live: u32,
    /// The largest sum of requested bytes that were live at the same time.
    pub peak_bytes: u64,
    /// The defects of the trace.
    pub oddities: Oddities,
}

/// Builds a [`History`] from events, whose blocks may come in any order.
#[derive(Debug)]
pub struct Builder {
    moments: Vec<Moment>,
    threads: Vec<u32>,
    thread_index: HashMap<u32, u16>,
    last_ns: Vec<u64>,
    names: HashMap<u16, String>,
    oddities: Oddities,
    limit: usize,
}

impl History {
    /// Reads a whole file from memory. To read a file of any length, pass its blocks to a
    /// [`Builder`] one by one.
    ///
    /// # Errors
    /// It is an error if the header is invalid, or if there are more than `limit` operations.
    pub fn parse(bytes: &[u8], limit: usize) -> Result<(Header, Self), TraceError> {
        let header = Header::parse(bytes)?;
        let mut builder = Builder::new(limit);
        let blocks = bytes.get(header.header_bytes as usize..).unwrap_or_default();
        for block in blocks.chunks(header.block_bytes as usize) {
            builder.add_block(block, &header)?;
        }
        Ok((header, builder.build()))
    }
}

/// Half of a call: the part that frees, or the part that allocates.
#[derive(Clone, Copy, Debug)]
struct Moment {
    time_ns: u64,
    address: u64,
    size: u64,
    took_ns: u32,
    thread: u16,
    tag: u16,
    align_log2: u8,
    step: Step,
}

/// The order matters: the steps that free come before the steps that allocate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Free,
    /// The part of a reallocation that frees.
    Leave,
    /// The part of a reallocation that allocates.
    Arrive,
    Allocate,
    AllocateZeroed,
}

impl Builder {
    /// A builder of at most `limit` operations. Each needs about 80 bytes during the build.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            moments: Vec::new(),
            threads: Vec::new(),
            thread_index: HashMap::new(),
            last_ns: Vec::new(),
            names: HashMap::new(),
            oddities: Oddities::default(),
            limit,
        }
    }

    /// Adds one event. Events of one thread must come in order; threads may alternate in any way.
    ///
    /// # Errors
    /// [`TraceError::TooLong`] if there are more operations than the limit, or more than 65,535
    /// threads.
    pub fn add(&mut self, event: &Event<'_>) -> Result<(), TraceError> {
        let end_ns = event.time_ns.saturating_add(event.took_ns);
        match event.call {
            Call::Allocate { address: 0, .. } | Call::Reallocate { new: 0, .. } => {
                self.oddities.failed += 1;
            }
            Call::Allocate { address, size, align_log2, zeroed, tag } => {
                let step = if zeroed { Step::AllocateZeroed } else { Step::Allocate };
                let moment = self.moment(event, end_ns, step, address)?;
                self.push(Moment { size, align_log2, tag, ..moment })?;
            }
            Call::Reallocate { old, new, size, align_log2, tag } => {
                let leave = self.moment(event, event.time_ns, Step::Leave, old)?;
                self.push(leave)?;
                let arrive = self.moment(event, end_ns, Step::Arrive, new)?;
                self.push(Moment { size, align_log2, tag, ..arrive })?;
            }
            Call::Free { address: 0 } | Call::Usable { .. } => {}
            Call::Free { address } => {
                let moment = self.moment(event, event.time_ns, Step::Free, address)?;
                self.push(moment)?;
            }
            Call::Name { tag, name } => {
                self.names.entry(tag).or_insert_with(|| Call::name_text(name));
            }
            Call::Lost { count } => {
                self.oddities.lost = self.oddities.lost.saturating_add(count);
            }
        }
        Ok(())
    }

    /// Adds the events of one block of a file. `block` must start at the block's first byte and may
    /// be cut off. Damage is counted, and the events before it are added.
    ///
    /// # Errors
    /// The errors of [`add`](Self::add).
    pub fn add_block(&mut self, block: &[u8], file: &Header) -> Result<(), TraceError> {
        let header = match BlockHeader::parse(block, file.block_bytes) {
            Ok(Some(header)) => header,
            Ok(None) => return Ok(()),
            Err(_) => {
                self.oddities.damaged += 1;
                return Ok(());
            }
        };
        // If a file was cut off between two events, no event shows it.
        let mut is_whole = block.len() >= super::BLOCK_HEADER_BYTES + header.used_bytes as usize;
        for event in Events::new(&header, block) {
            match event {
                Ok(event) => self.add(&event)?,
                Err(_) => is_whole = false,
            }
        }
        self.oddities.damaged += u64::from(!is_whole);
        Ok(())
    }

    /// The history of all added events. Cost: a sort, and a lookup for each operation.
    #[must_use]
    pub fn build(mut self) -> History {
        // The sort is stable, so that the steps of one thread at one instant stay in order.
        self.moments.sort_by_key(|moment| (moment.time_ns, moment.step));
        let mut play = Play::new(self.threads.len());
        play.history.operations.reserve_exact(self.moments.len());
        play.history.oddities = self.oddities;
        for moment in &self.moments {
            play.step(moment);
        }
        play.finish(self.threads, &self.names)
    }

    fn moment(
        &mut self,
        event: &Event<'_>,
        time_ns: u64,
        step: Step,
        address: u64,
    ) -> Result<Moment, TraceError> {
        let thread = match self.thread_index.get(&event.thread) {
            Some(index) => *index,
            None => {
                let index = u16::try_from(self.threads.len())
                    .map_err(|_| TraceError::TooLong { limit: self.limit })?;
                self.threads.push(event.thread);
                self.last_ns.push(0);
                self.thread_index.insert(event.thread, index);
                index
            }
        };
        // The clock may not advance between two calls of a thread, but their order must be kept.
        let last_ns = &mut self.last_ns[usize::from(thread)];
        *last_ns = time_ns.max(last_ns.saturating_add(1));
        Ok(Moment {
            time_ns: *last_ns,
            address,
            size: 0,
            took_ns: u32::try_from(event.took_ns).unwrap_or(u32::MAX),
            thread,
            tag: 0,
            align_log2: 0,
            step,
        })
    }

    fn push(&mut self, moment: Moment) -> Result<(), TraceError> {
        // Block numbers are 32 bits, and a reallocation is two moments.
        if self.moments.len() >= self.limit.min(u32::MAX as usize / 2) {
            return Err(TraceError::TooLong { limit: self.limit });
        }
        self.moments.push(moment);
        Ok(())
    }
}

/// A live block.
#[derive(Clone, Copy)]
struct Live {
    block: u32,
    size: u64,
    tag: u16,
}

/// The history up to the current step.
struct Play {
    history: History,
    live: HashMap<u64, Live>,
    /// The numbers of freed blocks. The last freed one is reused first, because its memory is warm.
    spare: Vec<u32>,
    /// For each thread, the block that its unfinished reallocation has freed.
    moving: Vec<Option<Live>>,
    bytes: u64,
}

impl Play {
    fn new(threads: usize) -> Self {
        Self {
            history: History::default(),
            live: HashMap::new(),
            spare: Vec::new(),
            moving: vec![None; threads],
            bytes: 0,
        }
    }

    fn step(&mut self, moment: &Moment) {
        match moment.step {
            Step::Allocate | Step::AllocateZeroed => self.allocate(moment),
            Step::Leave => {
                self.moving[usize::from(moment.thread)] = self.live.remove(&moment.address);
            }
            Step::Arrive => match self.moving[usize::from(moment.thread)].take() {
                Some(live) => self.arrive(moment, live),
                None => {
                    self.history.oddities.unknown += 1;
                    self.allocate(&Moment { step: Step::Allocate, ..*moment });
                }
            },
            Step::Free => match self.live.remove(&moment.address) {
                Some(live) => self.free(moment, live),
                None => self.history.oddities.unknown += 1,
            },
        }
    }

    fn allocate(&mut self, moment: &Moment) {
        self.make_room(moment);
        let block = self.spare.pop().unwrap_or_else(|| {
            self.history.blocks += 1;
            self.history.blocks - 1
        });
        let kind = match moment.step {
            Step::AllocateZeroed => Kind::AllocateZeroed,
            _ => Kind::Allocate,
        };
        self.insert(moment, kind, Live { block, size: moment.size, tag: moment.tag });
    }

    fn arrive(&mut self, moment: &Moment, live: Live) {
        self.bytes = self.bytes.saturating_sub(live.size);
        self.make_room(moment);
        let tag = if moment.tag == 0 { live.tag } else { moment.tag };
        self.insert(moment, Kind::Reallocate, Live { size: moment.size, tag, ..live });
    }

    fn insert(&mut self, moment: &Moment, kind: Kind, live: Live) {
        self.live.insert(moment.address, live);
        self.bytes = self.bytes.saturating_add(live.size);
        self.history.peak_bytes = self.history.peak_bytes.max(self.bytes);
        self.push(moment, kind, live);
    }

    /// Frees the block that is still live at the address of a new one.
    fn make_room(&mut self, moment: &Moment) {
        if let Some(stale) = self.live.remove(&moment.address) {
            self.history.oddities.unfreed += 1;
            self.free(&Moment { took_ns: 0, align_log2: 0, ..*moment }, stale);
        }
    }

    fn free(&mut self, moment: &Moment, live: Live) {
        self.bytes = self.bytes.saturating_sub(live.size);
        self.spare.push(live.block);
        self.push(moment, Kind::Free, live);
    }

    fn push(&mut self, moment: &Moment, kind: Kind, live: Live) {
        self.history.operations.push(Operation {
            time_ns: moment.time_ns,
            size: live.size,
            block: live.block,
            took_ns: moment.took_ns,
            thread: moment.thread,
            tag: live.tag,
            align_log2: moment.align_log2,
            kind,
        });
    }

    /// Numbers tags without gaps, in the order of their first use.
    fn finish(mut self, threads: Vec<u32>, names: &HashMap<u16, String>) -> History {
        let mut numbers: HashMap<u16, u16> = HashMap::from([(0, 0)]);
        let mut tags = vec!["untagged".to_owned()];
        for operation in &mut self.history.operations {
            operation.tag = *numbers.entry(operation.tag).or_insert_with_key(|tag| {
                tags.push(names.get(tag).cloned().unwrap_or_else(|| format!("tag {tag}")));
                (tags.len() - 1) as u16
            });
        }
        // A reallocation that did not return leaves its block live.
        let moving = self.moving.iter().flatten().count();
        self.history.live = (self.live.len() + moving) as u32;
        History { threads, tags, ..self.history }
    }
}

#[cfg(test)]
mod tests;
