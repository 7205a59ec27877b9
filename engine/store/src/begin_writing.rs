//! The first manifest edit of an opening for writing, made when it first writes something.
//!
//! **Invariants**
//! - An opening that writes nothing makes no edit and leaves superblock, manifest and log unchanged.
//! - The edit is durable before the first page of a run, the first log segment, and any other edit.

use std::path::PathBuf;

use testudo_base::{
    Opening, Result,
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
};
use testudo_contract::RunIds;
use testudo_env::Env;
use testudo_storage::{Change, DataFile, Manifest};

/// Whether an opening has begun to write, and the inputs of its first edit.
#[derive(Debug)]
pub struct Beginning {
    env: Arc<dyn Env>,
    directory: PathBuf,
    manifest: Arc<Manifest>,
    data: Arc<DataFile>,
    run_ids: Arc<RunIds>,
    has_begun: AtomicBool,
    beginning: Mutex<()>,
}

impl Beginning {
    pub fn new(
        env: Arc<dyn Env>,
        directory: PathBuf,
        manifest: Arc<Manifest>,
        data: Arc<DataFile>,
        run_ids: Arc<RunIds>,
    ) -> Self {
        Self { env, directory, manifest, data, run_ids, has_begun: false.into(), beginning: Mutex::new(()) }
    }

    /// Makes the edit once: it states the incarnation, and skips run ids that a crash may have used without
    /// the manifest recording them. A reader makes no edit. REQUIRES: for a writer, everything read at
    /// opening has been validated.
    pub fn begin(&self) -> Result<()> {
        if self.has_begun() { Ok(()) } else { self.make_edit() }
    }

    /// Whether the edit was made.
    pub fn has_begun(&self) -> bool {
        self.has_begun.load(Acquire)
    }

    #[cold]
    fn make_edit(&self) -> Result<()> {
        let Some(incarnation) = self.data.writer() else { return Ok(()) };
        debug_assert!(incarnation.0 > 0, "incarnation 0 means no opening");
        let _beginning = self.beginning.lock();
        if self.has_begun() {
            return Ok(());
        }
        self.manifest.begin_writing();
        let newest = testudo_wal::list_segments(&*self.env, &self.directory)?.pop().unwrap_or_default();
        let log_segment = self.manifest.with_state(|state| state.log_segment);
        let first_segment = (newest + 1).max(log_segment);
        debug_assert!(first_segment >= log_segment, "the start of the log never goes back");
        let opening = Change::Opened(Opening { incarnation, first_segment });
        self.manifest.commit(&[Change::NextRun(self.run_ids.next()), opening])?;
        self.has_begun.store(true, Release);
        Ok(())
    }
}
