//! Operation generator, model and runner that every test layer shares.
