//! Names for users: every type in a public signature can be named; ranges and options are inferred.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{any::type_name, ops::Bound, path::Path, sync::Arc};

use testudo::{
    BaseWithOperands, Batch, CheckpointOptions, CheckpointReport, Db, DbBuilder, DbStats, Durability, Entry,
    Env, Error, ErrorKind, Finding, IntoKeyspaceOptions, Iter, KeyBounds, KeyRange, Keyspace, KeyspaceId,
    KeyspaceOptions, KeyspaceSalvage, KeyspaceStats, Kind, LogSalvage, LoggedOperation, LostCommits,
    LostRange, Memory, MergeFunction, MergeOperator, MergeOperators, NameSource, Observer, OutlineLine,
    OwnedEntry, Placement, ReadView, Remedy, RepairFinding, RepairOptions, RepairReport, RestoreState,
    SalvageMethod, SalvageOptions, SalvageReport, ScrubOptions, ScrubPosition, ScrubProgress, ScrubReport,
    Slice, Snapshot, SnapshotKeyspace, Tree, TreeKind, TreePreset, VerifyLevel, VerifyOptions, VerifyReport,
    WorkDone,
    backup::{
        self, BackupInfo, CreateOptions, Deleted, ListedBackup, NewBackup, Repository, RepositoryFinding,
        RepositoryReport, RestoreOptions,
    },
    env::MemEnv,
    stats,
};

/// The names of types.
macro_rules! names {
    ($($name:ty),* $(,)?) => { [$(type_name::<$name>()),*] };
}

#[test]
fn every_type_of_a_signature_has_a_name() {
    let names = names![
        BackupInfo,
        backup::VerifyOptions<'_>,
        BaseWithOperands<'_>,
        Batch,
        CheckpointOptions<'_>,
        CheckpointReport,
        CreateOptions<'_>,
        Db,
        DbBuilder,
        DbStats,
        Deleted,
        Durability,
        Entry,
        Error,
        ErrorKind,
        Finding,
        Iter,
        KeyBounds,
        Keyspace,
        KeyspaceId,
        KeyspaceOptions,
        KeyspaceSalvage,
        KeyspaceStats,
        Kind,
        ListedBackup,
        LogSalvage,
        LoggedOperation,
        LostCommits,
        LostRange,
        Memory,
        MergeFunction<()>,
        MergeOperators,
        NameSource,
        NewBackup,
        OutlineLine,
        OwnedEntry,
        Placement,
        Remedy,
        RepairFinding,
        RepairOptions<'_>,
        RepairReport,
        Repository,
        RepositoryFinding,
        RepositoryReport,
        RestoreOptions<'_>,
        RestoreState,
        SalvageMethod,
        SalvageOptions<'_>,
        SalvageReport,
        ScrubOptions<'_>,
        ScrubPosition,
        ScrubProgress,
        ScrubReport,
        Slice,
        Snapshot,
        SnapshotKeyspace,
        Tree,
        TreeKind,
        TreePreset,
        VerifyLevel,
        VerifyOptions<'_>,
        VerifyReport,
        WorkDone,
        stats::Metric<'_>,
        stats::WriteStats,
        dyn Env,
        dyn MergeOperator,
        dyn ReadView,
        Observer<'_>,
    ];
    assert!(names.iter().all(|name| name.contains("testudo") || name.contains("FnMut")), "{names:?}");
    fn takes_any(_: impl KeyRange, _: impl IntoKeyspaceOptions) {}
    takes_any(.., KeyspaceOptions::default());
}

fn open() -> (Db, Keyspace) {
    let db = Db::builder(Path::new("/db")).env(MemEnv::new(1)).memory_bytes(1 << 20).open().unwrap();
    let k = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    for key in ["a", "b", "c", "d"] {
        k.insert(key, key).unwrap();
    }
    (db, k)
}

#[test]
fn every_form_of_a_range_is_inferred() {
    let (db, k) = open();
    let keys = |iter: testudo::Result<Iter>| -> String {
        iter.unwrap().map(|entry| String::from_utf8(entry.unwrap().key().to_vec()).unwrap()).collect()
    };
    let (vec, string, array, last) = (vec![b'b'], String::from("b"), [b'b'], [b'd']);
    let snapshot = db.snapshot().unwrap();
    let shown = snapshot.keyspace(&k).unwrap();
    assert_eq!(
        (keys(k.range(..)), keys(shown.range(..)), keys(snapshot.range(&k, ..))),
        ("abcd".into(), "abcd".into(), "abcd".into())
    );
    assert_eq!(keys(k.range(&vec..)), "bcd");
    assert_eq!(keys(k.range(vec.clone()..)), "bcd");
    assert_eq!(keys(k.range(..&vec[..])), "a");
    assert_eq!(keys(k.range(&array..&last)), "bc");
    assert_eq!(keys(k.range(array..=[b'd'])), "bcd");
    assert_eq!(keys(k.range(&string..)), "bcd");
    assert_eq!(keys(k.range(string.clone()..string.clone())), "");
    assert_eq!(keys(k.range("b".."d")), "bc");
    assert_eq!(keys(k.range(..="b")), "ab");
    assert_eq!(keys(k.range(b"b"..)), "bcd");
    assert_eq!(keys(k.range((Bound::Excluded("a"), Bound::Included("c")))), "bc");
    assert_eq!(keys(k.range((Bound::Excluded(&vec), Bound::Unbounded))), "cd");
    let read: Slice = k.get("b").unwrap().unwrap();
    assert_eq!(keys(k.range(&read..)), "bcd");
    assert_eq!(keys(k.range(("b"..).into_bounds())), "bcd");
    assert!(k.approximate_bytes(..).is_ok() && k.approximate_bytes(&vec..).is_ok());
    let bytes: Vec<u8> = read.into();
    assert_eq!(bytes, b"b");
}

#[test]
fn generic_view_code_accepts_keyspaces_and_snapshots() {
    let (db, k) = open();
    let snapshot = db.snapshot().unwrap();
    k.remove("a").unwrap();
    let shown = snapshot.keyspace(&k).unwrap();
    let views: [(&dyn ReadView, usize); 2] = [(&k, 3), (&shown, 4)];
    for (view, count) in views {
        assert_eq!(view.iter().unwrap().count(), count);
        assert_eq!(view.get(b"a").unwrap().is_some(), count == 4);
        assert_eq!(view.contains_key(b"a").unwrap(), count == 4);
        assert_eq!(view.multi_get(&[b"a", b"b"]).unwrap().iter().flatten().count(), count - 2);
        assert_eq!(view.range((..="b").into_bounds()).unwrap().count(), count - 2);
        assert_eq!(view.prefix(b"d").unwrap().count(), 1);
    }
    let shared: Arc<dyn ReadView + Send + Sync> = Arc::new(shown);
    let elsewhere = std::thread::scope(|scope| scope.spawn(|| shared.iter().unwrap().count()).join());
    assert_eq!(elsewhere.unwrap(), 4);
}

#[test]
fn an_existing_keyspace_keeps_its_tree_and_refuses_another_merge_operator() {
    let (db, k) = open();
    let counting = KeyspaceOptions::default().merge_operator("add-u64").tree(Tree::splinter());
    let made = db.keyspace("counts", counting).unwrap();
    assert_eq!(made.options(), counting);
    // Another tree, or no merge operator, keeps the settings of the keyspace.
    assert_eq!(db.keyspace("counts", counting.tree(Tree::turtle())).unwrap().options(), counting);
    assert_eq!(db.keyspace("counts", KeyspaceOptions::default).unwrap().options(), counting);
    let appending = || KeyspaceOptions::default().merge_operator("append");
    for outcome in [
        db.keyspace("counts", appending),
        db.keyspace("counts", appending()),
        db.keyspace("k", appending),
        db.keyspaces(["new", "counts"], appending).map(|mut all| all.remove(0)),
    ] {
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("is fixed"), "{error}");
    }
    assert_eq!(db.keyspace_names(), ["counts", "k"], "nothing must be created");
    assert_eq!(k.options(), KeyspaceOptions::default());
}

#[test]
fn a_failed_swap_is_a_conflict_and_not_retryable() {
    let (_db, k) = open();
    let error = k.compare_and_swap("a", Some(b"x"), Some(b"y")).unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Conflict, false));
    assert!(Error::new(ErrorKind::Conflict, "as of a transaction").is_retryable());
}
