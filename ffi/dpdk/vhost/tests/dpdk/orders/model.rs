//! librte_vhost and `net_vhost` as far as a front end must know them: which messages let packets
//! pass, and which cost those that are under way.

/// A device with its two rings.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    has_table: bool,
    /// Whether the device runs: all rings were ready at once since the last stop.
    runs: bool,
    rings: [Ring; 2],
}

#[derive(Clone, Debug, Default)]
struct Ring {
    has_addresses: bool,
    /// Whether the addresses were looked up in the table of memory.
    is_found: bool,
    has_kick: bool,
    has_call: bool,
    is_enabled: bool,
    /// Whether librte_vhost has reported the ring as ready, and whether `net_vhost` uses it since:
    /// it forgets all rings when the device stops.
    is_reported: bool,
    is_used: bool,
}

impl Ring {
    fn is_ready(&self) -> bool {
        self.is_found && self.has_kick && self.has_call && self.is_enabled
    }

    fn report(&mut self, is_ready: bool) {
        if self.is_reported != is_ready {
            (self.is_reported, self.is_used) = (is_ready, is_ready);
        }
    }
}

impl Model {
    /// Whether a packet that the guest sends returns to it.
    pub(super) fn passes_packets(&self) -> bool {
        self.runs && self.rings.iter().all(|ring| ring.is_used)
    }

    /// Whether the device runs, so that it refuses other features.
    pub(super) fn runs(&self) -> bool {
        self.runs
    }

    pub(super) fn set_table(&mut self) {
        self.has_table = true;
        self.end_message();
    }

    /// SET_VRING_ADDR; returns whether it succeeds.
    pub(super) fn set_addresses(&mut self, ring: u32) -> bool {
        let has_table = self.has_table;
        let ring = &mut self.rings[ring as usize];
        if has_table {
            ring.has_addresses = true;
            ring.is_found = ring.is_enabled || ring.is_found;
            self.end_message();
        }
        has_table
    }

    pub(super) fn set_call(&mut self, ring: u32) {
        let ring = &mut self.rings[ring as usize];
        ring.report(false);
        ring.has_call = true;
        self.end_message();
    }

    pub(super) fn set_kick(&mut self, ring: u32) {
        let has_table = self.has_table;
        let ring = &mut self.rings[ring as usize];
        ring.is_found |= has_table && ring.has_addresses;
        ring.report(false);
        ring.has_kick = true;
        self.end_message();
    }

    pub(super) fn enable(&mut self, ring: u32, is_enabled: bool) {
        self.rings[ring as usize].is_enabled = is_enabled;
        self.end_message();
    }

    /// GET_VRING_BASE.
    pub(super) fn stop(&mut self, ring: u32) {
        self.runs = false;
        self.rings.iter_mut().for_each(|ring| ring.is_used = false);
        let ring = &mut self.rings[ring as usize];
        (ring.has_addresses, ring.is_found) = (false, false);
        (ring.has_kick, ring.has_call) = (false, false);
        self.end_message();
    }

    fn end_message(&mut self) {
        self.rings.iter_mut().for_each(|ring| ring.report(ring.is_ready()));
        self.runs |= self.rings.iter().all(Ring::is_ready);
    }
}
