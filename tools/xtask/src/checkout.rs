//! Reading the checkout: its text files, their code without comments, their `Cargo.toml`s.

pub(crate) mod lexer;
pub(crate) mod manifest;
pub(crate) mod sources;
