//! State that the writing process keeps about its status file.

use std::time::Duration;

use testudo_base::sync::{Arc, Mutex, MutexGuard};
use testudo_env::File;

/// State that the writing process keeps about its status file.
#[derive(Debug, Default)]
pub struct Publisher(Mutex<Option<Published>>);

#[derive(Debug)]
pub struct Published {
    pub file: Arc<dyn File>,
    pub process: u32,
    /// Checksum of the statistics last written, with time 0: used to detect changes.
    pub last: Option<u64>,
    /// Earliest time of the next check of the statistics.
    pub next: Duration,
}

impl Publisher {
    pub fn lock(&self) -> MutexGuard<'_, Option<Published>> {
        self.0.lock()
    }
}
