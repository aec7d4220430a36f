//! Which mechanism a message takes.

use super::double::Pieces;
use super::error::Error;
use super::layout::INLINE_BYTES_MAX;
use super::link::{self, Link};
use super::source::Source;
use super::{Mechanism, pull};

/// From this size on one copy by the kernel beats two by the processors where only one processor
/// is to be had. Below, the ring's chunks stay in the cache and a system call a message costs more.
const PULL_BYTES_MIN: u64 = 128 << 10;

const NO_TRUST: &str = "one of the two ends does not trust the other";
const TABLE_IS_FULL: &str = "the message has more parts than the table has room for";

/// The mechanism for this message: the one that was asked for, else by size, permission, trust and
/// processors.
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

fn best(link: &Link, source: &Source<'_>, length: u64) -> Mechanism {
    if length <= INLINE_BYTES_MAX as u64 {
        return Mechanism::Inline;
    }
    let is_alone = link::processors() == 1;
    let can_pull = obstacle(Mechanism::Pull, link, source, length).is_none();
    if is_alone && can_pull && length >= PULL_BYTES_MIN {
        return Mechanism::Pull;
    }
    Mechanism::Ring
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
