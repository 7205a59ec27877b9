//! Workloads, traces and device measurements against the public API.
