//! The candidates. Each subject is called through the same C signature, by a pointer that hides
//! the function from the compiler. haul is also called as its users compile it, with sizes up to
//! 64 bytes inlined. [`Plain`] decides which of these two kinds of call the records of an
//! experiment name `haul`.
//!
//! `libc` is the memcpy that the dynamic linker gives an application, found by name at run time.
//! If a replacement is preloaded, the lookup finds the replacement, which is then measured.

use std::ffi::CStr;

use haul_copy::kernel::{self, CopyFn, FillFn};

use super::function::Function;
use crate::error::Error;

/// The kind of call to a subject.
#[derive(Clone, Copy, Debug)]
pub enum Routine {
    /// memcpy or memmove by pointer.
    Copy(CopyFn),
    /// memset by pointer.
    Fill(FillFn),
    /// haul's memcpy, inlined into the loop as into an application in Rust.
    InlineCopy,
    /// haul's memmove, inlined.
    InlineMove,
    /// haul's memset, inlined.
    InlineFill,
}

impl Routine {
    /// The value of the record parameter `call`: `c` through the C ABI, `inline` in the caller.
    #[must_use]
    pub fn call(self) -> &'static str {
        match self {
            Self::Copy(_) | Self::Fill(_) => "c",
            Self::InlineCopy | Self::InlineMove | Self::InlineFill => "inline",
        }
    }
}

/// The kind of call that the records of an experiment name `haul`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plain {
    /// Through the C ABI, as libc is called. This kind of call compares functions:
    /// `copy.size_class` and `copy.size`.
    C,
    /// As programs in Rust and with `haul.h` are compiled: up to 64 bytes inlined, and a call
    /// above that. This kind of call shows the gain of a program: `copy.distribution`.
    Inline,
}

/// A subject that can perform a function, by name.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// The subject's name in records: `libc`, `haul`, `haul-c`, `haul-inline`, or the name of a
    /// kernel.
    pub name: &'static str,
    /// The kind of call to this subject.
    pub routine: Routine,
}

/// The candidates to measure.
#[derive(Clone, Debug, Default)]
pub enum Selection {
    /// `haul` in both kinds of call against `libc`. The kind of call that is not [`Plain`] is
    /// named `haul-c` or `haul-inline`.
    #[default]
    Products,
    /// `haul`, `libc` and every kernel that runs on this processor.
    Kernels,
    /// The candidates of these names, and `libc`.
    Named(Vec<String>),
}

/// The name of the baseline of every copy experiment.
pub const BASELINE: &str = "libc";

/// haul through the C ABI, if `haul` is inlined.
const C: &str = "haul-c";

/// haul inlined, if `haul` is called through the C ABI.
const INLINE: &str = "haul-inline";

/// All candidates that run on this processor, `libc` first. Either `haul-c` or `haul-inline` is
/// the same candidate as `haul`.
#[must_use]
pub fn available(function: Function, plain: Plain) -> Vec<Candidate> {
    let mut candidates = vec![libc_candidate(function)];
    candidates.extend(products(function, plain));
    match function {
        Function::Memcpy | Function::Memmove => {
            let kernels = kernel::copies().iter();
            let found = kernels.filter_map(|kernel| Some((kernel.name(), kernel.function()?)));
            candidates
                .extend(found.map(|(name, copy)| Candidate { name, routine: Routine::Copy(copy) }));
        }
        Function::Memset => {
            let kernels = kernel::fills().iter();
            let found = kernels.filter_map(|kernel| Some((kernel.name(), kernel.function()?)));
            candidates
                .extend(found.map(|(name, fill)| Candidate { name, routine: Routine::Fill(fill) }));
        }
    }
    candidates
}

/// The selected candidates, `libc` first.
///
/// # Errors
/// A name is unknown, or names a kernel that this processor cannot run.
pub fn select(
    function: Function,
    selection: &Selection,
    plain: Plain,
) -> Result<Vec<Candidate>, Error> {
    let all = available(function, plain);
    let names = match (selection, plain) {
        (Selection::Products, Plain::C) => vec!["haul".to_owned(), INLINE.to_owned()],
        (Selection::Products, Plain::Inline) => vec!["haul".to_owned(), C.to_owned()],
        (Selection::Kernels, _) => {
            let others = all.iter().map(|candidate| candidate.name.to_owned());
            others.filter(|name| ![BASELINE, C, INLINE].contains(&&**name)).collect()
        }
        (Selection::Named(names), _) => names.clone(),
    };
    for name in &names {
        if !all.iter().any(|candidate| candidate.name == name) {
            let known = all.iter().map(|candidate| candidate.name).collect::<Vec<_>>().join(", ");
            return Err(Error::UnknownSubject {
                name: name.clone(),
                function: function.name(),
                known,
            });
        }
    }
    let wanted = |candidate: &Candidate| {
        candidate.name == BASELINE || names.iter().any(|name| name == candidate.name)
    };
    Ok(all.into_iter().filter(wanted).collect())
}

fn products(function: Function, plain: Plain) -> [Candidate; 3] {
    let (by_call, inlined) = match function {
        Function::Memcpy => (Routine::Copy(copy_of(haul_copy::c::memcpy)), Routine::InlineCopy),
        Function::Memmove => (Routine::Copy(copy_of(haul_copy::c::memmove)), Routine::InlineMove),
        Function::Memset => (Routine::Fill(fill_of(haul_copy::c::memset)), Routine::InlineFill),
    };
    let routine = if plain == Plain::C { by_call } else { inlined };
    [
        Candidate { name: "haul", routine },
        Candidate { name: C, routine: by_call },
        Candidate { name: INLINE, routine: inlined },
    ]
}

fn libc_candidate(function: Function) -> Candidate {
    let routine = match function {
        Function::Memcpy => Routine::Copy(copy_of(symbol(c"memcpy", libc::memcpy))),
        Function::Memmove => Routine::Copy(copy_of(symbol(c"memmove", libc::memmove))),
        Function::Memset => Routine::Fill(fill_of(symbol_of_fill(c"memset", libc::memset))),
    };
    Candidate { name: BASELINE, routine }
}

/// C's memcpy and memmove as the C library declares them.
type VoidCopy =
    unsafe extern "C" fn(*mut libc::c_void, *const libc::c_void, usize) -> *mut libc::c_void;

/// C's memset as the C library declares it.
type VoidFill = unsafe extern "C" fn(*mut libc::c_void, libc::c_int, usize) -> *mut libc::c_void;

/// The dynamic linker's function of this name, or the linked function if the dynamic linker finds
/// none (in a static binary).
fn symbol(name: &CStr, linked: VoidCopy) -> VoidCopy {
    // SAFETY: the name is a C string, and RTLD_DEFAULT a handle that is always valid.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if address.is_null() {
        return linked;
    }
    // SAFETY: the callers name memcpy and memmove, which have this signature in every C library; a
    // function pointer is as large as a data pointer on every platform with dlsym (POSIX).
    unsafe { std::mem::transmute::<*mut libc::c_void, VoidCopy>(address) }
}

/// Like [`symbol`], but for memset.
fn symbol_of_fill(name: &CStr, linked: VoidFill) -> VoidFill {
    // SAFETY: as in `symbol`.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if address.is_null() {
        return linked;
    }
    // SAFETY: as in `symbol`: the caller names memset.
    unsafe { std::mem::transmute::<*mut libc::c_void, VoidFill>(address) }
}

/// The function with pointers to bytes instead of void.
fn copy_of(function: VoidCopy) -> CopyFn {
    // SAFETY: pointers to void and to bytes are passed and returned alike in every C ABI.
    unsafe { std::mem::transmute::<VoidCopy, CopyFn>(function) }
}

/// The function with pointers to bytes instead of void.
fn fill_of(function: VoidFill) -> FillFn {
    // SAFETY: as in `copy_of`; c_int is i32 on every platform haul runs on.
    unsafe { std::mem::transmute::<VoidFill, FillFn>(function) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn baseline_is_first_and_names_are_unique() {
        for function in Function::ALL {
            let names: Vec<_> =
                available(function, Plain::C).iter().map(|candidate| candidate.name).collect();
            assert_eq!(names[0], BASELINE);
            assert!(names.contains(&"haul") && names.contains(&"scalar"), "{names:?}");
            let mut unique = names.clone();
            unique.sort_unstable();
            unique.dedup();
            assert_eq!(unique.len(), names.len());
        }
    }

    #[test]
    fn select_returns_named_candidates_and_baseline() {
        let named = |selection: Selection, plain| -> Vec<&str> {
            select(Function::Memcpy, &selection, plain)
                .unwrap()
                .iter()
                .map(|candidate| candidate.name)
                .collect()
        };
        assert_eq!(named(Selection::Products, Plain::C), ["libc", "haul", "haul-inline"]);
        assert_eq!(named(Selection::Products, Plain::Inline), ["libc", "haul", "haul-c"]);
        let scalar = Selection::Named(vec!["scalar".into()]);
        assert_eq!(named(scalar, Plain::C), ["libc", "scalar"]);
        let kernels = named(Selection::Kernels, Plain::C);
        assert!(!kernels.contains(&"haul-inline") && !kernels.contains(&"haul-c"));
        let error = select(Function::Memset, &Selection::Named(vec!["avx9".into()]), Plain::C)
            .unwrap_err()
            .to_string();
        assert!(error.contains("\"avx9\"") && error.contains("libc, haul"), "{error}");
    }

    /// The name `haul` stands for two kinds of call, and the record's `call` says which one.
    #[test]
    fn plain_decides_call_of_haul() {
        for (plain, call) in [(Plain::C, "c"), (Plain::Inline, "inline")] {
            for function in Function::ALL {
                let calls = |name| {
                    let all = available(function, plain);
                    all.iter().find(|it| it.name == name).map(|it| it.routine.call())
                };
                assert_eq!(calls("haul"), Some(call));
                assert_eq!((calls("haul-c"), calls("haul-inline")), (Some("c"), Some("inline")));
                assert_eq!(calls("libc"), Some("c"));
            }
        }
    }
}
