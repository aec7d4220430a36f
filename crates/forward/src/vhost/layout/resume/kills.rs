//! A device that dies after any of its stores, in rings of chains of one and of several
//! descriptors, and the one that goes on.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;

use super::super::super::super::ring::packed::{Packed, Place, death};
use super::super::super::super::ring::split::NEXT;
use super::super::super::inflight::{Area, Note};
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
        PackedRing::new(self.ring(), (noted, base), (false, shows_last), self.note(), &mut || false)
    }

    /// As before any device.
    fn clear(&self) {
        self.ring().clear();
        self.note().iter().for_each(Note::forget);
    }
}

/// One of a driver's stores: a descriptor but its flags, or, without an address, these.
#[derive(Clone, Copy)]
struct Store {
    place: Place,
    id: u16,
    address: u64,
    flags: u16,
}

/// Bytes of a descriptor of a batch: a number that is also one of descriptors.
const BATCH_BYTES: u32 = 3;

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

    /// Gives chains while no more descriptors than `most` are out, each one by itself.
    fn give(&mut self, most: u16) {
        while let Some((id, length)) = self.next_chain(most) {
            for ahead in (0..length).rev() {
                let place = self.next.plus(ahead, SIZE);
                self.ring.set_address(place, BASE + self.given as u64 * 16 + u64::from(ahead));
                let flags = if ahead + 1 < length { NEXT } else { 0 };
                self.ring.put_available(place, id, 60, flags);
            }
            self.has_given(id, length);
        }
    }

    /// The next chain's id and length, if no more descriptors than `most` are out with it.
    fn next_chain(&self, most: u16) -> Option<(u16, u16)> {
        let (id, length) = (self.next.index, self.length(self.given));
        let out: u16 = self.out.iter().map(|(_, length)| length).sum();
        (out + length <= most).then_some((id, length))
    }

    fn has_given(&mut self, id: u16, length: u16) {
        self.next = self.next.plus(length, SIZE);
        self.out.push_back((id, length));
        self.given += 1;
    }

    /// The stores by which chains are given, all at once or each by itself, the last descriptor
    /// first: descriptors but their flags, and then these.
    fn stores(&mut self, most: u16, at_once: bool) -> VecDeque<Store> {
        let mut all = VecDeque::new();
        loop {
            let chains = self.batch(most, if at_once { usize::MAX } else { 1 });
            if chains.is_empty() {
                return all;
            }
            all.extend(&chains);
            all.extend(chains.iter().rev().map(|store| Store { address: 0, ..*store }));
        }
    }

    /// Descriptors of the next chains, of so many at most.
    fn batch(&mut self, most: u16, chains: usize) -> Vec<Store> {
        let (mut stores, end) = (Vec::new(), self.given.saturating_add(chains));
        while self.given < end
            && let Some((id, length)) = self.next_chain(most)
        {
            for ahead in 0..length {
                let address = BASE + self.given as u64 * 16 + u64::from(ahead);
                let flags = if ahead + 1 < length { NEXT } else { 0 };
                stores.push(Store { place: self.next.plus(ahead, SIZE), id, address, flags });
            }
            self.has_given(id, length);
        }
        stores
    }

    /// Makes the first of the stores.
    fn store(&self, stores: &mut VecDeque<Store>, count: usize) {
        for Store { place, id, address, flags } in stores.drain(..count) {
            match address {
                0 => self.ring.put_available(place, id, BATCH_BYTES, flags),
                address => self.ring.set_words(place, address, id, BATCH_BYTES),
            }
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

/// A device that served all that it got and died, a driver that is stopped after so many stores of
/// what it gives next, and a device that goes on meanwhile; false where there are no more stores.
fn goes_on_beside_a_driver(memory: &Memory, case: Case, stores: usize) -> bool {
    let Case { shape, shows_last, bursts, burst, out, .. } = case;
    memory.clear();
    let mut driver = Driver::new(memory.ring(), shape);
    let ((mut first, _), mut read) = (memory.device(Place::START, shows_last), Vec::new());
    for _ in 0..bursts {
        driver.give(out);
        serve(&mut first, burst, &mut read);
        driver.take(shows_last);
    }
    let mut rest = driver.stores(out, memory.area.is_some());
    let (count, has_more) = (stores.min(rest.len()), stores < rest.len());
    driver.store(&mut rest, count);
    let ((mut second, lost), mut later) = (memory.device(Place::START, shows_last), Vec::new());
    let left = rest.len();
    driver.store(&mut rest, left);
    for most in [3, 3, 8, 8] {
        serve(&mut second, most, &mut later);
        driver.take(shows_last);
    }
    let name = format!("{case:?}, {stores} stores: {read:?} {later:?}");
    assert!(driver.out.is_empty(), "not all came back: {name}");
    assert!(later.iter().copied().eq(read.len()..driver.given), "not all, or twice: {name}");
    assert_eq!(lost, 0, "{name}");
    has_more
}

/// Every case with at most so many descriptors out.
fn go_on_beside_a_driver(memory: &Memory, outs: &[u16]) {
    let mut tried = 0;
    let shapes = SHAPES.into_iter().flat_map(|shape| (1..9).map(move |bursts| (shape, bursts)));
    for ((shape, bursts), shows_last) in shapes.flat_map(|it| [false, true].map(|last| (it, last)))
    {
        for (burst, out) in [1, 2, 3, 8].into_iter().flat_map(|n| outs.iter().map(move |o| (n, *o)))
        {
            let (goes_on, stores) = (true, 0);
            let case = Case { shape, shows_last, bursts, burst, out, goes_on, stores };
            let goes_on = |stores: &usize| goes_on_beside_a_driver(memory, case, *stores);
            tried += (0..).take_while(goes_on).count();
        }
    }
    assert!(tried > 1000, "{tried}");
}

/// Of a driver that gives a whole ring at once, the last descriptor first, too.
#[test]
fn a_device_that_noted_its_place_goes_on_whatever_the_driver_is_at() {
    go_on_beside_a_driver(&Memory::new(true), &[8, 7, 5]);
}

/// Of a driver that gives its chains one by one and leaves a descriptor free.
#[test]
fn a_ring_shows_its_place_whatever_a_careful_driver_is_at() {
    go_on_beside_a_driver(&Memory::new(false), &[7, 5]);
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
