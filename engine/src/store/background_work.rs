//! By whom, and when, work in the background is done.

use testudo_base::sync::{Arc, Condvar, Mutex, atomic::AtomicU32};
use testudo_contract::Executor;

/// The means of background work.
#[derive(Debug)]
pub(crate) struct BackgroundWork {
    pub(crate) executor: Arc<dyn Executor>,
    /// There are no background threads: the same is done in steps, when somebody asks for one.
    pub(crate) is_stepped: bool,
    /// Steps so far, in stepped execution.
    pub(crate) steps: AtomicU32,
    pub(crate) wakeup: Wakeup,
}

impl BackgroundWork {
    pub(crate) fn new(executor: Arc<dyn Executor>, is_stepped: bool) -> Self {
        Self { executor, is_stepped, steps: 0.into(), wakeup: Wakeup::default() }
    }

    /// Wakes the background threads.
    pub(crate) fn wake(&self) {
        self.wakeup.wake();
    }
}

/// Wakes the background threads.
#[derive(Debug, Default)]
pub(crate) struct Wakeup {
    pub(crate) is_woken: Mutex<bool>,
    pub(crate) changed: Condvar,
}

impl Wakeup {
    fn wake(&self) {
        *self.is_woken.lock() = true;
        self.changed.notify_all();
    }
}
