//! A published state that is replaced as a whole; each load and each store is one scheduling step.
//!
//! **Invariants**
//! - The swap itself is the real one: the scheduler only chooses when it happens.

use std::sync::Arc;

/// An `Arc` that readers load while a writer replaces it.
#[derive(Debug)]
pub struct ArcSwap<T>(arc_swap::ArcSwap<T>);

impl<T> ArcSwap<T> {
    /// An `ArcSwap` of a new value.
    pub fn from_pointee(value: T) -> Self {
        Self(arc_swap::ArcSwap::from_pointee(value))
    }

    /// The current value, for short use.
    pub fn load(&self) -> arc_swap::Guard<Arc<T>> {
        super::meet();
        self.0.load()
    }

    /// The current value.
    pub fn load_full(&self) -> Arc<T> {
        super::meet();
        self.0.load_full()
    }

    /// Replaces the value.
    pub fn store(&self, value: Arc<T>) {
        super::meet();
        self.0.store(value);
    }
}
