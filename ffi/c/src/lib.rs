//! libhaul: the C face of haul.
