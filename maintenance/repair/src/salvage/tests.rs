use std::path::Path;

use testudo_base::ErrorKind;
use testudo_env::MemEnv;

use super::{target::Target, *};

/// Closing releases the lock of the target before the mark is removed.
#[test]
fn replaced_target_is_neither_finished_nor_removed() {
    let machine = MemEnv::new(1);
    let env: Arc<dyn Env> = machine.clone();
    let options = SalvageOptions::new("/db", "/saved").env(env);
    let target = Target::begin(&options).unwrap();
    // As if another process had finished a store of its own there.
    machine.remove_file(Path::new("/saved/UNFINISHED")).unwrap();
    let error = target.end(Ok(())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
    assert!(machine.file_bytes("/saved/superblock").is_ok(), "nothing was removed");
}
