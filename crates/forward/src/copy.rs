//! The function that copies a burst. It is a setting: a forwarder shows which copy is best for a
//! flow.
//!
//! A port collects the copies of a burst as [`Part`]s and passes them to one call. The choice of
//! the function thus costs one indirect call a burst, and none a packet if the copy is haul's own.

use haul_copy::kernel::{CopyFn, CopyKernel};

/// One copy of a burst. The C type is `haul_copy_part`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The first byte to write.
    pub target: *mut u8,
    /// The first byte to read.
    pub source: *const u8,
    /// The number of bytes.
    pub length: usize,
}

const _: () = assert!(size_of::<Part>() == 24);

/// The function that copies.
#[derive(Clone, Copy, Debug, Default)]
pub enum Copy {
    /// haul's copy, by the policy in force.
    #[default]
    Haul,
    /// The C library's memcpy.
    Libc,
    /// One kernel by name.
    Kernel(&'static CopyKernel),
    /// No copy: packets arrive with the previous content of their buffers. The rate of such a flow
    /// is an upper bound for every copy.
    None,
    /// haul's copy, called with a length of 0 for each part: the cost of the calls alone. Packets
    /// arrive as with [`Copy::None`].
    Empty,
}

impl Copy {
    /// The copy of this name: `haul`, `libc`, `none`, `empty` or the name of a kernel that this
    /// processor can run.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "haul" => Some(Self::Haul),
            "libc" => Some(Self::Libc),
            "none" => Some(Self::None),
            "empty" => Some(Self::Empty),
            _ => {
                let mut kernels = haul_copy::kernel::copies().iter();
                let kernel = kernels.find(|kernel| kernel.name() == name)?;
                kernel.is_available().then_some(Self::Kernel(kernel))
            }
        }
    }

    /// Its name, in commands and records.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Haul => "haul",
            Self::Libc => "libc",
            Self::Kernel(kernel) => kernel.name(),
            Self::None => "none",
            Self::Empty => "empty",
        }
    }

    /// Whether this is an upper bound, which copies nothing: packets arrive without their bytes.
    #[must_use]
    pub fn is_ceiling(&self) -> bool {
        matches!(self, Self::None | Self::Empty)
    }

    /// The names of all copies that this processor can run.
    pub fn names() -> impl Iterator<Item = &'static str> {
        let kernels = haul_copy::kernel::copies().iter().filter(|kernel| kernel.is_available());
        ["haul", "libc", "none", "empty"].into_iter().chain(kernels.map(|kernel| kernel.name()))
    }
}

/// A chosen copy: one function over a burst.
#[derive(Clone, Copy, Debug)]
pub struct Copier {
    batch: unsafe fn(&[Part], CopyFn),
    function: CopyFn,
    is_ceiling: bool,
}

impl Copier {
    /// Chooses the function.
    #[must_use]
    pub fn new(copy: Copy) -> Self {
        let none: CopyFn = nothing;
        let is_ceiling = copy.is_ceiling();
        let (batch, function): (unsafe fn(&[Part], CopyFn), CopyFn) = match copy {
            Copy::Haul => (by_haul, none),
            Copy::Libc => (by_libc, none),
            Copy::None => (by_nothing, none),
            Copy::Empty => (by_haul_of_nothing, none),
            Copy::Kernel(kernel) => match kernel.function() {
                Some(function) => (by_function, function),
                None => (by_haul, none),
            },
        };
        Self { batch, function, is_ceiling }
    }

    /// As [`Copy::is_ceiling`].
    #[inline]
    pub(crate) fn is_ceiling(&self) -> bool {
        self.is_ceiling
    }

    /// Copies each part, in order.
    ///
    /// # Safety
    /// Each source is readable and each target writable for the part's length.
    #[inline]
    pub unsafe fn copy_batch(&self, parts: &[Part]) {
        // SAFETY: the caller's promise; the function is the one that was chosen with it.
        unsafe { (self.batch)(parts, self.function) }
    }
}

impl Default for Copier {
    fn default() -> Self {
        Self::new(Copy::Haul)
    }
}

/// # Safety
/// As [`Copier::copy_batch`], likewise for the others.
unsafe fn by_haul(parts: &[Part], _: CopyFn) {
    for part in parts {
        // SAFETY: the caller's promise.
        unsafe { haul_copy::memcpy(part.target, part.source, part.length) }
    }
}

unsafe fn by_libc(parts: &[Part], _: CopyFn) {
    for part in parts {
        // SAFETY: the caller's promise; parts of a burst do not overlap.
        unsafe { libc::memcpy(part.target.cast(), part.source.cast(), part.length) };
    }
}

unsafe fn by_function(parts: &[Part], function: CopyFn) {
    for part in parts {
        // SAFETY: the caller's promise; the processor can run the function.
        unsafe { function(part.target, part.source, part.length) };
    }
}

unsafe fn by_haul_of_nothing(parts: &[Part], _: CopyFn) {
    for part in parts {
        // Otherwise the compiler could remove the call.
        let length = std::hint::black_box(0);
        // SAFETY: no byte is touched; the pointers are valid for longer parts by the caller's
        // promise.
        unsafe { haul_copy::memcpy(part.target, part.source, length) }
    }
}

unsafe fn by_nothing(_: &[Part], _: CopyFn) {}

unsafe extern "C" fn nothing(target: *mut u8, _: *const u8, _: usize) -> *mut u8 {
    target
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_copy_but_the_ceilings_copies_each_part() {
        for name in Copy::names() {
            let copy = Copy::named(name).expect("a name of the list");
            assert_eq!(copy.name(), name);
            let source: Vec<u8> = (0..10_000_u32).map(|index| index as u8).collect();
            let mut target = vec![0_u8; source.len()];
            let mut parts = Vec::new();
            let mut at = 0;
            for length in [0, 1, 12, 64, 65, 200, 1500, 4000] {
                parts.push(Part {
                    target: target[at..at + length].as_mut_ptr(),
                    source: source[at..].as_ptr(),
                    length,
                });
                at += length;
            }
            // SAFETY: each part is inside both vectors.
            unsafe { Copier::new(copy).copy_batch(&parts) };
            let expected = if copy.is_ceiling() { vec![0; at] } else { source[..at].to_vec() };
            assert_eq!(target[..at], expected, "{name}");
            assert!(target[at..].iter().all(|byte| *byte == 0), "{name} wrote behind the end");
        }
        assert!(Copy::named("nobody's").is_none());
    }
}
