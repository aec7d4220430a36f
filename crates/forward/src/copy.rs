//! The function that copies a burst. The function is a setting, so that a forwarder can show
//! which copy is best for a flow.
//!
//! A port collects the copies of a burst as [`Part`]s and passes them to one call, and to one more
//! for each long packet from the guest in several buffers. The choice of the function thus costs
//! one indirect call a burst, and none a short packet if the copy is haul's own.

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

/// The function that copies packets.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub enum CopyMethod {
    /// haul's own copy, by the policy in force.
    #[default]
    Haul,
    /// The C library's memcpy.
    Libc,
    /// One of haul's kernels.
    Kernel(&'static CopyKernel),
    /// A function that the caller provides.
    Custom(CustomCopy),
}

/// A caller's function that copies a burst. Measurements use it for functions that haul does not
/// contain.
#[derive(Clone, Copy, Debug)]
pub struct CustomCopy {
    name: &'static str,
    batch: unsafe fn(&[Part]),
}

impl CustomCopy {
    /// Names a function.
    ///
    /// # Safety
    /// A call of `batch` must be sound whenever each source is readable and each target writable
    /// for the part's length. The caller is responsible for the content: a peer receives the
    /// bytes that `batch` leaves in the targets.
    #[must_use]
    pub const unsafe fn new(name: &'static str, batch: unsafe fn(&[Part])) -> Self {
        Self { name, batch }
    }
}

impl CopyMethod {
    /// The method of this name: `haul`, `libc`, or the name of a kernel that this processor can
    /// run.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "haul" => Some(Self::Haul),
            "libc" => Some(Self::Libc),
            _ => {
                let mut kernels = haul_copy::kernel::copies().iter();
                let kernel = kernels.find(|kernel| kernel.name() == name)?;
                kernel.is_available().then_some(Self::Kernel(kernel))
            }
        }
    }

    /// The method's name, in commands and records.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Haul => "haul",
            Self::Libc => "libc",
            Self::Kernel(kernel) => kernel.name(),
            Self::Custom(custom) => custom.name,
        }
    }

    /// The names of all methods that this processor can run.
    pub fn names() -> impl Iterator<Item = &'static str> {
        let kernels = haul_copy::kernel::copies().iter().filter(|kernel| kernel.is_available());
        ["haul", "libc"].into_iter().chain(kernels.map(|kernel| kernel.name()))
    }
}

/// A chosen method.
#[derive(Clone, Copy, Debug)]
pub struct Copier {
    call: Call,
    writes_targets: bool,
}

#[derive(Clone, Copy, Debug)]
enum Call {
    /// One call for a burst.
    Batch(unsafe fn(&[Part])),
    /// One call for each part.
    Each(CopyFn),
}

impl Copier {
    /// Chooses the function.
    #[must_use]
    pub fn new(method: CopyMethod) -> Self {
        let call = match method {
            CopyMethod::Haul => Call::Batch(by_haul),
            CopyMethod::Libc => Call::Batch(by_libc),
            CopyMethod::Custom(custom) => Call::Batch(custom.batch),
            CopyMethod::Kernel(kernel) => {
                kernel.function().map_or(Call::Batch(by_haul), Call::Each)
            }
        };
        Self { call, writes_targets: !matches!(method, CopyMethod::Custom(_)) }
    }

    /// Whether the function certainly writes the targets, so that their cache lines are worth a
    /// prefetch.
    #[inline]
    pub(crate) fn writes_targets(&self) -> bool {
        self.writes_targets
    }

    /// Copies each part, in order.
    ///
    /// # Safety
    /// Each source is readable and each target writable for the part's length.
    #[inline]
    pub unsafe fn copy_batch(&self, parts: &[Part]) {
        match self.call {
            // SAFETY: the caller's promise, which is all that these functions ask for.
            Call::Batch(batch) => unsafe { batch(parts) },
            Call::Each(function) => {
                for part in parts {
                    // SAFETY: the caller's promise; the processor can run the function.
                    unsafe { function(part.target, part.source, part.length) };
                }
            }
        }
    }
}

impl Default for Copier {
    fn default() -> Self {
        Self::new(CopyMethod::Haul)
    }
}

/// # Safety
/// The obligations of [`Copier::copy_batch`], which hold for the functions below as well.
unsafe fn by_haul(parts: &[Part]) {
    for part in parts {
        // SAFETY: the caller's promise.
        unsafe { haul_copy::memcpy(part.target, part.source, part.length) }
    }
}

unsafe fn by_libc(parts: &[Part]) {
    for part in parts {
        // SAFETY: the caller's promise; parts of a burst do not overlap.
        unsafe { libc::memcpy(part.target.cast(), part.source.cast(), part.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_copies_each_part() {
        for name in CopyMethod::names() {
            let method = CopyMethod::named(name).expect("a name of the list");
            assert_eq!(method.name(), name);
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
            unsafe { Copier::new(method).copy_batch(&parts) };
            assert_eq!(target[..at], source[..at], "{name}");
            assert!(target[at..].iter().all(|byte| *byte == 0), "{name} wrote behind the end");
        }
        assert!(CopyMethod::named("nobody's").is_none());
    }
}
