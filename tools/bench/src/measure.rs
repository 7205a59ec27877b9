//! What is measured without a workload of clients: the disk alone, this process, a store through a row of
//! phases.

pub(crate) mod device;
pub(crate) mod phases;
pub(crate) mod process;
