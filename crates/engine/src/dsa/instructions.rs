//! MOVDIR64B and ENQCMD: the instructions that write 64 bytes to a portal at once.
//!
//! A value of [`DirectStore`] or [`Enqueue`] proves that the processor has the instruction (Intel
//! SDM, CPUID leaf 7, subleaf 0, ECX bits 28 and 29). The encodings are spelled in bytes, because
//! older assemblers do not know the names.

use super::descriptor::Descriptor;

/// What the device answered to ENQCMD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The queue accepted the descriptor.
    Accepted,
    /// The queue is full, or does not exist.
    Retry,
}

/// The processor has MOVDIR64B, for dedicated queues.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirectStore(());

/// The processor has ENQCMD, for shared queues.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Enqueue(());

impl DirectStore {
    pub(crate) fn new() -> Option<Self> {
        has_bit(28).then_some(Self(()))
    }

    /// Writes the descriptor. Nothing reports whether the queue accepts it.
    ///
    /// # Safety
    /// `portal` must be the mapped portal of a dedicated queue, aligned to 64 bytes, and the
    /// descriptor must name memory that outlives its completion.
    pub(crate) unsafe fn submit(self, portal: *mut u8, descriptor: &Descriptor) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the processor has the instruction, because `self` exists. It reads 64 bytes of
        // the descriptor and writes them to the portal, by the caller's promise. SFENCE has no
        // conditions; it orders the caller's stores, and the cleared record, before the descriptor.
        unsafe {
            core::arch::asm!(
                "sfence",
                ".byte 0x66, 0x0f, 0x38, 0xf8, 0x02",
                in("rax") portal,
                in("rdx") core::ptr::from_ref(descriptor),
                options(nostack, preserves_flags)
            );
        }
        #[cfg(not(target_arch = "x86_64"))]
        unreachable!(
            "{self:?} of {descriptor:?} at {portal:?}: another processor has no value of it"
        );
    }
}

impl Enqueue {
    pub(crate) fn new() -> Option<Self> {
        has_bit(29).then_some(Self(()))
    }

    /// Writes the descriptor, and waits for the device's answer.
    ///
    /// # Safety
    /// `portal` must be the mapped portal of a shared queue, aligned to 64 bytes, and the
    /// descriptor must name memory that outlives its completion.
    pub(crate) unsafe fn submit(self, portal: *mut u8, descriptor: &Descriptor) -> Answer {
        #[cfg(target_arch = "x86_64")]
        {
            let retry: u8;
            // SAFETY: the processor has the instruction, because `self` exists. It reads 64 bytes
            // of the descriptor and writes them to the portal, by the caller's promise. SFENCE and
            // SETZ have no conditions.
            unsafe {
                core::arch::asm!(
                    "sfence",
                    ".byte 0xf2, 0x0f, 0x38, 0xf8, 0x02",
                    "setz {retry}",
                    retry = out(reg_byte) retry,
                    in("rax") portal,
                    in("rdx") core::ptr::from_ref(descriptor),
                    options(nostack)
                );
            }
            if retry == 0 { Answer::Accepted } else { Answer::Retry }
        }
        #[cfg(not(target_arch = "x86_64"))]
        unreachable!(
            "{self:?} of {descriptor:?} at {portal:?}: another processor has no value of it"
        );
    }
}

/// A bit of CPUID leaf 7, subleaf 0, ECX.
fn has_bit(bit: u32) -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{__cpuid, __cpuid_count};
        let leaves = __cpuid(0).eax;
        leaves >= 7 && __cpuid_count(7, 0).ecx >> bit & 1 == 1
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    {
        let _ = bit;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linux shows the same two bits by name.
    #[test]
    fn instructions_are_those_that_the_kernel_reports() {
        let Ok(text) = std::fs::read_to_string("/proc/cpuinfo") else { return };
        let Some(flags) = text.lines().find(|line| line.starts_with("flags")) else { return };
        let has = |name: &str| flags.split_whitespace().any(|flag| flag == name);
        assert_eq!(DirectStore::new().is_some(), has("movdir64b"));
        // The kernel hides ENQCMD where it does not support PASIDs.
        assert!(!has("enqcmd") || Enqueue::new().is_some());
    }

    #[test]
    fn direct_store_writes_all_64_bytes() {
        let Some(store) = DirectStore::new() else {
            eprintln!(
                "SKIPPED: MOVDIR64B: no CPU feature movdir64b: run on Xeon since the 4th generation"
            );
            return;
        };
        let (descriptor, mut target) = (Descriptor::copy(1, 2, 3).record(32), Descriptor::noop());
        // SAFETY: the target is 64 writable bytes, aligned to 64; no device reads the descriptor.
        unsafe { store.submit((&raw mut target).cast(), &descriptor) };
        assert_eq!(target, descriptor);
    }
}
