//! The candidates of a replay, each with its three functions.

use haul_copy::kernel::{CopyFn, FillFn};

use super::sites::{Calls, Pointers};
use crate::copy::Function;
use crate::copy::subjects::{self, BASELINE, Plain, Routine, Selection};
use crate::error::Error;

/// haul, inlined at each site.
pub const HAUL: &str = "haul";

/// haul, called through C.
pub const HAUL_C: &str = "haul-c";

/// Calls of a function that does nothing: the cost of the loop and of the reads.
pub const EMPTY: &str = "empty";

/// A subject of a replay.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// Its name in records: `libc`, `haul`, `haul-c`, `empty`, or a kernel's.
    pub name: &'static str,
    /// How its calls are made.
    pub calls: Calls,
}

impl Candidate {
    /// The subject that does nothing.
    #[must_use]
    pub fn empty() -> Self {
        let pointers = Pointers { copy: nothing, copy_within: nothing, fill: nothing_filled };
        Self { name: EMPTY, calls: Calls::Pointers(pointers) }
    }

    /// Whether it copies.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.name == EMPTY
    }
}

unsafe extern "C" fn nothing(target: *mut u8, _: *const u8, _: usize) -> *mut u8 {
    target
}

unsafe extern "C" fn nothing_filled(target: *mut u8, _: i32, _: usize) -> *mut u8 {
    target
}

/// The selected candidates, `libc` first, and `empty` last. A kernel that lacks a function has
/// libc's.
///
/// # Errors
/// A name is unknown, or names a kernel that this processor cannot run.
pub fn select(selection: &Selection) -> Result<Vec<Candidate>, Error> {
    let all = available();
    let names: Vec<String> = match selection {
        Selection::Products => [HAUL, HAUL_C].map(str::to_owned).to_vec(),
        Selection::Kernels => {
            let own = |it: &&Candidate| ![BASELINE, HAUL_C].contains(&it.name);
            all.iter().filter(own).map(|it| it.name.to_owned()).collect()
        }
        Selection::Named(names) => names.clone(),
    };
    if let Some(name) = names.iter().find(|name| !all.iter().any(|it| it.name == **name)) {
        let known: Vec<&str> = all.iter().map(|it| it.name).collect();
        let (name, known) = (name.clone(), known.join(", "));
        return Err(Error::UnknownSubject { name, function: "a stream", known });
    }
    let is_wanted =
        |it: &Candidate| it.name == BASELINE || names.iter().any(|name| name == it.name);
    let wanted = all.into_iter().filter(is_wanted);
    Ok(wanted.chain([Candidate::empty()]).collect())
}

/// libc, haul in both kinds of call, and every kernel that runs on this processor.
fn available() -> Vec<Candidate> {
    let of = |function| subjects::available(function, Plain::Inline);
    let [copies, moves, fills] = Function::ALL.map(of);
    let mut names: Vec<&'static str> = Vec::new();
    for candidate in copies.iter().chain(&fills) {
        // haul-inline is `haul` here.
        if candidate.name != "haul-inline" && !names.contains(&candidate.name) {
            names.push(candidate.name);
        }
    }
    let calls = |name: &'static str| {
        if name == HAUL {
            return Some(Calls::Inline);
        }
        let pointers = Pointers {
            copy: copy(&copies, name)?,
            copy_within: copy(&moves, name)?,
            fill: fill(&fills, name)?,
        };
        Some(Calls::Pointers(pointers))
    };
    names.into_iter().filter_map(|name| Some(Candidate { name, calls: calls(name)? })).collect()
}

/// The candidate's pointer, or else libc's.
fn copy(candidates: &[subjects::Candidate], name: &str) -> Option<CopyFn> {
    let of = |name: &str| match candidates.iter().find(|it| it.name == name)?.routine {
        Routine::Copy(copy) => Some(copy),
        _ => None,
    };
    of(name).or_else(|| of(BASELINE))
}

/// The candidate's pointer, or else libc's.
fn fill(candidates: &[subjects::Candidate], name: &str) -> Option<FillFn> {
    let of = |name: &str| match candidates.iter().find(|it| it.name == name)?.routine {
        Routine::Fill(fill) => Some(fill),
        _ => None,
    };
    of(name).or_else(|| of(BASELINE))
}
