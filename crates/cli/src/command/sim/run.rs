//! `haul sim run`: one program on one machine.

use std::time::{Duration, Instant};

use haul_experiments::context::{Context, Step};
use haul_experiments::sim::program::Program;
use haul_experiments::sim::{self, Setting};
use haul_model::experiment::{key, name};
use haul_model::{Kind, Record};
use haul_sim::{Interpreter, Outcome};

use super::trace::Window;
use super::{picture, plan};
use crate::arguments::sim::Run as Arguments;
use crate::command::steps::Runner;
use crate::command::{Command, this_machine};
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::stop::Stops;
use crate::terminal::{self, Table};

/// Assumed speed of the simulation, to estimate the time left.
const INSTRUCTIONS_PER_SECOND: u64 = 6_000_000;

/// Instructions of a packet of the workload, to estimate the time left.
const INSTRUCTIONS_PER_PACKET: u64 = 2_700;

pub(super) struct Run {
    task: sim::Task,
    traced: Option<std::ops::Range<u64>>,
    is_functional: bool,
    json: bool,
    outcome: Option<Outcome>,
    /// The result of the interpreter alone, and its time in seconds.
    interpreted: Option<(Interpreter, f64)>,
    /// The program's output, until its end or until the run was interrupted.
    output: Vec<u8>,
}

impl Run {
    /// Reads the settings.
    ///
    /// # Errors
    /// A file cannot be read, or a setting is wrong.
    pub(super) fn check(arguments: Arguments) -> Result<Self, Error> {
        let Arguments { program, argument, packets, machine, set, limit, window, functional, json } =
            arguments;
        // --packets comes before --set, which overrides it.
        let packets =
            packets.map(|packets| Setting { name: "packets".into(), value: packets.to_string() });
        let set: Vec<Setting> = packets.into_iter().chain(set).collect();
        let mut task = plan::task_of(machine.as_deref(), program, argument, &set)?;
        if let Some(limit) = limit {
            task.instructions_max = limit;
        }
        task.check()?;
        Ok(Self {
            task,
            traced: window,
            is_functional: functional,
            json,
            outcome: None,
            interpreted: None,
            output: Vec::new(),
        })
    }

    fn simulate(
        &mut self,
        context: &mut Context<'_>,
    ) -> Result<Vec<Record>, haul_experiments::Error> {
        let image = Program::named(&self.task.program)?.image()?;
        let mut job = self.task.job();
        job.trace_cycles.clone_from(&self.traced);
        let began = Instant::now();
        let stops = |instructions| {
            (context.progress)(&self.step(instructions, began));
            context.is_stopped()
        };
        let ran = haul_sim::run_until(&self.task.machine, &image, &job, stops);
        let outcome = ran.map_err(|failure| {
            self.output = failure.output;
            self.failed(failure.error.to_string())
        })?;
        self.output.clone_from(&outcome.interpreter.output);
        let seconds = began.elapsed().as_secs_f64();
        // The result of a program that reports its own failure is shown, but not recorded.
        let records = match outcome.interpreter.failure() {
            None => self.records(&outcome, seconds),
            Some(_) => Vec::new(),
        };
        self.outcome = Some(outcome);
        Ok(records)
    }

    /// Runs the program with the interpreter alone, without cycles.
    fn interpret(
        &mut self,
        context: &mut Context<'_>,
    ) -> Result<Vec<Record>, haul_experiments::Error> {
        /// Number of instructions between two checks for a stop: a fifth of a second.
        const BETWEEN_CHECKS: u64 = 50_000_000;
        let image = Program::named(&self.task.program)?.image()?;
        let job = self.task.job();
        let mut machine = Interpreter::new(&image, &job.arguments, job.traffic)
            .map_err(|error| self.failed(error.to_string()))?;
        let began = Instant::now();
        let ended = loop {
            let limit = job.instructions_max.min(machine.executed.saturating_add(BETWEEN_CHECKS));
            match machine.run(&image, limit) {
                Ok(_) => break Ok(()),
                Err(haul_sim::Error::InstructionLimit { .. }) if limit < job.instructions_max => {
                    let instructions = machine.executed;
                    (context.progress)(&self.step(instructions, began));
                    if context.is_stopped() {
                        break Err(format!(
                            "stopped after {instructions} instructions, before the program's end"
                        ));
                    }
                }
                Err(error) => break Err(error.to_string()),
            }
        };
        self.output.clone_from(&machine.output);
        ended.map_err(|reason| self.failed(reason))?;
        let seconds = began.elapsed().as_secs_f64();
        let executed = || self.record("instructions", "count", machine.executed as f64);
        let records = match machine.failure() {
            None => vec![executed(), self.speed("functional", machine.executed, seconds)],
            Some(_) => Vec::new(),
        };
        self.interpreted = Some((machine, seconds));
        Ok(records)
    }

    /// The progress, for the user.
    fn step(&self, instructions: u64, began: Instant) -> Step {
        let what = format!(
            "{}: {} million instructions of {} at most",
            self.task,
            instructions / 1_000_000,
            self.task.instructions_max / 1_000_000
        );
        Step { what, elapsed: began.elapsed(), budget: self.budget() }
    }

    /// Expected time. The time is unknown for a program that is not a workload of haul.
    fn budget(&self) -> Duration {
        let instructions = if self.task.receives() {
            self.task.packets.saturating_mul(INSTRUCTIONS_PER_PACKET)
        } else {
            INSTRUCTIONS_PER_SECOND
        };
        Duration::from_secs_f64(instructions as f64 / INSTRUCTIONS_PER_SECOND as f64)
    }

    fn failed(&self, reason: String) -> haul_experiments::Error {
        haul_experiments::Error::Simulation { what: self.task.to_string(), reason }
    }

    /// The traced window.
    fn window(&self, outcome: &Outcome) -> Option<Window> {
        Window::of(self.traced.as_ref()?, outcome, self.task.machine.memory.line_bytes)
    }

    fn record(&self, metric: &str, unit: &str, value: f64) -> Record {
        let program = std::path::Path::new(&self.task.program);
        let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy();
        let mut record = Record::new("", name::SIM_PROGRAM, "haul", metric, unit)
            .with(key::PROGRAM, name.into_owned());
        if self.task.receives() {
            record = record
                .with(key::PAYLOAD_BYTES, self.task.payload_bytes)
                .with(key::PACKETS, self.task.packets)
                .with(key::COPYING, format!("{:?}", self.task.copying).to_lowercase());
        }
        record.samples = vec![value];
        record.kind = Kind::Modelled;
        record
    }

    /// The speed of the simulation, by kind of core.
    fn speed(&self, core: &str, instructions: u64, seconds: f64) -> Record {
        let mips = mips(instructions, seconds);
        let mut speed = self.record("simulated_mips", "million/s", mips).with(key::CORE, core);
        speed.experiment = name::SIM_SPEED.into();
        speed.kind = Kind::Measured;
        speed
    }

    fn records(&self, outcome: &Outcome, seconds: f64) -> Vec<Record> {
        let record = |metric: &str, unit: &str, value: f64| self.record(metric, unit, value);
        let mut records = vec![record("time", "cycles", outcome.cycles as f64)];
        let counters = outcome.core.named().into_iter().chain(outcome.memory.named());
        records.extend(
            counters
                .filter(|(name, ..)| *name != "cycles")
                .map(|(name, _, value)| record(name, "count", value as f64)),
        );
        let core = self.task.machine.core.issue.name();
        records.push(self.speed(core, outcome.instructions, seconds));
        records.extend(self.window(outcome).iter().flat_map(Window::records));
        records
    }

    /// The program's output, as a sentence; `None` without output.
    fn written(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.output);
        (!text.is_empty()).then(|| format!("it wrote: {text}"))
    }

    /// Shows only the output: on standard error if records are printed.
    fn show_written(&self) -> Result<(), Error> {
        match self.written() {
            None => Ok(()),
            Some(text) if self.json => {
                terminal::say(&text);
                Ok(())
            }
            Some(text) => terminal::print(&text),
        }
    }

    fn text_of(&self, machine: &Interpreter, seconds: f64) -> String {
        let executed = machine.executed;
        format!(
            "{}: {executed} instructions, interpreted in {seconds:.2} s: {:.0} million per second{}",
            self.task,
            mips(executed, seconds),
            self.written().map_or(String::new(), |text| format!("\n{text}"))
        )
    }

    fn text(&self, outcome: &Outcome) -> String {
        let mut text = format!(
            "{}: {} instructions in {} cycles, {:.2} per cycle",
            self.task,
            outcome.instructions,
            outcome.cycles,
            outcome.instructions as f64 / outcome.cycles.max(1) as f64
        );
        text.extend(self.written().map(|text| format!("\n{text}")));
        let mut table = Table::new(&["counter", ">value", "meaning"]);
        let counters = outcome.core.named().into_iter().chain(outcome.memory.named());
        for (name, meaning, value) in counters.filter(|(.., value)| *value > 0) {
            table.add(vec![name.into(), value.to_string(), meaning.into()]);
        }
        text.push_str("\n\n");
        text.push_str(&table.text());
        if let Some(window) = &self.window(outcome) {
            text.push_str("\n\n");
            text.push_str(&picture::text(window, terminal::width()));
        }
        text
    }
}

impl Command for Run {
    fn stops(&self) -> Stops {
        Stops::WithWhatThereIs
    }

    fn outputs(&self) -> Outputs {
        Outputs { json: self.json, ..Outputs::default() }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        let machine = this_machine();
        let budget = self.budget();
        let what = self.task.to_string();
        let mut runner = Runner::new(&machine, journal, 1, budget)?;
        runner.step(&what, budget, |context| {
            let records = match self.is_functional {
                true => self.interpret(context)?,
                false => self.simulate(context)?,
            };
            records.into_iter().for_each(|record| context.emit(record));
            Ok(())
        })
    }

    fn render(&self, _: &Journal) -> Result<(), Error> {
        let (text, machine) = match (&self.outcome, &self.interpreted) {
            (Some(outcome), _) => (self.text(outcome), &outcome.interpreter),
            (None, Some((machine, seconds))) => (self.text_of(machine, *seconds), machine),
            // The run was interrupted; the message about that follows.
            (None, None) => return self.show_written(),
        };
        if !self.json {
            terminal::print(&text)?;
        } else if self.traced.is_some() {
            terminal::say(&text);
        } else {
            self.show_written()?;
        }
        machine.failure().map_or(Ok(()), |code| {
            let reason = format!("the program ended with exit code {code}: its time means nothing");
            Err(self.failed(reason).into())
        })
    }
}

/// Million instructions per second.
fn mips(instructions: u64, seconds: f64) -> f64 {
    instructions as f64 / seconds.max(1e-9) / 1e6
}
