//! An executor that reverses the order of tasks.
//!
//! **Invariants**
//! - All tasks run in the caller's thread.

use testudo_base::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use testudo_contract::{Executor, Task};

/// Runs the last task first, and records the maximum number of tasks at once.
#[derive(Debug, Default)]
pub struct Backwards {
    /// Maximum number of tasks at once.
    pub tasks_max: AtomicUsize,
}

impl Executor for Backwards {
    fn run_all(&self, tasks: Vec<Task>) {
        self.tasks_max.fetch_max(tasks.len(), Relaxed);
        tasks.into_iter().rev().for_each(|task| task());
    }

    fn workers(&self) -> usize {
        3
    }
}
