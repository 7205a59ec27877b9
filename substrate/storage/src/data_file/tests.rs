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
fn no_sync_succeeds_after_a_failed_one() {
    let (env, data) = data_file();
    data.sync().unwrap();
    env.set_plan(Some(FaultPlan::once(0, FaultError::Device).of_class(IoClass::Sync)));
    assert_eq!(data.sync().unwrap_err().kind(), ErrorKind::Io);
    env.set_plan(None);
    assert_eq!(data.sync().unwrap_err().kind(), ErrorKind::Io, "lost pages look clean to the OS");
}

#[test]
fn a_sync_that_ran_out_of_space_is_retried() {
    let (env, data) = data_file();
    env.set_plan(Some(FaultPlan::once(0, FaultError::NoSpace).of_class(IoClass::Sync)));
    assert_eq!(data.sync().unwrap_err().kind(), ErrorKind::OutOfSpace);
    env.set_plan(None);
    data.sync().unwrap();
}
