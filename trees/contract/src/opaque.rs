//! Data in terms of one tree that the engine passes between calls without interpreting it.

use std::{any::Any, fmt, sync::Arc};

/// A leaf, a run, the input of a compaction, in the terms of the tree that chose it.
#[derive(Clone)]
pub struct Opaque(Arc<dyn Terms>);

trait Terms: Any + Send + Sync + fmt::Debug {}

impl<T: Any + Send + Sync + fmt::Debug> Terms for T {}

impl Opaque {
    /// Wraps `terms` for the tree that understands them.
    pub fn new<T: Any + Send + Sync + fmt::Debug>(terms: T) -> Self {
        Self(Arc::new(terms))
    }

    /// Returns the contents if they are a `T`.
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
