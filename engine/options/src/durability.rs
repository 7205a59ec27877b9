//! Durability levels of a commit.

/// The point at which a write is acknowledged; the weaker one is less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// In the operating system: it survives the end of the process, however that ends, and is synced within a
    /// second. A crash of the machine can lose it. So can the end of the process if the device is full at
    /// that moment and the commit is longer than a log buffer, a 256th of the memory budget.
    #[default]
    Buffered,
    /// On disk.
    Sync,
}
