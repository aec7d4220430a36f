//! Copies of values that are more than bytes: pointers keep their provenance, and uninitialized
//! bytes may be copied. Only Miri detects a copy that loses provenance or reads uninitialized
//! bytes.

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

/// An owner of memory and a reference with padding between them, and `WORDS` more words.
#[repr(C)]
struct Owner<'a, const WORDS: usize> {
    owned: Box<u32>,
    small: u8,
    borrowed: &'a str,
    more: [usize; WORDS],
}

fn check_owner<const WORDS: usize>(copier: &Copier) {
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

/// All copiers except the one for slices, because a slice of bytes must not hold pointers or
/// uninitialized bytes.
fn raw_copiers() -> impl Iterator<Item = Copier> {
    copiers().into_iter().filter(|copier| copier.name != "copy")
}

#[test]
fn copies_preserve_pointers() {
    for copier in raw_copiers() {
        // One pointer, one slice, then sizes for every path above 16 bytes.
        let number = 5_u32;
        let copied = duplicate(&copier, &&number);
        // SAFETY: a copy of an initialized reference.
        assert_eq!(unsafe { *copied.assume_init() }, 5, "{}", copier.name);
        let copied = duplicate(&copier, &"slice");
        // SAFETY: a copy of an initialized reference.
        assert_eq!(unsafe { copied.assume_init() }, "slice", "{}", copier.name);
        check_owner::<0>(&copier);
        check_owner::<3>(&copier);
        check_owner::<10>(&copier);
        check_owner::<40>(&copier);
        check_owner::<300>(&copier);
        check_owner::<600>(&copier);
    }
}

fn check_uninitialized<const BYTES: usize>(copier: &Copier) {
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
fn copies_accept_uninitialized_bytes() {
    for copier in raw_copiers() {
        check_uninitialized::<1>(&copier);
        check_uninitialized::<2>(&copier);
        check_uninitialized::<3>(&copier);
        check_uninitialized::<5>(&copier);
        check_uninitialized::<16>(&copier);
        check_uninitialized::<17>(&copier);
        check_uninitialized::<64>(&copier);
        check_uninitialized::<65>(&copier);
        check_uninitialized::<200>(&copier);
        check_uninitialized::<300>(&copier);
        check_uninitialized::<3000>(&copier);
    }
}
