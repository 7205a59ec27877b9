//! Measurements outside the client workloads: the disk alone, this process, and a store over a sequence of
//! phases.

pub(crate) mod device;
pub(crate) mod phases;
pub(crate) mod process;
