//! Copies of things that are more than bytes: pointers keep what they may access, and bytes that
//! were never written may be copied. Only Miri sees the difference.

use core::mem::MaybeUninit;

use crate::support::subjects::{Copier, copiers};

/// Copies `value` as bytes.
fn duplicate<T>(copier: &Copier, value: &T) -> MaybeUninit<T> {
    let mut target = MaybeUninit::<T>::uninit();
    let source = (&raw const *value).cast();
    // SAFETY: both are as large as T.
    unsafe { (copier.call)(target.as_mut_ptr().cast(), source, size_of::<T>()) };
    target
}

/// An owner of memory, a reference, padding between them, and more to make it `BYTES` longer.
#[repr(C)]
struct Owner<'a, const WORDS: usize> {
    owned: Box<u32>,
    small: u8,
    borrowed: &'a str,
    more: [usize; WORDS],
}

fn owner_survives<const WORDS: usize>(copier: &Copier) {
    let text = String::from("borrowed");
    let more = core::array::from_fn(|index| index);
    let owner = Owner::<WORDS> { owned: Box::new(7), small: 3, borrowed: &text, more };
    let twin = duplicate(copier, &owner);
    core::mem::forget(owner);
    // SAFETY: a copy of an initialized value whose original is not used any more.
    let mut twin = unsafe { twin.assume_init() };
    *twin.owned += 1;
    assert_eq!((*twin.owned, twin.small, twin.borrowed), (8, 3, "borrowed"), "{}", copier.name);
    assert_eq!(twin.more, core::array::from_fn(|index| index), "{}", copier.name);
}

/// Rust's slices of bytes hold neither pointers nor what was never written.
fn raw_copiers() -> impl Iterator<Item = Copier> {
    copiers().into_iter().filter(|copier| copier.name != "copy")
}

#[test]
fn pointers_survive() {
    for copier in raw_copiers() {
        // One pointer, one slice, then every path above 16 bytes.
        let number = 5_u32;
        let copied = duplicate(&copier, &&number);
        // SAFETY: a copy of an initialized reference.
        assert_eq!(unsafe { *copied.assume_init() }, 5, "{}", copier.name);
        let copied = duplicate(&copier, &"slice");
        // SAFETY: a copy of an initialized reference.
        assert_eq!(unsafe { copied.assume_init() }, "slice", "{}", copier.name);
        owner_survives::<0>(&copier);
        owner_survives::<3>(&copier);
        owner_survives::<10>(&copier);
        owner_survives::<40>(&copier);
        owner_survives::<300>(&copier);
        owner_survives::<600>(&copier);
    }
}

fn holes_survive<const BYTES: usize>(copier: &Copier) {
    let mut source = [MaybeUninit::<u8>::uninit(); BYTES];
    for byte in source.iter_mut().step_by(3) {
        byte.write(9);
    }
    let target = duplicate(copier, &source);
    // SAFETY: bytes that need not be initialized.
    let target = unsafe { target.assume_init() };
    for byte in target.iter().step_by(3) {
        // SAFETY: these were written.
        assert_eq!(unsafe { byte.assume_init() }, 9, "{}", copier.name);
    }
}

#[test]
fn bytes_that_were_never_written_may_be_copied() {
    for copier in raw_copiers() {
        holes_survive::<1>(&copier);
        holes_survive::<2>(&copier);
        holes_survive::<3>(&copier);
        holes_survive::<5>(&copier);
        holes_survive::<16>(&copier);
        holes_survive::<17>(&copier);
        holes_survive::<64>(&copier);
        holes_survive::<65>(&copier);
        holes_survive::<200>(&copier);
        holes_survive::<300>(&copier);
        holes_survive::<3000>(&copier);
    }
}
