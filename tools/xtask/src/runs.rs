//! Builds of their own that are run and judged: planted bugs, schedules, counted instructions, costs of
//! tests.

pub(crate) mod costs;
pub(crate) mod instructions;
pub(crate) mod planted;
pub(crate) mod rustc_with_cfg;
pub(crate) mod schedules;
pub(crate) mod special_build;
