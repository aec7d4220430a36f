//! The registers of an interrupted thread, as the kernel leaves them on the stack for a handler.

use iced_x86::Register;

/// Offsets in bytes within the XSAVE area in its standard format (Intel SDM volume 1, 13.4): xmm0
/// in the legacy region, XSTATE_BV in the header, and the upper halves from ymm0 on.
const XMM: usize = 160;
const XSTATE_BV: usize = 512;
const YMM_HIGH: usize = 576;

/// The offset in the legacy region at which Linux stores the size of the area (`struct
/// _fpx_sw_bytes`).
const MAGIC: usize = 464;
const MAGIC_VALUE: u32 = 0x4650_5853;
const EXTENDED_BYTES: usize = 468;

/// Bits of XSTATE_BV. A set bit means that the area holds the component; otherwise the component is
/// in its initial state of all zeros.
const SSE: u64 = 1 << 1;
const AVX: u64 = 1 << 2;

/// The registers of the interrupted thread. Writes take effect when the handler returns.
pub(crate) struct Frame {
    general: *mut i64,
    area: *mut u8,
}

impl Frame {
    /// # Safety
    /// `context` must be the pointer that the system passed to a signal handler that has not
    /// returned.
    pub(crate) unsafe fn new(context: *mut libc::c_void) -> Result<Self, String> {
        let context = context.cast::<libc::ucontext_t>();
        // SAFETY: the caller's promise.
        let (general, area) = unsafe {
            let machine = &raw mut (*context).uc_mcontext;
            ((&raw mut (*machine).gregs).cast(), (*machine).fpregs.cast::<u8>())
        };
        let frame = Self { general, area };
        if area.is_null() || frame.word_32(MAGIC) != MAGIC_VALUE {
            return Err("the system saved no AVX state".into());
        }
        if (frame.word_32(EXTENDED_BYTES) as usize) < YMM_HIGH + 256 {
            return Err("the system saved no ymm registers".into());
        }
        Ok(frame)
    }

    pub(crate) fn instruction_pointer(&self) -> u64 {
        // SAFETY: an index of the array of general registers.
        unsafe { *self.general.add(libc::REG_RIP as usize) as u64 }
    }

    pub(crate) fn continue_at(&mut self, address: u64) {
        // SAFETY: an index of the array of general registers.
        unsafe { *self.general.add(libc::REG_RIP as usize) = address as i64 }
    }

    /// A general register of any width; the bits beyond its width are not cleared.
    pub(crate) fn general(&self, register: Register) -> Result<u64, String> {
        let index = match register.full_register() {
            Register::RAX => libc::REG_RAX,
            Register::RBX => libc::REG_RBX,
            Register::RCX => libc::REG_RCX,
            Register::RDX => libc::REG_RDX,
            Register::RSI => libc::REG_RSI,
            Register::RDI => libc::REG_RDI,
            Register::RBP => libc::REG_RBP,
            Register::RSP => libc::REG_RSP,
            Register::R8 => libc::REG_R8,
            Register::R9 => libc::REG_R9,
            Register::R10 => libc::REG_R10,
            Register::R11 => libc::REG_R11,
            Register::R12 => libc::REG_R12,
            Register::R13 => libc::REG_R13,
            Register::R14 => libc::REG_R14,
            Register::R15 => libc::REG_R15,
            other => return Err(format!("register {other:?}")),
        };
        // SAFETY: an index of the array of general registers.
        Ok(unsafe { *self.general.add(index as usize) as u64 })
    }

    /// The low 32 bytes of one of the first 16 vector registers.
    pub(crate) fn ymm(&self, index: usize) -> [u8; 32] {
        let mut value = [0; 32];
        let present = self.word_64(XSTATE_BV);
        if present & SSE != 0 {
            value[..16].copy_from_slice(&self.bytes_16(XMM + 16 * index));
        }
        if present & AVX != 0 {
            value[16..].copy_from_slice(&self.bytes_16(YMM_HIGH + 16 * index));
        }
        value
    }

    /// Sets the low 32 bytes of one of the first 16 vector registers.
    pub(crate) fn set_ymm(&mut self, index: usize, value: &[u8; 32]) {
        let present = self.word_64(XSTATE_BV);
        for (bit, offset) in [(SSE, XMM), (AVX, YMM_HIGH)] {
            if present & bit == 0 {
                // All registers of the component were zero, but the area may hold any bytes there.
                (0..16).for_each(|index| self.set_bytes_16(offset + 16 * index, &[0; 16]));
            }
        }
        // SAFETY: inside the area, as `new` has checked.
        unsafe { self.area.add(XSTATE_BV).cast::<u64>().write_unaligned(present | SSE | AVX) }
        let (low, high) = value.split_at(16);
        self.set_bytes_16(XMM + 16 * index, low.try_into().expect("16 bytes"));
        self.set_bytes_16(YMM_HIGH + 16 * index, high.try_into().expect("16 bytes"));
    }

    fn word_32(&self, offset: usize) -> u32 {
        // SAFETY: inside the legacy region, which every area has.
        unsafe { self.area.add(offset).cast::<u32>().read_unaligned() }
    }

    fn word_64(&self, offset: usize) -> u64 {
        // SAFETY: inside the area, as `new` has checked.
        unsafe { self.area.add(offset).cast::<u64>().read_unaligned() }
    }

    fn bytes_16(&self, offset: usize) -> [u8; 16] {
        // SAFETY: inside the area, as `new` has checked.
        unsafe { self.area.add(offset).cast::<[u8; 16]>().read() }
    }

    fn set_bytes_16(&mut self, offset: usize, value: &[u8; 16]) {
        // SAFETY: inside the area, as `new` has checked.
        unsafe { self.area.add(offset).cast::<[u8; 16]>().write(*value) }
    }
}
