//! The memory controller's queue, Mem_Q in the paper: what waits for each channel.

use crate::configuration::Cycle;

/// Who asks for a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Agent {
    /// The processor's caches.
    Processor,
    /// The copy engine of this number.
    Engine(u8),
    /// A device that writes to memory.
    Device,
}

/// What follows once a line has been read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The line goes to the MSHR of this number.
    Fill(u8),
    /// Nothing: a line was evicted, supplied, or written by a device.
    Store,
    /// The line is the engine's read of this number.
    EngineRead {
        /// Which engine.
        engine: u8,
        /// Which of its piece's reads.
        index: u32,
    },
    /// The line is a write of the engine's piece.
    EngineWrite {
        /// Which engine.
        engine: u8,
    },
}

/// A line to be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The line's number.
    pub line: u64,
    /// Whether it is written.
    pub write: bool,
    /// Who asks.
    pub agent: Agent,
    /// What follows.
    pub purpose: Purpose,
    /// When it entered the queue.
    pub arrived: Cycle,
    /// The transaction that it belongs to, for the trace.
    pub transaction: u32,
}

impl Request {
    /// Whether an engine asks.
    #[must_use]
    pub fn is_of_engine(&self) -> bool {
        matches!(self.agent, Agent::Engine(_))
    }
}

/// The queue: one in the paper; held here by channel, in the order of arrival, since requests of
/// different channels never wait for each other.
pub struct Queue {
    channels: Vec<Vec<Request>>,
    entries_max: usize,
    waiting: usize,
    of_engines: usize,
}

impl Queue {
    /// An empty queue.
    #[must_use]
    pub fn new(channels: usize, entries_max: usize) -> Self {
        Self { channels: vec![Vec::new(); channels], entries_max, waiting: 0, of_engines: 0 }
    }

    /// Whether an engine may put one more in. One entry is the engines' own, or the processor alone
    /// could keep a short queue full. Processor and devices always may: their number is bounded by
    /// what they may have under way.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.waiting < self.entries_max || self.of_engines == 0
    }

    /// Puts a request at the end of its channel's line.
    pub fn push(&mut self, channel: usize, request: Request) {
        self.of_engines += usize::from(request.is_of_engine());
        self.channels[channel].push(request);
        self.waiting += 1;
    }

    /// What waits for a channel, oldest first.
    #[must_use]
    pub fn waiting(&self, channel: usize) -> &[Request] {
        &self.channels[channel]
    }

    /// Takes the request at a place that [`Queue::waiting`] showed.
    pub fn take(&mut self, channel: usize, place: usize) -> Request {
        let request = self.channels[channel].remove(place);
        self.waiting -= 1;
        self.of_engines -= usize::from(request.is_of_engine());
        request
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }
}
