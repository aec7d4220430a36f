//! Copy engines: how the engines work, and the policies by which they differ.
//!
//! Each policy has a file beside this one: it implements [`Policy`] and has a line in [`POLICIES`].
//!
//! | policy | recommended when |
//! |---|---|
//! | `sync-nlb` | the processor has nothing to do during a copy; needs the least hardware |
//! | `sync-wlb` | the window can hide a copy, and no pending copies may outlive their `ecpy` |
//! | `async` | the processor has other work during copies; this is the paper's conclusion |
//! | `async-pipelined` | the engine's time limits the copies: it writes while it still reads |
//!
//! From the bottom up:
//!
//! - `share`: the share of memory time that engines are guaranteed;
//! - `stream`: a piece of a copy in an engine;
//! - `sync_nlb`: synchronous, no load bypass;
//! - `sync_wlb`: synchronous with load bypass;
//! - `asynchronous`: the program continues during its copies;
//! - `pipelined`: asynchronous, and the engine writes each line as soon as it can;
//! - `control`: the copy control unit.

mod asynchronous;
pub mod control;
mod pipelined;
mod share;
mod stream;
mod sync_nlb;
mod sync_wlb;

pub use share::FairShare;
pub use stream::{Step, Stream};

use crate::configuration::EngineSettings;
use crate::error::Error;
use crate::memory::{Passing, Request};

/// How the caches are informed of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announcement {
    /// Each line is snooped while memory already reads or writes it.
    EachLine,
    /// One multi-line snoop enters the whole copy into every pending copy table. The engine begins
    /// when the snoop has been acknowledged.
    MultiLine,
}

/// When an `ecpy` may retire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retirement {
    /// When the copy is complete.
    Completion,
    /// When the announcement of the copy has been acknowledged: the early notification.
    Acknowledgement,
}

/// The policy of a copy engine. Every method but `name` has a default. No answer of a policy can
/// make a copy incorrect: the engine writes data only after it has arrived, and loads and stores
/// always wait for the copies that they depend on.
pub trait Policy: Send {
    /// The name that configurations use.
    fn name(&self) -> &'static str;

    /// What may execute while an older `ecpy` has not completed.
    fn passing(&self) -> Passing {
        Passing::Memory
    }

    /// How the caches are informed of a copy.
    fn announcement(&self) -> Announcement {
        Announcement::MultiLine
    }

    /// When an `ecpy` may retire.
    fn retirement(&self) -> Retirement {
        Retirement::Completion
    }

    /// The position of the request in `waiting` (oldest first, at least one) that a channel serves
    /// next. A position beyond the end counts as the oldest request.
    fn choose(&mut self, channel: usize, waiting: &[Request]) -> usize {
        let _ = (channel, waiting);
        0
    }

    /// What the engine enqueues next for its current piece. The default, [`Stream::batches`], is
    /// the paper's method: fill the stream buffer, then write it out.
    fn step(&mut self, stream: &Stream) -> Step {
        stream.batches()
    }
}

/// Constructs a policy.
pub type Make = fn(&EngineSettings) -> Box<dyn Policy>;

/// Every policy by name.
pub const POLICIES: [(&str, Make); 4] = [
    ("sync-nlb", sync_nlb::make),
    ("sync-wlb", sync_wlb::make),
    ("async", asynchronous::make),
    ("async-pipelined", pipelined::make),
];

/// The policy that the settings name.
///
/// # Errors
/// [`Error::Setting`]: no policy has that name.
pub fn policy(settings: &EngineSettings) -> Result<Box<dyn Policy>, Error> {
    let found = POLICIES.iter().find(|(name, _)| *name == settings.policy);
    found.map(|(_, make)| make(settings)).ok_or_else(|| {
        let names: Vec<&str> = POLICIES.iter().map(|(name, _)| *name).collect();
        Error::setting(
            "engine.policy",
            format!("{:?}", settings.policy),
            format!("it must be one of {}", names.join(", ")),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_policy_is_found_by_its_own_name() {
        for (name, make) in POLICIES {
            let settings = EngineSettings { policy: name.into(), ..EngineSettings::default() };
            assert_eq!(make(&settings).name(), name);
            assert_eq!(policy(&settings).expect("a listed policy").name(), name);
        }
        let settings = EngineSettings { policy: "warp".into(), ..EngineSettings::default() };
        let message = policy(&settings).err().expect("no such policy").to_string();
        assert!(message.contains("warp") && message.contains("sync-nlb"), "{message}");
    }
}
