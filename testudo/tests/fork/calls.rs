//! Handles of every kind, and all of their calls, which must fail in a forked child.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    io::{Read, repeat},
    path::Path,
    sync::Arc,
};

use testudo::{
    Batch, Db, Durability, Entry, Env, ErrorKind, Iter, Keyspace, KeyspaceOptions, Memory, Placement,
    ScrubOptions, Snapshot, SnapshotKeyspace, Tree, ValueReader, VerifyLevel, backup::Repository,
};
use testudo_db::maintenance::Stepping as _;

/// Length of a value in pieces.
const LONG_BYTES: u64 = 300_000;
const SEPARATED: u32 = 40;

/// Handles of a process when it forks.
pub(crate) struct Handles {
    pub(crate) db: Db,
    pub(crate) records: Keyspace,
    /// A handle of a dropped keyspace, which keeps it open.
    dropped: Keyspace,
    counts: Keyspace,
    values: Keyspace,
    snapshot: Snapshot,
    of_snapshot: SnapshotKeyspace,
    /// Positioned in the middle, with entries ahead of it.
    iter: Iter,
    fresh: Iter,
    /// Entries whose values were not read.
    separated: Vec<Entry>,
    reader: ValueReader,
    batch: Batch,
    memory: Memory,
}

impl Handles {
    /// REQUIRES: no concurrent creation or dropping of keyspaces.
    pub(crate) fn of(db: &Db, tree: Tree) -> Self {
        let options = KeyspaceOptions::default().tree(tree);
        let records = db.keyspace("records", options).unwrap();
        let dropped = db.keyspace("dropped", options).unwrap();
        let counts = db.keyspace("counts", options.merge_operator("add-u64")).unwrap();
        let values = db.keyspace("values", options.placement(Placement::separate())).unwrap();
        for number in 0..SEPARATED {
            dropped.insert(number.to_be_bytes(), "gone").unwrap();
            counts.merge("count", 1_u64.to_le_bytes()).unwrap();
            values.insert(number.to_be_bytes(), [7; 3000]).unwrap();
        }
        values.insert_reader("long", LONG_BYTES, repeat(9).take(LONG_BYTES)).unwrap();
        db.flush().unwrap();
        db.drop_keyspace("dropped").unwrap();
        let snapshot = db.snapshot().unwrap();
        let mut reader = values.get_reader("long").unwrap().unwrap();
        reader.read_exact(&mut [0; 10]).unwrap();
        let mut iter = values.iter().unwrap();
        let separated = iter.by_ref().take(8).map(Result::unwrap).collect();
        iter.next_back().unwrap().unwrap();
        let mut batch = db.batch();
        batch.insert(&records, "from a batch", "lost");
        batch.remove(&values, "long");
        Self {
            of_snapshot: snapshot.keyspace(&values).unwrap(),
            fresh: values.iter().unwrap(),
            memory: db.memory(),
            db: db.clone(),
            records,
            dropped,
            counts,
            values,
            snapshot,
            iter,
            separated,
            reader,
            batch,
        }
    }

    /// Uses each handle and drops it; `store` is the directory of the store on `env`, `sibling` a directory
    /// for new stores. Fails unless each call was refused because of the fork.
    pub(crate) fn refused(mut self, env: &Arc<dyn Env>, store: &Path, sibling: &Path) -> Result<(), String> {
        self.refuse_store(sibling)?;
        match Db::builder(store).env(Arc::clone(env)).create(false).open() {
            Err(error) if error.kind() == ErrorKind::Locked => {}
            outcome => return Err(format!("opening while the parent has the store open: {outcome:?}")),
        }
        refuse_keyspace(&self.records)?;
        refuse_keyspace(&self.dropped)?;
        refuse("merge", self.counts.merge("count", 1_u64.to_le_bytes()))?;
        refuse("get operands", self.counts.get("count"))?;
        self.refuse_views()?;
        let Self { db, batch, .. } = &mut self;
        let whole = std::mem::replace(batch, db.batch());
        refuse("commit", whole.commit())?;
        refuse("empty commit", db.batch().commit())?;
        refuse("close", db.clone().close())
    }

    fn refuse_store(&self, sibling: &Path) -> Result<(), String> {
        let db = &self.db;
        refuse("open_keyspace", db.open_keyspace("records"))?;
        refuse("keyspace", db.keyspace("records", KeyspaceOptions::default))?;
        refuse("new keyspace", db.keyspace("of the child", KeyspaceOptions::default))?;
        refuse("drop_keyspace", db.drop_keyspace("records"))?;
        refuse("snapshot", db.snapshot())?;
        refuse("persist", db.persist(Durability::Sync))?;
        refuse("persist buffered", db.persist(Durability::Buffered))?;
        refuse("flush", db.flush())?;
        refuse("settle", db.compact())?;
        refuse("step", db.step())?;
        refuse("verify", db.verify(VerifyLevel::Full))?;
        refuse("check_invariants", db.check_invariants())?;
        let scrub = ScrubOptions::default();
        refuse("scrub", db.scrub(scrub))?;
        refuse("checkpoint", db.checkpoint(sibling.join("checkpoint-of-child")))?;
        refuse("backup", Repository::at(sibling.join("backup-of-child")).create(db))?;
        refuse("set_total", self.memory.set_total(2 << 20))?;
        refuse("set_write_share", self.memory.set_write_share(0.5))?;
        self.memory.auto();
        if !db.keyspace_names().is_empty() || db.stats() != testudo::DbStats::default() {
            return Err("names or statistics of the parent's store".to_owned());
        }
        Ok(())
    }

    fn refuse_views(&mut self) -> Result<(), String> {
        refuse("snapshot.of", self.snapshot.keyspace(&self.values))?;
        refuse("snapshot.get", self.snapshot.get(&self.values, "long"))?;
        refuse("snapshot.iter", self.snapshot.iter(&self.values))?;
        let of_snapshot = &self.of_snapshot;
        refuse("get of a snapshot", of_snapshot.get("long"))?;
        refuse("get_reader of a snapshot", of_snapshot.get_reader("long"))?;
        refuse("contains_key of a snapshot", of_snapshot.contains_key("long"))?;
        refuse("multi_get of a snapshot", of_snapshot.multi_get(&["a", "long"]))?;
        refuse("iter of a snapshot", of_snapshot.iter())?;
        refuse("last of a snapshot", of_snapshot.last())?;
        refuse("seek", self.iter.seek(b"a"))?;
        refuse("next", self.iter.next().unwrap_or(Ok(self.separated[0].clone())))?;
        refuse("next_back", self.fresh.next_back().unwrap_or(Ok(self.separated[0].clone())))?;
        refuse("value", self.separated[3].value())?;
        refuse("into_pair", self.separated.pop().unwrap().into_pair())?;
        let mut rest = Vec::new();
        match self.reader.read_to_end(&mut rest) {
            Err(error) if error.to_string().contains("is a fork") => Ok(()),
            outcome => Err(format!("reading on: {outcome:?}")),
        }
    }
}

fn refuse_keyspace(keyspace: &Keyspace) -> Result<(), String> {
    refuse("insert", keyspace.insert("of the child", "value"))?;
    refuse("insert_reader", keyspace.insert_reader("of the child", LONG_BYTES, repeat(1).take(LONG_BYTES)))?;
    refuse("remove", keyspace.remove("a"))?;
    refuse("update", keyspace.update("a", |_| Some(vec![1])))?;
    refuse("compare_and_swap", keyspace.compare_and_swap("a", None, Some(b"1")))?;
    refuse("get", keyspace.get("a"))?;
    refuse("get_reader", keyspace.get_reader("a"))?;
    refuse("contains_key", keyspace.contains_key("a"))?;
    refuse("multi_get", keyspace.multi_get(&["a", "b"]))?;
    refuse("range", keyspace.range("a".."b"))?;
    refuse("prefix", keyspace.prefix("a"))?;
    refuse("iter", keyspace.iter())?;
    refuse("approximate_bytes", keyspace.approximate_bytes(..))?;
    refuse("first", keyspace.first())?;
    refuse("last", keyspace.last())?;
    refuse("len", keyspace.len())?;
    refuse("is_empty", keyspace.is_empty())?;
    refuse("contains_prefix", keyspace.contains_prefix("a"))?;
    refuse("set_tree", keyspace.set_tree(Tree::leveled()))?;
    refuse("set_placement", keyspace.set_placement(Placement::inline()))?;
    refuse("set_write_share", keyspace.set_write_share(Some(0.5)))?;
    if keyspace.stats() != testudo::KeyspaceStats::default() || !keyspace.outline().is_empty() {
        return Err("statistics of the parent's keyspace".to_owned());
    }
    Ok(())
}

/// Fails unless a call was refused because of the fork.
pub(crate) fn refuse<T>(call: &str, outcome: testudo::Result<T>) -> Result<(), String> {
    match outcome {
        Err(error) if error.kind() == ErrorKind::Closed && error.to_string().contains("is a fork") => Ok(()),
        Err(error) => Err(format!("{call}: {error}")),
        Ok(_) => Err(format!("{call} succeeded")),
    }
}

/// Reads everything once and checks it.
pub(crate) fn check(db: &Db, records: u32) {
    db.check_invariants().unwrap();
    let report = db.verify(VerifyLevel::Full).unwrap();
    assert!(report.is_valid(), "{:?}", report.findings);
    let keyspace = db.open_keyspace("records").unwrap().unwrap();
    let mut count = 0;
    for entry in keyspace.range("n".."o").unwrap() {
        let (key, value) = entry.unwrap().into_pair().unwrap();
        assert_eq!(key, format!("n{count:08}"));
        assert_eq!(value, value_of(count));
        count += 1;
    }
    assert_eq!(count, records);
    assert!(!keyspace.contains_key("of the child").unwrap());
    assert!(!keyspace.contains_key("from a batch").unwrap());
}

/// The value of a record.
pub(crate) fn value_of(number: u32) -> String {
    format!("value of {number:>80}")
}
