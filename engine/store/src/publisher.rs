//! What the writing process knows of its status file.

use std::time::Duration;

use testudo_base::sync::{Arc, Mutex, MutexGuard};
use testudo_env::File;

/// What the writing process knows of its status file.
#[derive(Debug, Default)]
pub struct Publisher(Mutex<Option<Published>>);

#[derive(Debug)]
pub struct Published {
    pub file: Arc<dyn File>,
    pub process: u32,
    /// Checksum of the statistics as they were written last, with the time 0: to see whether anything
    /// changed.
    pub last: Option<u64>,
    /// The next look at the statistics is not before this.
    pub next: Duration,
}

impl Publisher {
    pub fn lock(&self) -> MutexGuard<'_, Option<Published>> {
        self.0.lock()
    }
}
