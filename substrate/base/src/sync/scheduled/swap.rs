//! A published state that is swapped whole; each look and each swap is one step.
//!
//! **Invariants**
//! - The swap itself is the real one: only the moments at which it happens are chosen by the scheduler.

use std::sync::Arc;

/// An `Arc` that readers load while a writer replaces it.
#[derive(Debug)]
pub struct ArcSwap<T>(arc_swap::ArcSwap<T>);

impl<T> ArcSwap<T> {
    /// Around a new value.
    pub fn from_pointee(value: T) -> Self {
        Self(arc_swap::ArcSwap::from_pointee(value))
    }

    /// The value of this moment, for a short while.
    pub fn load(&self) -> arc_swap::Guard<Arc<T>> {
        super::meet();
        self.0.load()
    }

    /// The value of this moment.
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
