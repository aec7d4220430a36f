//! What haul measures: one module a part, records out.
