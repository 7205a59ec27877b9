//! Special builds and their evaluation: planted bugs, schedules, instruction counts, and costs of tests.

pub(crate) mod costs;
pub(crate) mod instructions;
pub(crate) mod planted;
pub(crate) mod rustc_with_cfg;
pub(crate) mod schedules;
pub(crate) mod special_build;
