//! The memory controller's queue, Mem_Q in the paper: the requests that wait for each channel.

use crate::configuration::Cycle;

/// The origin of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Agent {
    /// The processor's caches.
    Processor,
    /// The copy engine of this number.
    Engine(u8),
    /// A device that writes to memory.
    Device,
}

/// What happens once a line has been read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The line goes to the MSHR of this number.
    Fill(u8),
    /// Nothing happens: a line was evicted, supplied, or written by a device.
    Store,
    /// The line is the engine's read of this number.
    EngineRead {
        /// The engine.
        engine: u8,
        /// The index of the read in its piece.
        index: u32,
    },
    /// The line is a write of the engine's piece.
    EngineWrite {
        /// The engine.
        engine: u8,
    },
}

/// A line to be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The line's number.
    pub line: u64,
    /// Whether the line is to be written.
    pub write: bool,
    /// The origin of the request.
    pub agent: Agent,
    /// What happens afterwards.
    pub purpose: Purpose,
    /// The cycle in which the request entered the queue.
    pub arrived: Cycle,
    /// The transaction to which the request belongs, for the trace.
    pub transaction: u32,
}

impl Request {
    /// Whether an engine made the request.
    #[must_use]
    pub fn is_of_engine(&self) -> bool {
        matches!(self.agent, Agent::Engine(_))
    }
}

/// The queue. The paper has one; here requests are held by channel, in the order of arrival,
/// because requests of different channels never wait for each other.
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

    /// Whether an engine may add a request. One entry is reserved for the engines, because
    /// otherwise the processor alone could keep a short queue full. Processor and devices may
    /// always add a request: the requests that they may have under way bound their number.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.waiting < self.entries_max || self.of_engines == 0
    }

    /// Appends a request to its channel's list.
    pub fn push(&mut self, channel: usize, request: Request) {
        self.of_engines += usize::from(request.is_of_engine());
        self.channels[channel].push(request);
        self.waiting += 1;
    }

    /// The requests that wait for a channel, oldest first.
    #[must_use]
    pub fn waiting(&self, channel: usize) -> &[Request] {
        &self.channels[channel]
    }

    /// Removes the request at a position in [`Queue::waiting`].
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
