//! The cycle of each stage of each instruction in a window of cycles: for pictures of the pipeline,
//! and for tests that check orders.

use std::ops::Range;

use super::touched::Touched;
use crate::configuration::Cycle;
use crate::isa::{Class, Instruction};

/// The largest number of rows of a trace. It equals that of transactions, so that users see one
/// limit.
pub const ROWS_MAX: usize = crate::memory::trace::TRANSACTIONS_MAX;
/// The row of an instruction that is not in the trace.
const NO_ROW: u32 = u32::MAX;

/// One instruction. A cycle is 0 if its event did not happen while the trace was on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The address of the instruction.
    pub address: u64,
    /// The instruction as text.
    pub text: String,
    /// The part of the processor that the instruction needs.
    pub class: Class,
    /// Whether the instruction was on the wrong path of a mispredicted branch.
    pub is_wrong_path: bool,
    /// A load's or store's address; a copy's target.
    pub data_address: u64,
    /// A copy's source; 0 for other instructions.
    pub source_address: u64,
    /// The size in bytes of the load, store or copy; 0 for other instructions.
    pub data_bytes: u64,
    /// The cycle in which the instruction was fetched.
    pub fetched: Cycle,
    /// The cycle in which the instruction entered the window.
    pub dispatched: Cycle,
    /// The cycle in which the instruction occupied a unit.
    pub issued: Cycle,
    /// The cycle in which a load requested its value, or a copy was handed over.
    pub asked: Cycle,
    /// The cycle in which the result was available.
    pub done: Cycle,
    /// The cycle in which the instruction left the window.
    pub committed: Cycle,
    /// The cycle in which the instruction was squashed.
    pub squashed: Cycle,
}

/// The instructions that were dispatched in a window of cycles, in that order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PipelineTrace {
    cycles: Range<Cycle>,
    /// One row per dispatch, up to [`ROWS_MAX`].
    pub rows: Vec<Row>,
    /// The number of instructions beyond [`ROWS_MAX`], which are not kept.
    pub left_out: u64,
}

impl PipelineTrace {
    pub(super) fn new(cycles: Range<Cycle>) -> Self {
        Self { cycles, rows: Vec::new(), left_out: 0 }
    }

    pub(super) fn dispatched(
        &mut self,
        (now, fetched): (Cycle, Cycle),
        address: u64,
        touched: Touched,
        is_wrong_path: bool,
        instruction: &Instruction,
    ) -> u32 {
        if !self.cycles.contains(&now) {
            return NO_ROW;
        }
        if self.rows.len() == ROWS_MAX {
            self.left_out += 1;
            return NO_ROW;
        }
        self.rows.push(Row {
            address,
            text: instruction.to_string(),
            class: instruction.operation.class(),
            is_wrong_path,
            data_address: touched.address,
            source_address: touched.source,
            data_bytes: touched.bytes,
            fetched,
            dispatched: now,
            issued: 0,
            asked: 0,
            done: 0,
            committed: 0,
            squashed: 0,
        });
        self.rows.len() as u32 - 1
    }

    pub(super) fn issued(&mut self, row: u32, now: Cycle) {
        self.note(row, |row| row.issued = now);
    }

    pub(super) fn asked(&mut self, row: u32, now: Cycle) {
        self.note(row, |row| row.asked = now);
    }

    pub(super) fn done(&mut self, row: u32, now: Cycle) {
        self.note(row, |row| row.done = now);
    }

    pub(super) fn committed(&mut self, row: u32, now: Cycle) {
        self.note(row, |row| row.committed = now);
    }

    pub(super) fn squashed(&mut self, row: u32, now: Cycle) {
        self.note(row, |row| row.squashed = now);
    }

    fn note(&mut self, row: u32, change: impl FnOnce(&mut Row)) {
        if let Some(row) = self.rows.get_mut(row as usize) {
            change(row);
        }
    }
}
