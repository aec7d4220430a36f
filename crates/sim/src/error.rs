//! Every way a program, a configuration or a run can be refused: the attempt, the value, the limit
//! and the remedy.

/// Why the simulator refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A setting that no machine could have.
    #[error("{setting} = {value}: {limit}; change it in the configuration")]
    Setting {
        /// Where it stands, as `core.window_entries`.
        setting: &'static str,
        /// What it was.
        value: String,
        /// What it must be.
        limit: String,
    },
    /// A file that is no program for this machine.
    #[error("cannot load the program: {problem}; {remedy}")]
    Elf {
        /// What is wrong with it.
        problem: String,
        /// What to do about it.
        remedy: String,
    },
    /// A word that is no instruction of RV64IM was to be executed.
    #[error(
        "illegal instruction {word:#010x} at {at:#x}; compile for RV64IM (-march=rv64im), and see \
         whether the program jumped into data"
    )]
    IllegalInstruction {
        /// The instruction's address.
        at: u64,
        /// The word.
        word: u32,
    },
    /// The program jumped to where nothing can be executed.
    #[error("jump to {to:#x}, where nothing can be executed; see where the program lost its way")]
    NoCode {
        /// Where it went.
        to: u64,
    },
    /// The program touched memory that it does not have.
    #[error(
        "the instruction at {at:#x} would {access} {bytes} bytes at {address:#x}, which the program \
         may not; it has its segments and 1 MiB of stack"
    )]
    Unmapped {
        /// The instruction's address.
        at: u64,
        /// Where it went.
        address: u64,
        /// How much it wanted.
        bytes: u64,
        /// What it wanted.
        access: Access,
    },
    /// A copy whose source and target overlap, which the engine does not define.
    #[error(
        "the ecpy at {at:#x} copies {bytes} bytes from {source_address:#x} to {target:#x}, over \
         itself; copy with loads and stores, or in pieces"
    )]
    CopyOverlaps {
        /// The instruction's address.
        at: u64,
        /// Where it reads.
        source_address: u64,
        /// Where it writes.
        target: u64,
        /// How much.
        bytes: u64,
    },
    /// `ebreak`, or a call of the environment that it does not know.
    #[error("{what} at {at:#x}; the environment knows exit (a7 = 93) and write (a7 = 64)")]
    Trap {
        /// The instruction's address.
        at: u64,
        /// What it was.
        what: String,
    },
    /// The program gave the network device something that it cannot use.
    #[error("the network device was told {register} = {value:#x}: {problem}; see the nic module")]
    Device {
        /// Which of its registers.
        register: &'static str,
        /// What was written.
        value: u64,
        /// Why it cannot be.
        problem: &'static str,
    },
    /// Nothing in the machine can ever happen again: a defect of the simulator, not of the program.
    #[error(
        "the machine stands still at {at:#x} in cycle {cycle}; please report it with the program"
    )]
    Stuck {
        /// The oldest instruction's address.
        at: u64,
        /// The cycle.
        cycle: u64,
    },
    /// The program ran longer than it was allowed to.
    #[error(
        "still running after {instructions} instructions, at {at:#x}; raise the limit, or see \
         whether the program loops forever"
    )]
    InstructionLimit {
        /// The limit.
        instructions: u64,
        /// Where it was.
        at: u64,
    },
    /// It took more cycles than that many instructions can: it does little but copy.
    #[error(
        "still running after {cycles} cycles and {instructions} instructions, at {at:#x}; raise the limit \
         of instructions, of which each may take {CYCLES_OF_INSTRUCTION_MAX} cycles, or see whether the \
         program loops forever"
    )]
    CycleLimit {
        /// The limit.
        cycles: u64,
        /// Instructions until then.
        instructions: u64,
        /// Where it was.
        at: u64,
    },
    /// Whoever asked for the run wants it no more.
    #[error(
        "stopped after {instructions} instructions and {cycles} cycles, before the program's end"
    )]
    Stopped {
        /// Instructions until then.
        instructions: u64,
        /// Cycles until then.
        cycles: u64,
    },
}

/// A run that did not come to the program's end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct Failure {
    /// Why.
    #[source]
    pub error: Error,
    /// What the program had written until then.
    pub output: Vec<u8>,
}

impl From<Error> for Failure {
    /// Of a run that did not begin.
    fn from(error: Error) -> Self {
        Self { error, output: Vec::new() }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

/// Cycles that a program may take for each instruction that it may execute: loads that wait for one
/// another take some 240 for two or three. A copy by an engine is one instruction of any length.
pub(crate) const CYCLES_OF_INSTRUCTION_MAX: u64 = 100;

/// What an instruction wanted of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A load.
    Load,
    /// A store.
    Store,
    /// The reading side of `ecpy`.
    CopySource,
    /// The writing side of `ecpy`.
    CopyTarget,
}

impl std::fmt::Display for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Load => "load",
            Self::Store => "store",
            Self::CopySource => "copy from",
            Self::CopyTarget => "copy to",
        })
    }
}

impl Error {
    /// A setting outside its limit.
    pub fn setting(
        setting: &'static str,
        value: impl std::fmt::Display,
        limit: impl Into<String>,
    ) -> Self {
        Self::Setting { setting, value: value.to_string(), limit: limit.into() }
    }

    /// A file that cannot be loaded.
    pub(crate) fn elf(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Elf { problem: problem.into(), remedy: remedy.into() }
    }
}
