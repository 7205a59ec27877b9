//! A queue of jobs, in the order of their ids, that survives a crash of the process that works on a job.
//!
//! A job is in one of two keyspaces: `waiting`, or `taken` while a worker processes it. One batch moves it
//! from one to the other, so a crash leaves it in exactly one of them. Opening the queue after a crash puts
//! the taken jobs back. So each job is done at least once, and more than once only after a crash.
//!
//! The example takes a job in a child process, which aborts while working on it, and then finds the job
//! again.
//!
//! Run with `cargo run -p testudo --example queue`.

use std::{
    env,
    error::Error,
    path::Path,
    process::{self, Command},
    sync::{Mutex, PoisonError},
};

use testudo::{Db, Durability, Keyspace, KeyspaceOptions, Slice};

struct Queue {
    db: Db,
    waiting: Keyspace,
    taken: Keyspace,
    ends: Mutex<Ends>,
}

/// Ids at both ends of the queue; the lock serializes takers.
struct Ends {
    /// No waiting job has a smaller id. A scan that starts here skips the tombstones of finished jobs.
    first: u64,
    next: u64,
}

/// Big-endian, so that key order is id order.
fn key_of(id: u64) -> [u8; 8] {
    id.to_be_bytes()
}

fn id_of(key: &[u8]) -> u64 {
    u64::from_be_bytes(key.try_into().expect("a key of the queue has 8 bytes"))
}

impl Queue {
    fn open(path: &Path) -> testudo::Result<Self> {
        let db = Db::builder(path).memory_bytes(16 << 20).open()?;
        let waiting = db.keyspace("waiting", KeyspaceOptions::default())?;
        let taken = db.keyspace("taken", KeyspaceOptions::default())?;
        // No other process has the store open, so the takers of these jobs are gone.
        let mut batch = db.batch().durability(Durability::Sync);
        for entry in taken.iter()? {
            let (key, job) = entry?.into_pair()?;
            batch.insert(&waiting, &key, job);
            batch.remove(&taken, &key);
        }
        batch.commit()?;
        let first = waiting.iter()?.next().transpose()?.map(|entry| id_of(entry.key()));
        let last = waiting.iter()?.next_back().transpose()?.map(|entry| id_of(entry.key()));
        // Ids of finished jobs may be reused. A queue that must not do so stores its next id in a key.
        let ends = Ends { first: first.unwrap_or(0), next: last.map_or(0, |last| last + 1) };
        Ok(Self { db, waiting, taken, ends: Mutex::new(ends) })
    }

    /// Appends a job; it is durable when this returns.
    fn push(&self, job: &str) -> testudo::Result<u64> {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let id = ends.next;
        let mut batch = self.db.batch().durability(Durability::Sync);
        batch.insert(&self.waiting, key_of(id), job);
        batch.commit()?;
        ends.next = id + 1;
        Ok(id)
    }

    /// Takes the oldest job. Default durability is enough: if a crash undoes it, the job waits again.
    fn take(&self) -> testudo::Result<Option<(u64, Slice)>> {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = self.waiting.range(key_of(ends.first)..)?.next() else { return Ok(None) };
        let (key, job) = entry?.into_pair()?;
        let mut batch = self.db.batch();
        batch.remove(&self.waiting, &key);
        batch.insert(&self.taken, &key, &job);
        batch.commit()?;
        let id = id_of(&key);
        ends.first = id + 1;
        Ok(Some((id, job)))
    }

    /// Marks a job as done. Once this is durable, the job is not repeated after a crash.
    fn finish(&self, id: u64) -> testudo::Result<()> {
        let mut batch = self.db.batch().durability(Durability::Sync);
        batch.remove(&self.taken, key_of(id));
        batch.commit()
    }
}

/// The child: takes a job and aborts before finishing it.
fn take_and_abort(path: &Path) -> Result<(), Box<dyn Error>> {
    let queue = Queue::open(path)?;
    let (id, job) = queue.take()?.ok_or("no job waits")?;
    // So that the outcome does not depend on the writes lost by chance.
    queue.db.persist(Durability::Sync)?;
    println!("child: took job {id}, {:?}, and aborts", String::from_utf8_lossy(&job));
    process::abort()
}

fn main() -> Result<(), Box<dyn Error>> {
    if let [_, verb, path] = &env::args().collect::<Vec<_>>()[..]
        && verb == "take-and-abort"
    {
        return take_and_abort(Path::new(path));
    }
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("queue");

    let queue = Queue::open(&path)?;
    let jobs = ["resize", "encode", "publish"];
    for job in jobs {
        queue.push(job)?;
    }
    drop(queue);

    let child = Command::new(env::current_exe()?).arg("take-and-abort").arg(&path).status()?;
    assert!(!child.success(), "the child must abort");

    let queue = Queue::open(&path)?;
    let mut done = Vec::new();
    while let Some((id, job)) = queue.take()? {
        let job = String::from_utf8_lossy(&job).into_owned();
        println!("parent: job {id}, {job:?}");
        queue.finish(id)?;
        done.push(job);
    }
    assert_eq!(done, jobs, "every job must be present, in order, including that of the child");
    assert!(queue.waiting.iter()?.next().is_none() && queue.taken.iter()?.next().is_none());
    Ok(())
}
