//! Tests of failing rings.

use std::{fs::OpenOptions, os::fd::OwnedFd};

use io_uring::IoUring;
use parking_lot::Mutex;
use testudo_base::sync::Arc;

use super::{IDLE_RINGS_MAX, RingPool, new_ring};
use crate::{AlignedBuffer, Process, ReadRequest};

fn patterned_file(place: &tempfile::TempDir) -> OwnedFd {
    let path = place.path().join("a");
    let bytes: Vec<u8> = (0..200_u8).flat_map(|number| [number; 512]).collect();
    std::fs::write(&path, bytes).unwrap();
    OpenOptions::new().read(true).open(path).unwrap().into()
}

fn read_and_check(pool: &RingPool, file: &OwnedFd) {
    let mut bytes = vec![0; 200 * 512];
    let mut requests: Vec<_> =
        bytes.chunks_mut(512).zip(0..).map(|(part, index)| ReadRequest::new(index * 512, part)).collect();
    pool.read(file, &mut requests);
    assert!(requests.iter().all(|request| request.result.is_ok()));
    for (part, number) in bytes.chunks(512).zip(0_u8..) {
        assert!(part.iter().all(|&byte| byte == number));
    }
}

#[test]
fn failing_ring_is_dropped_and_the_batch_is_read_without_it() {
    if RingPool::probe().is_none() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let file = patterned_file(&place);
    // The kernel answers EBADFD to every submission on such a ring.
    let disabled = IoUring::builder().setup_r_disabled().build(64).unwrap();
    let pool = RingPool { idle: Arc::new(Mutex::new(vec![disabled])), process: Process::current() };
    read_and_check(&pool, &file);
    assert_eq!(pool.idle.lock().len(), 0);
    read_and_check(&pool, &file);
    assert_eq!(pool.idle.lock().len(), 1);
}

#[test]
fn rings_are_reused_and_idle_rings_are_bounded() {
    let Some(pool) = RingPool::probe() else { return };
    let place = tempfile::tempdir().unwrap();
    let file = patterned_file(&place);
    for _ in 0..3 {
        read_and_check(&pool, &file);
        assert_eq!(pool.idle.lock().len(), 1);
    }
    let mut idle = pool.idle.lock();
    while idle.len() < IDLE_RINGS_MAX {
        idle.push(new_ring().unwrap());
    }
    let extra = idle.pop().unwrap();
    drop(idle);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| read_and_check(&pool, &file));
        }
    });
    drop(extra);
    assert!(pool.idle.lock().len() <= IDLE_RINGS_MAX);
}

#[test]
fn background_read_falls_back_if_the_ring_refuses_it() {
    if RingPool::probe().is_none() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let file = Arc::new(patterned_file(&place));
    let disabled = IoUring::builder().setup_r_disabled().build(64).unwrap();
    let pool = RingPool { idle: Arc::new(Mutex::new(vec![disabled])), process: Process::current() };
    let (buffer, result) = pool.start(&file, 0, AlignedBuffer::zeroed(8192)).wait();
    result.unwrap();
    assert!(buffer.chunks(512).zip(0_u8..).all(|(part, number)| part.iter().all(|&byte| byte == number)));
    assert_eq!(pool.idle.lock().len(), 0);
}
