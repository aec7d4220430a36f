//! Processes of a heap: how a process joins, how its death is detected, and which process inherits
//! its blocks.
//!
//! A record's word names its process by PID. The record also contains the start time of the
//! process, which distinguishes the process from a later process with the same PID. A live
//! process that drops the heap keeps its record, because other processes may use its blocks. Its
//! record is freed when the process dies.
//!
//! A PID is valid in one PID namespace only, so the word also names the namespace. A process in
//! another namespace counts as alive, because only a process in its own namespace can detect its
//! death. A process with an unknown namespace also counts as alive; its namespace is unknown if
//! `/proc` is missing.

use crate::layout::POOL_FILE;
use crate::protocol::record;
use crate::protocol::word::{PROCESSES_MAX, Process, ProcessWord};
use crate::sync::AtomicU64;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::sys::process::{self, Identity, Life};
use crate::tables::{ProcessRecord, Tables};

/// Index of the additional word that contains the heir's PID; the word is 0 if there is no heir.
const HEIR: usize = 0;

/// Index of the additional word that marks that a thread of the process is reaping; the word is 0
/// if no thread is.
const REAPING: usize = 1;

/// The visitor's slot. If all other slots are in use, a process uses this slot while it reaps
/// dead processes to free another slot. The process leaves the visitor's slot again at once, so
/// one such slot is enough.
pub(crate) const VISITOR: u8 = PROCESSES_MAX as u8 - 1;

/// The identity and the PID namespace that a process stores in its record.
struct Member {
    identity: Identity,
    namespace: u8,
}

impl Member {
    /// This process. Enters its namespace in the table of namespaces.
    fn own(tables: &Tables) -> Self {
        let namespace = process::own_namespace()
            .map_or(0, |namespace| record::find_namespace(tables.namespaces(), namespace));
        Self { identity: process::own(), namespace }
    }
}

/// Returns the slot that this process holds. If it holds none, takes a free slot. `None` if all
/// slots are in use.
pub(crate) fn join(tables: &Tables) -> Option<u8> {
    let own = Member::own(tables);
    let records = &tables.processes()[..usize::from(VISITOR)];
    let has_joined = |record: &ProcessRecord| {
        let word = ProcessWord(record.state.load(Acquire));
        let active = Process::Active { pid: own.identity.number, namespace: own.namespace };
        word.decode() == active && record.start.load(Relaxed) == own.identity.start
    };
    if let Some(slot) = records.iter().position(has_joined) {
        return Some(slot as u8);
    }
    records.iter().position(|record| take(record, &own)).map(|slot| slot as u8)
}

/// Takes the visitor's slot, even from a visitor that died while it held the slot. (If all other
/// slots are in use too, perhaps no other process can reap that visitor.) `None` if a live
/// process holds the slot or reaps its visitor.
pub(crate) fn visit(tables: &Tables) -> Option<u8> {
    let own = Member::own(tables);
    let record = &tables.processes()[usize::from(VISITOR)];
    let word = ProcessWord(record.state.load(Acquire));
    let is_abandoned = match word.decode() {
        Process::Reaping { by, .. } => {
            let record = &tables.processes()[usize::from(by)];
            let word = ProcessWord(record.state.load(Acquire));
            by == VISITOR || life(record, word, own.namespace) == Life::Dead
        }
        _ => life(record, word, own.namespace) == Life::Dead,
    };
    (is_abandoned && take_over(record, word, &own)).then_some(VISITOR)
}

/// The word that marks that a thread of the process in `slot` is reaping.
pub(crate) fn reaping_mark(tables: &Tables, slot: u8) -> &AtomicU64 {
    &tables.processes()[usize::from(slot)].more[REAPING]
}

/// Leaves the visitor's slot. A visitor owns no resources in the heap.
pub(crate) fn leave(tables: &Tables) {
    record::free(&tables.processes()[usize::from(VISITOR)].state);
}

/// Enters this process in `slot` instead of its parent. For a private heap in a child of fork,
/// which has its own copy of the record.
pub(crate) fn replace(tables: &Tables, slot: u8) {
    let own = Member::own(tables);
    let record = &tables.processes()[usize::from(slot)];
    let epoch = ProcessWord(record.state.load(Relaxed)).epoch().wrapping_add(1);
    record.start.store(own.identity.start, Relaxed);
    record.state.store(ProcessWord::active(epoch, own.identity.number, own.namespace).0, Release);
}

/// The namespace of the process in `slot`; 0 if it is not known.
pub(crate) fn namespace(tables: &Tables, slot: u8) -> u8 {
    match ProcessWord(tables.processes()[usize::from(slot)].state.load(Relaxed)).decode() {
        Process::Joining { namespace, .. } | Process::Active { namespace, .. } => namespace,
        Process::Free | Process::Reaping { .. } => 0,
    }
}

/// Whether a record's process still runs, as far as a process in `namespace` can detect. `word`
/// is the record's word, which names the process. A few system calls.
pub(crate) fn life(record: &ProcessRecord, word: ProcessWord, namespace: u8) -> Life {
    let is_here = |other| namespace != 0 && other == namespace;
    match word.decode() {
        Process::Free => Life::Dead,
        // The process has not recorded its start time yet.
        Process::Joining { pid, namespace } if is_here(namespace) => {
            process::life_of(Identity { number: pid, start: 0 })
        }
        Process::Active { pid, namespace } if is_here(namespace) => {
            let start = record.start.load(Relaxed);
            process::life_of(Identity { number: pid, start })
        }
        Process::Joining { .. } | Process::Active { .. } => Life::Alive,
        // The process that began to reap this record found its process dead.
        Process::Reaping { .. } => Life::Dead,
    }
}

/// Sets the PID of the heir for the process in `slot`; 0 for no heir. The heir inherits the
/// blocks of that process when it dies.
pub(crate) fn set_heir(tables: &Tables, slot: u8, pid: u32) {
    tables.processes()[usize::from(slot)].more[HEIR].store(pid.into(), Release);
}

/// Records the number of the descriptor with which the process in `slot` has the heap's second
/// file open, so that other processes can open the file. Keeps an earlier entry if `is_shown`
/// says that it is valid.
pub(crate) fn show_pool_file(
    tables: &Tables,
    slot: u8,
    number: u32,
    is_shown: impl Fn(u32) -> bool,
) {
    let word = &tables.processes()[usize::from(slot)].more[POOL_FILE];
    let (shown, own) = (word.load(Acquire), u64::from(number) + 1);
    // The recorded descriptor may be invalid, for example if the process called exec.
    let is_right = |shown: u64| u32::try_from(shown - 1).is_ok_and(&is_shown);
    if shown != own && (shown == 0 || !is_right(shown)) {
        // Only another attachment of this process can change the word meanwhile.
        let _ = word.compare_exchange(shown, own, AcqRel, Relaxed);
    }
}

/// Removes descriptor `number` of the second file from the record of the process in `slot`.
pub(crate) fn hide_pool_file(tables: &Tables, slot: u8, number: u32) {
    let word = &tables.processes()[usize::from(slot)].more[POOL_FILE];
    // If another attachment has recorded its descriptor, that entry stays.
    let _ = word.compare_exchange(u64::from(number) + 1, 0, AcqRel, Relaxed);
}

/// The slot of the heir that the process in `slot` named, if the heir has joined and lives. The
/// heir must be in `namespace`, which is the namespace of the dead process and of its reaper.
pub(crate) fn heir(tables: &Tables, slot: u8, namespace: u8) -> Option<u8> {
    let records = tables.processes();
    let heir = u32::try_from(records[usize::from(slot)].more[HEIR].load(Acquire)).ok()?;
    let is_heir = |record: &ProcessRecord| {
        let word = ProcessWord(record.state.load(Acquire));
        word.decode() == Process::Active { pid: heir, namespace }
            && life(record, word, namespace) == Life::Alive
    };
    (heir != 0).then(|| records.iter().position(is_heir)).flatten().map(|slot| slot as u8)
}

fn take(record: &ProcessRecord, own: &Member) -> bool {
    let old = ProcessWord(record.state.load(Acquire));
    old.decode() == Process::Free && take_over(record, old, own)
}

/// Takes a record without a live owner if its word is still `old`.
fn take_over(record: &ProcessRecord, old: ProcessWord, own: &Member) -> bool {
    record::join(&record.state, old, (own.identity.number, own.namespace), || {
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

    /// The tables for a small heap, in ordinary memory that is never freed.
    fn tables() -> Tables {
        let geometry = Geometry { nodes: 1, node_pages: 1, caches: 1 };
        let words = Layout::of(&geometry).bytes / 8 + 512;
        let memory = Box::leak(vec![0_u64; words].into_boxed_slice());
        let start = NonNull::from(memory).cast::<u8>();
        let pad = start.align_offset(4096);
        // SAFETY: the allocation is a page longer than needed.
        let start = unsafe { start.add(pad) };
        // SAFETY: the memory is zeroed, aligned, as long as the layout requires, and never freed.
        unsafe { Tables::new(start, geometry) }
    }

    #[test]
    fn process_joins_once_and_counts_as_alive() {
        let tables = tables();
        assert_eq!(join(&tables), Some(0));
        assert_eq!(join(&tables), Some(0));
        let record = &tables.processes()[0];
        let word = ProcessWord(record.state.load(Acquire));
        let namespace = namespace(&tables, 0);
        assert_eq!((namespace, life(record, word, namespace)), (1, Life::Alive));
        record.start.fetch_add(1, Relaxed);
        assert_eq!(life(record, word, namespace), Life::Dead);
        // A process in another or an unknown namespace cannot detect its death.
        assert_eq!([0, 2].map(|namespace| life(record, word, namespace)), [Life::Alive; 2]);
        assert_eq!(join(&tables), Some(1));
    }

    #[test]
    fn same_pid_in_another_namespace_is_another_process() {
        let tables = tables();
        assert_eq!(join(&tables), Some(0));
        tables.namespaces()[1].store(1, Relaxed);
        assert_eq!((join(&tables), namespace(&tables, 1)), (Some(1), 2));
        // If all entries of the table are in use, this process's namespace is unknown.
        tables.namespaces().iter().skip(1).for_each(|namespace| namespace.store(1, Relaxed));
        assert_eq!((join(&tables), namespace(&tables, 2)), (Some(2), 0));
    }

    #[test]
    fn only_a_live_member_inherits() {
        let tables = tables();
        join(&tables).unwrap();
        assert_eq!(heir(&tables, 0, 1), None);
        set_heir(&tables, 0, process::own_pid());
        assert_eq!([1, 2].map(|namespace| heir(&tables, 0, namespace)), [Some(0), None]);
        set_heir(&tables, 0, 1);
        assert_eq!(heir(&tables, 0, 1), None);
    }

    #[test]
    fn one_attachment_of_a_process_shows_the_second_file() {
        let tables = tables();
        let slot = join(&tables).unwrap();
        let shown = || tables.processes()[0].more[POOL_FILE].load(Acquire);
        show_pool_file(&tables, slot, 7, |_| false);
        show_pool_file(&tables, slot, 9, |number| number == 7);
        hide_pool_file(&tables, slot, 9);
        assert_eq!(shown(), 8);
        show_pool_file(&tables, slot, 9, |_| false);
        assert_eq!(shown(), 10);
        hide_pool_file(&tables, slot, 9);
        assert_eq!(shown(), 0);
    }

    #[test]
    fn full_table_admits_no_process() {
        let tables = tables();
        for record in tables.processes() {
            record.state.store(ProcessWord::active(1, 1, 1).0, Relaxed);
        }
        assert_eq!(join(&tables), None);
    }
}
