//! Moves bulk data on a server for the least cost.
