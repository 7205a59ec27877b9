//! Options of a store and of its keyspaces: names, bytes in the catalogue, presets, and the tree families
//! that they select.
//!
//! Users see [`Tree`], [`TreeKind`], [`TreelineOptions`], [`TreePreset`], [`KeyspaceOptions`] and
//! [`Durability`]. The rest is for the engine.
//!
//! **Invariants**
//! - Only [`families`] and [`stored_tree`] name a tree family, and call its crate.
//! - Only `options_format.rs` and its folder know the bytes of stored options.

mod durability;
mod keyspace_options;
mod options_format;
pub mod passage;
mod settings;
mod stored_options;
pub mod stored_tree;
mod tree;

pub use durability::Durability;
pub use keyspace_options::{IntoKeyspaceOptions, KeyspaceOptions, validate};
pub use options_format::Unreadable;
pub use settings::Settings;
pub use stored_options::StoredOptions;
pub use tree::{Forecast, Stage, Tree, TreeKind, TreePreset, TreelineOptions, families};
