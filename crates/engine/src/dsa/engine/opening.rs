//! How a queue is found, and how an engine over it begins.

use std::io;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex};

use super::lane::{Lane, Source};
use super::operations::{Batches, VERBS};
use super::{Dsa, Line, Options};
use crate::contract::{Facts, Kind};
use crate::dsa::chain::{Step, chain, may_open};
use crate::dsa::descriptor::Opcode;
use crate::dsa::fake::Fake;
use crate::dsa::portal::Portal;
use crate::dsa::sysfs::{Mode, Queue, Sysfs};
use crate::outcome::Error;
use crate::slots::Slots;

impl Dsa {
    /// Opens the first queue of this machine that this process may use, or the one named
    /// `wq0.1`.
    ///
    /// ```
    /// use haul_engine::dsa::{Dsa, Sysfs};
    ///
    /// let queues = Dsa::usable(&Sysfs::at("/nonexistent"));
    /// assert!(queues.is_empty());
    /// ```
    ///
    /// # Errors
    /// [`Error::Missing`] if there is none, or the kernel refuses to open it.
    pub fn open(
        sysfs: &Sysfs,
        name: Option<&str>,
        options: Options,
        slots: Arc<Slots>,
    ) -> Result<Self, Error> {
        let queues = Self::usable(sysfs);
        let found = queues.into_iter().find(|queue| name.is_none_or(|name| queue.name == name));
        let engine = || format!("dsa{}", name.map_or(String::new(), |name| format!(":{name}")));
        let Some(queue) = found else {
            let step = chain(sysfs).pop();
            let (cause, remedy) = match step {
                Some(Step { remedy: Some(remedy), detail, link, .. }) => {
                    (format!("{}: {detail}", link.name()), remedy)
                }
                _ => ("no queue has this name".into(), "`haul engine list` names them".into()),
            };
            return Err(Error::Missing { engine: engine(), cause, remedy });
        };
        let source = Source::Device(sysfs.clone(), queue.clone());
        let portal = source.open(options).map_err(|reason| Error::Missing {
            engine: format!("dsa:{}", queue.name),
            cause: format!("{}: {reason}", queue.node.display()),
            remedy: remedy_of(&reason).into(),
        })?;
        Ok(Self::over(source, portal, &queue, options, slots))
    }

    /// Opens a queue of a fake in this process.
    ///
    /// # Errors
    /// As for [`Fake::open`].
    pub fn of_fake(
        fake: &Arc<Fake>,
        queue: usize,
        options: Options,
        slots: Arc<Slots>,
    ) -> io::Result<Self> {
        let Some(settings) = fake.settings().queues.get(queue) else {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        };
        let facts = Queue {
            name: format!("wq0.{queue}"),
            device: "dsa0".into(),
            is_enabled: settings.is_enabled,
            queue_type: settings.queue_type,
            mode: Some(settings.mode),
            size: settings.size,
            driver: Some("user".into()),
            blocks_on_fault: settings.blocks_on_fault,
            transfer_bytes_max: settings.transfer_bytes_max.into(),
            batch_max: settings.batch_max,
            operations: Some(fake.settings().operations()),
            node: "fake".into(),
            is_fake: true,
        };
        let source = Source::Fake(Mutex::new(Arc::clone(fake)), queue);
        let portal = source.open(options)?;
        Ok(Self::over(source, portal, &facts, options, slots))
    }

    /// The queues that this process may open and that copy.
    #[must_use]
    pub fn usable(sysfs: &Sysfs) -> Vec<Queue> {
        let mut queues = sysfs.queues();
        queues.retain(|one| one.is_for_programs() && one.has(Opcode::Copy) && may_open(&one.node));
        queues
    }

    pub(super) fn over(
        source: Source,
        portal: Box<dyn Portal>,
        queue: &Queue,
        options: Options,
        slots: Arc<Slots>,
    ) -> Self {
        let block_on_fault = options.block_on_fault && queue.blocks_on_fault;
        let options = Options { block_on_fault, ..options };
        let lane = Lane::over(portal);
        let verbs = VERBS.into_iter().filter(|(_, opcode)| queue.has(*opcode));
        let facts = Facts {
            name: format!("dsa:{}", queue.name).into(),
            kind: if queue.is_fake { Kind::Fake } else { Kind::Hardware },
            verbs: verbs.map(|(verb, _)| verb.bit()).sum(),
            length_max: usize::try_from(queue.transfer_bytes_max.min(u32::MAX.into()))
                .unwrap_or(usize::MAX),
            ends_unpolled: false,
            patience: Some(options.patience),
        };
        // A dedicated queue loses what does not fit, and a shared one answers; so the size is the
        // limit of the first, and the slots are the limit of the second.
        let is_dedicated = queue.mode == Some(Mode::Dedicated);
        let capacity = if is_dedicated { queue.size.max(1) } else { u32::MAX };
        let slots_count = slots.count();
        Self {
            facts,
            records: (0..slots_count).map(|_| Line::default()).collect(),
            slots,
            source,
            options,
            capacity,
            lane: AtomicPtr::new(Box::into_raw(lane)),
            turn: AtomicU32::new(0),
            batches: Batches::new(slots_count, queue),
            troubles: (0..=0x7f).map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

/// What to do about an error of `open`.
fn remedy_of(reason: &io::Error) -> &'static str {
    match reason.raw_os_error() {
        Some(libc::EBUSY) => {
            "another program has this dedicated queue; configure a shared one, or end that program"
        }
        Some(libc::EOPNOTSUPP) => {
            "the device has no shared virtual addressing; boot with intel_iommu=on,sm_on"
        }
        Some(libc::EACCES | libc::EPERM) => "let this user open the file; `haul doctor` says how",
        _ => "`haul doctor` walks from the device to the queue",
    }
}
