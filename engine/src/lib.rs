//! Testudo: an ordered, persistent, embedded key-value store.
