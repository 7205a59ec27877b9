use std::path::Path;

use testudo_base::ErrorKind;
use testudo_db::Db;
use testudo_env::MemEnv;
use testudo_options::KeyspaceOptions;

use crate::{Repository, backup_format::BackupRecord};

#[test]
fn backup_with_unknown_tree_kind_is_not_restored() {
    let machine = MemEnv::new(1);
    let db = Db::builder("/db").memory_bytes(1 << 20).env(machine.clone()).open().unwrap();
    db.keyspace("k", KeyspaceOptions::default()).unwrap().insert("a", "b").unwrap();
    let repository = Repository::at("/backups").env(machine.clone());
    repository.create(&db).unwrap();
    let path = Path::new("/backups/backup-0000000001");
    let mut record = BackupRecord::decode(&machine.file_bytes(path).unwrap()).unwrap();
    record.state.keyspaces.values_mut().for_each(|keyspace| keyspace.options = vec![250, 0, 0]);
    machine.replace(path, &record.encode()).unwrap();
    let before = machine.all_files();
    let error = repository.restore(None, "/new").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert_eq!(machine.all_files(), before);
}
