//! Which mechanism a message takes.

use super::double::Pieces;
use super::error::Error;
use super::layout::INLINE_BYTES_MAX;
use super::link::Link;
use super::source::Source;
use super::{Mechanism, Settings, idle, pull};
use crate::tuning::{self, ChannelTable, Force};

/// From this size on one copy by the kernel beats two by the processors where only one processor
/// is to be had. Below, the ring's chunks stay in the cache and a system call a message costs more.
/// Where there are several and others are busy the ring stays: on two busy processors of Zen 4 it
/// moved 5.5 GB/s at 0.18 s/GB, `pull` 1.6 at 0.25, `double` 1.8 at 0.25 (256 MiB).
const PULL_BYTES_MIN: u64 = 128 << 10;
/// From this size on two ends that have a processor each copy once, both at a time: below, the
/// ring's second copy comes out of the caches and costs less than the kernel's one. Zen 4 with 32 MiB
/// of last-level cache, GB/s of `ring` and `double`: 10.4 and 7.2 at 16 MiB, 7.0 and 7.5 at 64 MiB.
const DOUBLE_BYTES_MIN: u64 = 32 << 20;
/// Copy-on-write of 4 KiB pages against one warm copy of all: the reference's measure.
const SEALED_DIRTY_MAX: f64 = 0.11;

const NO_TRUST: &str = "one of the two ends does not trust the other";
const TABLE_IS_FULL: &str = "the message has more parts than the table has room for";

/// The mechanism for this message: the one that was asked for, else what was measured on this
/// machine, else a rule: by size, permission, trust and processors.
///
/// # Errors
/// [`Error::Unavailable`] where what was asked for cannot be had.
pub(super) fn choose(link: &Link, source: &Source<'_>, length: u64) -> Result<Mechanism, Error> {
    let Some(asked) = link.settings.mechanism.filter(|_| length > 0) else {
        return Ok(best(link, source, length));
    };
    match obstacle(asked, link, source, length) {
        None => Ok(asked),
        Some(reason) => Err(Error::Unavailable { mechanism: asked, reason }),
    }
}

/// Whether what was built in place is handed over, or copied by the receiver after all.
pub(super) fn for_built(settings: &Settings) -> Mechanism {
    let limit = table().and_then(|table| table.sealed_dirty_max).unwrap_or(SEALED_DIRTY_MAX);
    if settings.dirty_fraction <= limit { Mechanism::Sealed } else { Mechanism::Staged }
}

fn best(link: &Link, source: &Source<'_>, length: u64) -> Mechanism {
    if length <= INLINE_BYTES_MAX as u64 {
        return Mechanism::Inline;
    }
    let can = |mechanism: &Mechanism| obstacle(*mechanism, link, source, length).is_none();
    if let Some(table) = table().filter(|table| !table.choices.is_empty()) {
        let names = table.names(length, link.is_trusted, idle::is_one_for_each());
        let measured = names.filter_map(|name| name.parse().ok()).find(can);
        if let Some(measured) = measured {
            return measured;
        }
    }
    let is_alone = idle::processors() == 1;
    if is_alone && length >= PULL_BYTES_MIN && can(&Mechanism::Pull) {
        return Mechanism::Pull;
    }
    if length >= DOUBLE_BYTES_MIN && can(&Mechanism::Double) && idle::is_one_for_each() {
        return Mechanism::Double;
    }
    Mechanism::Ring
}

/// What was measured on this machine, if a program read it.
fn table() -> Option<&'static ChannelTable> {
    match tuning::in_force() {
        Some(Force::File { tuning, .. }) => Some(&tuning.channel),
        _ => None,
    }
}

/// What keeps a message from going this way.
fn obstacle(
    mechanism: Mechanism,
    link: &Link,
    source: &Source<'_>,
    length: u64,
) -> Option<&'static str> {
    let first = |checks: &[(bool, &'static str)]| {
        checks.iter().find(|(is_fine, _)| !is_fine).map(|&(_, reason)| reason)
    };
    match mechanism {
        Mechanism::Inline => {
            first(&[(length <= INLINE_BYTES_MAX as u64, "the message is over 4032 B")])
        }
        Mechanism::Ring => None,
        Mechanism::Staged => first(&[(
            usize::try_from(length).is_ok(),
            "the message is larger than the address space",
        )]),
        Mechanism::Sealed => Some("its memory must be built by Building: call send_built"),
        Mechanism::Pull => first(&[
            (link.is_trusted, NO_TRUST),
            (link.peer_can_pull, "the peer may not read this process's memory"),
            (pull::fits(source), TABLE_IS_FULL),
        ]),
        Mechanism::Lease | Mechanism::Vmsplice => first(&[(link.is_trusted, NO_TRUST)]),
        Mechanism::Double => first(&[
            (link.is_trusted, NO_TRUST),
            (link.peer_can_pull, "the peer may not read this process's memory"),
            (link.can_pull, "this process may not write the peer's memory"),
            (pull::fits(source), TABLE_IS_FULL),
            (Pieces::of(length).fit(), "the message has more pieces than the counter counts"),
        ]),
    }
}
