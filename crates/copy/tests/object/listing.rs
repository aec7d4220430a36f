//! Machine code as text, from binutils' objdump.

use std::path::Path;
use std::process::Command;

/// One function.
#[derive(Debug)]
pub(crate) struct Function {
    /// Demangled: `haul_copy::dispatch::above_64::x86_64::copy_avx2`.
    pub(crate) name: String,
    pub(crate) code: Vec<Instruction>,
}

/// One instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Instruction {
    pub(crate) address: u64,
    /// `vmovups`, `rep movsb`, `ja`.
    pub(crate) mnemonic: String,
    /// The operands as objdump writes them. `refers_to` has the symbol that objdump adds.
    pub(crate) operands: String,
    /// The symbol that the instruction refers to, mangled or not, such as the target of a jump or a
    /// call.
    pub(crate) refers_to: Option<String>,
}

impl Instruction {
    pub(crate) fn is_call(&self) -> bool {
        self.mnemonic.starts_with("call")
    }

    pub(crate) fn is_jump(&self) -> bool {
        self.mnemonic.starts_with('j')
    }

    /// The address that a direct jump leads to.
    pub(crate) fn target(&self) -> Option<u64> {
        let target = self.operands.split_whitespace().next()?;
        self.is_jump().then(|| u64::from_str_radix(target, 16).ok()).flatten()
    }

    /// Whether it reads memory: a vector or scalar move whose source is a memory operand.
    pub(crate) fn loads(&self) -> bool {
        self.mnemonic.contains("mov")
            && self.operands.starts_with(['(', '-', '0'])
            && self.operands.contains("),")
    }

    /// Whether it writes memory.
    pub(crate) fn stores(&self) -> bool {
        self.mnemonic.contains("mov") && self.operands.ends_with(')')
    }
}

pub(crate) fn has_objdump() -> bool {
    let found = Command::new("objdump").arg("--version").output().is_ok();
    if !found {
        eprintln!(
            "SKIPPED: shape of the machine code: no objdump on PATH: apt-get install binutils"
        );
    }
    found
}

/// All functions of an object file or a library.
pub(crate) fn functions(file: &Path) -> Vec<Function> {
    let flags = ["--disassemble", "--reloc", "--demangle", "--no-show-raw-insn", "--wide"];
    let output = Command::new("objdump").args(flags).arg(file).output().expect("run objdump");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut functions: Vec<Function> = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        if let Some(name) = line.strip_suffix(">:").and_then(|line| line.split_once(" <")) {
            functions.push(Function { name: name.1.into(), code: Vec::new() });
        } else if let Some(function) = functions.last_mut() {
            add_line(function, line);
        }
    }
    functions
}

/// Prefixes that objdump writes before the mnemonic.
const PREFIXES: [&str; 7] = ["rep", "repz", "cs", "data16", "notrack", "bnd", "lock"];

/// Adds the instruction of a line, with the relocation at its end.
fn add_line(function: &mut Function, line: &str) {
    let Some((address, rest)) = line.trim_start().split_once(':') else { return };
    let Ok(address) = u64::from_str_radix(address, 16) else { return };
    let (text, relocation) = match rest.split_once(": R_X86_64_") {
        // The relocation's address precedes its type.
        Some((text, relocation)) => {
            (text.rsplit_once(['\t', ' ']).unwrap_or((text, "")).0, relocation)
        }
        None => (rest, ""),
    };
    let (text, comment) = text.split_once('#').unwrap_or((text, ""));
    let mut words = text.split_whitespace();
    let mut mnemonic = words.next().unwrap_or_default().to_owned();
    while PREFIXES.contains(&mnemonic.rsplit(' ').next().unwrap_or_default()) {
        let Some(word) = words.next() else { break };
        mnemonic = format!("{mnemonic} {word}");
    }
    let operands = words.collect::<Vec<_>>().join(" ");
    let named = |text: &str| Some(text.split_once('<')?.1.rsplit_once('>')?.0.to_owned());
    let relocated = relocation.split_whitespace().nth(1).map(ToOwned::to_owned);
    let refers_to = relocated.or_else(|| named(&operands)).or_else(|| named(comment));
    function.code.push(Instruction { address, mnemonic, operands, refers_to });
}
