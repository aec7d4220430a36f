//! Dispatch: instructions enter the window in order, and their values are computed.

use super::fetch::Fetched;
use super::stores::Store;
use super::window::{Entry, OPERANDS, VALUE};
use super::{Core, MemoryPort};
use crate::error::Error;
use crate::interpreter::Stop;
use crate::isa::{COPY_LENGTH, COPY_SOURCE, COPY_TARGET, Class, Instruction};
use crate::nic::Nic;

impl<M: MemoryPort> Core<'_, M> {
    pub(super) fn dispatch(&mut self) -> Result<(), Error> {
        for _ in 0..self.settings.width {
            let Some(fetched) = self.front.queue.front().copied() else { break };
            let instruction = self.instruction(fetched.index);
            let class = instruction.operation.class();
            let is_memory = matches!(class, Class::Load | Class::Store);
            let is_wrong = self.wrong_path_of.is_some();
            let is_held = self.window.is_full()
                || is_memory && self.memory_entries == self.settings.load_store_entries
                || class == Class::Serial && (is_wrong || !self.window.is_empty())
                || is_wrong && !self.settings.wrong_path
                || self.is_in_order() && self.last_is_waiting();
            if is_held {
                break;
            }
            self.front.queue.pop_front();
            self.progress = true;
            let mut entry = Entry::new(self.window.tail, fetched.index, class, instruction.rd);
            if is_wrong {
                self.execute_wrong(&mut entry, &fetched, &instruction);
            } else {
                self.execute_right(&mut entry, &fetched, &instruction)?;
                if self.is_finished {
                    break;
                }
            }
            self.enter(&mut entry, &instruction, &fetched);
        }
        Ok(())
    }

    /// Executes an instruction of the right path, which may end the program.
    #[inline]
    fn execute_right(
        &mut self,
        entry: &mut Entry,
        fetched: &Fetched,
        instruction: &Instruction,
    ) -> Result<(), Error> {
        operands(entry, instruction, &self.machine.registers);
        match self.machine.execute(self.image, fetched.index) {
            Ok(next) => entry.next = next,
            Err(Stop::Fault(error)) => return Err(*error),
            Err(Stop::Exit) => {
                self.machine.executed += 1;
                self.is_finished = true;
                return Ok(());
            }
        }
        self.machine.next = entry.next;
        self.machine.executed += 1;
        entry.is_mispredicted = entry.next != fetched.predicted_next;
        entry.is_uncached = entry.class == Class::Store && Nic::is_register(entry.address);
        if entry.is_uncached && self.warm_cycle.is_none() {
            let is_warm = self.machine.nic.taken_packets() >= self.warm_packets;
            self.warm_cycle = is_warm.then_some(self.now);
        }
        if !self.machine.nic.writes.is_empty() {
            let writes = self.machine.nic.writes.drain(..);
            self.device_writes.extend(writes.map(|write| (entry.sequence, write)));
        }
        Ok(())
    }

    #[inline]
    fn execute_wrong(&mut self, entry: &mut Entry, fetched: &Fetched, instruction: &Instruction) {
        entry.is_wrong_path = true;
        operands(entry, instruction, self.shadow.registers());
        if entry.class == Class::Copy {
            // It never reaches memory, and its operands may be anything.
            entry.bytes = 0;
        }
        let memory = &self.machine.memory;
        entry.next = self.shadow.execute(self.image, memory, fetched.index, instruction);
        entry.is_uncached = entry.is_memory() && memory.load::<1>(entry.address).is_none();
        self.statistics.wrong_path_instructions += 1;
    }

    /// Puts an executed instruction into the window and the queues that its class needs.
    #[inline]
    fn enter(&mut self, entry: &mut Entry, instruction: &Instruction, fetched: &Fetched) {
        let sequence = entry.sequence;
        entry.return_top = fetched.return_top;
        entry.store_place = self.stores.end;
        match entry.class {
            Class::Load => self.memory_entries += 1,
            Class::Store => {
                self.memory_entries += 1;
                self.push_store(entry, false);
            }
            Class::Copy => {
                self.push_store(entry, true);
                self.copies.push_back(sequence);
            }
            _ => {}
        }
        if let Some(trace) = &mut self.trace {
            let address = self.image.address_of(entry.index);
            entry.row = trace.dispatched(self.now, fetched.at, address, entry, instruction);
        }
        let is_mispredicted = entry.is_mispredicted;
        self.window.push(entry, sources(instruction));
        if is_mispredicted {
            self.window.remember();
            self.shadow.begin(&self.machine.registers);
            self.wrong_path_of = Some(sequence);
        }
        if entry.class == Class::Store {
            self.stores.at(entry.store_place).has_value = entry.waits >> VALUE & 1 == 0;
        }
        if self.may_issue(entry.class, entry.waits) {
            self.make_ready(sequence, entry.class);
        }
    }

    /// In order, as SimpleScalar's core has it: whether the youngest instruction lacks an operand, or
    /// the address that it loads from or stores to.
    fn last_is_waiting(&self) -> bool {
        if self.window.is_empty() {
            return false;
        }
        let last = self.window.entry(self.window.tail - 1);
        last.waits != 0 || last.is_memory() && !last.is_known
    }

    fn push_store(&mut self, entry: &Entry, is_copy: bool) {
        self.stores.push(Store {
            address: entry.address,
            bytes: entry.bytes,
            is_copy,
            is_known: false,
            has_value: false,
        });
    }

    /// Puts an instruction where its unit looks for it.
    #[inline]
    pub(super) fn make_ready(&mut self, sequence: u64, class: Class) {
        match class {
            Class::Multiply | Class::Divide => self.ready_multiply.insert(sequence),
            _ => self.ready.insert(sequence),
        }
        self.waiting += 1;
    }

    /// Whether the operands that it needs to begin are there: a store's address does without its
    /// value, unless the core issues in order.
    #[inline]
    pub(super) fn may_issue(&self, class: Class, waits: u8) -> bool {
        let needed = if class == Class::Store && !self.is_in_order() {
            waits & !(1 << VALUE)
        } else {
            waits
        };
        needed == 0
    }
}

/// What it touches, from the registers before it executes.
fn operands(entry: &mut Entry, instruction: &Instruction, registers: &[u64]) {
    let register = |number: u8| registers[usize::from(number)];
    match entry.class {
        Class::Load | Class::Store => {
            entry.address = register(instruction.rs1).wrapping_add_signed(instruction.immediate);
            entry.bytes = instruction.operation.bytes();
        }
        Class::Copy => {
            entry.source = register(COPY_SOURCE);
            entry.address = register(COPY_TARGET);
            entry.bytes = register(COPY_LENGTH);
        }
        _ => {}
    }
}

/// The registers that it waits for; 0 for none.
fn sources(instruction: &Instruction) -> [u8; OPERANDS] {
    match instruction.operation.class() {
        Class::Copy => [COPY_SOURCE, COPY_TARGET, COPY_LENGTH],
        _ => [instruction.rs1, instruction.rs2, 0],
    }
}
