use std::path::Path;

use testudo_env::{Env, FaultError, FaultPlan, FaultyEnv, IoClass, MemEnv, OpenMode, OpenOptions};

use super::*;

fn data_file() -> (Arc<FaultyEnv>, Arc<DataFile>) {
    let env = FaultyEnv::new(MemEnv::new(1));
    let options = OpenOptions { mode: OpenMode::CreateNew, direct: true };
    let file = env.open(Path::new("/data"), options).unwrap();
    let data = DataFile::new(file, StoreId(7), 1 << 20, std::iter::empty(), Some(Incarnation(1))).unwrap();
    (env, data)
}

#[test]
fn a_sync_that_failed_is_never_followed_by_one_that_succeeds() {
    let (env, data) = data_file();
    data.sync().unwrap();
    env.set_plan(Some(FaultPlan::once(0, FaultError::Device).of_class(IoClass::Sync)));
    assert_eq!(data.sync().unwrap_err().kind(), ErrorKind::Io);
    env.set_plan(None);
    assert_eq!(data.sync().unwrap_err().kind(), ErrorKind::Io, "what was lost looks clean");
}

#[test]
fn a_sync_that_found_no_space_is_tried_again() {
    let (env, data) = data_file();
    env.set_plan(Some(FaultPlan::once(0, FaultError::NoSpace).of_class(IoClass::Sync)));
    assert_eq!(data.sync().unwrap_err().kind(), ErrorKind::OutOfSpace);
    env.set_plan(None);
    data.sync().unwrap();
}
