//! `haul engine list`: the engines of this machine, and what each is made of.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use haul_engine::dsa::{Dsa, State, Sysfs, chain};
use haul_engine::{Copy, Kind, Queue, Settings, break_even};
use haul_model::experiment::{key, name};
use haul_model::{Bytes, Record};

use crate::arguments::engine::List as Arguments;
use crate::command::{Command, record};
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::terminal::{self, Table};

pub(super) struct List {
    json: bool,
    engines: Vec<Engine>,
}

/// The bytes of the copy that shows whether a device works.
const TRIAL_BYTES: usize = 64 << 10;
/// After this time without an end of that copy, the device is reported as wedged.
const TRIAL: Duration = Duration::from_secs(2);

/// One engine.
struct Engine {
    name: String,
    kind: Kind,
    summary: String,
    /// The smallest size for which `auto` uses it.
    from: Option<usize>,
    /// What a device reported, or why it cannot be used.
    trouble: Option<String>,
}

impl List {
    pub(super) fn new(arguments: &Arguments) -> Self {
        Self { json: arguments.json, engines: engines() }
    }
}

fn engines() -> Vec<Engine> {
    let software = |name: &str, summary: &str, from| {
        let (name, summary) = (name.to_owned(), summary.to_owned());
        Engine { name, kind: Kind::Software, summary, from, trouble: None }
    };
    let from = Some(break_even().idle);
    let mut all = vec![
        software("inline", "the caller copies in submit", None),
        software("worker", "a helper thread copies", from),
        software("auto", "the caller copies below the break-even size, else a helper thread", None),
    ];
    let sysfs = Sysfs::new();
    let usable = Dsa::usable(&sysfs);
    for queue in &usable {
        let kind = if queue.is_fake { Kind::Fake } else { Kind::Hardware };
        let name = format!("dsa:{}", queue.name);
        let (summary, trouble) = ("a queue of Intel's DSA".into(), trouble(&name));
        all.push(Engine { name, kind, summary, from: None, trouble });
    }
    if usable.is_empty() {
        all.extend(unusable(&sysfs));
    }
    all
}

/// A DSA of this machine that this process cannot use, with the first reason; `None` without one.
fn unusable(sysfs: &Sysfs) -> Option<Engine> {
    let is_fake = sysfs.devices().iter().any(|device| device.is_fake);
    let steps = chain(sysfs);
    let broken = steps.iter().find(|step| step.state == State::Broken)?;
    // The first link is the device itself.
    steps.len().checked_sub(2)?;
    let (link, detail) = (broken.link.name(), &broken.detail);
    let remedy = broken.remedy.as_deref().unwrap_or("`haul doctor` shows the whole chain");
    Some(Engine {
        name: "dsa".into(),
        kind: if is_fake { Kind::Fake } else { Kind::Hardware },
        summary: "Intel's DSA".into(),
        from: None,
        trouble: Some(format!("cannot be used: {link}: {detail}; {remedy}")),
    })
}

/// What a device reports for one copy. A device that does not end the copy may keep the thread
/// that waits for it.
fn trouble(name: &str) -> Option<String> {
    let (say, hear) = mpsc::channel();
    let of = name.to_owned();
    thread::spawn(move || say.send(tried(&of)));
    let seconds = TRIAL.as_secs();
    let wedged = || {
        Some(format!(
            "{name} has not ended a copy of {} within {seconds} s; reset the device: \
             accel-config disable-device, then enable-device",
            Bytes(TRIAL_BYTES as u64)
        ))
    };
    hear.recv_timeout(TRIAL).unwrap_or_else(|_| wedged())
}

fn tried(name: &str) -> Option<String> {
    let settings = Settings { finishes_on_cpu: false, ..Settings::default() };
    let queue = match Queue::by_name_with(name, settings) {
        Ok(queue) => queue,
        Err(error) => return Some(error.to_string()),
    };
    let copy = Copy::new(vec![0; TRIAL_BYTES], vec![1; TRIAL_BYTES]);
    let (copy, result) = queue.submit(copy).wait();
    let troubles: Vec<String> = queue.troubles().iter().map(ToString::to_string).collect();
    match result {
        _ if !troubles.is_empty() => Some(troubles.join("; ")),
        Err(failed) => Some(failed.to_string()),
        Ok(()) if copy.target != copy.source => Some(format!("{name} copied wrong bytes")),
        Ok(()) => None,
    }
}

impl Command for List {
    fn outputs(&self) -> Outputs {
        Outputs { json: self.json, ..Outputs::default() }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        record(name::ENGINE_LIST, self.engines.iter().map(record_of), journal)
    }

    fn render(&self, _journal: &Journal) -> Result<(), Error> {
        if self.json {
            return Ok(());
        }
        let mut table = Table::new(&["engine", "kind", ">auto from", "what it does"]);
        for engine in &self.engines {
            let from = match engine.from {
                None => String::new(),
                Some(usize::MAX) => "never".into(),
                Some(from) => Bytes(from as u64).to_string(),
            };
            let kind = engine.kind.name().to_owned();
            table.add(vec![engine.name.clone(), kind, from, engine.summary.clone()]);
        }
        let troubles = self.engines.iter().filter_map(|engine| engine.trouble.as_deref());
        let troubles: String = troubles.map(|trouble| format!("\ntrouble: {trouble}")).collect();
        terminal::print(&format!("{}{troubles}", table.text().trim_end()))
    }
}

fn record_of(engine: &Engine) -> Record {
    let parts = [Some(engine.summary.as_str()), engine.trouble.as_deref()];
    let note = parts.into_iter().flatten().collect::<Vec<_>>().join("; ");
    let mut record = Record::new("", name::ENGINE_LIST, &engine.name, "engines", "count")
        .with(key::ENGINE_KIND, engine.kind.name())
        .with(key::NOTE, note);
    record.samples = vec![1.0];
    record
}
