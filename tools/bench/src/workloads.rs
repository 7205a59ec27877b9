//! Workloads: the YCSB core workloads, recorded histories, the papers' experiments, and single components of
//! the store.

pub(crate) mod micro;
pub(crate) mod neighbors;
pub(crate) mod paper;
pub(crate) mod queue;
pub(crate) mod replay;
pub(crate) mod values;
pub(crate) mod ycsb;
