//! What is done to a store: the YCSB core workloads, real histories, the papers' experiments, parts of the
//! store alone.

pub(crate) mod micro;
pub(crate) mod paper;
pub(crate) mod queue;
pub(crate) mod replay;
pub(crate) mod values;
pub(crate) mod ycsb;
