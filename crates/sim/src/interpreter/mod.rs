//! The functional machine: the effect of each instruction, without timing. The timing core uses
//! it to execute instructions, and tests compare the timing core with it.

use crate::error::{Access, Error};
use crate::image::{Image, Memory};
use crate::isa::{COPY_LENGTH, COPY_SOURCE, COPY_TARGET, Instruction, Operation, REGISTERS};
use crate::nic::{Nic, Traffic};

/// The largest number of bytes that a program may write to its output.
const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// Linux's numbers of the two calls, which newlib's and picolibc's start files use too.
const EXIT: u64 = 93;
const WRITE: u64 = 64;
const SP: usize = 2;
const A0: usize = 10;
const A7: usize = 17;

/// A program in the middle of a run.
#[derive(Clone, Debug)]
pub struct Interpreter {
    /// x0 to x31, the sink, and the copy registers.
    pub registers: [u64; REGISTERS],
    /// The index of the instruction that runs next.
    pub next: u32,
    /// The program's memory.
    pub memory: Memory,
    /// The network device.
    pub nic: Nic,
    /// The program's output.
    pub output: Vec<u8>,
    /// The number of instructions that were executed.
    pub executed: u64,
    /// The exit code, once the program has exited.
    pub exit_code: Option<u64>,
}

/// Why a machine stopped.
#[derive(Debug)]
pub enum Stop {
    /// The program exited.
    Exit,
    /// The program made an error.
    Fault(Box<Error>),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Fault(Box::new(error))
    }
}

impl Interpreter {
    /// A machine about to run `image`, with `arguments` in a0 to a7 and `traffic` on the wire.
    ///
    /// # Errors
    /// [`Error::Setting`] for traffic that is not possible.
    pub fn new(image: &Image, arguments: &[u64], traffic: Traffic) -> Result<Self, Error> {
        let mut registers = [0; REGISTERS];
        registers[SP] = image.stack_top();
        for (register, argument) in registers[A0..=A7].iter_mut().zip(arguments) {
            *register = *argument;
        }
        Ok(Self {
            registers,
            next: image.entry(),
            memory: image.memory().clone(),
            nic: Nic::new(traffic)?,
            output: Vec::new(),
            executed: 0,
            exit_code: None,
        })
    }

    /// The exit code, if it reports a failure of the program. The results of such a run are
    /// meaningless.
    #[must_use]
    pub fn failure(&self) -> Option<u64> {
        self.exit_code.filter(|code| *code != 0)
    }

    /// Runs to the end and returns the exit code.
    ///
    /// # Errors
    /// The fault of the program; [`Error::InstructionLimit`] after `limit` instructions.
    pub fn run(&mut self, image: &Image, limit: u64) -> Result<u64, Error> {
        let mut next = self.next;
        while self.executed < limit {
            // The inner loop is short, so that a limit takes effect soon.
            let batch = (limit - self.executed).min(1 << 16);
            for count in 0..batch {
                match self.execute(image, next) {
                    Ok(index) => next = index,
                    Err(stop) => {
                        self.next = next;
                        self.executed += count;
                        return self.stopped(stop);
                    }
                }
            }
            // No memory system consumes the device's writes here.
            self.nic.writes.clear();
            self.executed += batch;
        }
        self.next = next;
        let at = image.target_of(next);
        Err(Error::InstructionLimit { instructions: limit, at })
    }

    fn stopped(&mut self, stop: Stop) -> Result<u64, Error> {
        match stop {
            Stop::Exit => {
                self.executed += 1;
                Ok(self.exit_code.unwrap_or_default())
            }
            Stop::Fault(error) => Err(*error),
        }
    }

    /// Executes the instruction at `index` and returns the index of the one after it.
    ///
    /// # Errors
    /// The reason why there is no next instruction; the machine is unchanged after an error.
    #[inline(always)]
    pub fn execute(&mut self, image: &Image, index: u32) -> Result<u32, Stop> {
        use Operation::*;
        let Some(instruction) = image.code().get(index as usize) else {
            return Err(no_code(image, index));
        };
        let a = self.registers[usize::from(instruction.rs1)];
        let b = self.registers[usize::from(instruction.rs2)];
        let operation = instruction.operation;
        let address = a.wrapping_add_signed(instruction.immediate);
        let value = match operation {
            Beq | Bne | Blt | Bge | Bltu | Bgeu => {
                let is_taken = operation.is_taken(a, b);
                return Ok(if is_taken { instruction.target } else { index.wrapping_add(1) });
            }
            Jal => {
                self.registers[usize::from(instruction.rd)] = instruction.immediate as u64;
                return Ok(instruction.target);
            }
            Jalr => {
                let next = jump_target(image, address & !1)?;
                let link = image.address_of(index.wrapping_add(1));
                self.registers[usize::from(instruction.rd)] = link;
                return Ok(next);
            }
            Lb | Lbu => operation.extend(self.load::<1>(image, index, address)?),
            Lh | Lhu => operation.extend(self.load::<2>(image, index, address)?),
            Lw | Lwu => operation.extend(self.load::<4>(image, index, address)?),
            Ld => self.load::<8>(image, index, address)?,
            Sb | Sh | Sw | Sd => {
                self.store(image, index, operation, address, b)?;
                return Ok(index.wrapping_add(1));
            }
            Ecpy | Fence | Ecall | Ebreak | Illegal | Unmapped => {
                self.rare(image, index, instruction)?;
                return Ok(index.wrapping_add(1));
            }
            _ => operation.compute(a, b.wrapping_add_signed(instruction.immediate)),
        };
        self.registers[usize::from(instruction.rd)] = value;
        Ok(index.wrapping_add(1))
    }

    #[inline(always)]
    fn load<const N: usize>(&self, image: &Image, index: u32, address: u64) -> Result<u64, Stop> {
        let Some(bytes) = self.memory.load::<N>(address) else {
            return Err(unmapped(image, index, address, N as u64, Access::Load));
        };
        let mut word = [0; 8];
        word[..N].copy_from_slice(&bytes);
        Ok(u64::from_le_bytes(word))
    }

    #[inline(always)]
    fn store(
        &mut self,
        image: &Image,
        index: u32,
        operation: Operation,
        address: u64,
        value: u64,
    ) -> Result<(), Stop> {
        let done = match operation {
            Operation::Sb => self.memory.store::<1>(address, [value as u8]),
            Operation::Sh => self.memory.store::<2>(address, (value as u16).to_le_bytes()),
            Operation::Sw => self.memory.store::<4>(address, (value as u32).to_le_bytes()),
            _ => self.memory.store::<8>(address, value.to_le_bytes()),
        };
        match done {
            Some(()) => Ok(()),
            None => self.device_store(image, index, operation.bytes(), address, value),
        }
    }

    #[cold]
    fn device_store(
        &mut self,
        image: &Image,
        index: u32,
        bytes: u64,
        address: u64,
        value: u64,
    ) -> Result<(), Stop> {
        if bytes != 8 || !Nic::is_register(address) {
            return Err(unmapped(image, index, address, bytes, Access::Store));
        }
        Ok(self.nic.store(&mut self.memory, address, value)?)
    }

    /// Executes an instruction that is neither arithmetic, nor a branch, nor a load or store.
    #[cold]
    fn rare(&mut self, image: &Image, index: u32, instruction: &Instruction) -> Result<(), Stop> {
        let at = image.address_of(index);
        match instruction.operation {
            Operation::Fence => Ok(()),
            Operation::Ecpy => {
                let (source, target, bytes) = self.copy_operands();
                Ok(self.memory.copy(at, source, target, bytes)?)
            }
            Operation::Ecall => self.call(at),
            Operation::Ebreak => Err(Error::Trap { at, what: "ebreak".into() }.into()),
            Operation::Illegal => {
                Err(Error::IllegalInstruction { at, word: instruction.immediate as u32 }.into())
            }
            _ => Err(Error::NoCode { to: at }.into()),
        }
    }

    /// The values of Cs, Cd and Cl.
    pub fn copy_operands(&self) -> (u64, u64, u64) {
        let register = |number: u8| self.registers[usize::from(number)];
        (register(COPY_SOURCE), register(COPY_TARGET), register(COPY_LENGTH))
    }

    fn call(&mut self, at: u64) -> Result<(), Stop> {
        match self.registers[A7] {
            EXIT => {
                self.exit_code = Some(self.registers[A0]);
                Err(Stop::Exit)
            }
            WRITE => {
                let (address, bytes) = (self.registers[A0 + 1], self.registers[A0 + 2]);
                let access = Access::Load;
                let text = self.memory.read(address, bytes);
                let text = text.ok_or(Error::Unmapped { at, address, bytes, access })?;
                if self.output.len() + text.len() > OUTPUT_BYTES_MAX {
                    let what = format!("output beyond {OUTPUT_BYTES_MAX} bytes");
                    return Err(Error::Trap { at, what }.into());
                }
                self.output.extend_from_slice(text);
                self.registers[A0] = bytes;
                Ok(())
            }
            number => Err(Error::Trap { at, what: format!("unknown call {number}") }.into()),
        }
    }
}

#[inline(always)]
fn jump_target(image: &Image, address: u64) -> Result<u32, Stop> {
    let index = image.index_of(address);
    if index == u32::MAX {
        return Err(Error::NoCode { to: address }.into());
    }
    Ok(index)
}

#[cold]
fn no_code(image: &Image, index: u32) -> Stop {
    Error::NoCode { to: image.target_of(index) }.into()
}

#[cold]
fn unmapped(image: &Image, index: u32, address: u64, bytes: u64, access: Access) -> Stop {
    Error::Unmapped { at: image.address_of(index), address, bytes, access }.into()
}

#[cfg(test)]
mod tests;
