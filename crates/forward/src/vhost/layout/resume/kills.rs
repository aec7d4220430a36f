//! Kills a device after each of its stores, in rings of chains of one and of several descriptors,
//! and resumes with another device.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::ring::packed::{Location, Packed, death};
use crate::ring::split::NEXT;
use crate::vhost::inflight::{Area, Region};
use crate::vhost::layout::packed::PackedRing;
use crate::vhost::layout::{First, Layout};

const SIZE: u16 = 8;

/// The first address.
const BASE: u64 = 1 << 20;

/// Lengths of chains, repeated in this order.
const SHAPES: [&[u16]; 7] = [&[1], &[2], &[3], &[1, 2], &[2, 1, 1], &[3, 1, 4], &[8]];

/// Memory that survives a device.
struct Memory {
    /// The ring's areas, never freed.
    areas: [NonNull<u8>; 3],
    /// The area that the front end keeps.
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

    fn region(&self) -> Option<Region> {
        self.area.as_ref().map(|area| area.region(0, SIZE.into(), true).unwrap())
    }

    /// A device that resumes at the recorded location, or at the front end's.
    fn device(&self, base: Location, shows_last: bool) -> (PackedRing, u64) {
        let recorded = self.region().and_then(|region| region.read(SIZE.into()).unwrap());
        PackedRing::new(
            self.ring(),
            (recorded, base),
            (false, shows_last),
            self.region(),
            &mut || false,
        )
    }

    /// Restores the state before the first device.
    fn clear(&self) {
        self.ring().clear();
        self.region().iter().for_each(Region::clear);
    }
}

/// A store of a driver: with an address, a descriptor except for its flags; without one, the
/// flags.
#[derive(Clone, Copy)]
struct Store {
    location: Location,
    id: u16,
    address: u64,
    flags: u16,
}

/// The length in each descriptor of a batch, in bytes. It is also a plausible number of
/// descriptors.
const BATCH_BYTES: u32 = 3;

/// A driver that numbers its chains.
struct Driver {
    ring: Packed,
    shape: &'static [u16],
    next: Location,
    used: Location,
    /// The next chain's number.
    given: usize,
    /// Id and number of descriptors of each outstanding chain.
    out: VecDeque<(u16, u16)>,
}

impl Driver {
    fn new(ring: Packed, shape: &'static [u16]) -> Self {
        let (next, used) = (Location::START, Location::START);
        Self { ring, shape, next, used, given: 0, out: VecDeque::new() }
    }

    fn length(&self, number: usize) -> u16 {
        self.shape[number % self.shape.len()]
    }

    /// Makes chains available one by one while at most `most` descriptors are outstanding.
    fn give(&mut self, most: u16) {
        while let Some((id, length)) = self.next_chain(most) {
            for ahead in (0..length).rev() {
                let location = self.next.plus(ahead, SIZE);
                self.ring.set_address(location, BASE + self.given as u64 * 16 + u64::from(ahead));
                let flags = if ahead + 1 < length { NEXT } else { 0 };
                self.ring.put_available(location, id, 60, flags);
            }
            self.has_given(id, length);
        }
    }

    /// The next chain's id and length, if at most `most` descriptors are then outstanding.
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

    /// The stores that make chains available, all chains together or one by one: descriptors
    /// except for their flags, then the flags, the last descriptor's flags first.
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

    /// Descriptors of the next chains, at most `chains` of them.
    fn batch(&mut self, most: u16, chains: usize) -> Vec<Store> {
        let (mut stores, end) = (Vec::new(), self.given.saturating_add(chains));
        while self.given < end
            && let Some((id, length)) = self.next_chain(most)
        {
            for ahead in 0..length {
                let address = BASE + self.given as u64 * 16 + u64::from(ahead);
                let flags = if ahead + 1 < length { NEXT } else { 0 };
                stores.push(Store { location: self.next.plus(ahead, SIZE), id, address, flags });
            }
            self.has_given(id, length);
        }
        stores
    }

    /// Makes the first `count` of the stores.
    fn store(&self, stores: &mut VecDeque<Store>, count: usize) {
        for Store { location, id, address, flags } in stores.drain(..count) {
            match address {
                0 => self.ring.put_available(location, id, BATCH_BYTES, flags),
                address => self.ring.set_words(location, address, id, BATCH_BYTES),
            }
        }
    }

    /// Takes all used chains. If the order is kept, the last of several may be published alone.
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

/// Uses at most `most` chains and publishes them. Appends the numbers of the chains that it read.
fn serve(device: &mut PackedRing, most: usize, read: &mut Vec<usize>) {
    for _ in 0..most {
        device.poll(&mut [First::default(); 1]).unwrap();
        let location = device.location();
        let Some(mut walk) = device.open(location).unwrap() else { break };
        let first = walk.descriptor.address;
        while walk.descriptor.flags & NEXT != 0 {
            device.step(&mut walk).unwrap();
            let ahead = u64::from(walk.count) - 1;
            assert_eq!(walk.descriptor.address, first + ahead, "a chain that is torn");
        }
        read.push(((first - BASE) / 16) as usize);
        let (chain, _) = device.close(location, &walk).unwrap();
        device.use_chain(chain, 60);
    }
    device.publish();
}

/// The parameters of one run.
#[derive(Clone, Copy, Debug)]
struct Case {
    shape: &'static [u16],
    shows_last: bool,
    /// The number of bursts before the burst in which the device dies, and the largest number of
    /// chains per burst.
    bursts: usize,
    burst: usize,
    /// The largest number of outstanding descriptors.
    out: u16,
    /// Whether the driver continues before the next device starts.
    goes_on: bool,
    /// Stores of the last burst that are made.
    stores: i64,
}

impl Case {
    /// Runs the case. The front end reports the location `base` to the second device. Returns false
    /// once the device survives.
    fn holds(self, memory: &Memory, base: Location) -> bool {
        let Self { shape, shows_last, .. } = self;
        memory.clear();
        let mut driver = Driver::new(memory.ring(), shape);
        let ((mut first, _), mut read) = (memory.device(Location::START, shows_last), Vec::new());
        for _ in 0..self.bursts {
            driver.give(self.out);
            serve(&mut first, self.burst, &mut read);
            driver.take(shows_last);
        }
        driver.give(self.out);
        let mut cut = Vec::new();
        let at = first.location();
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
        // Either the dead device had published the whole burst, or its lost chains are counted.
        let gone = (from - read.len()) as u64;
        assert!(lost == gone || lost == 0 && has_shown, "{lost} of {gone} counted: {name}");
        assert!(from <= read.len() + cut.len(), "lost: {name}");
        has_died
    }

    /// Runs the case with every store as the last, and with every location that a front end may
    /// report. Returns the number of deaths.
    fn holds_whenever(self, memory: &Memory) -> u64 {
        let (round, locations) = (Location::START.plus(SIZE, SIZE), 0..SIZE);
        let locations =
            locations.flat_map(|count| [Location::START, round].map(|at| at.plus(count, SIZE)));
        let has_died = |stores| {
            let case = Self { stores, ..self };
            locations.clone().all(|base| case.holds(memory, base))
        };
        (0..).take_while(|stores| has_died(*stores)).count() as u64
    }
}

/// A device serves all chains and dies, a driver is stopped after `stores` stores of the next
/// chains, and a device resumes meanwhile. Returns false if there are no more stores.
fn goes_on_beside_a_driver(memory: &Memory, case: Case, stores: usize) -> bool {
    let Case { shape, shows_last, bursts, burst, out, .. } = case;
    memory.clear();
    let mut driver = Driver::new(memory.ring(), shape);
    let ((mut first, _), mut read) = (memory.device(Location::START, shows_last), Vec::new());
    for _ in 0..bursts {
        driver.give(out);
        serve(&mut first, burst, &mut read);
        driver.take(shows_last);
    }
    let mut rest = driver.stores(out, memory.area.is_some());
    let (count, has_more) = (stores.min(rest.len()), stores < rest.len());
    driver.store(&mut rest, count);
    let ((mut second, lost), mut later) = (memory.device(Location::START, shows_last), Vec::new());
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

/// Runs every case with at most these numbers of outstanding descriptors.
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

/// Includes a driver that makes a whole ring available in one step, the last descriptor first.
#[test]
fn recorded_location_resumes_beside_any_driver() {
    go_on_beside_a_driver(&Memory::new(true), &[8, 7, 5]);
}

/// The driver makes its chains available one by one and leaves a descriptor free.
#[test]
fn ring_shows_location_beside_careful_driver() {
    go_on_beside_a_driver(&Memory::new(false), &[7, 5]);
}

/// Runs every case.
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
fn ring_content_resumes_chains_after_any_store() {
    hold(false, false);
}

#[test]
fn record_resumes_chains_after_any_store() {
    hold(false, true);
}

#[test]
fn ring_content_resumes_ordered_chains_after_any_store() {
    hold(true, false);
}

#[test]
fn record_resumes_ordered_chains_after_any_store() {
    hold(true, true);
}
