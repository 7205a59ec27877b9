//! Tests of real files that need access to internals.

use std::{io, sync::Arc};

use rustix::io::Errno;

use super::RealFile;
use crate::{
    AlignedBuffer, File, OpenMode, OpenOptions, ReadRequest, real::read_backend::ReadBackend,
    wrappers::anchor,
};

fn direct_file(place: &tempfile::TempDir) -> RealFile {
    let options = OpenOptions { mode: OpenMode::CreateNew, direct: true };
    let path = place.path().join("a");
    RealFile::open(anchor::place(None, &path), options, Arc::new(ReadBackend::new(true))).unwrap()
}

#[test]
fn late_refusal_of_direct_io_falls_back_to_ordinary_io() {
    let place = tempfile::tempdir().unwrap();
    let file = direct_file(&place);
    assert!(!file.leave_direct(&Errno::IO.into()), "other errors are final");
    assert!(!file.leave_direct(&io::ErrorKind::InvalidInput.into()), "rejections by this crate are final");
    assert!(file.leave_direct(&Errno::INVAL.into()));
    assert!(file.leave_direct(&Errno::INVAL.into()), "a thread that failed meanwhile retries too");
    let flags = rustix::fs::fcntl_getfl(&*file.descriptor).unwrap();
    assert!(!flags.contains(rustix::fs::OFlags::DIRECT));
    let mut bytes = AlignedBuffer::zeroed(8192);
    bytes.fill(3);
    file.write_at(0, &bytes).unwrap();
    bytes.fill(0);
    let (left, right) = bytes.split_at_mut(4096);
    let mut requests = [ReadRequest::new(0, left), ReadRequest::new(4096, right)];
    file.read_batch(&mut requests);
    assert!(requests.iter().all(|request| request.result.is_ok()));
    assert!(bytes.iter().all(|&byte| byte == 3));
    assert_eq!(file.write_at(0, &bytes[..100]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn descriptors_are_blocking_and_closed_on_exec() {
    let place = tempfile::tempdir().unwrap();
    let file = direct_file(&place);
    let flags = rustix::fs::fcntl_getfl(&*file.descriptor).unwrap();
    assert!(!flags.contains(rustix::fs::OFlags::NONBLOCK));
    let flags = rustix::io::fcntl_getfd(&*file.descriptor).unwrap();
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
}
