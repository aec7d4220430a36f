//! What the events of a device mean for its rings: a pure state machine, which decides when this
//! library may access a ring.
//!
//! The order of events is that of librte_vhost from 22.11 to 26.07 (lib/vhost/vhost_user.c): for a
//! message of the front end, [`Event::Before`], DPDK's handler, its reply, [`Event::After`], the
//! acknowledgement, [`Event::Ready`] for changed rings, [`Event::Started`]. The handler may call
//! [`Event::Ready`] and [`Event::Stopped`] as well. If it fails, `After` is left out, and the
//! device may run on.

/// The largest number of rings per device (lib/vhost/vhost.h: VHOST_MAX_VRING).
pub(crate) const RINGS_MAX: usize = 256;

/// A message of the front end, as far as the rings depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Message {
    /// It changes the table of the guest's memory.
    Table,
    /// It disables a ring, or stops it and asks for its progress: the ring waits for the next
    /// [`Event::Ready`].
    StopsRing(usize),
    /// It asks for an announcement of the guest's address, which DPDK sends in its next bursts.
    Announcement,
    /// Any other message.
    Other,
}

/// An event of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Event {
    /// A front end connected.
    Connected,
    /// DPDK is about to handle a message.
    Before(Message),
    /// DPDK handled the message without an error.
    After,
    /// DPDK reports whether a ring is ready and enabled.
    Ready(usize, bool),
    /// The device runs.
    Started,
    /// The device no longer runs.
    Stopped,
    /// DPDK must serve the device until it connects again.
    GivenUp,
    /// The front end disconnected.
    Disconnected,
}

/// The state of a device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Life {
    is_connected: bool,
    runs: bool,
    is_given_up: bool,
    /// The message between [`Event::Before`] and [`Event::After`].
    message: Option<Message>,
    /// Whether DPDK's table of the guest's memory is complete.
    has_table: bool,
    /// The rings that are ready, a bit each.
    ready: [u64; RINGS_MAX / 64],
}

impl Life {
    /// A device without a front end.
    pub(crate) const NONE: Self = Self {
        is_connected: false,
        runs: false,
        is_given_up: false,
        message: None,
        has_table: false,
        ready: [0; RINGS_MAX / 64],
    };

    /// Records an event.
    pub(crate) fn record(&mut self, event: Event) {
        match event {
            Event::Connected => *self = Self { is_connected: true, ..Self::NONE },
            Event::Disconnected => *self = Self::NONE,
            Event::Before(message) => {
                match message {
                    Message::Table => self.has_table = false,
                    Message::StopsRing(ring) => self.set_ready(ring, false),
                    Message::Announcement | Message::Other => {}
                }
                self.message = Some(message);
            }
            Event::After => {
                // Without a message, events are in an unknown order.
                match self.message.take() {
                    Some(Message::Table) => self.has_table = true,
                    Some(_) => {}
                    None => self.is_given_up = true,
                }
            }
            Event::Ready(ring, is_ready) => self.set_ready(ring, is_ready),
            Event::Started => self.runs = true,
            Event::Stopped => self.runs = false,
            Event::GivenUp => self.is_given_up = true,
        }
    }

    /// Whether this library may access any ring.
    pub(crate) fn serves(&self) -> bool {
        self.is_connected
            && self.runs
            && self.has_table
            && !self.is_given_up
            && self.message.is_none()
    }

    /// Whether this library serves the device, or will as soon as a message is handled.
    pub(crate) fn is_to_serve(&self) -> bool {
        self.is_connected && self.runs && !self.is_given_up
    }

    /// Whether this library may access a ring.
    pub(crate) fn serves_ring(&self, ring: usize) -> bool {
        self.serves() && ring < RINGS_MAX && self.ready[ring / 64] >> (ring % 64) & 1 != 0
    }

    fn set_ready(&mut self, ring: usize, is_ready: bool) {
        let Some(word) = self.ready.get_mut(ring / 64) else { return };
        let bit = 1 << (ring % 64);
        *word = if is_ready { *word | bit } else { *word & !bit };
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const RINGS: usize = 2;

    /// librte_vhost as far as it matters here: the true state of a device, and the order in which
    /// it reports events.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct Dpdk {
        is_connected: bool,
        runs: bool,
        is_table_whole: bool,
        /// Whether the front end has enabled a ring.
        is_enabled: [bool; RINGS],
        /// Whether a ring has its addresses and files.
        is_set_up: [bool; RINGS],
        /// Whether DPDK has reported a ring as ready.
        reported: [bool; RINGS],
    }

    /// The messages of the search.
    #[derive(Clone, Copy, Debug)]
    enum Sent {
        Table,
        SetUp(usize),
        Enable(usize, bool),
        GetBase(usize),
        Announcement,
        Features,
    }

    const ALL: [Sent; 11] = [
        Sent::Table,
        Sent::SetUp(0),
        Sent::SetUp(1),
        Sent::Enable(0, true),
        Sent::Enable(0, false),
        Sent::Enable(1, true),
        Sent::Enable(1, false),
        Sent::GetBase(0),
        Sent::GetBase(1),
        Sent::Announcement,
        Sent::Features,
    ];

    impl Dpdk {
        const NONE: Self = Self {
            is_connected: false,
            runs: false,
            is_table_whole: false,
            is_enabled: [false; RINGS],
            is_set_up: [false; RINGS],
            reported: [false; RINGS],
        };

        fn is_ready(&self, ring: usize) -> bool {
            self.is_enabled[ring] && self.is_set_up[ring]
        }

        /// Handles a message, which may fail before it changed something or behind that; checks
        /// the library's state whenever another thread may send a burst.
        fn handle(&mut self, life: &mut Life, sent: Sent, failure: Option<bool>) {
            let kind = match sent {
                Sent::Table => Message::Table,
                Sent::Enable(ring, false) | Sent::GetBase(ring) => Message::StopsRing(ring),
                Sent::Announcement => Message::Announcement,
                Sent::SetUp(_) | Sent::Enable(_, true) | Sent::Features => Message::Other,
            };
            let mut event = |dpdk: &Self, event| {
                life.record(event);
                dpdk.check(life, true);
            };
            event(self, Event::Before(kind));
            // Not before the change: a failure without any change.
            if failure != Some(false) {
                match sent {
                    Sent::Table => self.is_table_whole = failure.is_none(),
                    Sent::SetUp(ring) => {
                        if self.reported[ring] {
                            self.reported[ring] = false;
                            event(self, Event::Ready(ring, false));
                        }
                        self.is_set_up[ring] = failure.is_none();
                    }
                    Sent::Enable(ring, is_on) => self.is_enabled[ring] = is_on,
                    Sent::GetBase(ring) => {
                        if self.runs {
                            self.runs = false;
                            event(self, Event::Stopped);
                        }
                        self.is_set_up[ring] = false;
                    }
                    Sent::Announcement | Sent::Features => {}
                }
            }
            if failure.is_none() {
                life.record(Event::After);
                // The front end is about to read that its message has its effect.
                self.check(life, false);
            }
            for ring in 0..RINGS {
                if self.reported[ring] != self.is_ready(ring) {
                    self.reported[ring] = self.is_ready(ring);
                    life.record(Event::Ready(ring, self.reported[ring]));
                    self.check(life, false);
                }
            }
            if !self.runs && (0..RINGS).all(|ring| self.is_ready(ring)) && self.is_table_whole {
                self.runs = true;
                life.record(Event::Started);
            }
            self.check(life, false);
        }

        fn check(&self, life: &Life, is_handling: bool) {
            for ring in 0..RINGS {
                let may_serve =
                    !is_handling && self.runs && self.is_table_whole && self.is_ready(ring);
                assert!(!life.serves_ring(ring) || may_serve, "ring {ring}: {life:?} {self:?}");
            }
        }
    }

    /// Every order of messages, failures, connections and refusals, until no new state appears.
    #[test]
    fn no_order_of_messages_serves_ring_that_dpdk_has_stopped() {
        let start = (Dpdk::NONE, Life::NONE);
        let (mut seen, mut next) = (HashSet::from([start.clone()]), vec![start]);
        let mut served = 0;
        while let Some((dpdk, life)) = next.pop() {
            served += u32::from(life.serves_ring(0) && life.serves_ring(1));
            let mut successors = Vec::new();
            if dpdk.is_connected {
                for sent in ALL {
                    for failure in [None, Some(false), Some(true)] {
                        let (mut dpdk, mut life) = (dpdk.clone(), life.clone());
                        dpdk.handle(&mut life, sent, failure);
                        successors.push((dpdk, life));
                    }
                }
                let mut given_up = life.clone();
                given_up.record(Event::GivenUp);
                assert!(!given_up.serves());
                successors.push((dpdk.clone(), given_up));
                // A closed connection stops the device without a message.
                let mut gone = life.clone();
                if dpdk.runs {
                    gone.record(Event::Stopped);
                    Dpdk { runs: false, ..dpdk.clone() }.check(&gone, false);
                }
                gone.record(Event::Disconnected);
                successors.push((Dpdk::NONE, gone));
            } else {
                let mut connected = life.clone();
                connected.record(Event::Connected);
                successors.push((Dpdk { is_connected: true, ..Dpdk::NONE }, connected));
            }
            next.extend(successors.into_iter().filter(|state| seen.insert(state.clone())));
        }
        assert!(seen.len() > 100 && served > 0, "{} states, {served} served", seen.len());
    }

    fn life_after(events: &[Event]) -> Life {
        let mut life = Life::NONE;
        events.iter().for_each(|event| life.record(*event));
        life
    }

    const RUNS: [Event; 5] = [
        Event::Connected,
        Event::Before(Message::Table),
        Event::After,
        Event::Ready(0, true),
        Event::Started,
    ];

    #[test]
    fn running_device_is_served() {
        let life = life_after(&RUNS);
        assert!(life.serves_ring(0) && !life.serves_ring(1) && !life.serves_ring(RINGS_MAX));
    }

    #[test]
    fn failed_message_pauses_until_next_complete_one() {
        let mut life = life_after(&RUNS);
        life.record(Event::Before(Message::Other));
        assert!(!life.serves());
        life.record(Event::Before(Message::Other));
        life.record(Event::After);
        assert!(life.serves_ring(0));
    }

    #[test]
    fn failed_table_pauses_until_next_table() {
        let mut life = life_after(&RUNS);
        for message in [Message::Table, Message::Other] {
            life.record(Event::Before(message));
        }
        life.record(Event::After);
        assert!(!life.serves(), "the table is still incomplete");
        life.record(Event::Before(Message::Table));
        life.record(Event::After);
        assert!(life.serves_ring(0));
    }

    #[test]
    fn disabled_ring_stops_before_its_acknowledgement() {
        let mut life = life_after(&RUNS);
        life.record(Event::Before(Message::StopsRing(0)));
        life.record(Event::After);
        assert!(life.serves() && !life.serves_ring(0));
    }

    #[test]
    fn after_without_before_gives_device_up() {
        let mut life = life_after(&RUNS);
        life.record(Event::After);
        assert!(!life.serves());
    }
}
