//! Rules of `xtask tidy`, one file per kind of rule.

pub(crate) mod code_map;
pub(crate) mod columns;
pub(crate) mod documents;
pub(crate) mod errors_named;
pub(crate) mod file_rules;
pub(crate) mod format_lock;
pub(crate) mod language;
pub(crate) mod layers;
pub(crate) mod module_circles;
pub(crate) mod public_api;
pub(crate) mod text_rules;
pub(crate) mod untested;
