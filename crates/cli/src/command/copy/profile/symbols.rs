//! The functions of call sites, from the symbols of their modules (ELF-64 object file format).

use std::collections::HashMap;
use std::path::Path;

use haul_model::profile::Site;

use crate::command::program::PROGRAM_BYTES_MAX;

/// The functions of the modules that were asked for, by path.
#[derive(Default)]
pub(super) struct Symbols(HashMap<String, Vec<Function>>);

struct Function {
    start: u64,
    end: u64,
    name: String,
}

impl Symbols {
    /// The function that contains a call site; `None` if the module has no symbol for it.
    pub(super) fn of(&mut self, site: &Site) -> Option<String> {
        let functions = self.0.entry(site.module.clone()).or_insert_with(|| {
            let bytes =
                haul_machine::file::read_limited(Path::new(&site.module), PROGRAM_BYTES_MAX);
            bytes.ok().and_then(|bytes| functions(&bytes)).unwrap_or_default()
        });
        // The return address may be the first byte of the next function.
        let call = site.offset.checked_sub(1)?;
        let after = functions.partition_point(|function| function.start <= call);
        let function = functions.get(after.checked_sub(1)?)?;
        (call < function.end).then(|| function.name.clone())
    }
}

/// A number of an ELF file.
fn number(bytes: &[u8], at: u64, length: u64) -> Option<u64> {
    let start = usize::try_from(at).ok()?;
    let field = bytes.get(start..start.checked_add(length as usize)?)?;
    Some(field.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// The functions of a module, by their offset from its lowest address.
fn functions(bytes: &[u8]) -> Option<Vec<Function>> {
    if !bytes.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let lowest = lowest_address(bytes)?;
    let (start, size) = (number(bytes, 40, 8)?, number(bytes, 58, 2)?);
    let mut all = Vec::new();
    for index in 0..number(bytes, 60, 2)? {
        let header = start.checked_add(index * size)?;
        /// SHT_SYMTAB and SHT_DYNSYM.
        const TABLES: [u64; 2] = [2, 11];
        if TABLES.contains(&number(bytes, header + 4, 4)?) {
            let (at, length) = (number(bytes, header + 24, 8)?, number(bytes, header + 32, 8)?);
            let names = start.checked_add(number(bytes, header + 40, 4)? * size)?;
            let names = number(bytes, names + 24, 8)?;
            let symbols =
                (0..length / SYMBOL_BYTES).map_while(|it| at.checked_add(it * SYMBOL_BYTES));
            all.extend(symbols.filter_map(|symbol| function(bytes, symbol, names, lowest)));
        }
    }
    all.sort_by_key(|function| function.start);
    Some(all)
}

/// The bytes of a symbol.
const SYMBOL_BYTES: u64 = 24;

fn function(bytes: &[u8], symbol: u64, names: u64, lowest: u64) -> Option<Function> {
    /// The type STT_FUNC.
    const FUNCTION: u64 = 2;
    let (value, size) = (number(bytes, symbol + 8, 8)?, number(bytes, symbol + 16, 8)?);
    if number(bytes, symbol + 4, 1)? & 0xf != FUNCTION || value == 0 {
        return None;
    }
    let name = names.checked_add(number(bytes, symbol, 4)?)?;
    let name = bytes.get(usize::try_from(name).ok()?..)?.split(|byte| *byte == 0).next()?;
    let start = value.checked_sub(lowest)?;
    let name = String::from_utf8_lossy(name).replace(char::is_control, " ");
    Some(Function { start, end: start.checked_add(size)?, name })
}

/// The address of the page of the first loaded segment.
fn lowest_address(bytes: &[u8]) -> Option<u64> {
    const PT_LOAD: u64 = 1;
    const PAGE: u64 = 4096;
    let (start, size) = (number(bytes, 32, 8)?, number(bytes, 54, 2)?);
    let headers = (0..number(bytes, 56, 2)?).map_while(|index| start.checked_add(index * size));
    let loaded = headers.filter(|at| number(bytes, *at, 4) == Some(PT_LOAD));
    loaded.filter_map(|at| number(bytes, at + 16, 8)).min().map(|address| address / PAGE * PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn function_of_this_program_is_found() {
        let program = std::env::current_exe().unwrap();
        let bytes = std::fs::read(&program).unwrap();
        let known = functions(&bytes).unwrap();
        let one =
            known.iter().find(|it| it.end - it.start > 64 && it.name.contains("haul")).unwrap();
        let module = program.to_str().unwrap().to_owned();
        let site = Site { module, offset: one.start + 10, ..Site::default() };
        let found = Symbols::default().of(&site).unwrap();
        assert!(known.iter().any(|it| it.start == one.start && it.name == found), "{found}");
    }

    #[test]
    fn truncated_module_has_no_symbols_and_does_no_harm() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        for length in (0..4096).step_by(7) {
            let _ = functions(&bytes[..length]);
        }
        let mut wrong = bytes[..4096].to_vec();
        wrong[32..64].fill(0xff);
        assert!(functions(&wrong).is_none_or(|all| all.is_empty()));
    }
}
