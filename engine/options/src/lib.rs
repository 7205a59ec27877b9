//! Options of a store and of its keyspaces: names, bytes in the catalogue, presets, and the tree families
//! that they select.
//!
//! Users see [`Tree`], [`TreePreset`], [`KeyspaceOptions`] and [`Durability`]. The rest is for the engine.
//!
//! **Invariants**
//! - Only [`families`] names a tree family, and depends on its crate.
//! - Only `options_format.rs` knows the bytes of stored options.

mod durability;
pub mod families;
mod keyspace_options;
mod options_format;
pub mod passage;
mod settings;
mod stored_options;
mod tree;
mod tree_preset;

pub use durability::Durability;
pub use keyspace_options::{IntoKeyspaceOptions, KeyspaceOptions, validate};
pub use options_format::Unreadable;
pub use settings::Settings;
pub use stored_options::StoredOptions;
pub use tree::Tree;
pub use tree_preset::TreePreset;
