//! A device that dies after any of its stores, in rings of chains of one and of several
//! descriptors, and the one that goes on.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;

use super::super::super::super::ring::packed::{Packed, Place, death};
use super::super::super::super::ring::split::NEXT;
use super::super::super::inflight::{Area, Note, Noted};
use super::super::packed::PackedRing;
use super::super::{First, Layout};

const SIZE: u16 = 8;

/// The first address.
const BASE: u64 = 1 << 20;

/// Lengths of chains, one after the other and again.
const SHAPES: [&[u16]; 7] = [&[1], &[2], &[3], &[1, 2], &[2, 1, 1], &[3, 1, 4], &[8]];

/// What outlives a device.
struct Memory {
    /// The ring's areas, never freed.
    areas: [NonNull<u8>; 3],
    /// What the front end keeps.
    area: Option<Arc<Area>>,
}

impl Memory {
    fn new(has_area: bool) -> Self {
        let at = || NonNull::new(vec![0_u64; 16].leak().as_mut_ptr().cast()).unwrap();
        let area = has_area.then(|| Arc::new(Area::make(1, SIZE).unwrap().0));
        Self { areas: [at(), at(), at()], area }
    }

    fn ring(&self) -> Packed {
        // SAFETY: each area has the bytes of a ring of 8, and is never freed.
        unsafe { Packed::new(self.areas, SIZE.into()) }
    }

    fn note(&self) -> Option<Note> {
        self.area.as_ref().map(|area| area.region(0, SIZE.into(), true).unwrap())
    }

    /// A device that goes on at what was noted, or at the front end's place.
    fn device(&self, base: Place, shows_last: bool) -> (PackedRing, u64) {
        let noted = self.note().and_then(|note| note.read(SIZE.into()).unwrap());
        let places = noted.into_iter().flat_map(|Noted { shown, shows }| [shown, shows]);
        let places: Vec<Place> = places.chain([base]).collect();
        PackedRing::new(self.ring(), &places, false, shows_last, self.note())
    }

    /// As before any device.
    fn clear(&self) {
        self.ring().clear();
        self.note().iter().for_each(Note::forget);
    }
}

/// A driver whose chains are numbered.
struct Driver {
    ring: Packed,
    shape: &'static [u16],
    next: Place,
    used: Place,
    /// The next chain's number.
    given: usize,
    /// Of the chains that are out, id and descriptors.
    out: VecDeque<(u16, u16)>,
}

impl Driver {
    fn new(ring: Packed, shape: &'static [u16]) -> Self {
        let (next, used) = (Place::START, Place::START);
        Self { ring, shape, next, used, given: 0, out: VecDeque::new() }
    }

    fn length(&self, number: usize) -> u16 {
        self.shape[number % self.shape.len()]
    }

    /// Gives chains while fewer descriptors than `most` are out.
    fn give(&mut self, most: u16) {
        loop {
            let (id, length) = (self.next.index, self.length(self.given));
            let out: u16 = self.out.iter().map(|(_, length)| length).sum();
            if out + length > most {
                return;
            }
            for ahead in (0..length).rev() {
                let place = self.next.plus(ahead, SIZE);
                self.ring.set_address(place, BASE + self.given as u64 * 16 + u64::from(ahead));
                let flags = if ahead + 1 < length { NEXT } else { 0 };
                self.ring.put_available(place, id, 60, flags);
            }
            self.next = self.next.plus(length, SIZE);
            self.out.push_back((id, length));
            self.given += 1;
        }
    }

    /// Takes all that came back; of chains in order the last of several may be shown alone.
    fn take(&mut self, shows_last: bool) {
        while let Some((id, _)) = self.ring.used(self.used) {
            let at = self.out.iter().position(|(out, _)| *out == id).expect("an id that is out");
            assert!(at == 0 || shows_last, "not in order");
            for (_, length) in self.out.drain(..=at) {
                self.used = self.used.plus(length, SIZE);
            }
        }
    }
}

/// Takes at most so many chains and shows that they were used; the numbers of those that it read.
fn serve(device: &mut PackedRing, most: usize, read: &mut Vec<usize>) {
    for _ in 0..most {
        device.look(&mut [First::default(); 1]).unwrap();
        let place = device.place();
        let Some(mut walk) = device.open(place).unwrap() else { break };
        let first = walk.descriptor.address;
        while walk.descriptor.flags & NEXT != 0 {
            device.step(&mut walk).unwrap();
            let ahead = u64::from(walk.count) - 1;
            assert_eq!(walk.descriptor.address, first + ahead, "a chain that is torn");
        }
        read.push(((first - BASE) / 16) as usize);
        let (chain, _) = device.close(place, &walk).unwrap();
        device.use_chain(chain, 60);
    }
    device.publish();
}

/// What is tried.
#[derive(Clone, Copy, Debug)]
struct Case {
    shape: &'static [u16],
    shows_last: bool,
    /// Bursts before the one in which the device dies, and most chains of a burst.
    bursts: usize,
    burst: usize,
    /// Most descriptors that are out.
    out: u16,
    /// Whether the driver goes on before the next device comes.
    goes_on: bool,
    /// Stores that are made of the last burst.
    stores: i64,
}

impl Case {
    /// Runs it, with the place that the front end says to the second device; false once the device
    /// does not die any more.
    fn holds(self, memory: &Memory, base: Place) -> bool {
        let Self { shape, shows_last, .. } = self;
        memory.clear();
        let mut driver = Driver::new(memory.ring(), shape);
        let ((mut first, _), mut read) = (memory.device(Place::START, shows_last), Vec::new());
        for _ in 0..self.bursts {
            driver.give(self.out);
            serve(&mut first, self.burst, &mut read);
            driver.take(shows_last);
        }
        driver.give(self.out);
        let mut cut = Vec::new();
        let at = first.place();
        let has_died = death::after(self.stores, || serve(&mut first, self.burst, &mut cut));
        let has_shown = memory.ring().used(at).is_some();
        if self.goes_on {
            driver.take(shows_last);
            driver.give(self.out);
        }
        let ((mut second, lost), mut later) = (memory.device(base, shows_last), Vec::new());
        for most in [3, 3, 8] {
            serve(&mut second, most, &mut later);
            driver.take(shows_last);
        }
        let name = format!("{self:?} {base:?}: {read:?} {cut:?} {later:?}");
        assert!(driver.out.is_empty(), "not all came back: {name}");
        let from = later.first().copied().unwrap_or(driver.given);
        assert!(later.iter().copied().eq(from..driver.given), "not all, or not in order: {name}");
        assert!(from >= read.len(), "twice: {name}");
        // All of the burst was shown by the one that died, or what is lost of it is counted.
        let gone = (from - read.len()) as u64;
        assert!(lost == gone || lost == 0 && has_shown, "{lost} of {gone} counted: {name}");
        assert!(from <= read.len() + cut.len(), "lost: {name}");
        has_died
    }

    /// With every store as the last, and every place that a front end may say; how many deaths.
    fn holds_whenever(self, memory: &Memory) -> u64 {
        let (round, places) = (Place::START.plus(SIZE, SIZE), 0..SIZE);
        let places = places.flat_map(|count| [Place::START, round].map(|at| at.plus(count, SIZE)));
        let has_died = |stores| {
            let case = Self { stores, ..self };
            places.clone().all(|base| case.holds(memory, base))
        };
        (0..).take_while(|stores| has_died(*stores)).count() as u64
    }
}

/// Every case.
fn hold(shows_last: bool, has_area: bool) {
    let memory = Memory::new(has_area);
    let mut died = 0;
    for (shape, bursts) in SHAPES.into_iter().flat_map(|shape| (0..9).map(move |n| (shape, n))) {
        for (burst, out) in [1, 2, 3, 5, 8].into_iter().flat_map(|n| [8, 7, 5].map(|out| (n, out)))
        {
            for goes_on in [false, true] {
                let case = Case { shape, shows_last, bursts, burst, out, goes_on, stores: 0 };
                died += case.holds_whenever(&memory);
            }
        }
    }
    assert!(died > 1000, "{died}");
}

#[test]
fn chains_go_on_after_any_store_by_what_the_ring_shows() {
    hold(false, false);
}

#[test]
fn chains_go_on_after_any_store_by_what_was_noted() {
    hold(false, true);
}

#[test]
fn chains_in_order_go_on_after_any_store_by_what_the_ring_shows() {
    hold(true, false);
}

#[test]
fn chains_in_order_go_on_after_any_store_by_what_was_noted() {
    hold(true, true);
}
