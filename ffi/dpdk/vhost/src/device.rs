//! Devices by their numbers, and the configuration of their rings.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use haul_forward::{DeviceRing, GuestMemory};

use crate::dpdk::{DEVICES_MAX, Functions, MemoryTable, Vring};
use crate::gate::Gate;
use crate::life::{Event, Life, Message, RINGS_MAX};
use crate::notice::print;
use crate::paths::Flags;
use crate::settings::settings;
use crate::statistics::Statistics;
use crate::turns::PROCESS;

/// VHOST_F_LOG_ALL: the front end follows the writes of the device, for a migration.
const LOG_ALL: u64 = 1 << 26;
/// VIRTIO_F_IOMMU_PLATFORM: addresses of the guest are translated by its IOMMU.
const IOMMU: u64 = 1 << 33;

/// A region of a guest's memory.
#[derive(Clone, Copy, Debug)]
struct Region {
    guest: u64,
    bytes: u64,
    /// The address of the region's first byte in this process.
    first: NonNull<u8>,
}

/// The memory of a guest, which DPDK has mapped. DPDK unmaps it only in the handler of a message,
/// or after the device was stopped: the gates are closed then.
#[derive(Clone, Debug)]
pub(crate) struct Regions(Vec<Region>);

// SAFETY: DPDK keeps the mappings as long as the gate of the ring is open, see above; a region
// ends at the latest at the end of the address space, as checked in `read`.
unsafe impl GuestMemory for Regions {
    /// The region of the last lookup.
    type Cached = usize;

    #[inline(always)]
    fn at(&self, cached: &mut usize, guest: u64, bytes: u64) -> Option<NonNull<u8>> {
        let inside = |region: &Region| {
            let offset = guest.wrapping_sub(region.guest);
            let is_inside = offset < region.bytes && bytes <= region.bytes - offset;
            // SAFETY: the offset is inside the region.
            is_inside.then(|| unsafe { region.first.add(offset as usize) })
        };
        if let Some(found) = self.0.get(*cached).and_then(inside) {
            return Some(found);
        }
        let (index, found) =
            self.0.iter().enumerate().find_map(|(index, region)| Some((index, inside(region)?)))?;
        *cached = index;
        Some(found)
    }

    fn part(&self, cached: &mut usize, guest: u64) -> Option<(NonNull<u8>, u64)> {
        let offset = |region: &Region| guest.wrapping_sub(region.guest);
        let index = self.0.iter().position(|region| offset(region) < region.bytes)?;
        *cached = index;
        let (region, offset) = (&self.0[index], offset(&self.0[index]));
        // SAFETY: the offset is inside the region.
        Some((unsafe { region.first.add(offset as usize) }, region.bytes - offset))
    }
}

impl Regions {
    /// DPDK's table of a guest's memory.
    ///
    /// # Safety
    /// The device has a table: [`Life::serves`].
    unsafe fn read(functions: &Functions, device: c_int) -> Option<Self> {
        let mut table: *mut MemoryTable = null_mut();
        // SAFETY: the device has a table, of which the call returns a copy.
        let result = unsafe { (functions.rte_vhost_get_mem_table)(device, &raw mut table) };
        let table = NonNull::new(table).filter(|_| result == 0)?;
        // SAFETY: the copy is valid.
        let count = unsafe { (*table.as_ptr()).count } as usize;
        // SAFETY: as many regions follow the number.
        let regions = unsafe { (&raw const (*table.as_ptr()).regions).cast() };
        // SAFETY: as above.
        let regions: &[crate::dpdk::MemoryRegion] =
            unsafe { std::slice::from_raw_parts(regions, count) };
        let regions = regions.iter().map(|region| {
            let first = NonNull::new(std::ptr::with_exposed_provenance_mut(region.here as usize))?;
            region.here.checked_add(region.bytes)?;
            Some(Region { guest: region.guest, bytes: region.bytes, first })
        });
        let regions = regions.collect::<Option<Vec<_>>>().map(Self);
        // SAFETY: DPDK allocates the copy with malloc for its caller.
        unsafe { libc::free(table.as_ptr().cast()) };
        regions
    }
}

/// The largest number of bursts that DPDK serves after the front end asked for an announcement.
/// DPDK puts it before the packets of a later burst: not of the first one, if that finds DPDK's
/// lock of the ring held by the thread that handles the message, and of none if DPDK lacks memory.
const ANNOUNCEMENT_BURSTS: u32 = 1 << 20;

/// A ring of a device.
pub(crate) struct Ring {
    pub(crate) gate: Gate,
    /// The ring. A burst of this library accesses it inside the open gate, and the device while
    /// the gate is closed.
    ring: UnsafeCell<Option<Box<DeviceRing<Regions>>>>,
    /// The number of bursts that DPDK must serve.
    pub(crate) forwards: AtomicU32,
    /// Whether the guest is still to be called.
    pub(crate) owes_call: AtomicBool,
    pub(crate) statistics: Statistics,
    /// Packets that this library moved.
    pub(crate) served: AtomicU64,
    /// Packets that DPDK moved.
    pub(crate) handed: AtomicU64,
}

// SAFETY: the gate admits one thread at a time to the ring.
unsafe impl Sync for Ring {}
// SAFETY: the ring holds addresses that are valid in every thread.
unsafe impl Send for Ring {}

impl Ring {
    const fn new() -> Self {
        Self {
            gate: Gate::new(),
            ring: UnsafeCell::new(None),
            forwards: AtomicU32::new(0),
            owes_call: AtomicBool::new(false),
            statistics: Statistics::new(),
            served: AtomicU64::new(0),
            handed: AtomicU64::new(0),
        }
    }

    /// The ring.
    ///
    /// # Safety
    /// The caller is inside the open gate as this library's burst, and holds no other reference.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "the gate admits one burst")]
    pub(crate) unsafe fn ring(&self) -> Option<&mut DeviceRing<Regions>> {
        // SAFETY: the caller's promise.
        unsafe { (*self.ring.get()).as_deref_mut() }
    }

    /// Replaces the ring and opens the gate, or leaves it closed without a ring.
    ///
    /// # Safety
    /// The gate is closed, and the caller holds the device's lock.
    unsafe fn install(&self, ring: Option<Box<DeviceRing<Regions>>>) {
        let opens = ring.is_some();
        // SAFETY: no burst is inside the closed gate, and the lock excludes other callers.
        unsafe { *self.ring.get() = ring };
        if opens {
            self.gate.open();
        }
    }
}

/// A device, which is kept for the next front end with its number.
pub(crate) struct Device {
    number: c_int,
    pub(crate) rings: Box<[Ring]>,
    /// Whether DPDK serves in every second turn.
    pub(crate) takes_turns: bool,
    /// Whether a ring may owe a call.
    pub(crate) owes_calls: AtomicBool,
    pub(crate) has_statistics: AtomicBool,
    /// Whether packets without checksums get the flags of received packets, and not those of
    /// packets to send.
    pub(crate) is_compliant: AtomicBool,
    /// Packets without checksum that this library moved.
    pub(crate) lacking: AtomicU64,
    state: Mutex<State>,
}

struct State {
    life: Life,
    path: Vec<u8>,
    /// Why DPDK serves the device, as last printed.
    refusal: Option<&'static str>,
}

static DEVICES: [AtomicPtr<Device>; DEVICES_MAX] =
    [const { AtomicPtr::new(null_mut()) }; DEVICES_MAX];

/// The device of a number, if this library has seen its front end connect.
#[inline]
pub(crate) fn find(number: c_int) -> Option<&'static Device> {
    let slot = DEVICES.get(usize::try_from(number).ok()?)?;
    // SAFETY: devices are never freed.
    unsafe { slot.load(Ordering::Acquire).as_ref() }
}

/// Prints a line about a device, if such lines are wanted.
fn report(path: &[u8], text: std::fmt::Arguments<'_>) {
    if settings().is_verbose {
        print(format_args!("{}: {text}", String::from_utf8_lossy(path)));
    }
}

impl Device {
    /// A front end has connected.
    pub(crate) fn connect(number: c_int, path: &[u8], flags: Flags) {
        let Some(slot) = usize::try_from(number).ok().and_then(|index| DEVICES.get(index)) else {
            return;
        };
        let device = find(number).unwrap_or_else(|| {
            let rings = (0..RINGS_MAX).map(|_| Ring::new()).collect();
            let [owes_calls, has_statistics, is_compliant] = [const { AtomicBool::new(false) }; 3];
            let state = State { life: Life::NONE, path: Vec::new(), refusal: None };
            let state = Mutex::new(state);
            let (lacking, takes_turns) = (AtomicU64::new(0), settings().takes_turns);
            let device = Self {
                number,
                rings,
                takes_turns,
                owes_calls,
                has_statistics,
                is_compliant,
                lacking,
                state,
            };
            // Only the thread of DPDK's sockets connects devices.
            let device = Box::leak(Box::new(device));
            slot.store(device, Ordering::Release);
            device
        });
        device.has_statistics.store(flags.has_statistics(), Ordering::Relaxed);
        device.is_compliant.store(flags.is_compliant(), Ordering::Relaxed);
        for ring in &device.rings {
            ring.statistics.reset();
        }
        let mut state = device.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.path, state.refusal) = (path.into(), None);
        drop(state);
        device.record(None, Event::Connected);
    }

    /// Records an event, and opens or closes the gates accordingly. With `functions`, rings may be
    /// configured anew. When this returns, no burst of this library accesses a ring that it must
    /// not access.
    pub(crate) fn record(&self, functions: Option<&Functions>, event: Event) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let served_before = state.life.serves();
        state.life.record(event);
        // A message may change everything.
        let is_new = matches!(event, Event::After | Event::Started) || !served_before;
        for (index, ring) in self.rings.iter().enumerate() {
            if is_new || !state.life.serves_ring(index) {
                ring.gate.close();
            }
        }
        if !state.life.is_to_serve() {
            // DPDK calls the guest from now on.
            self.owes_calls.store(false, Ordering::Relaxed);
            self.rings.iter().for_each(|ring| ring.owes_call.store(false, Ordering::Relaxed));
        }
        if event == Event::Before(Message::Announcement) {
            self.forward(ANNOUNCEMENT_BURSTS);
        }
        let Some(functions) = functions.filter(|_| state.life.serves()) else { return };
        match event {
            Event::Ready(index, true) => self.arm(functions, &mut state, index..index + 1),
            Event::After | Event::Started => self.arm(functions, &mut state, 0..RINGS_MAX),
            _ => {}
        }
    }

    /// Sets the number of bursts that DPDK must serve, of each ring from the guest.
    pub(crate) fn forward(&self, bursts: u32) {
        let from_guest = self.rings.iter().skip(1).step_by(2);
        from_guest.for_each(|ring| ring.forwards.store(bursts, Ordering::Relaxed));
    }

    /// Configures rings that are served, and opens their gates.
    fn arm(&self, functions: &Functions, state: &mut State, rings: std::ops::Range<usize>) {
        let configured = self.configure(functions, state, rings);
        let refusal = configured.as_ref().err().copied();
        if state.refusal != refusal {
            if let Some(reason) = refusal {
                report(&state.path, format_args!("DPDK serves it: {reason}"));
            }
            state.refusal = refusal;
        }
        let count = configured.unwrap_or(0);
        if count > 0 {
            report(&state.path, format_args!("serves {count} rings"));
        }
    }

    /// # Errors
    /// Why DPDK must serve the device.
    fn configure(
        &self,
        functions: &Functions,
        state: &State,
        rings: std::ops::Range<usize>,
    ) -> Result<usize, &'static str> {
        let features = self.features(functions, &state.path)?;
        // SAFETY: plain calls with the device's number.
        let count = unsafe { (functions.rte_vhost_get_vring_num)(self.number) };
        let served = |index: &usize| *index < count.into() && state.life.serves_ring(*index);
        let mut memory = None;
        let mut armed = 0;
        for index in rings.filter(served) {
            let Some(vring) = self.vring(functions, index) else { continue };
            let areas = vring.areas.map(NonNull::new);
            let [Some(first), Some(second), Some(third)] = areas else { continue };
            if memory.is_none() {
                // SAFETY: the device has a table, as it serves.
                memory = unsafe { Regions::read(functions, self.number) };
            }
            let Some(memory) = &memory else { return Err("DPDK has no table of its memory") };
            let (areas, copy) = ([first, second, third], settings().copy);
            // SAFETY: DPDK has looked the areas up with their lengths; a message that changes them
            // closes the gate first.
            let ring =
                unsafe { DeviceRing::new(areas, vring.size, features, memory.clone(), copy) };
            armed += usize::from(ring.is_some());
            let slot = &self.rings[index];
            slot.gate.close();
            // SAFETY: the gate was closed, and the caller holds the lock.
            unsafe { slot.install(ring.map(Box::new)) };
        }
        Ok(armed)
    }

    /// The negotiated features, if this library can serve a device that has them.
    fn features(&self, functions: &Functions, path: &[u8]) -> Result<u64, &'static str> {
        if path.starts_with(b"/dev/vduse/") {
            return Err("it is a VDUSE device");
        }
        let mut features = 0;
        // SAFETY: writes one word.
        let result = unsafe {
            (functions.rte_vhost_get_negotiated_features)(self.number, &raw mut features)
        };
        // SAFETY: a plain call with the device's number.
        let is_vdpa = !unsafe { (functions.rte_vhost_get_vdpa_device)(self.number) }.is_null();
        match features {
            _ if result != 0 => Err("DPDK does not know it"),
            _ if is_vdpa => Err("it is a vDPA device"),
            _ if features & IOMMU != 0 => Err("its guest has an IOMMU"),
            _ if features & LOG_ALL != 0 => Err("its front end logs writes, for a migration"),
            _ => Ok(features),
        }
    }

    fn vring(&self, functions: &Functions, index: usize) -> Option<Vring> {
        let mut vring = std::mem::MaybeUninit::<Vring>::zeroed();
        // SAFETY: writes a ring's description.
        let result = unsafe {
            (functions.rte_vhost_get_vhost_vring)(self.number, index as u16, vring.as_mut_ptr())
        };
        // SAFETY: all bytes zero are a value, and DPDK has written its fields.
        (result == 0).then(|| unsafe { vring.assume_init() })
    }

    /// Prints and resets the numbers of packets, after the device has stopped.
    pub(crate) fn report_end(&self) {
        let path = self.path();
        if self.takes_turns {
            match PROCESS.compared() {
                Some(compared) => report(&path, format_args!("{compared}")),
                None => report(&path, format_args!("compared nothing: too few turns had packets")),
            }
        }
        let sum = |of: fn(&Ring) -> &AtomicU64| {
            self.rings.iter().map(|ring| of(ring).swap(0, Ordering::Relaxed)).sum::<u64>()
        };
        let (served, handed) = (sum(|ring| &ring.served), sum(|ring| &ring.handed));
        report(&path, format_args!("served {served} packets, handed {handed} to DPDK"));
        let lacking = self.lacking.swap(0, Ordering::Relaxed);
        if lacking > 0 {
            report(&path, format_args!("of these, {lacking} from the guest lacked a checksum"));
        }
    }

    /// The device's path.
    pub(crate) fn path(&self) -> Vec<u8> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).path.clone()
    }
}
