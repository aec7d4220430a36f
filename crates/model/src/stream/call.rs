//! One call: its function, its place in the arena, and the classes of its times.

use serde::{Deserialize, Serialize};

/// The bytes of a page of the arena.
pub const PAGE_BYTES: u32 = 4096;

/// The largest number of pages of an arena: 256 MiB.
pub const PAGES_MAX: u32 = 1 << 16;

/// The largest size of a call in bytes: 64 MiB. Recorders leave out longer ones and count them.
pub const SIZE_MAX: u32 = 64 << 20;

/// A target that is read within this time counts as read soon, in nanoseconds: its bytes are still
/// in the processor's store buffer or nearest cache.
pub const READ_SOON_NS: u64 = 1024;

/// The function that a program called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Function {
    /// `memcpy`, `mempcpy` and their `_chk` forms.
    Memcpy,
    /// `memmove`, `bcopy` and `__memmove_chk`.
    Memmove,
    /// `memset`, `bzero`, `explicit_bzero` and their `_chk` forms.
    Memset {
        /// Whether the byte is 0.
        zero: bool,
    },
}

impl Function {
    /// The name of the function without its variants.
    ///
    /// ```
    /// use haul_model::stream::Function;
    /// assert_eq!(Function::Memset { zero: true }.name(), "memset");
    /// ```
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Memcpy => "memcpy",
            Self::Memmove => "memmove",
            Self::Memset { .. } => "memset",
        }
    }

    /// Whether a call has a source.
    #[must_use]
    pub fn has_source(self) -> bool {
        !matches!(self, Self::Memset { .. })
    }
}

/// A time as the class of its power of two: class 0 is 0 ns, class n from 1 on is 2^(n-1) ns to
/// just below 2^n ns. The last class has no upper end.
///
/// ```
/// use haul_model::stream::TimeClass;
/// let class = TimeClass::of_ns(700);
/// assert_eq!((class.number(), class.least_ns()), (10, 512));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TimeClass(u8);

impl TimeClass {
    /// The number of the last class: nine minutes and more.
    pub const LAST: u8 = 40;

    /// The class of a time in nanoseconds.
    #[must_use]
    pub fn of_ns(ns: u64) -> Self {
        Self((u64::BITS - ns.leading_zeros()).min(Self::LAST.into()) as u8)
    }

    /// The class with this number; `None` if there is none.
    #[must_use]
    pub fn new(number: u8) -> Option<Self> {
        (number <= Self::LAST).then_some(Self(number))
    }

    /// The number of the class: 0 to [`LAST`](Self::LAST).
    #[must_use]
    pub fn number(self) -> u8 {
        self.0
    }

    /// The shortest time of the class in nanoseconds.
    #[must_use]
    pub fn least_ns(self) -> u64 {
        if self.0 == 0 { 0 } else { 1 << (self.0 - 1) }
    }
}

/// When the first 8 bytes of a call's target were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Read {
    /// The call was not observed.
    #[default]
    Unknown,
    /// They were overwritten, or not read while the recorder observed them.
    NotRead,
    /// They were read after this time from the end of the call.
    After(TimeClass),
}

impl Read {
    /// Whether they were read within [`READ_SOON_NS`]; `None` if that is unknown.
    ///
    /// ```
    /// use haul_model::stream::{Read, TimeClass};
    /// assert_eq!(Read::After(TimeClass::of_ns(300)).is_soon(), Some(true));
    /// assert_eq!(Read::NotRead.is_soon(), Some(false));
    /// assert_eq!(Read::Unknown.is_soon(), None);
    /// ```
    #[must_use]
    pub fn is_soon(self) -> Option<bool> {
        match self {
            Self::Unknown => None,
            Self::NotRead => Some(false),
            Self::After(class) => Some(class.least_ns() < READ_SOON_NS),
        }
    }
}

/// One call of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The function.
    pub function: Function,
    /// The index of the call's site in [`Stream::sites`](super::Stream::sites).
    pub site: u16,
    /// The size in bytes; it may be 0.
    pub size: u32,
    /// The target: its offset in the arena, in bytes.
    pub target: u32,
    /// The source: its offset in the arena, in bytes. `None` for [`Function::Memset`] only.
    pub source: Option<u32>,
    /// The time since the end of the thread's previous call.
    pub since: TimeClass,
    /// When the target was read.
    pub read: Read,
}

/// How a recorder knows when targets are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReadsBy {
    /// The processor's breakpoints on the first 8 bytes of sampled targets.
    #[serde(rename = "breakpoint")]
    Breakpoint,
    /// A later call whose source includes the first byte of a target reads it; the other reads of
    /// the program are not seen.
    #[serde(rename = "later calls")]
    LaterCalls,
}

/// A place in the program from which it calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// The base name of the executable or library.
    pub module: String,
    /// The offset of the call's return address from the module's lowest address.
    pub offset: u64,
    /// The function of the program that contains it, if the module names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symbol: Option<String>,
    /// The number of its calls of which the recorder observed the target, kept or not.
    #[serde(default)]
    pub sampled: u64,
    /// The number of these whose target was read within [`READ_SOON_NS`].
    #[serde(default)]
    pub read_soon: u64,
}

impl Site {
    /// The share of targets that are read soon; `None` if no call was observed.
    ///
    /// ```
    /// use haul_model::stream::Site;
    /// let (module, symbol) = ("git".into(), Some("strbuf_add".into()));
    /// let site = Site { module, offset: 0x1_2345, symbol, sampled: 40, read_soon: 30 };
    /// assert_eq!(site.read_share(), Some(0.75));
    /// ```
    #[must_use]
    pub fn read_share(&self) -> Option<f64> {
        (self.sampled > 0).then(|| self.read_soon as f64 / self.sampled as f64)
    }
}
