//! The durable state of a tree: its data file, its objects in the manifest, and its references.
//!
//! **Invariants**
//! - No span has zero references.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use testudo_base::{ExtentSpan, Incarnation, KeyspaceId, ObjectId, RunId, StoreId};
use testudo_contract::{Executor, Progress, RunIds, Tree, Work};
use testudo_env::{Env, OpenMode, OpenOptions};
use testudo_run::KeyBounds;
use testudo_storage::{Change, DataFile};

/// The keyspace of every tree in a test bed.
pub const KEYSPACE: KeyspaceId = KeyspaceId(3);
/// Path of the data file.
const PATH: &str = "/data";

/// Objects of a tree in the manifest.
pub type Objects = BTreeMap<ObjectId, Arc<[u8]>>;

/// Returns the options for opening the data file in this mode.
pub fn file_options(mode: OpenMode) -> OpenOptions {
    OpenOptions { mode, direct: true }
}

/// Opens the data file of a test bed, with these references and an empty cache.
pub fn data_file(
    env: &dyn Env,
    mode: OpenMode,
    cache_bytes: u64,
    live: impl Iterator<Item = (ExtentSpan, u32)>,
) -> Arc<DataFile> {
    let file = env.open(Path::new(PATH), file_options(mode)).unwrap();
    DataFile::new(file, StoreId(7), cache_bytes, live, Some(Incarnation(1))).unwrap()
}

/// Returns the context of work on a new data file.
pub fn work_on(env: &dyn Env, executor: Arc<dyn Executor>) -> Work {
    Work {
        full_merge: Arc::default(),
        data: data_file(env, OpenMode::CreateNew, 1 << 20, std::iter::empty()),
        keyspace: KEYSPACE,
        keyspace_name: Arc::from("tests"),
        values: None,
        run_ids: Arc::new(RunIds::starting_at(RunId(1))),
        executor,
        progress: Arc::new(Progress::default()),
        keys: KeyBounds::default(),
    }
}

/// Objects of a tree, and number of references to each of its spans.
#[derive(Debug, Default)]
pub struct Durable {
    /// Objects of the tree in the manifest.
    pub objects: Objects,
    /// References by span.
    pub references: BTreeMap<ExtentSpan, i32>,
}

impl Durable {
    /// Applies the changes of an edit.
    pub fn apply(&mut self, data: &DataFile, changes: &[Change]) {
        let mut deltas = Vec::new();
        for change in changes {
            match change {
                Change::PutObject(_, id, bytes) => {
                    self.objects.insert(*id, Arc::from(bytes.as_slice()));
                }
                Change::DeleteObject(_, id) => assert!(self.objects.remove(id).is_some(), "object {id}"),
                Change::References(span, delta) => {
                    *self.references.entry(*span).or_default() += delta;
                    deltas.push((*span, *delta));
                }
                other => panic!("unexpected {other:?}"),
            }
        }
        data.extents().apply_durable(deltas.into_iter());
        self.references.retain(|_, count| *count != 0);
    }

    /// Checks that the tree refers to exactly the spans that have references.
    #[track_caller]
    pub fn check_references(&self, tree: &dyn Tree) {
        let mut recount: BTreeMap<ExtentSpan, i32> = BTreeMap::new();
        for span in tree.references() {
            *recount.entry(span).or_default() += 1;
        }
        assert_eq!(recount, self.references);
    }

    /// Returns the references, for opening the data file.
    pub fn live(&self) -> impl Iterator<Item = (ExtentSpan, u32)> {
        self.references.iter().map(|(span, count)| (*span, u32::try_from(*count).unwrap()))
    }
}
