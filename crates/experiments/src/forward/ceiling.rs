//! Copies that move no bytes. The rate of a flow with such a copy is an upper bound for any copy.
//!
//! A guest receives the bytes that earlier packets left in its buffers. Both sides of a flow
//! belong to the same measurement, so the guest sees no packets of other programs. The library
//! and `haul forward` do not have these methods.

use ::haul::forward::{CopyMethod, CustomCopy, Part};

// SAFETY: the function touches no memory. A guest reads only packets of the same measurement.
const NONE: CustomCopy = unsafe { CustomCopy::new("none", no_call) };

// SAFETY: as for `NONE`: each call copies no byte.
const EMPTY: CustomCopy = unsafe { CustomCopy::new("empty", calls_of_no_bytes) };

const CEILINGS: [CustomCopy; 2] = [NONE, EMPTY];

/// Whether a switch with this copy moves no bytes. With such a copy, packets arrive without
/// numbers.
#[must_use]
pub fn is_ceiling(copy: &str) -> bool {
    CEILINGS.iter().any(|ceiling| CopyMethod::Custom(*ceiling).name() == copy)
}

/// The method of this name: a method of the library, `none` (no call) or `empty` (haul's
/// function, called for each part with a length of zero).
#[must_use]
pub fn method_named(name: &str) -> Option<CopyMethod> {
    let ceilings = CEILINGS.into_iter().map(CopyMethod::Custom);
    CopyMethod::named(name).or_else(|| ceilings.into_iter().find(|method| method.name() == name))
}

/// The names that [`method_named`] knows on this processor.
pub fn method_names() -> impl Iterator<Item = &'static str> {
    CopyMethod::names().chain(CEILINGS.map(|ceiling| CopyMethod::Custom(ceiling).name()))
}

unsafe fn no_call(_: &[Part]) {}

unsafe fn calls_of_no_bytes(parts: &[Part]) {
    for part in parts {
        // The compiler must not know that the call does nothing.
        let length = std::hint::black_box(0);
        // SAFETY: no byte is touched; the pointers are valid for longer parts by the caller's
        // promise.
        unsafe { haul_copy::memcpy(part.target, part.source, length) }
    }
}

#[cfg(test)]
mod tests {
    use ::haul::forward::Copier;

    use super::*;

    #[test]
    fn ceilings_write_no_byte() {
        for name in ["none", "empty"] {
            let method = method_named(name).unwrap();
            assert!(is_ceiling(name) && CopyMethod::named(name).is_none());
            let (source, mut target) = ([7_u8; 200], [1_u8; 200]);
            let part =
                Part { target: target.as_mut_ptr(), source: source.as_ptr(), length: target.len() };
            // SAFETY: the part consists of the two whole arrays.
            unsafe { Copier::new(method).copy_batch(&[part]) };
            assert_eq!(target, [1; 200], "{name}");
        }
        assert!(!is_ceiling("haul") && method_named("nobody's").is_none());
        assert!(method_names().all(|name| method_named(name).is_some_and(|it| it.name() == name)));
    }
}
