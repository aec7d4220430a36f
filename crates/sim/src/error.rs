//! The errors of programs, configurations and runs. Each message names the attempt, the value, the
//! limit and the remedy.

/// An error of the simulator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A setting that is invalid for every machine.
    #[error("{setting} = {value}: {limit}; change it in the configuration")]
    Setting {
        /// The setting's name, such as `core.window_entries`.
        setting: &'static str,
        /// The setting's value.
        value: String,
        /// The values that are valid.
        limit: String,
    },
    /// A file that is not a program for this machine.
    #[error("cannot load the program: {problem}; {remedy}")]
    Elf {
        /// What is wrong with the file.
        problem: String,
        /// What the user can do about it.
        remedy: String,
    },
    /// The program executed a word that is not an instruction of RV64IM.
    #[error(
        "illegal instruction {word:#010x} at {at:#x}; compile for RV64IM (-march=rv64im), and \
         check whether the program jumped into data"
    )]
    IllegalInstruction {
        /// The instruction's address.
        at: u64,
        /// The word.
        word: u32,
    },
    /// The program jumped to an address without executable code.
    #[error(
        "jump to {to:#x}, which is not executable; check the program's indirect jumps and returns"
    )]
    NoCode {
        /// The jump's target.
        to: u64,
    },
    /// The program accessed memory that it does not own.
    #[error(
        "the instruction at {at:#x} would {access} {bytes} bytes at {address:#x}, outside of the \
         program's memory; it owns its segments and 1 MiB of stack"
    )]
    Unmapped {
        /// The instruction's address.
        at: u64,
        /// The first byte accessed.
        address: u64,
        /// The size of the access.
        bytes: u64,
        /// The kind of access.
        access: Access,
    },
    /// A copy whose source and target overlap, which is undefined for the engine.
    #[error(
        "the ecpy at {at:#x} copies {bytes} bytes from {source_address:#x} to {target:#x}, which \
         overlap; copy with loads and stores, or in pieces"
    )]
    CopyOverlaps {
        /// The instruction's address.
        at: u64,
        /// The source.
        source_address: u64,
        /// The target.
        target: u64,
        /// The length.
        bytes: u64,
    },
    /// `ebreak`, or an environment call that is not supported.
    #[error("{what} at {at:#x}; the environment supports exit (a7 = 93) and write (a7 = 64)")]
    Trap {
        /// The instruction's address.
        at: u64,
        /// The instruction or call.
        what: String,
    },
    /// The program wrote a value to the network device that the device cannot use.
    #[error(
        "the program set the network device's {register} = {value:#x}: {problem}; see the nic \
         module"
    )]
    Device {
        /// The device's register.
        register: &'static str,
        /// The value written.
        value: u64,
        /// Why the device cannot use it.
        problem: &'static str,
    },
    /// No event is left, so that the machine would wait forever: a defect of the simulator, not of
    /// the program.
    #[error(
        "the machine has no event left at {at:#x} in cycle {cycle}; please report it with the \
         program"
    )]
    Stuck {
        /// The oldest instruction's address.
        at: u64,
        /// The cycle.
        cycle: u64,
    },
    /// The program reached its instruction limit.
    #[error(
        "still running after {instructions} instructions, at {at:#x}; raise the limit, or check \
         whether the program loops forever"
    )]
    InstructionLimit {
        /// The limit.
        instructions: u64,
        /// The address of the next instruction.
        at: u64,
    },
    /// The program reached the cycle limit that follows from its instruction limit: the program
    /// does little else than copy.
    #[error(
        "still running after {cycles} cycles and {instructions} instructions, at {at:#x}; raise \
         the limit of instructions, each of which may take {CYCLES_OF_INSTRUCTION_MAX} cycles, or \
         check whether the program loops forever"
    )]
    CycleLimit {
        /// The limit.
        cycles: u64,
        /// The number of instructions executed until then.
        instructions: u64,
        /// The address of the next instruction.
        at: u64,
    },
    /// The caller stopped the run.
    #[error(
        "stopped after {instructions} instructions and {cycles} cycles, before the program's end"
    )]
    Stopped {
        /// The number of instructions executed until then.
        instructions: u64,
        /// The number of cycles until then.
        cycles: u64,
    },
}

/// A run that did not reach the program's end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct Failure {
    /// The error that ended the run.
    #[source]
    pub error: Error,
    /// The program's output until then.
    pub output: Vec<u8>,
}

impl From<Error> for Failure {
    /// The failure of a run that did not begin.
    fn from(error: Error) -> Self {
        Self { error, output: Vec::new() }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

/// The largest number of cycles that a program may need per instruction that it may execute. Two
/// or three dependent loads take some 240 cycles; a copy by an engine is one instruction of any
/// length.
pub(crate) const CYCLES_OF_INSTRUCTION_MAX: u64 = 100;

/// The kind of a memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A load.
    Load,
    /// A store.
    Store,
    /// `ecpy` reading its source.
    CopySource,
    /// `ecpy` writing its target.
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
    /// The error for a setting outside its limit.
    pub fn setting(
        setting: &'static str,
        value: impl std::fmt::Display,
        limit: impl Into<String>,
    ) -> Self {
        Self::Setting { setting, value: value.to_string(), limit: limit.into() }
    }

    /// The error for a file that cannot be loaded.
    pub(crate) fn elf(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Elf { problem: problem.into(), remedy: remedy.into() }
    }
}
