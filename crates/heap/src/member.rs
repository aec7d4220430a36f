//! Processes of a heap: how one joins, how its death is seen, who inherits.
//!
//! A record's word names its process by number, and the record holds when that process started, so
//! that a later one of the same number is another. A process that leaves without dying keeps its
//! record, because its blocks may be in use by others; the record goes when the process does.
//!
//! A number means nothing in another PID namespace, so the word says which namespace is the
//! process's home. Whoever is at home elsewhere counts as alive: only who shares its namespace can
//! see it die. So does who is at home where nobody could say, for want of `/proc`.

use crate::layout::POOL_FILE;
use crate::protocol::record;
use crate::protocol::word::{PROCESSES_MAX, Process, ProcessWord};
use crate::sync::AtomicU64;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::sys::process::{self, Identity, Life};
use crate::tables::{ProcessRecord, Tables};

/// Where in a record's further words the process number of the heir stands; 0 for none.
const HEIR: usize = 0;

/// Where in a record's further words the mark stands that a thread of the process reaps; 0 for
/// none.
const REAPING: usize = 1;

/// The slot of a process that finds all others taken and looks whether their processes are dead. It
/// is left again at once, so one will do.
pub(crate) const VISITOR: u8 = PROCESSES_MAX as u8 - 1;

/// A process, and where it is at home: what its record is to say.
struct Member {
    identity: Identity,
    home: u8,
}

impl Member {
    /// This process, entered among the homes.
    fn own(tables: &Tables) -> Self {
        let home = process::own_home().map_or(0, |home| record::find_home(tables.homes(), home));
        Self { identity: process::own(), home }
    }
}

/// This process's slot: the one that it has, else a free one. `None` where all are taken.
pub(crate) fn join(tables: &Tables) -> Option<u8> {
    let own = Member::own(tables);
    let records = &tables.processes()[..usize::from(VISITOR)];
    let has_joined = |record: &ProcessRecord| {
        let word = ProcessWord(record.state.load(Acquire));
        let active = Process::Active { pid: own.identity.number, home: own.home };
        word.decode() == active && record.start.load(Relaxed) == own.identity.start
    };
    if let Some(slot) = records.iter().position(has_joined) {
        return Some(slot as u8);
    }
    records.iter().position(|record| take(record, &own)).map(|slot| slot as u8)
}

/// Takes the visitor's slot, also from one that died in it: when all others are taken too, there
/// may be nobody else to reap it. `None` where somebody has it, or reaps it.
pub(crate) fn visit(tables: &Tables) -> Option<u8> {
    let own = Member::own(tables);
    let record = &tables.processes()[usize::from(VISITOR)];
    let word = ProcessWord(record.state.load(Acquire));
    let is_nobodys = match word.decode() {
        Process::Reaping { by, .. } => {
            let record = &tables.processes()[usize::from(by)];
            let word = ProcessWord(record.state.load(Acquire));
            by == VISITOR || life(record, word, own.home) == Life::Dead
        }
        _ => life(record, word, own.home) == Life::Dead,
    };
    (is_nobodys && take_over(record, word, &own)).then_some(VISITOR)
}

/// The mark that a thread of the process in `slot` reaps.
pub(crate) fn reaping_mark(tables: &Tables, slot: u8) -> &AtomicU64 {
    &tables.processes()[usize::from(slot)].more[REAPING]
}

/// Leaves the visitor's slot, under whose name nothing is owned.
pub(crate) fn leave(tables: &Tables) {
    record::free(&tables.processes()[usize::from(VISITOR)].state);
}

/// Makes this process the one in `slot`, whoever it was: for a private heap in a child of fork,
/// which has a copy of the record and nobody beside it.
pub(crate) fn replace(tables: &Tables, slot: u8) {
    let own = Member::own(tables);
    let record = &tables.processes()[usize::from(slot)];
    let epoch = ProcessWord(record.state.load(Relaxed)).epoch().wrapping_add(1);
    record.start.store(own.identity.start, Relaxed);
    record.state.store(ProcessWord::active(epoch, own.identity.number, own.home).0, Release);
}

/// Where the process in `slot` is at home; 0 where that is not known.
pub(crate) fn home(tables: &Tables, slot: u8) -> u8 {
    match ProcessWord(tables.processes()[usize::from(slot)].state.load(Relaxed)).decode() {
        Process::Joining { home, .. } | Process::Active { home, .. } => home,
        Process::Free | Process::Reaping { .. } => 0,
    }
}

/// Whether the process that a record named when `word` was read still runs, as far as that is to be
/// seen from `home`. A few system calls.
pub(crate) fn life(record: &ProcessRecord, word: ProcessWord, home: u8) -> Life {
    let is_here = |other| home != 0 && other == home;
    match word.decode() {
        Process::Free => Life::Dead,
        // It has not said yet when it started.
        Process::Joining { pid, home } if is_here(home) => {
            process::life_of(Identity { number: pid, start: 0 })
        }
        Process::Active { pid, home } if is_here(home) => {
            let start = record.start.load(Relaxed);
            process::life_of(Identity { number: pid, start })
        }
        Process::Joining { .. } | Process::Active { .. } => Life::Alive,
        // Who began to reap it saw that it is.
        Process::Reaping { .. } => Life::Dead,
    }
}

/// Names the process that gets this one's blocks when it dies; 0 for nobody.
pub(crate) fn set_heir(tables: &Tables, slot: u8, pid: u32) {
    tables.processes()[usize::from(slot)].more[HEIR].store(pid.into(), Release);
}

/// Writes under which number the process in `slot` has the heap's second file open, so that others
/// can find it. Leaves a number that stands there and that `is_shown` says is right.
pub(crate) fn show_pool_file(
    tables: &Tables,
    slot: u8,
    number: u32,
    is_shown: impl Fn(u32) -> bool,
) {
    let word = &tables.processes()[usize::from(slot)].more[POOL_FILE];
    let (told, own) = (word.load(Acquire), u64::from(number) + 1);
    // A program that this one replaced by exec leaves a number that means nothing any more.
    let is_right = |told: u64| u32::try_from(told - 1).is_ok_and(&is_shown);
    if told != own && (told == 0 || !is_right(told)) {
        // Whoever was faster is another attachment of this process.
        let _ = word.compare_exchange(told, own, AcqRel, Relaxed);
    }
}

/// Takes back that the process in `slot` has the second file open under this number.
pub(crate) fn hide_pool_file(tables: &Tables, slot: u8, number: u32) {
    let word = &tables.processes()[usize::from(slot)].more[POOL_FILE];
    // A number that another attachment wrote stays.
    let _ = word.compare_exchange(u64::from(number) + 1, 0, AcqRel, Relaxed);
}

/// The slot of the heir that the process in `slot` named, if the heir has joined and lives: both of
/// them at `home`, for who reaps a process shares its namespace.
pub(crate) fn heir(tables: &Tables, slot: u8, home: u8) -> Option<u8> {
    let records = tables.processes();
    let heir = u32::try_from(records[usize::from(slot)].more[HEIR].load(Acquire)).ok()?;
    let is_heir = |record: &ProcessRecord| {
        let word = ProcessWord(record.state.load(Acquire));
        word.decode() == Process::Active { pid: heir, home }
            && life(record, word, home) == Life::Alive
    };
    (heir != 0).then(|| records.iter().position(is_heir)).flatten().map(|slot| slot as u8)
}

fn take(record: &ProcessRecord, own: &Member) -> bool {
    let old = ProcessWord(record.state.load(Acquire));
    old.decode() == Process::Free && take_over(record, old, own)
}

/// Takes a record that says `old` and is nobody's.
fn take_over(record: &ProcessRecord, old: ProcessWord, own: &Member) -> bool {
    record::join(&record.state, old, (own.identity.number, own.home), || {
        record.start.store(own.identity.start, Relaxed);
        for word in [HEIR, REAPING, POOL_FILE] {
            record.more[word].store(0, Relaxed);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Geometry, Layout};
    use core::ptr::NonNull;
    use std::prelude::v1::*;
    use std::vec;

    /// Tables of a small heap, in ordinary memory that is never freed.
    fn tables() -> Tables {
        let geometry = Geometry { nodes: 1, node_pages: 1, caches: 1 };
        let words = Layout::of(&geometry).bytes / 8 + 512;
        let memory = Box::leak(vec![0_u64; words].into_boxed_slice());
        let start = NonNull::from(memory).cast::<u8>();
        let pad = start.align_offset(4096);
        // SAFETY: a page more than needed was taken.
        let start = unsafe { start.add(pad) };
        // SAFETY: zeroed memory of the layout's size, aligned, and never freed.
        unsafe { Tables::new(start, geometry) }
    }

    #[test]
    fn a_process_joins_once_and_lives() {
        let tables = tables();
        assert_eq!(join(&tables), Some(0));
        assert_eq!(join(&tables), Some(0));
        let record = &tables.processes()[0];
        let word = ProcessWord(record.state.load(Acquire));
        let home = home(&tables, 0);
        assert_eq!((home, life(record, word, home)), (1, Life::Alive));
        record.start.fetch_add(1, Relaxed);
        assert_eq!(life(record, word, home), Life::Dead);
        // From elsewhere it is not to be seen, nor from where nobody knows.
        assert_eq!([0, 2].map(|home| life(record, word, home)), [Life::Alive; 2]);
        assert_eq!(join(&tables), Some(1));
    }

    #[test]
    fn a_process_of_this_number_that_is_at_home_elsewhere_is_another() {
        let tables = tables();
        assert_eq!(join(&tables), Some(0));
        tables.homes()[1].store(1, Relaxed);
        assert_eq!((join(&tables), home(&tables, 1)), (Some(1), 2));
        // Where all are taken, nobody knows where this one is.
        tables.homes().iter().skip(1).for_each(|home| home.store(1, Relaxed));
        assert_eq!((join(&tables), home(&tables, 2)), (Some(2), 0));
    }

    #[test]
    fn only_a_live_member_inherits() {
        let tables = tables();
        join(&tables).unwrap();
        assert_eq!(heir(&tables, 0, 1), None);
        set_heir(&tables, 0, process::own_number());
        assert_eq!([1, 2].map(|home| heir(&tables, 0, home)), [Some(0), None]);
        set_heir(&tables, 0, 1);
        assert_eq!(heir(&tables, 0, 1), None);
    }

    #[test]
    fn one_attachment_of_a_process_shows_its_second_file() {
        let tables = tables();
        let slot = join(&tables).unwrap();
        let told = || tables.processes()[0].more[POOL_FILE].load(Acquire);
        show_pool_file(&tables, slot, 7, |_| false);
        show_pool_file(&tables, slot, 9, |number| number == 7);
        hide_pool_file(&tables, slot, 9);
        assert_eq!(told(), 8);
        show_pool_file(&tables, slot, 9, |_| false);
        assert_eq!(told(), 10);
        hide_pool_file(&tables, slot, 9);
        assert_eq!(told(), 0);
    }

    #[test]
    fn a_full_table_admits_nobody() {
        let tables = tables();
        for record in tables.processes() {
            record.state.store(ProcessWord::active(1, 1, 1).0, Relaxed);
        }
        assert_eq!(join(&tables), None);
    }
}
