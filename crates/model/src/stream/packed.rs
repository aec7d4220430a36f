//! The calls as bytes: column after column, which a general compressor makes small.
//!
//! Addresses are differences from the previous call of the same site, because a site often uses
//! the same buffer again, or continues where it ended.

use std::io::Read as _;

use flate2::Compression;
use flate2::bufread::ZlibDecoder;
use flate2::write::ZlibEncoder;

use super::call::{Call, Function, PAGE_BYTES, Read, SIZE_MAX, TimeClass};
use super::{Stream, StreamError};
use crate::number::{self, NUMBER_BYTES_MAX};

/// The most bytes of one call before compression: two bytes, a site of three bytes, and numbers
/// for the size, the target and the source, which have five bytes each at most.
const CALL_BYTES_MAX: u64 = 2 + 3 + 3 * 5;

/// The bits of the first byte of a call that are the function; the others are the read.
const FUNCTION_BITS: u32 = 2;

/// The addresses of the previous call of a site.
#[derive(Clone, Copy, Default)]
struct Last {
    target: u32,
    source: u32,
}

/// Packs the calls of a stream, which must be valid.
pub(super) fn pack(stream: &Stream) -> Vec<u8> {
    let calls = &stream.calls;
    let mut bytes: Vec<u8> = calls.iter().map(what).collect();
    bytes.extend(calls.iter().map(|call| call.since.number()));
    calls.iter().for_each(|call| put(call.site.into(), &mut bytes));
    calls.iter().for_each(|call| put(call.size.into(), &mut bytes));
    let mut last = vec![Last::default(); stream.sites.len()];
    for call in calls {
        let last = &mut last[usize::from(call.site)].target;
        put(difference(call.target, last), &mut bytes);
    }
    for call in calls {
        if let Some(source) = call.source {
            let last = &mut last[usize::from(call.site)].source;
            put(difference(source, last), &mut bytes);
        }
    }
    compressed(&bytes)
}

fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    std::io::Write::write_all(&mut encoder, bytes)
        .and_then(|()| encoder.finish())
        .expect("a vector accepts any bytes")
}

/// The function and the read, as one byte.
fn what(call: &Call) -> u8 {
    let function = match call.function {
        Function::Memcpy => 0,
        Function::Memmove => 1,
        Function::Memset { zero: true } => 2,
        Function::Memset { zero: false } => 3,
    };
    let read = match call.read {
        Read::Unknown => 0,
        Read::NotRead => 1,
        Read::After(class) => 2 + class.number(),
    };
    function | read << FUNCTION_BITS
}

fn put(value: u64, bytes: &mut Vec<u8>) {
    let mut room = [0; NUMBER_BYTES_MAX];
    let length = number::put(value, &mut room).expect("the room is for any number");
    bytes.extend(&room[..length]);
}

/// The difference of an offset from the last one, which it replaces.
fn difference(offset: u32, last: &mut u32) -> u64 {
    let difference = u64::from(offset).wrapping_sub((*last).into());
    *last = offset;
    number::folded(difference)
}

/// Unpacks `count` calls with sites below `sites`, in an arena of `pages`.
///
/// # Errors
/// It is an error if the bytes are not exactly that number of valid calls.
pub(super) fn unpack(
    packed: &[u8],
    count: usize,
    sites: usize,
    pages: u32,
) -> Result<Vec<Call>, StreamError> {
    let bytes = inflated(packed, count)?;
    let mut input = Input { bytes: &bytes, at: 0 };
    // The columns of single bytes come first, so that a count that is too high ends here.
    let mut calls = Vec::new();
    let what = input.bytes(count)?;
    let since = input.bytes(count)?;
    calls.reserve_exact(count);
    for (what, since) in what.iter().zip(since) {
        calls.push(begun(*what, *since).ok_or(StreamError::Call {
            at: calls.len(),
            why: "it has an unknown function, or a class of times above the last",
        })?);
    }
    for (at, call) in calls.iter_mut().enumerate() {
        let last = sites.checked_sub(1).ok_or(StreamError::Call { at, why: "it has no site" })?;
        call.site = input.at_most(at, last as u64, "site")? as u16;
    }
    for (at, call) in calls.iter_mut().enumerate() {
        call.size = input.at_most(at, SIZE_MAX.into(), "size")? as u32;
    }
    let arena = u64::from(pages) * u64::from(PAGE_BYTES);
    let mut last = vec![Last::default(); sites];
    for (at, call) in calls.iter_mut().enumerate() {
        let last = &mut last[usize::from(call.site)].target;
        call.target = input.offset(at, arena, call.size, last)?;
    }
    for (at, call) in calls.iter_mut().enumerate() {
        if let Some(source) = &mut call.source {
            let last = &mut last[usize::from(call.site)].source;
            *source = input.offset(at, arena, call.size, last)?;
        }
    }
    if input.at < bytes.len() {
        return Err(StreamError::Call { at: count, why: "bytes follow the last call" });
    }
    Ok(calls)
}

/// Inflates no more bytes than `count` calls may have.
fn inflated(packed: &[u8], count: usize) -> Result<Vec<u8>, StreamError> {
    let limit = count as u64 * CALL_BYTES_MAX;
    let mut bytes = Vec::new();
    let mut decoder = ZlibDecoder::new(packed).take(limit + 1);
    let inflated = decoder.read_to_end(&mut bytes);
    let rest = decoder.into_inner().into_inner();
    if inflated.is_err() || bytes.len() as u64 > limit || !rest.is_empty() {
        return Err(StreamError::Packed { calls: count });
    }
    Ok(bytes)
}

/// A call whose function, read and time are known.
fn begun(what: u8, since: u8) -> Option<Call> {
    let function = match what & 3 {
        0 => Function::Memcpy,
        1 => Function::Memmove,
        2 => Function::Memset { zero: true },
        _ => Function::Memset { zero: false },
    };
    let read = match what >> FUNCTION_BITS {
        0 => Read::Unknown,
        1 => Read::NotRead,
        class => Read::After(TimeClass::new(class - 2)?),
    };
    let source = function.has_source().then_some(0);
    let since = TimeClass::new(since)?;
    Some(Call { function, site: 0, size: 0, target: 0, source, since, read })
}

struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], StreamError> {
        let end = self.at.saturating_add(count);
        let bytes = self.bytes.get(self.at..end).ok_or(StreamError::Packed { calls: count })?;
        self.at = end;
        Ok(bytes)
    }

    fn number(&mut self, at: usize) -> Result<u64, StreamError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let (value, length) = number::take(rest)
            .ok_or(StreamError::Call { at, why: "a number does not end, or is beyond 64 bits" })?;
        self.at += length;
        Ok(value)
    }

    fn at_most(
        &mut self,
        at: usize,
        highest: u64,
        field: &'static str,
    ) -> Result<u64, StreamError> {
        let value = self.number(at)?;
        if value > highest {
            return Err(StreamError::Range { at, field, found: value, highest });
        }
        Ok(value)
    }

    /// An offset in the arena at which `size` bytes fit.
    fn offset(
        &mut self,
        at: usize,
        arena: u64,
        size: u32,
        last: &mut u32,
    ) -> Result<u32, StreamError> {
        let difference = number::unfolded(self.number(at)?);
        let offset = u64::from(*last).wrapping_add(difference);
        let highest = arena.saturating_sub(size.into());
        if offset > highest || u64::from(size) > arena {
            return Err(StreamError::Range { at, field: "offset", found: offset, highest });
        }
        *last = offset as u32;
        Ok(*last)
    }
}
