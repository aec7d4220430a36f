//! Finds the number of a kernel function in the kernel's description of itself, its BTF. XDP
//! programs call kernel functions by this number.

use std::fs::File;
use std::io::Read;

/// The file with the description, and a size that no kernel's file exceeds.
const PATH: &str = "/sys/kernel/btf/vmlinux";
const BYTES_MAX: u64 = 64 << 20;

/// `struct btf_header` begins with this. Its fields of four bytes begin at byte 4: the header's
/// length; offset and length of the types; offset and length of the names. Offsets count from the
/// end of the header.
const MAGIC: u16 = 0xeb9f;
/// The size of a type in bytes; some kinds have more bytes behind it.
const TYPE_BYTES: usize = 12;
const FUNCTION: u32 = 12;

/// The number of a function; `None` if the kernel has no function of this name, or no description.
pub(super) fn function(name: &str) -> Option<i32> {
    let mut bytes = Vec::new();
    let file = File::open(PATH).ok()?;
    file.take(BYTES_MAX).read_to_end(&mut bytes).ok()?;
    find(&bytes, name)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn find(bytes: &[u8], name: &str) -> Option<i32> {
    if u16::from_ne_bytes(*bytes.first_chunk()?) != MAGIC {
        return None;
    }
    let field = |index: usize| Some(word(bytes, 4 + 4 * index)? as usize);
    let (header, at, length, names) = (field(0)?, field(1)?, field(2)?, field(3)?);
    let names = bytes.get(header.checked_add(names)?..)?;
    let mut types = bytes.get(header.checked_add(at)?..)?.get(..length)?;
    let mut number = 1;
    while !types.is_empty() {
        let (name_offset, info) = (word(types, 0)? as usize, word(types, 4)?);
        let (kind, count) = (info >> 24 & 31, (info & 0xffff) as usize);
        let is_it = |own: &[u8]| {
            own.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
        };
        if kind == FUNCTION && names.get(name_offset..).is_some_and(is_it) {
            return Some(number);
        }
        // The bytes that follow a type, by its kind: linux/btf.h.
        let more = match kind {
            1 | 14 | 17 => 4,
            3 => 12,
            4 | 5 | 15 | 19 => 12 * count,
            6 | 13 => 8 * count,
            _ => 0,
        };
        types = types.get(TYPE_BYTES + more..)?;
        number += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn function_is_found_behind_other_types() {
        let names = b"\0int\0wanted\0wanted_too\0";
        let mut types = Vec::new();
        let mut add = |name: u32, kind: u32, count: u32, more: usize| {
            types.extend([name, kind << 24 | count, 0].into_iter().flat_map(u32::to_ne_bytes));
            types.resize(types.len() + more, 0xff);
        };
        add(1, 1, 0, 4);
        add(0, 4, 2, 24);
        add(0, 13, 3, 24);
        add(5, 8, 0, 0);
        add(12, FUNCTION, 0, 0);
        add(5, FUNCTION, 0, 0);
        let mut file = [&MAGIC.to_ne_bytes()[..], &[1, 0]].concat();
        let head = [24, 0, types.len() as u32, types.len() as u32, names.len() as u32];
        file.extend(head.into_iter().flat_map(u32::to_ne_bytes));
        file.extend(&types);
        file.extend(names);
        assert_eq!(find(&file, "wanted"), Some(6));
        assert_eq!(find(&file, "wanted_too"), Some(5));
        for name in ["int", "want", "none"] {
            assert_eq!(find(&file, name), None, "{name}");
        }
        (0..file.len() - 12).for_each(|length| _ = find(&file[..length], "wanted"));
        assert_eq!(find(&[0; 64], "wanted"), None);
    }
}
