//! Dispatch: instructions enter the window in order, and their values are computed.

use super::fetch::Fetched;
use super::stores::Store;
use super::touched::{Touched, WaitingCopy, touched};
use super::window::{Entry, OPERANDS, VALUE};
use super::{Core, MemoryPort};
use crate::error::Error;
use crate::interpreter::Stop;
use crate::isa::{COPY_LENGTH, COPY_SOURCE, COPY_TARGET, Class, Instruction};
use crate::nic::Nic;

impl<M: MemoryPort> Core<'_, M> {
    pub(super) fn dispatch(&mut self) -> Result<(), Error> {
        for _ in 0..self.settings.width {
            let Some(fetched) = self.front.queue.first() else { break };
            let instruction = self.instruction(fetched.index);
            let class = instruction.operation.class();
            if self.is_held(class) {
                break;
            }
            self.front.queue.pop();
            self.progress = true;
            let mut entry = Entry::new(self.window.tail, fetched.index, class);
            entry.return_top = fetched.return_top;
            let touched = if self.wrong_path_of.is_some() {
                self.execute_wrong(&mut entry, &instruction)
            } else {
                let touched = self.execute_right(&mut entry, &fetched, &instruction)?;
                if self.is_finished {
                    break;
                }
                touched
            };
            self.enter(entry, touched, &fetched, &instruction);
        }
        Ok(())
    }

    /// Whether an instruction of this class has no room, or must not begin yet.
    #[inline(always)]
    fn is_held(&self, class: Class) -> bool {
        let is_wrong = self.wrong_path_of.is_some();
        self.window.is_full()
            || matches!(class, Class::Load | Class::Store)
                && self.memory_entries == self.settings.load_store_entries
            || class == Class::Serial && (is_wrong || !self.window.is_empty())
            || is_wrong && !self.settings.wrong_path
            || self.is_in_order() && self.last_is_waiting()
    }

    /// Executes an instruction of the right path, which may end the program.
    #[inline(always)]
    fn execute_right(
        &mut self,
        entry: &mut Entry,
        fetched: &Fetched,
        instruction: &Instruction,
    ) -> Result<Touched, Error> {
        let touched = touched(entry.class, instruction, &self.interpreter.registers);
        match self.interpreter.execute(self.image, fetched.index) {
            Ok(next) => entry.next = next,
            Err(Stop::Fault(error)) => return Err(*error),
            Err(Stop::Exit) => {
                self.interpreter.executed += 1;
                self.is_finished = true;
                return Ok(touched);
            }
        }
        self.interpreter.next = entry.next;
        self.interpreter.executed += 1;
        entry.is_mispredicted = entry.next != fetched.predicted_next;
        entry.is_uncached = entry.class == Class::Store && Nic::is_register(touched.address);
        if entry.is_uncached {
            self.after_device_store(entry.sequence);
        }
        Ok(touched)
    }

    /// Handles a store to the device: collects the device's writes since the previous such store,
    /// and checks whether the run has reached its steady state.
    #[cold]
    fn after_device_store(&mut self, sequence: u64) {
        if self.warm_cycle.is_none() {
            let is_warm = self.interpreter.nic.taken_packets() >= self.warm_packets;
            self.warm_cycle = is_warm.then_some(self.now);
        }
        let writes = self.interpreter.nic.writes.drain(..);
        self.device_writes.extend(writes.map(|write| (sequence, write)));
    }

    #[inline(always)]
    fn execute_wrong(&mut self, entry: &mut Entry, instruction: &Instruction) -> Touched {
        let mut touched = touched(entry.class, instruction, self.shadow.registers());
        if entry.class == Class::Copy {
            // The copy never reaches memory, and its operands may have any value.
            touched.bytes = 0;
        }
        let memory = &self.interpreter.memory;
        entry.next = self.shadow.execute(self.image, memory, entry.index, instruction);
        entry.is_uncached = entry.is_memory() && memory.load::<1>(touched.address).is_none();
        self.statistics.wrong_path_instructions += 1;
        touched
    }

    /// Puts an executed instruction into the window and the queues that its class needs.
    #[inline(always)]
    fn enter(
        &mut self,
        mut entry: Entry,
        touched: Touched,
        fetched: &Fetched,
        instruction: &Instruction,
    ) {
        let (sequence, class, place) = (entry.sequence, entry.class, self.stores.end);
        entry.store_place = place;
        entry.address = touched.address;
        match class {
            Class::Load => {
                entry.bytes = touched.bytes as u8;
                self.memory_entries += 1;
            }
            Class::Store => {
                entry.bytes = touched.bytes as u8;
                if !self.is_in_order() {
                    // Out of order, a store begins with its address alone.
                    entry.needs = !(1 << VALUE);
                }
                self.memory_entries += 1;
                self.stores.push(Store::new(touched, false));
            }
            Class::Copy => {
                self.stores.push(Store::new(touched, true));
                self.copies.push_back(WaitingCopy { sequence, touched });
            }
            _ => {}
        }
        if let Some(trace) = &mut self.trace {
            let address = self.image.address_of(entry.index);
            let is_wrong = self.wrong_path_of.is_some();
            let seen = (self.now, fetched.at);
            entry.row = trace.dispatched(seen, address, touched, is_wrong, instruction);
        }
        let is_mispredicted = entry.is_mispredicted;
        let entry = self.window.push(entry, instruction.rd, sources(class, instruction));
        let may_begin = entry.may_begin();
        if class == Class::Store {
            self.stores.at(place).has_value = entry.waits >> VALUE & 1 == 0;
        }
        if may_begin {
            self.make_ready(sequence, class);
        }
        if is_mispredicted {
            self.follow_wrong_path(sequence);
        }
    }

    /// Starts the wrong path of a mispredicted branch, and saves the state of the right path.
    #[cold]
    fn follow_wrong_path(&mut self, branch: u64) {
        self.window.remember();
        self.shadow.begin(&self.interpreter.registers);
        self.wrong_path_of = Some(branch);
    }

    /// For in-order issue, as in SimpleScalar's core: whether the youngest instruction lacks an
    /// operand, or its own address if it is a load or store.
    fn last_is_waiting(&self) -> bool {
        if self.window.is_empty() {
            return false;
        }
        let last = self.window.entry(self.window.tail - 1);
        last.waits != 0 || last.is_memory() && !last.is_known
    }

    /// Adds an instruction to the ready set of its unit.
    #[inline]
    pub(super) fn make_ready(&mut self, sequence: u64, class: Class) {
        match class {
            Class::Multiply | Class::Divide => self.ready_multiply.insert(sequence),
            _ => self.ready.insert(sequence),
        }
    }
}

/// The registers that an instruction waits for; 0 for none.
#[inline(always)]
fn sources(class: Class, instruction: &Instruction) -> [u8; OPERANDS] {
    match class {
        Class::Copy => [COPY_SOURCE, COPY_TARGET, COPY_LENGTH],
        _ => [instruction.rs1, instruction.rs2, 0],
    }
}
