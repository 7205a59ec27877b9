//! Runs independent tasks in parallel: on a few threads, which take them from two queues, and on the calling
//! thread.
//!
//! Tasks of flushes precede those of jobs. A thread that waits for a round runs tasks of its own class only:
//! a flush must not wait for tasks that a job has queued.
//!
//! **Invariants**
//! - [`Executor::run_all`] returns only after all of its tasks have ended, including panicked ones.
//! - A task may call `run_all` itself. Its thread then runs any queued task, so a caller queues at most as
//!   many such tasks as there are workers: they would nest on one stack.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
};

use testudo_base::{
    Error, Result, planted,
    sync::{Arc, Condvar, Mutex, MutexGuard},
};
use testudo_contract::{Executor, Task};
use testudo_env::{Env, Thread};

#[derive(Debug, Default)]
struct Round {
    /// Tasks not yet ended.
    open: usize,
    has_panicked: bool,
}

type Tasks = VecDeque<(Task, Arc<Mutex<Round>>)>;

/// The owner of tasks.
#[derive(Clone, Copy, Debug)]
enum Class {
    Flush,
    Job,
}

#[derive(Default)]
struct Queue {
    of_flushes: Tasks,
    of_jobs: Tasks,
    is_closing: bool,
}

impl Queue {
    fn of(&mut self, class: Class) -> &mut Tasks {
        match class {
            Class::Flush => &mut self.of_flushes,
            Class::Job => &mut self.of_jobs,
        }
    }
}

struct Shared {
    queue: Mutex<Queue>,
    /// Signaled when tasks are queued, a round has ended, or the pool closes.
    changed: Condvar,
}

/// A pool of threads.
pub struct Pool {
    shared: Arc<Shared>,
    /// The threads plus the caller.
    workers: usize,
    threads: Mutex<Vec<Box<dyn Thread>>>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({} threads)", self.threads.lock().len())
    }
}

impl Pool {
    /// Starts a pool of `helpers` threads in addition to the caller.
    pub fn start(env: &dyn Env, helpers: usize) -> Result<Arc<Self>> {
        let queue = Mutex::new(Queue::default());
        let shared = Arc::new(Shared { queue, changed: Condvar::new() });
        let threads = Mutex::new(Vec::with_capacity(helpers));
        let pool = Self { shared, workers: helpers + 1, threads };
        for _ in 0..helpers {
            let shared = Arc::clone(&pool.shared);
            match env.spawn("testudo-work", Box::new(move || shared.work())) {
                Ok(thread) => pool.threads.lock().push(thread),
                Err(error) => {
                    pool.close();
                    return Err(Error::io("a background thread", error));
                }
            }
        }
        Ok(Arc::new(pool))
    }

    /// Ends the threads.
    pub fn close(&self) {
        self.shared.queue.lock().is_closing = true;
        if !planted!("close-wakes-nobody") {
            self.shared.changed.notify_all();
        }
        for thread in self.threads.lock().drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn work(&self) {
        let mut queue = self.queue.lock();
        loop {
            if let Some((task, round)) = queue.of_flushes.pop_front().or_else(|| queue.of_jobs.pop_front()) {
                self.run(&mut queue, task, &round);
            } else if queue.is_closing {
                return;
            } else {
                self.changed.wait(&mut queue);
            }
        }
    }

    /// Runs a task of any round, and wakes the waiter of the round if it was the last one.
    fn run(&self, queue: &mut MutexGuard<'_, Queue>, task: Task, round: &Mutex<Round>) {
        let is_last = MutexGuard::unlocked(queue, || {
            let outcome = catch_unwind(AssertUnwindSafe(task));
            let mut round = round.lock();
            debug_assert!(round.open > 0, "a task ends once");
            round.open -= 1;
            round.has_panicked |= outcome.is_err();
            round.open == 0
        });
        // Under the lock: a waiter has either seen this or already sleeps.
        if is_last {
            self.changed.notify_all();
        }
    }
}

impl Pool {
    fn run_all_of(&self, class: Class, mut tasks: Vec<Task>) {
        if tasks.len() <= 1 {
            // Not worth waking other threads.
            return tasks.pop().map_or((), |task| task());
        }
        let round = Arc::new(Mutex::new(Round { open: tasks.len(), has_panicked: false }));
        debug_assert!(self.workers > 0, "the caller is a worker");
        let mut queue = self.shared.queue.lock();
        queue.of(class).extend(tasks.into_iter().map(|task| (task, Arc::clone(&round))));
        self.shared.changed.notify_all();
        while round.lock().open > 0 {
            if let Some((task, round)) = queue.of(class).pop_front() {
                self.shared.run(&mut queue, task, &round);
            } else {
                self.shared.changed.wait(&mut queue);
            }
        }
        drop(queue);
        assert!(!round.lock().has_panicked, "a background task panicked");
    }
}

/// Runs tasks of flushes.
impl Executor for Pool {
    fn workers(&self) -> usize {
        self.workers
    }

    fn run_all(&self, tasks: Vec<Task>) {
        self.run_all_of(Class::Flush, tasks);
    }
}

/// Runs tasks of jobs.
#[derive(Debug)]
pub struct JobExecutor(pub Arc<Pool>);

impl Executor for JobExecutor {
    fn workers(&self) -> usize {
        self.0.workers
    }

    fn run_all(&self, tasks: Vec<Task>) {
        self.0.run_all_of(Class::Job, tasks);
    }
}

/// The executors of flushes and of jobs.
pub struct Executors {
    pub flushes: Arc<dyn Executor>,
    pub jobs: Arc<dyn Executor>,
}

#[cfg(test)]
mod tests;
