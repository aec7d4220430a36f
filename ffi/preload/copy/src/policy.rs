//! The policy of `haul.toml`, read without an allocation.
//!
//! `haul-machine` has the complete reader, with errors for people. This one reads the same files
//! line by line, as `haul copy tune` writes them, and ignores a file that it does not understand.
//! Every value passes [`Policy::install`], which limits it to what this processor can run now.

use core::cell::UnsafeCell;
use core::ffi::CStr;

use haul_kernels::cpu::Isa;
use haul_kernels::{NEVER, Policy};

use crate::environment::variable;
use crate::sys;

/// The longest path, in bytes (PATH_MAX of `linux/limits.h`).
pub(crate) const PATH_BYTES: usize = 4096;

/// The largest file, in bytes: that of `haul_machine::tuning::FILE_BYTES_MAX`.
const FILE_BYTES: usize = 64 << 10;

struct Memory {
    path: [u8; PATH_BYTES],
    /// One byte more than the largest file, which shows that a file is larger.
    file: [u8; FILE_BYTES + 1],
    online: [u8; 256],
}

/// Memory of the constructor.
struct Shared(UnsafeCell<Memory>);
// SAFETY: only the constructor uses it, once.
unsafe impl Sync for Shared {}
static MEMORY: Shared = Shared(UnsafeCell::new(Memory {
    path: [0; PATH_BYTES],
    file: [0; FILE_BYTES + 1],
    online: [0; 256],
}));

/// Puts the file's policy into force, or else the processor's default. Returns whether a file was
/// used. Only the constructor calls it.
pub(crate) fn install() -> bool {
    // SAFETY: only the constructor runs this, once.
    let memory = unsafe { &mut *MEMORY.0.get() };
    let policy = read(&mut memory.path, &mut memory.file)
        .filter(|text| text.len() <= FILE_BYTES)
        .and_then(|text| parse(text, || online(&mut memory.online)));
    match policy {
        Some(policy) => {
            let _ = policy.install();
            true
        }
        None => {
            let _ = Policy::current();
            false
        }
    }
}

/// Reads the file that `haul_machine::tuning::locate` finds.
fn read<'a>(path: &mut [u8; PATH_BYTES], text: &'a mut [u8]) -> Option<&'a [u8]> {
    if let Some(named) = variable(b"HAUL_TUNING") {
        let is_off = matches!(named.to_bytes(), b"" | b"off");
        return if is_off { None } else { sys::read(named, text).ok() };
    }
    let absolute = |name: &[u8]| variable(name).filter(|value| value.to_bytes().starts_with(b"/"));
    let user = match absolute(b"XDG_CONFIG_HOME") {
        Some(folder) => join(path, [folder.to_bytes(), b"/haul/haul.toml"]),
        None => absolute(b"HOME")
            .and_then(|home| join(path, [home.to_bytes(), b"/.config/haul/haul.toml"])),
    };
    /// No such file, and a path through a file (`asm-generic/errno-base.h`).
    const ABSENT: [isize; 2] = [-2, -20];
    if let Some(user) = user {
        match sys::read(user, text) {
            Err(reason) if ABSENT.contains(&reason) => {}
            Ok(read) => {
                let length = read.len();
                return text.get(..length);
            }
            Err(_) => return None,
        }
    }
    sys::read(c"/etc/haul/haul.toml", text).ok()
}

/// Writes a path from two parts; `None` if it is too long.
pub(crate) fn join<'a>(path: &'a mut [u8], parts: [&[u8]; 2]) -> Option<&'a CStr> {
    let mut length = 0_usize;
    for byte in parts.into_iter().flatten() {
        *path.get_mut(length)? = *byte;
        length = length.saturating_add(1);
    }
    *path.get_mut(length)? = 0;
    CStr::from_bytes_until_nul(path).ok()
}

/// The number of processors that are online; `None` if the kernel does not say.
fn online(memory: &mut [u8]) -> Option<usize> {
    let text = sys::read(c"/sys/devices/system/cpu/online", memory).ok()?;
    let mut count = 0_usize;
    for range in text.trim_ascii().split(|byte| *byte == b',') {
        let mut ends = range.split(|byte| *byte == b'-');
        let first = number(ends.next()?)?;
        let last = ends.next().map_or(Some(first), number)?;
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(count)
}

/// The policy in the text of a file; `None` if the file is for another machine, or is not
/// understood.
fn parse(text: &[u8], online: impl FnOnce() -> Option<usize>) -> Option<Policy> {
    core::str::from_utf8(text).ok()?;
    let mut policy = Policy::for_this_processor();
    let (mut section, mut schema, mut machine) = (&b""[..], None, None);
    for line in text.split(|byte| *byte == b'\n') {
        let line = without_comment(line)?;
        if line.is_empty() {
            continue;
        }
        if line.starts_with(b"[") {
            section = line;
            continue;
        }
        let (key, value) = pair(line)?;
        match section {
            b"" if key == b"schema" => schema = quoted(value),
            b"" if key == b"machine" => machine = quoted(value),
            b"" if key == b"written" => {}
            b"[copy]" => set(&mut policy, key, value)?,
            b"" => return None,
            _ => {}
        }
    }
    (schema? == b"haul.tuning/1" && is_this_machine(machine?, online)).then_some(policy)
}

/// The line without its comment and the spaces around it; `None` if a quote is not closed.
fn without_comment(line: &[u8]) -> Option<&[u8]> {
    let mut is_quoted = false;
    let end = line.iter().position(|byte| {
        is_quoted ^= *byte == b'"';
        *byte == b'#' && !is_quoted
    });
    let is_whole = end.is_some() || !is_quoted;
    is_whole.then(|| line.get(..end.unwrap_or(line.len())).unwrap_or_default().trim_ascii())
}

fn pair(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = line.iter().position(|byte| *byte == b'=')?;
    let value = line.get(at.checked_add(1)?..)?;
    Some((line.get(..at)?.trim_ascii(), value.trim_ascii()))
}

/// The content of a text without escapes.
fn quoted(value: &[u8]) -> Option<&[u8]> {
    let text = value.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    (!text.iter().any(|byte| matches!(byte, b'"' | b'\\'))).then_some(text)
}

/// Sets a value of the section `[copy]`. `None` if there is no such key, or no such size. A choice
/// that is unknown keeps its default.
fn set(policy: &mut Policy, key: &[u8], value: &[u8]) -> Option<()> {
    let key = core::str::from_utf8(key).ok()?;
    if policy.choice(key).is_some() {
        let choice = core::str::from_utf8(quoted(value)?).ok()?;
        let _ = policy.choose(key, choice);
        return Some(());
    }
    policy.thresholds.set(key, size(value)?).then_some(())
}

/// A size: a number of bytes, `"never"`, or a text such as `"24 MiB"`.
fn size(value: &[u8]) -> Option<usize> {
    let Some(text) = quoted(value) else { return number(value) };
    if text == b"never" {
        return Some(NEVER);
    }
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let shift = match text.get(digits..)?.trim_ascii() {
        b"" | b"B" => 0,
        b"KiB" => 10,
        b"MiB" => 20,
        b"GiB" => 30,
        _ => return None,
    };
    number(text.get(..digits)?)?.checked_mul(1 << shift)
}

fn number(digits: &[u8]) -> Option<usize> {
    let mut number = (!digits.is_empty()).then_some(0_usize)?;
    for byte in digits {
        let digit = byte.is_ascii_digit().then(|| usize::from(byte.wrapping_sub(b'0')))?;
        number = number.checked_mul(10)?.checked_add(digit)?;
    }
    Some(number)
}

/// Whether a machine's id, `amd-25-17-1-avx2-l2-1MiB-l3-32MiB-2cpu`, fits this machine: processor,
/// instruction set and number of processors. The sizes of caches are not compared.
fn is_this_machine(id: &[u8], online: impl FnOnce() -> Option<usize>) -> bool {
    let mut fields = id.split(|byte| *byte == b'-');
    let mut next = || fields.next().unwrap_or_default();
    #[cfg(target_arch = "x86_64")]
    if !is_this_processor([next(), next(), next(), next()]) {
        return false;
    }
    #[cfg(not(target_arch = "x86_64"))]
    for _ in 0..4 {
        next();
    }
    let isa = Isa::available().filter(|isa| *isa != Isa::Avx512).last().unwrap_or(Isa::Scalar);
    let count = id.rsplit(|byte| *byte == b'-').next().and_then(|last| last.strip_suffix(b"cpu"));
    let count = count.and_then(number);
    next() == isa.name().as_bytes() && online().is_none_or(|online| Some(online) == count)
}

/// Whether the fields are vendor, family, model and stepping of this processor.
#[cfg(target_arch = "x86_64")]
fn is_this_processor([vendor, family, model, stepping]: [&[u8]; 4]) -> bool {
    use haul_kernels::cpu::{self, Vendor};
    let facts = cpu::facts();
    let is_vendor = match facts.vendor {
        Vendor::Intel => vendor == b"intel",
        Vendor::Amd => vendor == b"amd",
        _ => vendor != b"intel" && vendor != b"amd",
    };
    let is = |field, value: u32| number(field) == Some(value as usize);
    // Intel SDM, CPUID leaf 1: the lowest four bits of eax.
    let own_stepping = core::arch::x86_64::__cpuid(1).eax & 0xf;
    is_vendor && is(family, facts.family) && is(model, facts.model) && is(stepping, own_stepping)
}
