//! The pages of the calls, numbered in the order of their addresses.

use std::collections::{BTreeMap, BTreeSet};

use super::Event;
use crate::stream::{PAGE_BYTES, PAGES_MAX, SIZE_MAX};

/// The pages of some calls and their places in the arena.
pub(super) struct Arena {
    /// The place of each page.
    places: BTreeMap<u64, u32>,
    /// The number of places, those that no call uses included.
    pub(super) pages: u32,
    /// The events that have a place, by their index. The others are too long, or beyond the arena.
    pub(super) kept: Vec<usize>,
}

impl Arena {
    /// The arena of these events. Calls that do not fit are not kept; those before them are.
    pub(super) fn of(events: &[Event]) -> Self {
        let mut limit = PAGES_MAX as usize;
        loop {
            let arena = Self::within(events, limit);
            if arena.pages <= PAGES_MAX {
                return arena;
            }
            // The gaps need places too.
            limit /= 2;
        }
    }

    fn within(events: &[Event], limit: usize) -> Self {
        let mut pages = BTreeSet::new();
        let mut kept = Vec::new();
        for (index, event) in events.iter().enumerate() {
            if event.size > SIZE_MAX {
                continue;
            }
            let new: Vec<u64> = ranges(event).filter(|page| !pages.contains(page)).collect();
            // A page of both the source and the target counts twice here, which only costs room.
            if pages.len() + new.len() <= limit {
                pages.extend(new);
                kept.push(index);
            }
        }
        let (mut places, mut next, mut last) = (BTreeMap::new(), 0, None);
        for page in pages {
            if last.is_some_and(|last| last + 1 != page) {
                next += 1;
            }
            places.insert(page, next);
            next += 1;
            last = Some(page);
        }
        Self { places, pages: next, kept }
    }

    /// The offset of an address of a kept event.
    pub(super) fn offset(&self, address: u64) -> u32 {
        let place = self.places.get(&(address / u64::from(PAGE_BYTES))).copied();
        place.unwrap_or(0) * PAGE_BYTES + (address % u64::from(PAGE_BYTES)) as u32
    }
}

/// The pages of a call's target and source. A call of no bytes has the page of each pointer.
fn ranges(event: &Event) -> impl Iterator<Item = u64> {
    let page = u64::from(PAGE_BYTES);
    let source = event.kind.function().has_source().then_some(event.source);
    let last = u64::from(event.size.max(1)) - 1;
    let starts = std::iter::once(event.target).chain(source);
    starts.flat_map(move |start| start / page..=(start + last) / page)
}
