//! Encodes a call of an allocator as bytes, and decodes it. An event takes four to nine bytes: its
//! time and its address are stored as differences from the previous call, and its thread only if it
//! changes.
//!
//! ```text
//! first byte   bits 0-2  1 allocate, 2 reallocate, 3 free, 4 usable, 5 name, 6 lost, 7 thread
//!              bit 3     zeroed         (allocate)
//!              bit 4     aligned        (allocate, reallocate)
//!              bit 5     tagged         (allocate, reallocate)
//!              bit 6     sixteenths     (allocate, reallocate, free, usable)
//!              bit 7     0
//! then, as numbers of seven bits a byte:
//!   allocate     time, took, [align], [tag], address, size
//!   reallocate   time, took, [align], [tag], old address, new address, size
//!   free         time, address
//!   usable       time, address, size
//!   name         tag, length in bytes, the bytes
//!   lost         count
//!   thread       thread
//! ```
//!
//! A time is the difference from the previous time in the block. An address is the folded
//! difference from the previous address, divided by 16 if all differences of the event are
//! multiples of 16. The block's header has the first thread and the first time; the first address
//! is the difference from 0.

use super::TraceError;
use super::header::{BlockHeader, printable};
use crate::number::{self, NUMBER_BYTES_MAX};

/// The largest number of bytes of one event, including a change of thread before it: eight
/// numbers, the first bytes of the event and of the change, and an alignment; or a name with its
/// length and its tag.
pub const EVENT_BYTES_MAX: usize = 96;

/// The longest name of a tag, in bytes.
pub const NAME_BYTES_MAX: usize = 63;

/// Every tag is below this.
pub const TAGS_MAX: u16 = 4096;

const ALLOCATE: u8 = 1;
const REALLOCATE: u8 = 2;
const FREE: u8 = 3;
const USABLE: u8 = 4;
const NAME: u8 = 5;
const LOST: u8 = 6;
const THREAD: u8 = 7;
const KIND: u8 = 7;

const ZEROED: u8 = 1 << 3;
const ALIGNED: u8 = 1 << 4;
const TAGGED: u8 = 1 << 5;
const SIXTEENTHS: u8 = 1 << 6;

const _: () = assert!(EVENT_BYTES_MAX >= 8 * NUMBER_BYTES_MAX + 3);
const _: () = assert!(EVENT_BYTES_MAX >= NAME_BYTES_MAX + NUMBER_BYTES_MAX + 5);

/// One call, with its time and its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// The start of the call, in nanoseconds since the recording began.
    pub time_ns: u64,
    /// The duration of the call in nanoseconds; 0 if it was not measured.
    pub took_ns: u64,
    /// The kernel's ID of the calling thread.
    pub thread: u32,
    /// The call.
    pub call: Call<'a>,
}

/// A call of an allocator. An address belongs to the recorded program. It identifies a block
/// among the live ones and must not be accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call<'a> {
    /// `malloc` and related functions. An address of 0 means that the call failed.
    Allocate {
        /// The returned value.
        address: u64,
        /// The requested bytes.
        size: u64,
        /// The requested alignment is 2 to this power; 0 if none was requested.
        align_log2: u8,
        /// Whether zeroed bytes were requested.
        zeroed: bool,
        /// The purpose of the block; 0 for `malloc`, which has no tag.
        tag: u16,
    },
    /// `realloc` of a live block. A new address of 0 means that the call failed and the old block
    /// stays live.
    Reallocate {
        /// The address that was passed.
        old: u64,
        /// The returned value.
        new: u64,
        /// The requested bytes.
        size: u64,
        /// As in [`Call::Allocate`].
        align_log2: u8,
        /// As in [`Call::Allocate`].
        tag: u16,
    },
    /// `free` of a block.
    Free {
        /// The address that was passed.
        address: u64,
    },
    /// `malloc_usable_size`: from then on, the program may use `size` bytes.
    Usable {
        /// The address that was passed.
        address: u64,
        /// The returned value.
        size: u64,
    },
    /// The name of a tag. It may come after the tag's first use.
    Name {
        /// The tag.
        tag: u16,
        /// Its name: any bytes, [`NAME_BYTES_MAX`] at most.
        name: &'a [u8],
    },
    /// Calls that the recorder could not record.
    Lost {
        /// The number of lost calls.
        count: u64,
    },
}

/// The state for writing events into a block or reading them from it: the base of the next
/// differences.
#[derive(Clone, Copy, Debug)]
pub struct Coder {
    thread: u32,
    time_ns: u64,
    address: u64,
}

impl Coder {
    /// The state at the start of a block with this header.
    #[must_use]
    pub fn new(header: &BlockHeader) -> Self {
        Self { thread: header.thread, time_ns: header.time_ns, address: 0 }
    }

    /// Writes an event into `room` and returns its length in bytes. If it does not fit, it returns
    /// `None` and the state is unchanged; [`EVENT_BYTES_MAX`] bytes are always enough. A time
    /// before the last one is written as the last one, and a name longer than [`NAME_BYTES_MAX`] is
    /// cut off. It does not allocate.
    pub fn put(&mut self, event: &Event<'_>, room: &mut [u8]) -> Option<usize> {
        let mut next = *self;
        let mut output = Output { room, length: 0 };
        next.write(event, &mut output)?;
        *self = next;
        Some(output.length)
    }

    fn write(&mut self, event: &Event<'_>, output: &mut Output<'_>) -> Option<()> {
        if event.thread != self.thread {
            output.byte(THREAD)?;
            output.number(event.thread.into())?;
            self.thread = event.thread;
        }
        match event.call {
            Call::Allocate { address, size, align_log2, zeroed, tag } => {
                let flags = if zeroed { ZEROED } else { 0 };
                self.write_call(ALLOCATE | flags, event, (align_log2, tag), &[address], output)?;
                output.number(size)
            }
            Call::Reallocate { old, new, size, align_log2, tag } => {
                self.write_call(REALLOCATE, event, (align_log2, tag), &[old, new], output)?;
                output.number(size)
            }
            Call::Free { address } => self.write_call(FREE, event, (0, 0), &[address], output),
            Call::Usable { address, size } => {
                self.write_call(USABLE, event, (0, 0), &[address], output)?;
                output.number(size)
            }
            Call::Name { tag, name } => {
                let name = &name[..name.len().min(NAME_BYTES_MAX)];
                output.byte(NAME)?;
                output.number(tag.into())?;
                output.number(name.len() as u64)?;
                name.iter().try_for_each(|byte| output.byte(*byte))
            }
            Call::Lost { count } => {
                output.byte(LOST)?;
                output.number(count)
            }
        }
    }

    /// Writes the first byte, the times, the alignment and the tag if they are not 0, and the
    /// addresses.
    fn write_call(
        &mut self,
        kind: u8,
        event: &Event<'_>,
        (align_log2, tag): (u8, u16),
        addresses: &[u64],
        output: &mut Output<'_>,
    ) -> Option<()> {
        let mut last = self.address;
        let mut folded = 0;
        for address in addresses {
            folded |= address.wrapping_sub(last);
            last = *address;
        }
        let in_sixteenths = folded.is_multiple_of(16);
        let mut first = kind;
        first |= if align_log2 != 0 { ALIGNED } else { 0 };
        first |= if tag != 0 { TAGGED } else { 0 };
        first |= if in_sixteenths { SIXTEENTHS } else { 0 };
        output.byte(first)?;
        output.number(event.time_ns.saturating_sub(self.time_ns))?;
        self.time_ns = self.time_ns.max(event.time_ns);
        if matches!(kind & KIND, ALLOCATE | REALLOCATE) {
            output.number(event.took_ns)?;
        }
        if align_log2 != 0 {
            output.byte(align_log2)?;
        }
        if tag != 0 {
            output.number(tag.into())?;
        }
        for address in addresses {
            let difference = address.wrapping_sub(self.address);
            let shift = if in_sixteenths { 4 } else { 0 };
            output.number(number::folded(((difference as i64) >> shift) as u64))?;
            self.address = *address;
        }
        Some(())
    }
}

struct Output<'a> {
    room: &'a mut [u8],
    length: usize,
}

impl Output<'_> {
    fn byte(&mut self, byte: u8) -> Option<()> {
        *self.room.get_mut(self.length)? = byte;
        self.length += 1;
        Some(())
    }

    fn number(&mut self, value: u64) -> Option<()> {
        self.length += number::put(value, &mut self.room[self.length..])?;
        Some(())
    }
}

/// The events of one block, in the order in which they were recorded. The iterator ends after the
/// first error.
#[derive(Clone, Debug)]
pub struct Events<'a> {
    coder: Coder,
    bytes: &'a [u8],
    at: usize,
    failed: bool,
}

impl<'a> Events<'a> {
    /// The events of a block. `block` must start at the block's first byte and may be cut off; the
    /// header has the number of bytes of events. An event that is cut off is an error.
    #[must_use]
    pub fn new(header: &BlockHeader, block: &'a [u8]) -> Self {
        let start = super::BLOCK_HEADER_BYTES.min(block.len());
        let end = start.saturating_add(header.used_bytes as usize);
        let bytes = &block[start..end.min(block.len())];
        Self { coder: Coder::new(header), bytes, at: 0, failed: false }
    }

    fn read(&mut self) -> Result<Option<Event<'a>>, &'static str> {
        while let Some(&first) = self.bytes.get(self.at) {
            self.at += 1;
            let kind = first & KIND;
            if kind == 0 || first & !allowed(kind) != 0 {
                return Err("the first byte of an event has an unknown kind");
            }
            match kind {
                THREAD => {
                    let thread = self.number()?;
                    self.coder.thread =
                        u32::try_from(thread).map_err(|_| "a thread is beyond 32 bits")?;
                }
                NAME | LOST => {
                    let call = self.note(kind)?;
                    return Ok(Some(self.event(0, call)));
                }
                _ => return self.call(first).map(Some),
            }
        }
        Ok(None)
    }

    fn note(&mut self, kind: u8) -> Result<Call<'a>, &'static str> {
        if kind == LOST {
            return Ok(Call::Lost { count: self.number()? });
        }
        let tag = self.tag()?;
        let length = self.number()?;
        if length > NAME_BYTES_MAX as u64 {
            return Err("the name of a tag is longer than 63 bytes");
        }
        let end = self.at + length as usize;
        let name = self.bytes.get(self.at..end).ok_or("the name of a tag does not end")?;
        self.at = end;
        Ok(Call::Name { tag, name })
    }

    fn call(&mut self, first: u8) -> Result<Event<'a>, &'static str> {
        let kind = first & KIND;
        let since = self.number()?;
        self.coder.time_ns =
            self.coder.time_ns.checked_add(since).ok_or("a time is beyond 64 bits")?;
        let has_more = matches!(kind, ALLOCATE | REALLOCATE);
        let took_ns = if has_more { self.number()? } else { 0 };
        if self.coder.time_ns.checked_add(took_ns).is_none() {
            return Err("a time is beyond 64 bits");
        }
        let align_log2 = if first & ALIGNED != 0 { self.align()? } else { 0 };
        let tag = if first & TAGGED != 0 { self.tag()? } else { 0 };
        let address = self.address(first)?;
        let call = match kind {
            ALLOCATE => {
                let zeroed = first & ZEROED != 0;
                Call::Allocate { address, size: self.number()?, align_log2, zeroed, tag }
            }
            REALLOCATE => {
                let new = self.address(first)?;
                Call::Reallocate { old: address, new, size: self.number()?, align_log2, tag }
            }
            FREE => Call::Free { address },
            _ => Call::Usable { address, size: self.number()? },
        };
        Ok(self.event(took_ns, call))
    }

    fn event(&self, took_ns: u64, call: Call<'a>) -> Event<'a> {
        Event { time_ns: self.coder.time_ns, took_ns, thread: self.coder.thread, call }
    }

    fn number(&mut self) -> Result<u64, &'static str> {
        let (value, length) = number::take(&self.bytes[self.at..])
            .ok_or("a number does not end, or is beyond 64 bits")?;
        self.at += length;
        Ok(value)
    }

    fn address(&mut self, first: u8) -> Result<u64, &'static str> {
        let shift = if first & SIXTEENTHS != 0 { 4 } else { 0 };
        let difference = number::unfolded(self.number()?) << shift;
        self.coder.address = self.coder.address.wrapping_add(difference);
        Ok(self.coder.address)
    }

    fn align(&mut self) -> Result<u8, &'static str> {
        let align = self.bytes.get(self.at).copied().ok_or("an alignment is missing")?;
        self.at += 1;
        if align == 0 || align > 63 {
            return Err("an alignment is not from 2 to 2^63");
        }
        Ok(align)
    }

    fn tag(&mut self) -> Result<u16, &'static str> {
        match u16::try_from(self.number()?) {
            Ok(tag) if (1..TAGS_MAX).contains(&tag) => Ok(tag),
            _ => Err("a tag is not from 1 to 4095"),
        }
    }
}

impl<'a> Iterator for Events<'a> {
    type Item = Result<Event<'a>, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let at = self.at;
        match self.read() {
            Ok(event) => event.map(Ok),
            Err(why) => {
                self.failed = true;
                Some(Err(TraceError::Event { at, why }))
            }
        }
    }
}

impl Call<'_> {
    /// A tag's name as text.
    #[must_use]
    pub fn name_text(name: &[u8]) -> String {
        printable(name)
    }
}

/// The bits that the first byte of an event may have.
fn allowed(kind: u8) -> u8 {
    match kind {
        ALLOCATE => KIND | ZEROED | ALIGNED | TAGGED | SIXTEENTHS,
        REALLOCATE => KIND | ALIGNED | TAGGED | SIXTEENTHS,
        FREE | USABLE => KIND | SIXTEENTHS,
        _ => KIND,
    }
}

#[cfg(test)]
mod tests;
