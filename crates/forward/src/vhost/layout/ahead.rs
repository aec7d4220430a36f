//! A ring to which packets are on their way: its chains are read ahead of those that it uses.
//! Nothing is written to the ring before it is published, so that a device that takes over after a
//! kill finds these chains available.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use haul_peer::fork::Here;
use haul_peer::guest::Guest;

use super::{Bad, Broken, Chain, First, Layout, ReadAhead, Walk};
use crate::vhost::copying::{Copying, Fate, Pairs};

/// Chains in the order of the ring, with the number of bytes that were written to each.
type UsedChains = Vec<(Chain, u32)>;

/// A burst that is on its way.
#[derive(Debug)]
struct OnItsWay {
    used: UsedChains,
    /// `None` if the worker has copied it.
    copying: Option<Copying>,
    fate: Arc<Fate>,
}

/// A ring that is read by `reader`, and written by `writer`.
#[derive(Debug)]
pub(in crate::vhost) struct Ahead<L> {
    reader: L,
    writer: L,
    /// The chains that were used behind the last burst.
    used: UsedChains,
    /// The bursts that are on their way, in the order of the ring.
    bursts: VecDeque<OnItsWay>,
    /// Memory for lists, so that the ring allocates for no burst. The engine may.
    spare_chains: Vec<UsedChains>,
    spare_pairs: Vec<Pairs>,
    here: Here,
}

impl<L: ReadAhead> Ahead<L> {
    pub(in crate::vhost) fn new(ring: L) -> Self {
        Self {
            reader: ring.reader(),
            writer: ring,
            used: Vec::new(),
            bursts: VecDeque::new(),
            spare_chains: Vec::new(),
            spare_pairs: Vec::new(),
            here: Here::now(),
        }
    }

    /// The number of bursts that are on their way.
    pub(in crate::vhost) fn bursts(&self) -> usize {
        self.bursts.len()
    }

    /// The number of bursts that the engine has not copied, as far as this ring knows.
    pub(in crate::vhost) fn copying(&self) -> usize {
        self.bursts.iter().filter(|burst| burst.copying.is_some()).count()
    }

    /// Memory for the list of a burst's copies.
    pub(in crate::vhost) fn spare_pairs(&mut self) -> Pairs {
        self.spare_pairs.pop().unwrap_or_default()
    }

    /// Makes the chains that were used since the last call a burst that is on its way. `copying`
    /// is `None` if its packets are copied.
    pub(in crate::vhost) fn send(&mut self, copying: Option<Copying>, fate: &Arc<Fate>) {
        let used = mem::replace(&mut self.used, self.spare_chains.pop().unwrap_or_default());
        fate.begin();
        self.bursts.push_back(OnItsWay { used, copying, fate: Arc::clone(fate) });
    }

    /// Publishes the bursts whose copies have ended, in order. Returns whether the driver wants a
    /// call.
    ///
    /// # Errors
    /// [`Broken`]: memory was lost.
    pub(in crate::vhost) fn publish_ended(&mut self, memory: &Guest) -> Result<bool, Broken> {
        // In a child of fork, the bursts are the parent's.
        if !self.here.is_here() {
            return Ok(false);
        }
        let mut wants_call = false;
        while let Some(first) = self.bursts.front_mut() {
            if let Some(copying) = &mut first.copying {
                let Some(pairs) = copying.ended() else { break };
                first.copying = None;
                self.spare_pairs.push(pairs);
            }
            if memory.is_broken() {
                return Err(Broken);
            }
            let Some(OnItsWay { mut used, fate, .. }) = self.bursts.pop_front() else { break };
            for (chain, written) in used.drain(..) {
                self.writer.use_chain(chain, written);
            }
            wants_call |= self.writer.publish();
            fate.end(true);
            self.spare_chains.push(used);
        }
        Ok(wants_call)
    }

    /// Ends all copies, and publishes their bursts unless memory was lost. Returns whether the
    /// driver wants a call.
    pub(in crate::vhost) fn complete(&mut self, memory: &Guest) -> bool {
        if !self.here.is_here() {
            return false;
        }
        self.bursts.iter_mut().filter_map(|burst| burst.copying.take()).for_each(Copying::wait);
        // Bursts to lost memory are lost with the ring.
        self.publish_ended(memory).unwrap_or(false)
    }
}

/// Bursts that were not published are lost with the ring.
impl<L> Drop for Ahead<L> {
    fn drop(&mut self) {
        let is_here = self.here.is_here();
        for OnItsWay { copying, fate, .. } in self.bursts.drain(..) {
            // In a child of fork, the copies are the parent's.
            copying.into_iter().filter(|_| is_here).for_each(Copying::wait);
            fate.end(false);
        }
    }
}

impl<L: ReadAhead> Layout for Ahead<L> {
    type Location = L::Location;

    const HAS_PACKED_TABLES: bool = L::HAS_PACKED_TABLES;

    #[inline(always)]
    fn size(&self) -> u16 {
        self.reader.size()
    }

    #[inline(always)]
    fn has_id(&self, id: u16) -> bool {
        self.reader.has_id(id)
    }

    #[inline(always)]
    fn poll(&mut self, firsts: &mut [First]) -> Result<usize, Broken> {
        self.reader.poll(firsts)
    }

    fn location(&self) -> L::Location {
        self.reader.location()
    }

    fn open(&mut self, location: L::Location) -> Result<Option<Walk>, Broken> {
        self.reader.open(location)
    }

    fn step(&self, walk: &mut Walk) -> Result<(), Bad> {
        self.reader.step(walk)
    }

    fn close(&self, location: L::Location, walk: &Walk) -> Result<(Chain, L::Location), Broken> {
        self.reader.close(location, walk)
    }

    #[inline(always)]
    fn use_chain(&mut self, chain: Chain, written: u32) {
        self.used.push((chain, written));
        self.reader.skip(chain);
    }

    /// Publishes nothing: see [`Ahead::publish_ended`].
    fn publish(&mut self) -> bool {
        false
    }

    fn base(&self) -> u32 {
        self.writer.base()
    }
}
