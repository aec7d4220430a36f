//! A whole run: a program on a processor with its memory system and its engines.

use std::ops::Range;

use crate::configuration::{Configuration, Cycle};
use crate::core::trace::PipelineTrace;
use crate::core::{Core, CoreStatistics, MemoryPort};
use crate::error::Failure;
use crate::image::Image;
use crate::interpreter::Interpreter;
use crate::memory::{Access, Completion, Copy, Kind, Passing, Tag, Trace};
use crate::nic::Traffic;
use crate::statistics::MemoryStatistics;
use crate::system::MemorySystem;

/// The input of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// The initial values of a0 to a7.
    pub arguments: Vec<u64>,
    /// The traffic from the network.
    pub traffic: Traffic,
    /// The limit of instructions.
    pub instructions_max: u64,
    /// The number of packets that the program receives before its steady state;
    /// [`Outcome::warm_cycles`] is the cycle in which the program has received these packets.
    pub warm_packets: u64,
    /// The window of cycles to trace.
    pub trace_cycles: Option<Range<Cycle>>,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Cycles from the first fetch to the program's end.
    pub cycles: Cycle,
    /// The cycle in which the program had received [`Job::warm_packets`] packets; 0 if that
    /// number is 0.
    pub warm_cycles: Cycle,
    /// The number of instructions that the program executed.
    pub instructions: u64,
    /// The processor's counters.
    pub core: CoreStatistics,
    /// The counters of the memory system and the engines.
    pub memory: MemoryStatistics,
    /// The program's result, output, memory and device at its end.
    pub interpreter: Interpreter,
    /// The pipeline's trace of [`Job::trace_cycles`].
    pub pipeline: Option<PipelineTrace>,
    /// The trace of memory and engines for the same cycles.
    pub transactions: Option<Trace>,
}

/// Runs `image` on the machine of `configuration`. The result depends on the arguments alone.
///
/// Costs some 100 ns of the host's time per instruction, and memory for the program, its caches and
/// its trace.
///
/// # Errors
/// An invalid configuration; the fault of the program; [`Error::InstructionLimit`] or
/// [`Error::CycleLimit`]. Each error contains the program's output until then.
///
/// [`Error::InstructionLimit`]: crate::Error::InstructionLimit
/// [`Error::CycleLimit`]: crate::Error::CycleLimit
pub fn run(configuration: &Configuration, image: &Image, job: &Job) -> Result<Outcome, Failure> {
    run_until(configuration, image, job, |_| false)
}

/// Like [`run`], but stops once `stops` returns true. `stops` is called some ten times a second
/// with the number of instructions executed so far.
///
/// # Errors
/// Those of [`run`], and [`Error::Stopped`](crate::Error::Stopped).
pub fn run_until(
    configuration: &Configuration,
    image: &Image,
    job: &Job,
    stops: impl FnMut(u64) -> bool,
) -> Result<Outcome, Failure> {
    let mut memory = MemorySystem::new(configuration)?;
    let interpreter = Interpreter::new(image, &job.arguments, job.traffic)?;
    if let Some(cycles) = &job.trace_cycles {
        memory.record(cycles.clone());
    }
    let mut core = Core::new(configuration, image, interpreter, memory);
    core.warm_packets(job.warm_packets);
    if let Some(cycles) = &job.trace_cycles {
        core.trace_cycles(cycles.clone());
    }
    let ran = core.run(job.instructions_max, stops);
    let warm_cycles = core.warm_cycle().filter(|_| job.warm_packets > 0).unwrap_or(0);
    let core_statistics = core.statistics().clone();
    let (interpreter, mut memory, pipeline) = core.into_parts();
    if let Err(error) = ran {
        return Err(Failure { error, output: interpreter.output });
    }
    // Copies that the program did not wait for complete here; their time is not counted.
    memory.advance(Cycle::MAX, &mut Vec::new());
    Ok(Outcome {
        cycles: core_statistics.cycles,
        warm_cycles,
        instructions: core_statistics.instructions,
        core: core_statistics,
        memory: memory.statistics().clone(),
        transactions: memory.trace().cloned(),
        interpreter,
        pipeline,
    })
}

impl MemoryPort for MemorySystem {
    #[inline]
    fn access(&mut self, now: Cycle, kind: Kind, address: u64, tag: Tag) -> Access {
        Self::access(self, now, kind, address, tag)
    }

    fn copy(&mut self, now: Cycle, copy: Copy) -> Access {
        Self::copy(self, now, copy)
    }

    #[inline]
    fn blocks(&mut self, kind: Kind, address: u64, bytes: u64) -> bool {
        Self::blocks(self, kind, address, bytes)
    }

    fn passing(&self) -> Passing {
        Self::passing(self)
    }

    fn dma_write(&mut self, now: Cycle, address: u64, bytes: u32) {
        Self::dma_write(self, now, address, bytes.into());
    }

    fn advance(&mut self, now: Cycle, completions: &mut Vec<Completion>) {
        Self::advance(self, now, completions);
    }

    #[inline]
    fn next_event(&self) -> Option<Cycle> {
        Self::next_event(self)
    }
}
