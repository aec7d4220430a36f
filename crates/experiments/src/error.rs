//! The one error of this crate. Each message names the attempt, the value, the limit and the remedy.

use haul_model::Bytes;

/// Why an experiment did not come to its records.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Measuring failed: see there.
    #[error(transparent)]
    Measure(#[from] haul_measure::Error),
    /// No subject has this name, or it does not run on this processor.
    #[error("cannot measure {name:?} for {function}; this machine has {known}; name some of these")]
    UnknownSubject {
        /// What was asked for.
        name: String,
        /// For which function.
        function: &'static str,
        /// The subjects that exist here.
        known: String,
    },
    /// No function has this name.
    #[error("cannot measure function {name:?}; the functions are memcpy, memmove and memset")]
    UnknownFunction {
        /// What was asked for.
        name: String,
    },
    /// Not a size class.
    #[error(
        "cannot measure size class {text:?}; write FIRST-LAST in bytes, up to {limit}, such as 0-16"
    )]
    SizeClass {
        /// What was asked for.
        text: String,
        /// The largest size.
        limit: usize,
    },
    /// Sizes that make no sweep.
    #[error(
        "cannot sweep from {first} to {last}; the first has to be above 0 and not beyond the last"
    )]
    Sizes {
        /// The first size.
        first: Bytes,
        /// The last size.
        last: Bytes,
    },
    /// A subject copied or filled wrongly: its time means nothing.
    #[error(
        "{subject:?} gave a wrong byte at {index} of a {function} of {size_bytes} B: {found:#04x} instead of \
         {expected:#04x}; its figures are withheld; please report it with the machine's description"
    )]
    WrongBytes {
        /// Which subject.
        subject: String,
        /// Of which function.
        function: &'static str,
        /// The operation's size.
        size_bytes: usize,
        /// The byte's index from the target's start; negative before it.
        index: isize,
        /// What it is.
        found: u8,
        /// What it ought to be.
        expected: u8,
    },
}
