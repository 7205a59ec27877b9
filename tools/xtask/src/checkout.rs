//! Reads the checkout: text files, their code without comments, and `Cargo.toml`s.

pub(crate) mod lexer;
pub(crate) mod manifest;
pub(crate) mod sources;
