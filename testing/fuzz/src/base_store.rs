//! Small valid stores, created by code: their files, contents, and the places of their checksums.
//!
//! **Invariants**
//! - Each process creates them once, from fixed scripts; they are always the same.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use testudo::{Db, KeyspaceOptions, Tree};
use testudo_base::{PAGE_SIZE, StoreId};
use testudo_db::maintenance::Stepping as _;
use testudo_env::{CrashPolicy, MemEnv};
use testudo_testkit::{
    Generator, Profile, Runner, engine_store::EngineOpener, op::Op, operator::operator_name,
};

use crate::{
    exercise::{Content, content_of},
    seal::{Site, seal, sites_of},
};

/// The merge operator of keyspaces with operands.
pub(crate) const OPERATOR: &str = "append";
/// Directory of each store.
pub(crate) const DIRECTORY: &str = "/db";
/// The memory budget of every store.
pub(crate) const MEMORY_BYTES: u64 = 1 << 20;
/// Size of the chunks at which changes are aimed.
const CHUNK_BYTES: usize = 16;

/// A file of a store.
#[derive(Clone, Debug)]
pub(crate) struct StoredFile {
    pub(crate) path: PathBuf,
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) sites: Vec<Site>,
    /// Starts of the chunks that are not all zeros.
    pub(crate) chunks: Vec<usize>,
}

/// A store at rest.
#[derive(Debug)]
pub(crate) struct BaseStore {
    pub(crate) id: StoreId,
    pub(crate) files: Vec<StoredFile>,
    pub(crate) content: Content,
    /// Whether it was closed, so that its content must be found unchanged.
    pub(crate) is_closed: bool,
}

/// All base stores.
pub(crate) fn base_stores() -> &'static [BaseStore] {
    static STORES: OnceLock<Vec<BaseStore>> = OnceLock::new();
    STORES.get_or_init(|| {
        let narrow = Tree::turtle().with_run_bytes(4 << 10).with_max_pivots(4);
        let leveled = Tree::leveled().with_run_bytes(4 << 10).with_growth_factor(2).with_level1_flushes(1);
        let small = Profile { key_count: 120, ..Profile::default() };
        let alike = Profile { key_count: 120, ..Profile::alike() };
        let tall = Profile { keyspace_count: 1, key_count: 900, ..Profile::default() };
        vec![
            make(narrow, &small, 240, true),
            make(narrow, &small, 240, false),
            make(narrow, &tall, 700, true),
            make(Tree::default(), &small, 60, false),
            make(leveled, &small, 240, true),
            make(leveled, &tall, 700, false),
            make(Tree::turtle().with_run_bytes(16 << 10).with_max_pivots(4), &alike, 240, true),
            make_moving(narrow, leveled, &tall, 700),
            make_moving(leveled, narrow, &tall, 700),
            make_updated(&tall, 700),
        ]
    })
}

/// Creates a store with a keyspace that is moving to another tree family.
fn make_moving(from: Tree, to: Tree, profile: &Profile, op_count: usize) -> BaseStore {
    let machine = machine_with(from, profile, op_count, true);
    let db = open(Arc::clone(&machine)).expect("the store is valid");
    let name = db.keyspace_names().pop().expect("the store has a keyspace");
    let keyspace = db.open_keyspace(&name).expect("the store is valid").expect("the keyspace exists");
    keyspace.set_tree(to).expect("the keyspace can move");
    while keyspace.stats().moving.moved_bytes == 0 {
        db.step().expect("the keyspace moves");
    }
    assert!(keyspace.stats().moving.from.is_some(), "the move has already ended");
    drop(keyspace);
    db.close().expect("the store is valid");
    at_rest(&machine, true)
}

/// Creates a store with pages that were updated in place.
fn make_updated(profile: &Profile, op_count: usize) -> BaseStore {
    let treeline = Tree::treeline().with_run_bytes(16 << 10).with_growth_factor(2).with_level1_flushes(1);
    let machine = machine_with(treeline, profile, op_count, true);
    let db = open(Arc::clone(&machine)).expect("the store is valid");
    let name = db.keyspace_names().pop().expect("the store has a keyspace");
    let keyspace = db.open_keyspace(&name).expect("the store is valid").expect("the keyspace exists");
    let keys = keyspace
        .iter()
        .expect("the keyspace can be read")
        .map(|entry| entry.expect("the store is valid").key().to_vec());
    let keys: Vec<Vec<u8>> = keys.collect();
    for round in 0..1000 {
        if keyspace.stats().tree.replaced_pages > 0 {
            break;
        }
        assert!(round < 999, "pages are updated: {:?}", keyspace.stats());
        keyspace.insert(&keys[round % keys.len()], b"updated").expect("the store can be written");
        db.compact().expect("the store can be written");
        // Scans trigger merges down.
        for key in &keys {
            let mut range = keyspace.range(key.as_slice()..).expect("the keyspace can be read");
            assert!(range.next().is_some_and(|entry| entry.is_ok()), "the key itself");
        }
    }
    drop(keyspace);
    db.close().expect("the store is valid");
    at_rest(&machine, true)
}

fn make(tree: Tree, profile: &Profile, op_count: usize, is_closed: bool) -> BaseStore {
    at_rest(&machine_with(tree, profile, op_count, is_closed), is_closed)
}

fn machine_with(tree: Tree, profile: &Profile, op_count: usize, is_closed: bool) -> Arc<MemEnv> {
    let opener = EngineOpener { options: KeyspaceOptions::default().tree(tree), memory_bytes: MEMORY_BYTES };
    let mut runner = Runner::new(&opener, 1);
    let mut script = Generator::new(profile, 1).script(op_count);
    script.0.retain(|op| !matches!(op, Op::Crash(_) | Op::Arm { .. } | Op::Kill | Op::Drop { .. }));
    // The stores are opened without operators other than the built-in ones.
    script.0.retain(|op| !matches!(op, Op::Merge { keyspace, .. } if operator_name(*keyspace) != OPERATOR));
    for (step, op) in script.0.iter().enumerate() {
        runner.op(op).expect("the script runs on a valid store");
        if step % 80 == 79 {
            runner.op(&Op::Flush).expect("the script runs on a valid store");
        }
    }
    let last = if is_closed { Op::Reopen } else { Op::Persist };
    runner.op(&last).expect("the script runs on a valid store");
    if is_closed {
        let machine = runner.machine().crash_image(&CrashPolicy::KEEP_ALL, 1);
        let db = opener.open_db(Arc::clone(&machine) as _, Path::new(DIRECTORY)).expect("the store is valid");
        db.close().expect("the store is valid");
        machine
    } else {
        runner.machine().crash_image(&CrashPolicy::KEEP_ALL, 1)
    }
}

fn at_rest(machine: &Arc<MemEnv>, is_closed: bool) -> BaseStore {
    let superblock = machine.file_bytes("/db/superblock").expect("a store has one");
    let id = StoreId(u128::from_le_bytes(*superblock[32..].first_chunk().expect("a slot is longer")));
    let file = |path: PathBuf| {
        let bytes = machine.file_bytes(&path).unwrap_or_default();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let sites = sites_of(&name, &bytes, id);
        let is_used = |at: &usize| bytes[*at..].iter().take(CHUNK_BYTES).any(|&byte| byte != 0);
        let chunks = (0..bytes.len()).step_by(CHUNK_BYTES).filter(is_used).collect();
        StoredFile { path, name, bytes, sites, chunks }
    };
    let files = machine.all_files().into_iter().filter(|path| !path.ends_with("reserve")).map(file).collect();
    let mut store = BaseStore { id, files, content: Content::default(), is_closed };
    let db = open(store.machine(&store.files.clone())).expect("a valid store opens");
    store.content = content_of(&db).expect("a valid store can be read");
    drop(db.close());
    store
}

/// Opens the store of a machine.
pub(crate) fn open(machine: Arc<MemEnv>) -> testudo::Result<Db> {
    Db::builder(DIRECTORY).memory_bytes(MEMORY_BYTES).env(machine).create(false).open()
}

impl BaseStore {
    /// Creates a machine with these files.
    pub(crate) fn machine(&self, files: &[StoredFile]) -> Arc<MemEnv> {
        use testudo_env::Env;
        let machine = MemEnv::new(1);
        machine.create_dir(Path::new(DIRECTORY)).expect("the disk is empty");
        for file in files {
            machine.replace(&file.path, &file.bytes).expect("the disk has room");
        }
        machine
    }

    /// Seals everything in these files again.
    pub(crate) fn seal(&self, files: &mut [StoredFile]) {
        for file in files {
            for site in file.sites.clone() {
                // A chunk that cannot be sealed stays damaged.
                let _ = seal(&file.name, &mut file.bytes, site, self.id);
            }
        }
    }
}

/// Whether the offset lies in the first bytes of a page.
pub(crate) fn is_page_head(at: usize) -> bool {
    at % PAGE_SIZE < 64
}
