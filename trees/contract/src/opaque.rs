//! What only the tree that made it understands, while the engine carries it from one call to the next.

use std::{any::Any, fmt, sync::Arc};

/// A leaf, a run, the input of a compaction, in the terms of the tree that chose it.
#[derive(Clone)]
pub struct Opaque(Arc<dyn Terms>);

trait Terms: Any + Send + Sync + fmt::Debug {}

impl<T: Any + Send + Sync + fmt::Debug> Terms for T {}

impl Opaque {
    /// For the tree that understands `terms`.
    pub fn new<T: Any + Send + Sync + fmt::Debug>(terms: T) -> Self {
        Self(Arc::new(terms))
    }

    /// The same, if it is in terms of `T`.
    pub fn of<T: Any>(&self) -> Option<&T> {
        let terms: &dyn Any = &*self.0;
        terms.downcast_ref()
    }
}

impl fmt::Debug for Opaque {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}
