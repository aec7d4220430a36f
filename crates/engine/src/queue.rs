//! The front of every engine, and how it is opened.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use haul_peer::fork::Here;

use crate::break_even::break_even;
use crate::contract::{Engine, Facts, Kind};
use crate::dsa::{Dsa, Options, Sysfs};
use crate::inner::Inner;
use crate::operation::Verb;
use crate::outcome::{Error, Trouble};
use crate::series::Series;
use crate::settings::Settings;
use crate::slots::{SLOTS_MAX, Slots};
use crate::sync::Alone;
use crate::watcher::Watcher;
use crate::worker::{Worker, WorkerSettings};

/// The size in bytes from which `auto` wakes a sleeping helper thread, and the sum of the sizes of
/// shorter operations, one soon after the other, after which it wakes the thread for the next ones.
/// A stated default: at 10 GB/s a copy of 100 us, which is long beside a system call.
pub const WAKE_MIN: usize = 1 << 20;

/// A queue of operations in front of an engine. All threads may use it; a clone is the same queue.
///
/// Operations of one queue may run in any order. Where one depends on another, wait for the other
/// first; the borrow checker enforces this.
#[derive(Clone, Debug)]
pub struct Queue {
    pub(crate) inner: Arc<Inner>,
}

impl Queue {
    /// The engine `inline`: this thread does each operation in `submit`.
    ///
    /// ```
    /// use haul_engine::{Fill, Queue};
    /// let (fill, _) = Queue::inline().submit(Fill::new(vec![0; 3], 9)).wait();
    /// assert_eq!(fill.target, [9; 3]);
    /// ```
    #[must_use]
    pub fn inline() -> Self {
        let facts = Facts {
            name: "inline".into(),
            kind: Kind::Software,
            verbs: Verb::ALL.iter().fold(0, |all, verb| all | verb.bit()),
            length_max: isize::MAX as usize,
            ends_unpolled: true,
            patience: None,
        };
        let settings = Settings { entries: 1, cpu_below: usize::MAX, ..Settings::default() };
        Self::of(Slots::new(1), None, facts, settings, Duration::ZERO)
    }

    /// The engine `worker`: a helper thread does each operation.
    ///
    /// Cost: one thread, which sleeps while nothing is pending.
    ///
    /// # Errors
    /// [`Error::System`] if the thread cannot be started.
    pub fn worker() -> Result<Self, Error> {
        Self::worker_with(Settings::default(), WorkerSettings::default())
    }

    /// Like [`worker`](Self::worker), with these settings.
    ///
    /// # Errors
    /// [`Error::System`] if the thread cannot be started or placed; [`Error::Setting`].
    pub fn worker_with(settings: Settings, worker: WorkerSettings) -> Result<Self, Error> {
        let make =
            |slots| -> Result<Box<dyn Engine>, Error> { Ok(Box::new(Worker::new(slots, worker)?)) };
        Self::open_awake(settings, worker.polls_for, make)
    }

    /// The engine `auto`: the CPU does short operations, and a helper thread the others. A process
    /// that may use only one processor gets `inline`, as no copy can run beside it.
    ///
    /// # Errors
    /// As for [`worker`](Self::worker).
    ///
    /// ```
    /// use haul_engine::{Copy, Queue};
    /// let queue = Queue::auto()?;
    /// let (copy, result) = queue.submit(Copy::new(vec![0; 100], vec![1; 100])).wait();
    /// assert_eq!((copy.target[99], result), (1, Ok(())));
    /// # Ok::<(), haul_engine::Error>(())
    /// ```
    pub fn auto() -> Result<Self, Error> {
        Self::auto_with(Settings::default())
    }

    fn auto_with(settings: Settings) -> Result<Self, Error> {
        let name: Arc<str> = "auto".into();
        if thread::available_parallelism().is_ok_and(|processors| processors.get() == 1) {
            return Ok(Self::inline().named(name));
        }
        let sizes = break_even();
        let (cpu_below, crowded_min) = (sizes.idle, sizes.busy);
        let settings = Settings { cpu_below, crowded_min, wake_min: WAKE_MIN, ..settings };
        Ok(Self::worker_with(settings, WorkerSettings::default())?.named(name))
    }

    /// The engine of this name: `inline`, `worker`, `auto`, `dsa` for the first queue of a DSA that
    /// this process may use, or `dsa:wq0.1` for that queue, as `haul engine list` spells them.
    ///
    /// # Errors
    /// [`Error::Missing`] if this machine has no engine of this name, or the process may not use
    /// it; as for [`worker`](Self::worker).
    ///
    /// ```
    /// use haul_engine::{Error, Queue};
    /// assert_eq!(&*Queue::by_name("worker")?.facts().name, "worker");
    /// assert!(matches!(Queue::by_name("nothing"), Err(Error::Missing { .. })));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn by_name(name: &str) -> Result<Self, Error> {
        Self::by_name_with(name, Settings::default())
    }

    /// Like [`by_name`](Self::by_name), with these settings. `auto` and `inline` route operations
    /// by their own sizes, whatever [`Settings::cpu_below`] and [`Settings::wake_min`] are.
    ///
    /// # Errors
    /// As for [`by_name`](Self::by_name); [`Error::Setting`].
    pub fn by_name_with(name: &str, settings: Settings) -> Result<Self, Error> {
        let dsa = |queue| {
            Self::open(settings, |slots| {
                Ok(Box::new(Dsa::open(&Sysfs::new(), queue, Options::default(), slots)?))
            })
        };
        match name {
            "inline" => Ok(Self::inline()),
            "worker" => Self::worker_with(settings, WorkerSettings::default()),
            "auto" => Self::auto_with(settings),
            "dsa" => dsa(None),
            name => match name.strip_prefix("dsa:") {
                Some(queue) => dsa(Some(queue)),
                None => Err(Error::Missing {
                    engine: name.into(),
                    cause: "no engine has this name".into(),
                    remedy: "`haul engine list` names the engines of this machine".into(),
                }),
            },
        }
    }

    /// A queue in front of the engine that `make` makes for these slots.
    ///
    /// # Errors
    /// The error of `make`; [`Error::Setting`].
    pub fn open(
        settings: Settings,
        make: impl FnOnce(Arc<Slots>) -> Result<Box<dyn Engine>, Error>,
    ) -> Result<Self, Error> {
        Self::open_awake(settings, WorkerSettings::default().polls_for, make)
    }

    /// Like [`open`](Self::open), for an engine that stays ready for this time after an operation.
    fn open_awake(
        settings: Settings,
        stays_ready: Duration,
        make: impl FnOnce(Arc<Slots>) -> Result<Box<dyn Engine>, Error>,
    ) -> Result<Self, Error> {
        if !(1..=SLOTS_MAX).contains(&settings.entries) {
            let (name, value) = ("entries", settings.entries);
            return Err(Error::Setting { name, value, limits: "from 1 to 65536" });
        }
        let slots = Slots::new(settings.entries);
        let engine = make(Arc::clone(&slots))?;
        let facts = engine.facts().clone();
        Ok(Self::of(slots, Some(engine), facts, settings, stays_ready))
    }

    fn of(
        slots: Arc<Slots>,
        engine: Option<Box<dyn Engine>>,
        facts: Facts,
        settings: Settings,
        stays_ready: Duration,
    ) -> Self {
        let usable_in = AtomicU64::new(Here::now().number());
        let (watcher, orphans) = (Watcher::default(), Mutex::new(Vec::new()));
        let engine_min = if engine.is_some() { settings.cpu_below.max(1) } else { usize::MAX };
        let series = Alone(Series::new(stays_ready));
        let inner = Inner {
            watcher,
            engine,
            slots,
            facts,
            settings,
            engine_min,
            series,
            usable_in,
            orphans,
        };
        Self { inner: Arc::new(inner) }
    }

    /// The queue under another name.
    fn named(mut self, name: Arc<str>) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            inner.facts.name = name;
        }
        self
    }

    /// The facts of the engine.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.inner.facts
    }

    /// What a device has reported besides successes and page faults, with cause and remedy: empty
    /// for an engine of software. The CPU finishes these operations, so their results do not show
    /// it.
    ///
    /// ```
    /// assert!(haul_engine::Queue::inline().troubles().is_empty());
    /// ```
    #[must_use]
    pub fn troubles(&self) -> Vec<Trouble> {
        self.inner.troubles()
    }

    /// How the queue routes operations.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.inner.settings
    }
}
