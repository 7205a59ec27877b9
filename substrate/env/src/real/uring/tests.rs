//! Tests of failing rings.

use std::{fs::OpenOptions, io, io::Write, os::fd::OwnedFd, time::Duration};

use io_uring::IoUring;
use testudo_base::{
    Error,
    errno::{Treatment, treatment_of},
    sync::Arc,
};

use super::{IDLE_RINGS_MAX, RingPool, SILENCE_MAX, new_ring};
use crate::{
    AlignedBuffer, File, OpenMode, ReadRequest, WriteRequest,
    real::{file::RealFile, read_backend::ReadBackend},
    wrappers::anchor,
};

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
    let pool = RingPool::of(vec![disabled], SILENCE_MAX);
    read_and_check(&pool, &file);
    assert_eq!(pool.rings.idle.lock().len(), 0);
    read_and_check(&pool, &file);
    assert_eq!(pool.rings.idle.lock().len(), 1);
}

/// Writes parts of different lengths, the longest more than fits into a slot of the staging memory.
fn write_and_check(pool: &RingPool, place: &tempfile::TempDir) {
    let path = place.path().join("written");
    let file: OwnedFd =
        OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path).unwrap().into();
    let lengths = [1, 512, 4096, 200_000, 3, 70_000].into_iter().cycle().take(150);
    let parts: Vec<Vec<u8>> =
        lengths.zip((1..=255_u8).cycle()).map(|(length, byte)| vec![byte; length]).collect();
    let mut offset = 0;
    let mut requests: Vec<WriteRequest<'_>> = Vec::new();
    for part in &parts {
        requests.push(WriteRequest::new(offset, part));
        offset += part.len() as u64;
    }
    // The order of requests is not that of the file.
    requests.reverse();
    pool.write(&file, &mut requests);
    assert!(requests.iter().all(|request| request.result.is_ok()));
    assert!(std::fs::read(&path).unwrap() == parts.concat());
}

#[test]
fn failing_ring_is_dropped_and_the_batch_is_written_without_it() {
    if RingPool::probe().is_none() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let disabled = IoUring::builder().setup_r_disabled().build(64).unwrap();
    let pool = RingPool::of(vec![disabled], SILENCE_MAX);
    write_and_check(&pool, &place);
    assert_eq!(pool.rings.idle.lock().len(), 0);
    write_and_check(&pool, &place);
    assert_eq!(pool.rings.idle.lock().len(), 1);
}

#[test]
fn errors_of_a_batch_of_writes_are_those_of_its_requests() {
    let Some(pool) = RingPool::probe() else { return };
    let place = tempfile::tempdir().unwrap();
    // It is open for reading.
    let file = patterned_file(&place);
    let mut requests =
        [WriteRequest::new(0, b"a"), WriteRequest::new(100, b""), WriteRequest::new(200, b"b")];
    pool.write(&file, &mut requests);
    assert!(requests[0].result.is_err() && requests[1].result.is_ok() && requests[2].result.is_err());
    assert!(pool.check().is_ok(), "the ring is not to blame");
}

#[test]
fn rings_are_reused_and_idle_rings_are_bounded() {
    let Some(pool) = RingPool::probe() else { return };
    let place = tempfile::tempdir().unwrap();
    let file = patterned_file(&place);
    for _ in 0..3 {
        read_and_check(&pool, &file);
        assert_eq!(pool.rings.idle.lock().len(), 1);
    }
    let mut idle = pool.rings.idle.lock();
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
    assert!(pool.rings.idle.lock().len() <= IDLE_RINGS_MAX);
}

#[test]
fn background_read_falls_back_if_the_ring_refuses_it() {
    if RingPool::probe().is_none() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let file = Arc::new(patterned_file(&place));
    let disabled = IoUring::builder().setup_r_disabled().build(64).unwrap();
    let pool = RingPool::of(vec![disabled], SILENCE_MAX);
    let (buffer, result) = pool.start(&file, 0, AlignedBuffer::zeroed(8192)).wait();
    result.unwrap();
    assert!(buffer.chunks(512).zip(0_u8..).all(|(part, number)| part.iter().all(|&byte| byte == number)));
    assert_eq!(pool.rings.idle.lock().len(), 0);
}

/// A pool that gives up at once, and a pipe that stays empty: reads of it are never completed.
fn impatient_pool_and_pipe() -> Option<(RingPool, Arc<OwnedFd>, std::io::PipeWriter)> {
    RingPool::probe()?;
    let (reader, writer) = io::pipe().unwrap();
    Some((RingPool::of(vec![new_ring().unwrap()], Duration::ZERO), Arc::new(reader.into()), writer))
}

#[test]
fn batch_that_is_never_completed_fails_and_keeps_its_buffers_untouched() {
    let Some((pool, pipe, mut writer)) = impatient_pool_and_pipe() else { return };
    let place = tempfile::tempdir().unwrap();
    let file = patterned_file(&place);
    let mut bytes = [[7; 512]; 3];
    let mut requests: Vec<_> = bytes.iter_mut().map(|part| ReadRequest::new(0, part)).collect();
    pool.read(&pipe, &mut requests);
    for request in &requests {
        let error = request.result.as_ref().unwrap_err();
        assert_eq!((error.kind(), treatment_of(error)), (io::ErrorKind::TimedOut, Treatment::Poison));
    }
    assert_eq!(pool.rings.idle.lock().len(), 0, "the ring has requests in flight");
    // The kernel completes the reads later, into leaked memory.
    writer.write_all(&[1; 3 * 512]).unwrap();
    assert_eq!(bytes, [[7; 512]; 3]);
    let mut requests = [ReadRequest::new(0, &mut bytes[0])];
    pool.read(&file, &mut requests);
    assert!(requests[0].result.is_err(), "the pool stays failed");
}

#[test]
fn background_read_that_is_never_completed_fails_and_so_do_all_later_ones() {
    let Some((pool, pipe, writer)) = impatient_pool_and_pipe() else { return };
    let (buffer, result) = pool.start(&pipe, 0, AlignedBuffer::zeroed(8192)).wait();
    assert_eq!((buffer.len(), result.unwrap_err().kind()), (8192, io::ErrorKind::TimedOut));
    let place = tempfile::tempdir().unwrap();
    let file = Arc::new(patterned_file(&place));
    let (_, result) = pool.start(&file, 0, AlignedBuffer::zeroed(4096)).wait();
    assert_eq!(result.unwrap_err().kind(), io::ErrorKind::TimedOut);
    let (_, result) = pool.start_write(&file, 0, AlignedBuffer::zeroed(4096), 4096).wait();
    assert_eq!(result.unwrap_err().kind(), io::ErrorKind::TimedOut);
    drop(writer);
}

#[test]
fn dropping_a_background_read_that_is_never_completed_ends() {
    let Some((pool, pipe, writer)) = impatient_pool_and_pipe() else { return };
    drop(pool.start(&pipe, 0, AlignedBuffer::zeroed(4096)));
    assert_eq!(pool.check().unwrap_err().kind(), io::ErrorKind::TimedOut);
    drop(writer);
}

#[test]
fn files_refuse_writes_and_syncs_after_a_request_was_given_up() {
    let Some((pool, pipe, writer)) = impatient_pool_and_pipe() else { return };
    let place = tempfile::tempdir().unwrap();
    let backend = Arc::new(ReadBackend::with_rings(pool));
    let options = crate::OpenOptions { mode: OpenMode::CreateNew, direct: false };
    let file = RealFile::open(anchor::place(None, &place.path().join("a")), options, Arc::clone(&backend));
    let file = file.unwrap();
    file.write_at(0, b"before").unwrap();
    file.sync().unwrap();
    drop(backend.start(&pipe, 0, AlignedBuffer::zeroed(4096)));
    for result in [file.write_at(0, b"after"), file.sync()] {
        let error = Error::io("data file", result.unwrap_err());
        assert!(!error.is_shortage(), "permanent, so the store is poisoned: {error}");
    }
    let mut bytes = [0; 6];
    file.read_at(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"before", "ordinary reads continue");
    drop(writer);
}

#[test]
fn long_requests_are_read_in_parts() {
    let Some(pool) = RingPool::probe() else { return };
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("a");
    let contents: Vec<u8> = (0..3_000_001_u32).map(|number| (number / 7).to_le_bytes()[0]).collect();
    std::fs::write(&path, &contents).unwrap();
    let file: OwnedFd = OpenOptions::new().read(true).open(path).unwrap().into();
    let mut long = vec![0; 3_000_001];
    let (mut short, mut empty, mut beyond) = ([0; 10], [], [0; 100]);
    let mut requests = [
        ReadRequest::new(0, &mut long),
        ReadRequest::new(0, &mut empty),
        ReadRequest::new(99_999, &mut short),
        ReadRequest::new(2_999_990, &mut beyond),
    ];
    pool.read(&file, &mut requests);
    let kinds = requests.map(|request| request.result.map_err(|error| error.kind()));
    assert_eq!(kinds, [Ok(()), Ok(()), Ok(()), Err(io::ErrorKind::UnexpectedEof)]);
    assert!(long == contents && short == contents[99_999..100_009]);
}
