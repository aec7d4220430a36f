//! One run of one program on one machine, as plain data. The same task takes the same cycles on
//! any machine, however often it runs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use haul_sim::nic::PAYLOAD_BYTES_MAX;
use haul_sim::workload::RECEIVE;
use haul_sim::{Configuration, Failure, Image, Job, Traffic};
use serde::{Deserialize, Serialize};

use super::settings::{self, Setting};
use crate::error::Error;

/// The number of instructions after which a program is stopped: more instructions than the
/// paper's longest run has.
pub const INSTRUCTIONS_MAX: u64 = 20_000_000_000;

/// The largest number of packets per run: some five days of simulation.
const PACKETS_MAX: u64 = 1_000_000_000;

/// The workload's method of copying a payload: the third argument of `receive`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Copying {
    /// A loop of loads and stores of 4 bytes, as on the paper's processor: BASE.
    #[default]
    Words,
    /// `ecpy`.
    Engine,
    /// Loads and stores of 8 bytes, unrolled.
    Doubles,
    /// Loads and stores of 4 bytes, unrolled.
    UnrolledWords,
}

/// A run. The workload's fields have no meaning for a user's own program, which gets `arguments`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Task {
    /// A workload's name, or the path of an ELF file.
    pub program: String,
    /// The arguments of a user's own program.
    pub arguments: Vec<u64>,
    /// Packets that the peer sends.
    pub packets: u64,
    /// Bytes of each packet's payload.
    pub payload_bytes: u64,
    /// The method of copying the payload.
    pub copying: Copying,
    /// Iterations of a loop of two instructions that each packet takes in addition to the stack's
    /// work.
    pub work: u64,
    /// Bytes of the user's buffer; 0: 64 KiB.
    pub buffer_bytes: u64,
    /// Packets that are received before time is counted.
    pub warm_packets: u64,
    /// The number of instructions after which the program is stopped.
    pub instructions_max: u64,
    /// The machine.
    pub machine: Configuration,
}

/// The result of a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Simulated {
    /// The total number of cycles.
    pub cycles: u64,
    /// Instructions committed.
    pub instructions: u64,
    /// Cycles per packet, not including the first packets; `None` if there are no packets.
    pub cycles_per_packet: Option<f64>,
    /// Every counter.
    pub counters: Vec<(String, u64)>,
    /// The time that the simulator used.
    pub seconds: f64,
}

impl Default for Task {
    fn default() -> Self {
        Self {
            program: RECEIVE.into(),
            arguments: Vec::new(),
            packets: 1000,
            payload_bytes: 1024,
            copying: Copying::default(),
            work: 0,
            buffer_bytes: 0,
            warm_packets: 0,
            instructions_max: INSTRUCTIONS_MAX,
            machine: Configuration::default(),
        }
    }
}

/// The settings of a task that apply only to the workload.
const WORKLOAD_SETTINGS: [&str; 6] =
    ["packets", "payload_bytes", "work", "buffer_bytes", "warm_packets", "copying"];

impl Task {
    /// Runs the task; `None` if `stop` was set before the end of the run. The run checks `stop`
    /// some ten times per second. The result is deterministic, except for [`Simulated::seconds`].
    ///
    /// # Errors
    /// The machine is impossible, or the program fails or does something invalid.
    pub fn run(&self, image: &Image, stop: &AtomicBool) -> Result<Option<Simulated>, Error> {
        let began = Instant::now();
        let failed = |reason: String| Error::Simulation { what: self.to_string(), reason };
        let stops = |_| stop.load(Ordering::Relaxed);
        let outcome = match haul_sim::run_until(&self.machine, image, &self.job(), stops) {
            Ok(outcome) => outcome,
            Err(Failure { error: haul_sim::Error::Stopped { .. }, .. }) => return Ok(None),
            Err(Failure { error, output }) => {
                return Err(failed(format!("{error}{}", written(&output))));
            }
        };
        if let Some(code) = outcome.interpreter.failure() {
            return Err(failed(format!(
                "the program ended with exit code {code}, so that its time means nothing{}",
                written(&outcome.interpreter.output)
            )));
        }
        let counted = self.packets.saturating_sub(self.warm_packets);
        let cycles_per_packet = (counted > 0 && self.receives())
            .then(|| (outcome.cycles - outcome.warm_cycles) as f64 / counted as f64);
        let named = outcome.core.named().into_iter().chain(outcome.memory.named());
        Ok(Some(Simulated {
            cycles: outcome.cycles,
            instructions: outcome.instructions,
            cycles_per_packet,
            counters: named.map(|(name, _, value)| (name.to_owned(), value)).collect(),
            seconds: began.elapsed().as_secs_f64(),
        }))
    }

    /// The job for the platform.
    #[must_use]
    pub fn job(&self) -> Job {
        if !self.receives() {
            return Job {
                arguments: self.arguments.clone(),
                instructions_max: self.instructions_max,
                ..Job::default()
            };
        }
        let how = self.copying as u64;
        Job {
            arguments: vec![self.packets, self.payload_bytes, how, self.buffer_bytes, self.work],
            traffic: Traffic { packets: self.packets, payload_bytes: self.payload_bytes },
            instructions_max: self.instructions_max,
            warm_packets: self.warm_packets,
            ..Job::default()
        }
    }

    /// Whether the task runs haul's workload that receives packets, which has additional
    /// settings.
    #[must_use]
    pub fn receives(&self) -> bool {
        self.program == RECEIVE
    }

    /// Changes one setting: a field of the task by its name, or a setting of the machine by its
    /// path.
    ///
    /// # Errors
    /// No setting has this name, or the value does not have its type.
    pub fn set(&mut self, setting: &Setting) -> Result<(), Error> {
        let failed = |reason: String| Error::SimSetting {
            setting: format!("{}={}", setting.name, setting.value),
            reason,
        };
        let number = || {
            let value = setting.value.replace('_', "").parse::<u64>();
            value.map_err(|_| failed(format!("it is not a whole number from 0 to {}", u64::MAX)))
        };
        let name = setting.name.as_str();
        if WORKLOAD_SETTINGS.contains(&name) && !self.receives() {
            return Err(failed(format!(
                "only the workload {RECEIVE} has it, and {} takes --argument; leave it out",
                self.program
            )));
        }
        match name {
            "packets" => self.packets = number()?,
            "payload_bytes" => self.payload_bytes = number()?,
            "work" => self.work = number()?,
            "buffer_bytes" => self.buffer_bytes = number()?,
            "warm_packets" => self.warm_packets = number()?,
            "instructions_max" => self.instructions_max = number()?,
            "copying" => {
                let value = serde_json::Value::String(setting.value.clone());
                self.copying = serde_json::from_value(value).map_err(|e| failed(e.to_string()))?;
            }
            _ => {
                let beside = self.own_names();
                settings::apply(&mut self.machine, setting, &beside)?;
            }
        }
        Ok(())
    }

    /// Every setting's name and value, in the form of [`set`](Self::set).
    ///
    /// # Errors
    /// Those of [`settings::listed`].
    pub fn settings(&self) -> Result<Vec<Setting>, Error> {
        let failed = |reason: String| Error::SimSetting { setting: "task".into(), reason };
        let values = serde_json::to_value(self).map_err(|error| failed(error.to_string()))?;
        let of = |name: &&str| {
            let value = &values[*name];
            let value = value.as_str().map_or_else(|| value.to_string(), Into::into);
            Setting { name: (*name).into(), value }
        };
        let mut found: Vec<Setting> = self.own_names().iter().map(of).collect();
        found.extend(settings::listed(&self.machine)?);
        Ok(found)
    }

    /// The names of the settings that do not belong to the machine.
    fn own_names(&self) -> Vec<&'static str> {
        let workload = WORKLOAD_SETTINGS.into_iter().filter(|_| self.receives());
        workload.chain(["instructions_max"]).collect()
    }

    /// Checks whether the task can run.
    ///
    /// # Errors
    /// The machine is impossible, no frame holds such packets, there are no packets, or there are
    /// fewer packets than are needed to warm up the machine.
    pub fn check(&self) -> Result<(), Error> {
        let failed =
            |setting: &str, reason: String| Error::SimSetting { setting: setting.into(), reason };
        haul_sim::MemorySystem::new(&self.machine)
            .map_err(|error| failed("machine", error.to_string()))?;
        if !self.receives() {
            return Ok(());
        }
        if self.packets == 0 {
            return Err(failed("packets=0", "there must be at least one".into()));
        }
        if self.packets > PACKETS_MAX {
            let reason = format!("there may be at most {PACKETS_MAX}");
            return Err(failed(&format!("packets={}", self.packets), reason));
        }
        if self.warm_packets >= self.packets {
            let reason = format!("it must be below packets={}", self.packets);
            return Err(failed(&format!("warm_packets={}", self.warm_packets), reason));
        }
        if !(1..=PAYLOAD_BYTES_MAX).contains(&self.payload_bytes) {
            let reason = format!("it must be from 1 to {PAYLOAD_BYTES_MAX}, which fits a frame");
            return Err(failed(&format!("payload_bytes={}", self.payload_bytes), reason));
        }
        Ok(())
    }

    /// A name that identifies this task: a digest of all inputs that decide its outcome.
    #[must_use]
    pub fn digest(&self) -> String {
        let text = serde_json::to_string(self).unwrap_or_default();
        format!("{:016x}", digest(text.as_bytes()))
    }
}

impl std::fmt::Display for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { program, payload_bytes, copying, .. } = self;
        if self.receives() {
            let by = if *copying == Copying::Engine {
                self.machine.engine.policy.clone()
            } else {
                format!("{copying:?}").to_lowercase()
            };
            write!(f, "{program}, {payload_bytes} B, {by}")
        } else {
            write!(f, "{program}")
        }
    }
}

/// The output of a program that failed, for the error: the end of the output, if it is long.
fn written(output: &[u8]) -> String {
    /// The bytes that are shown: a dozen lines.
    const SHOWN_BYTES: usize = 1000;
    let cut = output.len().saturating_sub(SHOWN_BYTES);
    match output.is_empty() {
        true => String::new(),
        false => format!(
            "; it had written: {}{}",
            if cut > 0 { "..." } else { "" },
            String::from_utf8_lossy(&output[cut..]).trim_end()
        ),
    }
}

/// FNV-1a of 64 bits.
#[must_use]
pub fn digest(bytes: &[u8]) -> u64 {
    // Offset basis and prime: draft-eastlake-fnv, section 5.
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_depends_on_every_setting() {
        let task = Task::default();
        let mut other = task.clone();
        assert_eq!(task.digest(), other.digest());
        other.machine.memory.latency_ns = 95;
        assert_ne!(task.digest(), other.digest());
        assert_eq!(digest(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(digest(b"a"), 0xaf63_dc4c_8601_ec8c, "the draft's test vector");
    }

    #[test]
    fn settings_reach_the_task_and_its_machine() {
        let mut task = Task::default();
        let mut set = |text: &str| task.set(&text.parse().expect("a setting"));
        set("packets=10_000").expect("known");
        set("copying=engine").expect("known");
        set("memory.mshrs=4").expect("known");
        assert!(set("packets=many").is_err() && set("copying=magic").is_err());
        let unknown = set("x=1").expect_err("unknown").to_string();
        assert!(unknown.contains("packets") && unknown.contains("memory"), "{unknown}");
        assert!(set("packets=-1").expect_err("negative").to_string().contains("whole number"));
        assert_eq!((task.packets, task.copying), (10_000, Copying::Engine));
        assert_eq!(task.machine.memory.mshrs, 4);
    }

    #[test]
    fn listed_settings_can_be_set_and_no_others() {
        let task = Task { packets: 7, copying: Copying::UnrolledWords, ..Task::default() };
        let mut other = Task::default();
        let listed = task.settings().expect("plain data");
        listed.iter().for_each(|setting| other.set(setting).expect("it has this setting"));
        assert_eq!(task, other);
        let mut own = Task { program: "own.elf".into(), ..Task::default() };
        for setting in &listed {
            let is_workloads = WORKLOAD_SETTINGS.contains(&setting.name.as_str());
            assert_eq!(own.set(setting).is_err(), is_workloads, "{setting:?}");
        }
    }
}
