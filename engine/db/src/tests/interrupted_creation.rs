//! Creation that a crash has interrupted, in a directory that was used for something else since.

use std::path::Path;

use testudo_base::sync::Arc;
use testudo_env::{Env, MemEnv, OpenMode, OpenOptions};
use testudo_options::KeyspaceOptions;
use testudo_storage::SUPERBLOCK_FILE;
use testudo_store::directory::CREATING_FILE;

use crate::Db;

/// The superblock is torn and the mark is there: the creation starts over.
#[test]
fn restarted_creation_keeps_files_that_no_store_creates() {
    let env = MemEnv::new(1);
    let directory = Path::new("/db");
    env.create_dir(directory).unwrap();
    let options = OpenOptions { mode: OpenMode::CreateNew, direct: false };
    for name in [CREATING_FILE, SUPERBLOCK_FILE, "notes.txt"] {
        env.open(&directory.join(name), options).unwrap().write_at(0, b"torn").unwrap();
    }
    let db = Db::builder(directory).env(Arc::clone(&env) as Arc<dyn Env>).open().unwrap();
    db.keyspace("k", KeyspaceOptions::default()).unwrap().insert("a", "1").unwrap();
    db.close().unwrap();
    assert_eq!(env.file_bytes(directory.join("notes.txt")).unwrap(), b"torn");
}
