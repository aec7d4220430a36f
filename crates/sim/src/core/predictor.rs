//! The branch predictor: two-bit counters for conditional branches, a tagged table of targets for
//! indirect jumps, a stack of return addresses. Direct jumps carry their target in the instruction.

use crate::configuration::PredictorSettings;
use crate::isa::{Instruction, Operation, SINK};

/// ra and t0, the link registers that the RISC-V manual names for return-address stacks.
const LINKS: [u8; 2] = [1, 5];
/// "Weakly not taken": the initial value of every counter.
const FIRST: u8 = 1;

pub(super) struct Predictor {
    counters: Vec<u8>,
    /// For each slot: the jump's index, and the index of its last target.
    targets: Vec<(u32, u32)>,
    returns: Vec<u32>,
    /// The number of return addresses on the stack, modulo its length.
    top: u32,
}

impl Predictor {
    pub(super) fn new(settings: &PredictorSettings) -> Self {
        Self {
            counters: vec![FIRST; settings.counters as usize],
            targets: vec![(u32::MAX, 0); settings.targets as usize],
            returns: vec![0; settings.return_entries as usize],
            top: 0,
        }
    }

    /// The predicted index after the instruction at `index`. Updates the return stack.
    #[inline]
    pub(super) fn next(&mut self, index: u32, instruction: &Instruction) -> u32 {
        let after = index.wrapping_add(1);
        match instruction.operation {
            Operation::Jal => {
                self.note_call(instruction, after);
                instruction.target
            }
            Operation::Jalr => self.indirect(index, instruction),
            _ => {
                let counter = self.counters[index as usize & (self.counters.len() - 1)];
                if counter > FIRST { instruction.target } else { after }
            }
        }
    }

    /// The stack's top, to be restored if the following path is squashed.
    pub(super) fn top(&self) -> u32 {
        self.top
    }

    pub(super) fn restore(&mut self, top: u32) {
        self.top = top;
    }

    /// Learns from a committed branch whose actual successor is `next`.
    #[inline]
    pub(super) fn learn(&mut self, index: u32, instruction: &Instruction, next: u32) {
        match instruction.operation {
            Operation::Jal => {}
            Operation::Jalr => {
                let place = index as usize & (self.targets.len() - 1);
                self.targets[place] = (index, next);
            }
            _ => {
                let place = index as usize & (self.counters.len() - 1);
                let counter = &mut self.counters[place];
                let is_taken = next == instruction.target;
                *counter = if is_taken { (*counter + 1).min(3) } else { counter.saturating_sub(1) };
            }
        }
    }

    fn indirect(&mut self, index: u32, instruction: &Instruction) -> u32 {
        let after = index.wrapping_add(1);
        let is_return = instruction.rd == SINK && LINKS.contains(&instruction.rs1);
        if is_return && !self.returns.is_empty() {
            self.top = self.top.wrapping_sub(1);
            return self.returns[self.top as usize % self.returns.len()];
        }
        self.note_call(instruction, after);
        let (jump, target) = self.targets[index as usize & (self.targets.len() - 1)];
        if jump == index { target } else { after }
    }

    fn note_call(&mut self, instruction: &Instruction, after: u32) {
        if LINKS.contains(&instruction.rd) && !self.returns.is_empty() {
            let place = self.top as usize % self.returns.len();
            self.returns[place] = after;
            self.top = self.top.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::{decode, encode};

    fn predictor() -> Predictor {
        Predictor::new(&PredictorSettings::default())
    }

    #[test]
    fn counter_changes_prediction_after_two_mispredictions() {
        let branch = decode(encode::branch(Operation::Beq, 1, 2, 64), 0, 0);
        let mut predictor = predictor();
        let mut predicted = Vec::new();
        for next in [16, 16, 1, 16, 1, 1] {
            predicted.push(predictor.next(0, &branch));
            predictor.learn(0, &branch, next);
        }
        assert_eq!(predicted, [1, 16, 16, 16, 16, 16]);
        assert_eq!(predictor.next(0, &branch), 1);
    }

    #[test]
    fn return_is_predicted_to_its_call_and_jump_to_its_last_target() {
        let call = decode(encode::jump(1, 400), 0, 0);
        let back = decode(encode::immediate(Operation::Jalr, 0, 1, 0), 0, 0);
        let jump = decode(encode::immediate(Operation::Jalr, 0, 10, 0), 0, 0);
        let mut predictor = predictor();
        assert_eq!(predictor.next(7, &call), 100);
        assert_eq!(predictor.next(9, &call), 100);
        let top = predictor.top();
        assert_eq!(predictor.next(50, &back), 10);
        predictor.restore(top);
        assert_eq!(predictor.next(50, &back), 10);
        assert_eq!(predictor.next(50, &back), 8);
        assert_eq!(predictor.next(60, &jump), 61);
        predictor.learn(60, &jump, 5);
        assert_eq!(predictor.next(60, &jump), 5);
    }
}
