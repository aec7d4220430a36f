//! The front end's requests: each changes the configuration, and starts or stops the rings that
//! the change concerns.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fd::{AsFd, OwnedFd};

use super::{Configuration, Device, locked};
use crate::messages::{AreaAt, Backend, Refusal, RequestResult, refuse};
use crate::ring::{packed, split};
use crate::vhost::inflight::Area;
use crate::vhost::vring::{Negotiated, Vring};
use haul_peer::caller::is_event;
use haul_peer::guest::{Described, Guest, said};

/// How long a message may wait, in all, while drivers write the rings that it starts, and the
/// pause between two reads of such a ring.
const PATIENCE: Duration = Duration::from_millis(250);
const PAUSE: Duration = Duration::from_micros(100);

impl Backend for Device {
    fn features(&self) -> u64 {
        self.offered
    }

    fn set_features(&self, features: u64) -> RequestResult {
        let mut configuration = locked(&self.configuration);
        let others = features & !self.offered;
        if others != 0 {
            return self
                .refuse(refuse(format!("it set features that were not offered, {others:#x}")));
        }
        self.last.record_features();
        configuration.negotiated.features = features;
        self.features.store(features, Ordering::Relaxed);
        self.refuse(self.restart(&mut configuration))
    }

    fn queue_pairs(&self) -> u64 {
        self.last.record_queue_query();
        self.pairs()
    }

    fn set_memory(&self, regions: Vec<(Described, OwnedFd)>) -> RequestResult {
        // Maps the memory before anything is released, so that a refusal leaves no partial state. A
        // refusal ends the conversation anyway.
        self.last.record_memory();
        match Guest::map(&regions) {
            Ok(memory) => {
                locked(&self.configuration).negotiated.has_removed_memory = false;
                self.refuse(self.set_memory_to(memory))
            }
            Err(error) => self.refuse(refuse(said(&error))),
        }
    }

    fn add_memory(&self, region: Described, file: OwnedFd) -> RequestResult {
        self.last.record_memory();
        let present = locked(&self.configuration).negotiated.memory.clone().unwrap_or_default();
        match present.with(region, file) {
            Ok(memory) => self.refuse(self.set_memory_to(memory)),
            Err(error) => self.refuse(refuse(said(&error))),
        }
    }

    fn remove_memory(&self, region: Described) -> RequestResult {
        let memory = {
            let negotiated = &mut locked(&self.configuration).negotiated;
            negotiated.has_removed_memory = true;
            negotiated.memory.as_ref().and_then(|memory| memory.without(region))
        };
        match memory {
            Some(memory) => self.refuse(self.set_memory_to(memory)),
            None => self.refuse(refuse(format!(
                "it removed memory at {:#x}, which it had not added",
                region.guest
            ))),
        }
    }

    fn set_size(&self, ring: u32, size: u32) -> RequestResult {
        self.change(ring, |ring| {
            if size == 0 || size > split::SIZE_MAX.max(packed::SIZE_MAX) {
                return refuse(format!(
                    "it gave a ring {size} descriptors; 1 to 32,768 are possible"
                ));
            }
            ring.size = size;
            Ok(())
        })
    }

    fn set_addresses(&self, ring: u32, areas: [u64; 3]) -> RequestResult {
        self.change(ring, |ring| {
            ring.areas = Some(areas);
            Ok(())
        })
    }

    fn set_base(&self, ring: u32, base: u32) -> RequestResult {
        self.change(ring, |ring| {
            ring.set_base(base);
            Ok(())
        })
    }

    fn stop_ring(&self, ring: u32) -> RequestResult<u32> {
        self.change(ring, |ring| {
            ring.is_started = false;
            ring.call = None;
            Ok(())
        })?;
        let configuration = locked(&self.configuration);
        let ring = &configuration.rings[ring as usize];
        ring.clear_record(&configuration.negotiated);
        Ok(ring.base())
    }

    fn start_ring(&self, ring: u32) -> RequestResult {
        self.change(ring, |ring| {
            ring.is_started = true;
            Ok(())
        })
    }

    fn set_call(&self, ring: u32, event: Option<OwnedFd>) -> RequestResult {
        self.change(ring, |ring| {
            if event.as_ref().is_some_and(|event| !is_event(event)) {
                return refuse("its call descriptor is not an eventfd");
            }
            ring.call = event.map(Arc::new);
            Ok(())
        })
    }

    fn set_enabled(&self, ring: u32, is_enabled: bool) -> RequestResult {
        self.change(ring, |ring| {
            ring.is_enabled = is_enabled;
            Ok(())
        })
    }

    fn make_area(&self, rings: u16, size: u16) -> RequestResult<(AreaAt, OwnedFd)> {
        let made = match usize::from(rings) <= self.rings.len() {
            true => Area::make(rings, size),
            false => refuse(format!("it requested an inflight area for {rings} rings")),
        };
        let (area, at, file) = self.refuse(made)?;
        self.refuse(self.use_area(area))?;
        Ok((at, file))
    }

    fn set_area(&self, at: AreaAt, file: OwnedFd) -> RequestResult {
        self.refuse(Area::open(at, file).and_then(|area| self.use_area(area)))
    }

    fn reset(&self) {
        let mut configuration = locked(&self.configuration);
        configuration.negotiated = Negotiated::default();
        self.features.store(0, Ordering::Relaxed);
        *locked(&self.slow) = None;
        // No ring can be active without a configuration.
        let _ = self.restart(&mut configuration);
        configuration.rings.iter_mut().for_each(|vring| *vring = Vring::of(vring.index));
        for (ring, vring) in self.rings.iter().zip(&configuration.rings) {
            drop(locked(&ring.slot).install(None, None));
            ring.size.store(vring.size, Ordering::Relaxed);
        }
    }
}

impl Device {
    /// Changes the configuration of a ring, and starts or stops the ring accordingly.
    fn change(
        &self,
        index: u32,
        change: impl FnOnce(&mut Vring) -> RequestResult,
    ) -> RequestResult {
        self.refuse(self.try_change(index, change))
    }

    fn try_change(
        &self,
        index: u32,
        change: impl FnOnce(&mut Vring) -> RequestResult,
    ) -> RequestResult {
        let mut configuration = locked(&self.configuration);
        let Configuration { negotiated, rings } = &mut *configuration;
        let Some(vring) = rings.get_mut(index as usize) else {
            self.last.record_missing_ring(index, self.pairs());
            return refuse(format!("it named ring {index}, which does not exist"));
        };
        self.restart_one(vring, change, negotiated, &mut self.patience())
    }

    /// Returns a function that pauses briefly and returns true, or returns false once the time is
    /// over.
    fn patience(&self) -> impl FnMut() -> bool {
        let start = Instant::now();
        move || {
            let has_time = !self.is_stopped() && start.elapsed() < PATIENCE;
            if has_time {
                thread::sleep(PAUSE);
            }
            has_time
        }
    }

    /// Removes a ring, changes its configuration, and starts it again if it is complete.
    fn restart_one(
        &self,
        vring: &mut Vring,
        change: impl FnOnce(&mut Vring) -> RequestResult,
        negotiated: &Negotiated,
        pause: &mut dyn FnMut() -> bool,
    ) -> RequestResult {
        let ring = &self.rings[vring.index];
        let (waiting, [mut active, abandoned]) = {
            let mut slot = locked(&ring.slot);
            (slot.take_waiting_call(), slot.remove())
        };
        waiting.iter().for_each(|call| self.caller.call(call.as_fd()));
        if let Some(active) = &mut active {
            // Packets on their way arrive before the ring stops, and before its memory goes.
            if active.complete() {
                vring.call.iter().for_each(|call| self.caller.call(call.as_fd()));
            }
            vring.record_stop(active);
        }
        // The drop may release memory, which takes time. No worker waits meanwhile.
        drop((active, abandoned));
        let started = change(vring).and_then(|()| vring.activate(negotiated, pause));
        let (started, done) = match started {
            Ok(started) => (started, Ok(())),
            Err(refused) => (None, Err(refused)),
        };
        let is_to_guest = vring.index.is_multiple_of(2);
        let started = started.map(|(active, lost)| {
            (if self.is_beside && is_to_guest { active.ahead() } else { active }, lost)
        });
        let is_active = started.is_some();
        if is_active {
            // Before the worker can report what is wrong with the ring.
            self.last.record_ring_start();
        }
        let before = locked(&ring.slot).install(started, vring.call.clone());
        drop(before);
        ring.is_active.store(is_active, Ordering::Relaxed);
        ring.size.store(vring.size, Ordering::Relaxed);
        if is_active {
            // A back end that was killed may have published used chains without a call.
            vring.call.iter().for_each(|call| self.caller.call(call.as_fd()));
        }
        done
    }

    fn set_memory_to(&self, memory: Guest) -> RequestResult {
        *locked(&self.slow) = memory.slow();
        let mut configuration = locked(&self.configuration);
        // The old memory is unmapped when its last ring is stopped.
        configuration.negotiated.memory = Some(Arc::new(memory));
        self.restart(&mut configuration)
    }

    /// Restarts every ring with the present configuration.
    fn restart(&self, Configuration { negotiated, rings }: &mut Configuration) -> RequestResult {
        let mut pause = self.patience();
        let restarted = rings
            .iter_mut()
            .map(|vring| self.restart_one(vring, |_| Ok(()), negotiated, &mut pause));
        // Restarts all rings, even if one fails.
        restarted.fold(Ok(()), RequestResult::and)
    }

    fn use_area(&self, area: Area) -> RequestResult {
        let mut configuration = locked(&self.configuration);
        configuration.negotiated.area = Some(Arc::new(area));
        self.restart(&mut configuration)
    }

    fn refuse<T>(&self, done: RequestResult<T>) -> RequestResult<T> {
        if let Err(Refusal(why)) = &done {
            self.last.record_refusal(why);
            self.is_refused.store(true, Ordering::Relaxed);
        }
        done
    }
}
