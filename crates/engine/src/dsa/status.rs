//! The status of a completion record: every documented value, its cause and its remedy.

use core::fmt;

use crate::outcome::Access;

/// The bits of the status byte that hold the status; the highest bit is [`Access`].
const STATUS_BITS: u8 = 0x7f;

/// The bit of the status byte that says that the faulting access was a write.
const WRITE_BIT: u8 = 0x80;

/// Defines [`Status`] and its table from one list.
macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $byte:literal, $cause:literal, $remedy:literal;)*) => {
        /// What a completion record says about its descriptor (Intel DSA Architecture
        /// Specification, "Completion Record"; Linux `include/uapi/linux/idxd.h`).
        ///
        /// ```
        /// use haul_engine::Access;
        /// use haul_engine::dsa::Status;
        ///
        /// // 131 is a page fault on a write, not an unknown status.
        /// assert_eq!(Status::of(131), (Status::PageFault, Access::Write));
        /// assert!(Status::of(16).0.to_string().contains("operation"));
        /// assert_eq!(Status::of(0x7e).0, Status::Undocumented(0x7e));
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Status {
            $($(#[$doc])* $name,)*
            /// A value that neither the specification nor the kernel's header names.
            Undocumented(u8),
        }

        impl Status {
            /// Every documented status.
            pub const DOCUMENTED: &[Self] = &[$(Self::$name,)*];

            /// The status and the access in a status byte.
            #[must_use]
            pub fn of(byte: u8) -> (Self, Access) {
                let status = match byte & STATUS_BITS {
                    $($byte => Self::$name,)*
                    other => Self::Undocumented(other),
                };
                let access = if byte & WRITE_BIT == 0 { Access::Read } else { Access::Write };
                (status, access)
            }

            /// The number of the status, without the access.
            #[must_use]
            pub fn number(self) -> u8 {
                match self {
                    $(Self::$name => $byte,)*
                    Self::Undocumented(number) => number,
                }
            }

            /// Why the device stopped, for a message.
            #[must_use]
            pub fn cause(self) -> &'static str {
                match self {
                    $(Self::$name => $cause,)*
                    Self::Undocumented(_) => "neither the specification nor the kernel names it",
                }
            }

            /// What a person can do about it, for a message.
            #[must_use]
            pub fn remedy(self) -> &'static str {
                match self {
                    $(Self::$name => $remedy,)*
                    Self::Undocumented(_) => "report it with the device's version",
                }
            }
        }
    };
}

statuses! {
    /// The device has not written the record yet.
    Pending = 0x00, "the device has not completed it", "poll again";
    /// The operation completed.
    Success = 0x01, "it completed", "none is needed";
    /// The operation completed; the result differs from the expected one.
    SuccessPredicate = 0x02, "it completed, but not with the expected result", "none is needed";
    /// An address was not mapped or not resident, and the descriptor did not block on faults.
    PageFault = 0x03, "an address is not mapped, or its page is not resident",
        "touch the page and submit the rest";
    /// A page request was answered with "invalid request".
    PageFaultInvalid = 0x04, "an address is not mapped, or may not be accessed so",
        "check the address and the rights of its page";
    /// A descriptor of the batch failed.
    BatchFailed = 0x05, "a descriptor of the batch failed", "read the records of its descriptors";
    /// The list of descriptors could not be read.
    BatchPageFault = 0x06, "the list of the batch is not resident", "touch the list and submit again";
    /// The offsets of a delta record do not increase.
    DeltaOrder = 0x07, "the offsets of the delta record do not increase", "check the delta record";
    /// An offset of a delta record is beyond the buffer.
    DeltaOffset = 0x08, "an offset of the delta record is beyond the buffer", "check the delta record";
    /// A protection field (DIF) does not match.
    Dif = 0x09, "a protection field does not match its block", "check the data";
    /// The device or queue does not support the operation.
    Opcode = 0x10, "the device or the queue does not allow this operation",
        "read op_cap of the device and op_config of the queue";
    /// A flag is not supported, or not for this operation.
    Flags = 0x11, "a flag is not allowed with this operation or this queue",
        "read block_on_fault and ats_disable of the queue";
    /// A reserved field is not zero.
    Reserved = 0x12, "a reserved field is not zero", "report it: haul leaves these fields zero";
    /// The transfer size is 0, or above the queue's limit.
    Size = 0x13, "the size is 0 or above max_transfer_size of the queue", "split the copy";
    /// The number of descriptors is below 2, or above the queue's limit.
    Count = 0x14, "the number of descriptors is below 2 or above max_batch_size of the queue",
        "split the batch";
    /// The maximum size of a delta record is out of range.
    DeltaSize = 0x15, "the size of the delta record is out of range", "check the delta record";
    /// Buffers overlap, and the operation or the device does not allow it.
    Overlap = 0x16, "the buffers overlap", "copy by the processor";
    /// The two targets of a dualcast differ in their low address bits.
    Dualcast = 0x17, "the two targets differ in bits 11:0 of their addresses", "align the targets";
    /// The list of descriptors is not aligned.
    ListAlignment = 0x18, "the list of the batch is not aligned to 64 bytes", "align the list";
    /// The interrupt handle is not valid.
    InterruptHandle = 0x19, "the interrupt handle is not valid", "submit without an interrupt";
    /// The address of a completion record could not be translated.
    RecordTranslation = 0x1a, "the completion record's page is not mapped", "keep the records mapped";
    /// The address of a completion record is not aligned.
    RecordAlignment = 0x1b, "the completion record is not aligned to 32 bytes", "align the record";
    /// An address is not aligned as the operation demands.
    Alignment = 0x1c, "an address is not aligned as the operation demands", "align the address";
    /// The privilege bit or the PASID is not allowed.
    Privilege = 0x1d, "the descriptor asks for more rights than its queue has",
        "leave privilege and PASID to the kernel";
    /// The traffic classes of the descriptor conflict.
    TrafficClass = 0x1e, "the traffic classes conflict", "check the group's traffic classes";
    /// A page fault during a readback.
    ReadbackFault = 0x1f, "the address of a readback is not resident", "touch the page and submit again";
    /// The device failed.
    Hardware = 0x20, "the device reports an internal failure",
        "reset it: accel-config disable-device, then enable-device";
    /// The device failed during a readback.
    HardwareReadback = 0x21, "the device failed in a readback",
        "reset it: accel-config disable-device, then enable-device";
    /// An address could not be translated.
    Translation = 0x22, "the IOMMU could not translate an address",
        "check the kernel's log for faults of the IOMMU";
    /// A drain found errors in the event log.
    DrainEvents = 0x26, "the event log has errors of drained descriptors", "read the kernel's log";
    /// A batch has errors in the event log.
    BatchEvents = 0x27, "the event log has errors of the batch", "read the kernel's log";
}

impl Status {
    /// The status byte, with the access.
    #[must_use]
    pub fn byte(self, access: Access) -> u8 {
        self.number() & STATUS_BITS | if access == Access::Write { WRITE_BIT } else { 0 }
    }

    /// Whether the operation completed.
    #[must_use]
    pub fn is_success(self) -> bool {
        matches!(self, Self::Success | Self::SuccessPredicate)
    }

    /// Whether the record's address and byte count describe a page fault.
    #[must_use]
    pub fn is_fault(self) -> bool {
        matches!(self, Self::PageFault | Self::PageFaultInvalid)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "status {:#04x}: {}; {}", self.number(), self.cause(), self.remedy())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives_decoding_and_encoding() {
        for byte in 0..=u8::MAX {
            let (status, access) = Status::of(byte);
            assert_eq!(status.byte(access), byte, "{status:?}");
        }
    }

    #[test]
    fn every_status_names_cause_and_remedy() {
        let undocumented = [Status::Undocumented(0x7e)];
        for status in Status::DOCUMENTED.iter().chain(&undocumented) {
            let text = status.to_string();
            assert!(text.contains(status.cause()) && text.contains(status.remedy()), "{text}");
            assert!(status.cause().len() > 10 && !status.remedy().is_empty(), "{text}");
        }
        assert_eq!(Status::DOCUMENTED.len(), 31);
    }

    #[test]
    fn page_lists_every_status() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/engine-dsa.md");
        let page = std::fs::read_to_string(page).unwrap();
        for status in Status::DOCUMENTED {
            let (number, cause, remedy) = (status.number(), status.cause(), status.remedy());
            let row = format!("| {number:#04x} | {cause} | {remedy} |");
            assert!(page.contains(&row), "{row}");
        }
    }

    #[test]
    fn only_faults_and_successes_are_classified_so() {
        let successes: Vec<u8> =
            (0..0x80).filter(|byte| Status::of(*byte).0.is_success()).collect();
        let faults: Vec<u8> = (0..0x80).filter(|byte| Status::of(*byte).0.is_fault()).collect();
        assert_eq!((successes, faults), (vec![1, 2], vec![3, 4]));
    }
}
