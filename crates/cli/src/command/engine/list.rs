//! `haul engine list`: the engines of this machine, and what each is made of.

use haul_engine::dsa::{Dsa, Sysfs};
use haul_engine::{Kind, break_even};
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

/// One engine.
struct Engine {
    name: String,
    kind: Kind,
    summary: String,
    /// The smallest size for which `auto` uses it.
    from: Option<u64>,
}

impl List {
    pub(super) fn new(arguments: &Arguments) -> Self {
        Self { json: arguments.json, engines: engines() }
    }
}

fn engines() -> Vec<Engine> {
    let software = |name: &str, summary: &str, from| {
        let (name, summary) = (name.to_owned(), summary.to_owned());
        Engine { name, kind: Kind::Software, summary, from }
    };
    let from = u64::try_from(break_even()).ok();
    let mut all = vec![
        software("inline", "the caller copies in submit", None),
        software("worker", "a helper thread copies", from),
        software("auto", "the caller copies below the break-even size, else a helper thread", None),
    ];
    for queue in Dsa::usable(&Sysfs::new()) {
        let kind = if queue.is_fake { Kind::Fake } else { Kind::Hardware };
        let name = format!("dsa:{}", queue.name);
        all.push(Engine { name, kind, summary: "a queue of Intel's DSA".into(), from: None });
    }
    all
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
            let from = engine.from.map_or_else(String::new, |from| Bytes(from).to_string());
            let kind = engine.kind.name().to_owned();
            table.add(vec![engine.name.clone(), kind, from, engine.summary.clone()]);
        }
        terminal::print(&table.text())
    }
}

fn record_of(engine: &Engine) -> Record {
    let mut record = Record::new("", name::ENGINE_LIST, &engine.name, "engines", "count")
        .with(key::ENGINE_KIND, engine.kind.name())
        .with(key::NOTE, engine.summary.as_str());
    record.samples = vec![1.0];
    record
}
