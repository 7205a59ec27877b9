//! An in-memory data file, for tests that write and read runs.

use std::{path::Path, sync::Arc};

use testudo_base::{Incarnation, KeyspaceId, PAGE_SIZE, RunId, Seqno, StoreId, num::u64_of};
use testudo_env::{Env, MemEnv, OpenMode, OpenOptions};
use testudo_storage::DataFile;

use crate::{Run, RunOrigin, RunWriter};

/// The data file of store 7, at `/data`.
pub(crate) struct TestBed {
    pub(crate) env: Arc<MemEnv>,
    pub(crate) data: Arc<DataFile>,
}

impl TestBed {
    pub(crate) fn with_cache(bytes: u64) -> Self {
        let env = MemEnv::new(1);
        let options = OpenOptions { mode: OpenMode::CreateNew, direct: true };
        let file = env.open(Path::new("/data"), options).unwrap();
        let data = DataFile::new(file, StoreId(7), bytes, std::iter::empty(), Some(Incarnation(1))).unwrap();
        Self { env, data }
    }

    /// Creates a writer of run 3 of keyspace 1.
    pub(crate) fn writer(&self) -> RunWriter {
        self.writer_of(RunId(3))
    }

    /// Creates a writer of a run of keyspace 1.
    pub(crate) fn writer_of(&self, id: RunId) -> RunWriter {
        let origin =
            RunOrigin { id, keyspace: KeyspaceId(1), keyspace_name: "tests".into(), newest_seqno: Seqno(1) };
        RunWriter::new(Arc::clone(&self.data), origin, 1 << 16).unwrap()
    }

    /// Opens the run again from the file, with nothing of it in memory.
    pub(crate) fn reopened(&self, run: &Run) -> Arc<Run> {
        self.data.sync().unwrap();
        let options = OpenOptions { mode: OpenMode::Read, direct: true };
        let file = self.env.open(Path::new("/data"), options).unwrap();
        let live = run.reference().spans.clone().into_iter().map(|span| (span, 1));
        let data = DataFile::new(file, StoreId(7), 1 << 20, live, None).unwrap();
        Run::open(data, run.reference().clone()).unwrap()
    }

    /// Flips a bit of a page of the run.
    pub(crate) fn damage(&self, run: &Run, page: u32, at: u64) {
        self.data.sync().unwrap();
        let (physical, _) = run.locate(page).unwrap();
        let options = OpenOptions { mode: OpenMode::Write, direct: false };
        let file = self.env.open(Path::new("/data"), options).unwrap();
        let offset = physical * u64_of(PAGE_SIZE) + at;
        let mut byte = [0];
        file.read_at(offset, &mut byte).unwrap();
        file.write_at(offset, &[byte[0] ^ 0x40]).unwrap();
    }
}
