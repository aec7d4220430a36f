//! How a command ends, and the exit code of each ending and error.

use std::process::ExitCode;

use super::Error;

/// The ending of a command that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The command completed.
    Done,
    /// A signal interrupted the command, and haul kept its records. The exit code is the same as
    /// for a program that the signal ended, because the result is incomplete.
    Interrupted {
        /// The signal's number.
        signal: i32,
    },
}

/// The exit code that shells report for a program that this signal ended.
pub(crate) fn code_of_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(1)
}

impl Ending {
    pub(crate) fn exit_code(self) -> ExitCode {
        match self {
            Self::Done => ExitCode::SUCCESS,
            Self::Interrupted { signal } => ExitCode::from(code_of_signal(signal)),
        }
    }
}

impl Error {
    pub(crate) fn exit_code(&self) -> ExitCode {
        use haul_experiments::Error as Experiment;
        use haul_measure::Error as Measure;
        match self {
            Self::ReaderGone => ExitCode::SUCCESS,
            Self::FieldVerdict { .. } => ExitCode::from(3),
            Self::Program(error) => ExitCode::from(error.exit_code()),
            Self::Usage(_)
            | Self::Pcie(_)
            | Self::NoCapture { .. }
            | Self::Threads { .. }
            | Self::Size { .. }
            | Self::NoSize { .. }
            | Self::Unused { .. }
            | Self::Setting { .. }
            | Self::Mechanism { .. }
            | Self::Copy { .. }
            | Self::SwitchLibrary { .. }
            | Self::SameName { .. }
            | Self::PacketSize { .. }
            | Self::Port { .. }
            | Self::Ports { .. }
            | Self::Forward(haul::forward::Error::Value { .. })
            | Self::FakeSettings(_)
            | Self::Replaced { .. }
            | Self::TuneInto { .. } => ExitCode::from(2),
            Self::Measure(error) | Self::Experiment(Experiment::Measure(error)) => match error {
                Measure::UnknownDistribution { .. } | Measure::UnknownLevel { .. } => {
                    ExitCode::from(2)
                }
                _ => ExitCode::from(1),
            },
            Self::Experiment(
                Experiment::UnknownSubject { .. }
                | Experiment::UnknownFunction { .. }
                | Experiment::UnknownReader { .. }
                | Experiment::SizeClass { .. }
                | Experiment::UnknownPeer { .. }
                | Experiment::UnknownChannelPeer { .. }
                | Experiment::UnknownTest { .. }
                | Experiment::BlockSize { .. }
                | Experiment::BlockAlign { .. }
                | Experiment::OddThreads { .. }
                | Experiment::SimSetting { .. }
                | Experiment::Sizes { .. }
                | Experiment::Change { .. }
                | Experiment::Pcie(_)
                | Experiment::Forward(haul::forward::Error::Value { .. }),
            ) => ExitCode::from(2),
            _ => ExitCode::from(1),
        }
    }
}
