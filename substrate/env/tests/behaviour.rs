#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
//! One set of tests about files, directories, locks and clocks for every environment: the real machine with
//! io_uring, with threads, and the in-memory machine.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use testudo_env::{
    AlignedBuffer, EntryType, Env, Execution, File, MemEnv, OpenMode, OpenOptions, ReadRequest, RealEnv,
};

/// An environment and an empty directory in it.
struct Place {
    env: Arc<dyn Env>,
    root: PathBuf,
    _guard: Option<tempfile::TempDir>,
}

impl Place {
    fn real(env: Arc<RealEnv>) -> Self {
        // Next to the build, not in a directory that may be in memory, so that direct I/O is really direct.
        let guard = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Self { env, root: guard.path().to_owned(), _guard: Some(guard) }
    }

    fn memory(env: Arc<MemEnv>) -> Self {
        let root = PathBuf::from("/place");
        env.create_dir(&root).unwrap();
        Self { env, root, _guard: None }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn open(&self, name: &str, mode: OpenMode, direct: bool) -> std::io::Result<Arc<dyn File>> {
        self.env.open(&self.path(name), OpenOptions { mode, direct })
    }

    fn create(&self, name: &str) -> Arc<dyn File> {
        self.open(name, OpenMode::CreateNew, false).unwrap()
    }

    fn names(&self) -> Vec<String> {
        self.env.list_dir(&self.root).unwrap().into_iter().map(|entry| entry.name).collect()
    }
}

fn error_kind<T>(result: std::io::Result<T>) -> ErrorKind {
    result.err().expect("an error").kind()
}

fn pattern(page: usize) -> u8 {
    u8::try_from(page % 251).unwrap() + 1
}

fn paged_file(place: &Place, name: &str, pages: usize) {
    let mut bytes = AlignedBuffer::zeroed(pages * 4096);
    for (page, chunk) in bytes.chunks_mut(4096).enumerate() {
        chunk.fill(pattern(page));
    }
    place.open(name, OpenMode::CreateNew, true).unwrap().write_at(0, &bytes).unwrap();
}

fn reads_return_what_was_written(place: &Place) {
    let file = place.create("a");
    file.write_at(10, b"hello").unwrap();
    file.write_at(5000, b"world").unwrap();
    assert_eq!(file.len().unwrap(), 5005);
    let mut bytes = [1; 16];
    file.read_at(4, &mut bytes).unwrap();
    assert_eq!(&bytes, b"\0\0\0\0\0\0hello\0\0\0\0\0");
    let reader = place.open("a", OpenMode::Read, false).unwrap();
    let mut bytes = [0; 5];
    reader.read_at(5000, &mut bytes).unwrap();
    assert_eq!(&bytes, b"world");
    file.sync().unwrap();
    assert!(!file.is_empty().unwrap());
}

fn reading_past_the_end_is_unexpected_eof(place: &Place) {
    let file = place.create("a");
    file.write_at(0, &[7; 100]).unwrap();
    assert_eq!(error_kind(file.read_at(90, &mut [0; 11])), ErrorKind::UnexpectedEof);
    assert_eq!(error_kind(file.read_at(1 << 40, &mut [0; 1])), ErrorKind::UnexpectedEof);
    file.read_at(100, &mut []).unwrap();
    let direct = place.open("a", OpenMode::Read, true).unwrap();
    let mut page = AlignedBuffer::zeroed(4096);
    assert_eq!(error_kind(direct.read_at(0, &mut page)), ErrorKind::UnexpectedEof);
    let (mut left, mut right) = (AlignedBuffer::zeroed(4096), AlignedBuffer::zeroed(4096));
    let mut requests = [ReadRequest::new(0, &mut left), ReadRequest::new(4096, &mut right)];
    direct.read_batch(&mut requests);
    for request in requests {
        assert_eq!(error_kind(request.result), ErrorKind::UnexpectedEof);
    }
}

/// Fills `bytes` in one batch with the pages of a [`paged_file`] given by `page_of`.
fn read_and_check(file: &dyn File, bytes: &mut AlignedBuffer, page_of: impl Fn(usize) -> usize) {
    let mut requests: Vec<_> = bytes
        .chunks_mut(4096)
        .enumerate()
        .map(|(index, buffer)| ReadRequest::new(page_of(index) as u64 * 4096, buffer))
        .collect();
    let count = requests.len();
    file.read_batch(&mut requests);
    assert!(requests.iter().all(|request| request.result.is_ok()));
    for (index, chunk) in bytes.chunks(4096).enumerate() {
        assert!(chunk.iter().all(|&byte| byte == pattern(page_of(index))), "request {index} of {count}");
    }
}

fn oversized_batch_fills_every_buffer(place: &Place) {
    const PAGES: usize = 300;
    paged_file(place, "a", PAGES);
    let file = place.open("a", OpenMode::Read, true).unwrap();
    for count in [0, 1, 2, 63, 64, 65, 300] {
        read_and_check(&*file, &mut AlignedBuffer::zeroed(count * 4096), |index| index * 7 % PAGES);
    }
}

fn each_request_of_a_batch_has_its_own_result(place: &Place) {
    let file = place.create("a");
    file.write_at(0, &[5; 10_000]).unwrap();
    let (mut good, mut partly, mut beyond, mut none) = (vec![0; 9_000], vec![0; 2_000], vec![0; 10], []);
    let mut requests = [
        ReadRequest::new(1_000, &mut good),
        ReadRequest::new(9_000, &mut partly),
        ReadRequest::new(20_000, &mut beyond),
        ReadRequest::new(3, &mut none),
    ];
    file.read_batch(&mut requests);
    let kinds = requests.map(|request| request.result.err().map(|error| error.kind()));
    assert_eq!(kinds, [None, Some(ErrorKind::UnexpectedEof), Some(ErrorKind::UnexpectedEof), None]);
    assert!(good.iter().all(|&byte| byte == 5));
}

fn reads_proceed_in_the_background(place: &Place) {
    const PAGES: usize = 64;
    paged_file(place, "a", PAGES);
    let file = place.open("a", OpenMode::Read, true).unwrap();
    let start = |first: usize| file.start_read(first as u64 * 4096, AlignedBuffer::zeroed(16 * 4096));
    let pending: Vec<_> = (0..48).step_by(3).map(|first| (first, start(first))).collect();
    for (number, (first, read)) in pending.into_iter().enumerate() {
        if number % 3 == 1 {
            // Dropped without waiting.
            drop(read);
            continue;
        }
        let (buffer, result) = read.wait();
        result.unwrap();
        assert_eq!(buffer.len(), 16 * 4096);
        for (page, chunk) in buffer.chunks(4096).enumerate() {
            assert!(chunk.iter().all(|&byte| byte == pattern(first + page)), "page {page} from {first}");
        }
    }
}

fn background_read_reports_failure_on_wait(place: &Place) {
    paged_file(place, "a", 4);
    let file = place.open("a", OpenMode::Read, true).unwrap();
    let read = file.start_read(3 * 4096, AlignedBuffer::zeroed(2 * 4096));
    let (buffer, result) = read.wait();
    assert_eq!((buffer.len(), error_kind(result)), (2 * 4096, ErrorKind::UnexpectedEof));
    let read = file.start_read(40 * 4096, AlignedBuffer::zeroed(4096));
    assert_eq!(error_kind(read.wait().1), ErrorKind::UnexpectedEof);
    let read = file.start_read(100, AlignedBuffer::zeroed(4096));
    assert_eq!(error_kind(read.wait().1), ErrorKind::InvalidInput);
}

fn a_background_read_outlives_its_file_handle(place: &Place) {
    paged_file(place, "a", 4);
    let file = place.open("a", OpenMode::Read, true).unwrap();
    let read = file.start_read(0, AlignedBuffer::zeroed(4 * 4096));
    drop(file);
    let (buffer, result) = std::thread::scope(|scope| scope.spawn(move || read.wait()).join().unwrap());
    result.unwrap();
    assert!(
        buffer.chunks(4096).enumerate().all(|(page, chunk)| chunk.iter().all(|&byte| byte == pattern(page)))
    );
}

fn writes_proceed_in_the_background(place: &Place) {
    const PAGES: usize = 16;
    let file = place.open("a", OpenMode::CreateNew, true).unwrap();
    file.allocate(0, 3 * PAGES as u64 * 4096).unwrap();
    for (number, is_awaited) in [true, false, true].into_iter().enumerate() {
        let mut buffer = AlignedBuffer::zeroed(PAGES * 4096);
        buffer.fill(pattern(number));
        // The last page of the buffer is not written.
        let write = file.start_write((number * PAGES * 4096) as u64, buffer, (PAGES - 1) * 4096);
        if is_awaited {
            let (buffer, result) = write.wait();
            result.unwrap();
            assert!(buffer.len() == PAGES * 4096 && buffer.iter().all(|&byte| byte == pattern(number)));
        }
    }
    // Dropping the write has ended it as well.
    let mut read = AlignedBuffer::zeroed(3 * PAGES * 4096);
    file.read_at(0, &mut read).unwrap();
    for (page, chunk) in read.chunks(4096).enumerate() {
        let wanted = if page % PAGES == PAGES - 1 { 0 } else { pattern(page / PAGES) };
        assert!(chunk.iter().all(|&byte| byte == wanted), "page {page}");
    }
    let read_only = place.open("a", OpenMode::Read, true).unwrap();
    assert!(read_only.start_write(0, AlignedBuffer::zeroed(4096), 4096).wait().1.is_err());
    assert_eq!(
        error_kind(file.start_write(100, AlignedBuffer::zeroed(4096), 4096).wait().1),
        ErrorKind::InvalidInput
    );
}

fn misaligned_direct_access_is_invalid_input(place: &Place) {
    paged_file(place, "a", 4);
    let file = place.open("a", OpenMode::Write, true).unwrap();
    let mut bytes = AlignedBuffer::zeroed(8192);
    let mut kinds = vec![
        error_kind(file.read_at(512, &mut bytes[..4096])),
        error_kind(file.read_at(0, &mut bytes[..512])),
        error_kind(file.read_at(0, &mut bytes[512..4608])),
        error_kind(file.write_at(100, &bytes[..4096])),
        error_kind(file.write_at(0, &bytes[..100])),
        error_kind(file.write_at(0, &bytes[1..4097])),
    ];
    let (left, right) = bytes.split_at_mut(4096);
    let mut requests = [ReadRequest::new(8192, left), ReadRequest::new(1, right)];
    file.read_batch(&mut requests);
    let [valid, misaligned] = requests.map(|request| request.result);
    valid.unwrap();
    kinds.push(error_kind(misaligned));
    assert!(kinds.iter().all(|kind| *kind == ErrorKind::InvalidInput), "{kinds:?}");
    assert!(bytes[..4096].iter().all(|&byte| byte == pattern(2)));
}

fn many_threads_read_batches_at_once(place: &Place) {
    paged_file(place, "a", 128);
    let file = place.open("a", OpenMode::Read, true).unwrap();
    std::thread::scope(|scope| {
        for worker in 0..6 {
            let file = &file;
            scope.spawn(move || {
                let mut bytes = AlignedBuffer::zeroed(20 * 4096);
                for round in 0..20 {
                    read_and_check(&**file, &mut bytes, |index| (worker * 31 + round * 17 + index * 5) % 128);
                }
            });
        }
    });
}

fn lengths_change_and_the_gap_reads_as_zeros(place: &Place) {
    let file = place.create("a");
    file.write_at(0, &[9; 10_000]).unwrap();
    file.set_len(5_000).unwrap();
    file.set_len(12_000).unwrap();
    assert_eq!(file.len().unwrap(), 12_000);
    let mut bytes = vec![1; 12_000];
    file.read_at(0, &mut bytes).unwrap();
    assert!(bytes[..5_000].iter().all(|&byte| byte == 9));
    assert!(bytes[5_000..].iter().all(|&byte| byte == 0));
}

fn allocation_extends_and_keeps_contents(place: &Place) {
    let file = place.create("a");
    file.write_at(0, &[3; 100]).unwrap();
    file.allocate(0, 1 << 20).unwrap();
    assert_eq!(file.len().unwrap(), 1 << 20);
    assert!(file.allocated_bytes().unwrap() >= 1 << 20);
    file.allocate(0, 4096).unwrap();
    file.allocate(0, 0).unwrap();
    assert_eq!(file.len().unwrap(), 1 << 20);
    let mut bytes = [1; 200];
    file.read_at(0, &mut bytes).unwrap();
    assert!(bytes[..100].iter().all(|&byte| byte == 3) && bytes[100..].iter().all(|&byte| byte == 0));
}

fn hole_reads_as_zeros_and_releases_space(place: &Place) {
    let file = place.create("a");
    file.write_at(0, &vec![8; 1 << 20]).unwrap();
    file.sync().unwrap();
    let before = file.allocated_bytes().unwrap();
    file.punch_hole(65_536, 131_072).unwrap();
    file.punch_hole(1_000, 10).unwrap();
    file.punch_hole(0, 0).unwrap();
    file.sync().unwrap();
    assert_eq!(file.len().unwrap(), 1 << 20);
    assert_eq!(file.allocated_bytes().unwrap(), before - 131_072);
    let mut bytes = vec![0; 1 << 20];
    file.read_at(0, &mut bytes).unwrap();
    assert!(bytes[65_536..196_608].iter().all(|&byte| byte == 0));
    assert!(bytes[1_000..1_010].iter().all(|&byte| byte == 0));
    assert_eq!((bytes[999], bytes[1_010], bytes[65_535], bytes[196_608]), (8, 8, 8, 8));
}

fn sparse_file_occupies_little_space(place: &Place) {
    let file = place.create("a");
    file.set_len(1 << 30).unwrap();
    file.write_at((1 << 30) - 1, b"x").unwrap();
    assert!(file.allocated_bytes().unwrap() <= 1 << 16);
    file.set_len(0).unwrap();
    assert_eq!(file.allocated_bytes().unwrap(), 0);
}

fn impossible_offsets_are_invalid_input(place: &Place) {
    let file = place.create("a");
    let far = u64::MAX - 2;
    let kinds = [
        error_kind(file.read_at(far, &mut [0; 8])),
        error_kind(file.write_at(far, &[0; 8])),
        error_kind(file.set_len(far)),
        error_kind(file.allocate(far, 8)),
        error_kind(file.punch_hole(far, 8)),
    ];
    assert_eq!(kinds, [ErrorKind::InvalidInput; 5]);
    let (mut left, mut right) = ([0; 8], [0; 8]);
    let mut requests = [ReadRequest::new(far, &mut left), ReadRequest::new(far, &mut right)];
    file.read_batch(&mut requests);
    assert!(requests.into_iter().all(|request| error_kind(request.result) == ErrorKind::InvalidInput));
}

fn a_read_handle_refuses_changes(place: &Place) {
    place.create("a").write_at(0, &[1; 100]).unwrap();
    let file = place.open("a", OpenMode::Read, false).unwrap();
    assert!(file.write_at(0, b"x").is_err());
    assert!(file.set_len(1).is_err());
    assert!(file.allocate(0, 4096).is_err());
    assert!(file.punch_hole(0, 50).is_err());
    assert_eq!(file.len().unwrap(), 100);
    file.sync().unwrap();
}

fn open_errors_identify_the_cause(place: &Place) {
    place.create("a");
    place.env.create_dir(&place.path("d")).unwrap();
    assert_eq!(error_kind(place.open("a", OpenMode::CreateNew, false)), ErrorKind::AlreadyExists);
    assert_eq!(error_kind(place.open("b", OpenMode::Read, false)), ErrorKind::NotFound);
    assert_eq!(error_kind(place.open("b", OpenMode::Write, true)), ErrorKind::NotFound);
    assert_eq!(error_kind(place.open("no/b", OpenMode::CreateNew, false)), ErrorKind::NotFound);
    assert_eq!(error_kind(place.open("d", OpenMode::CreateNew, false)), ErrorKind::AlreadyExists);
    for mode in [OpenMode::Read, OpenMode::Write] {
        let error = place.open("d", mode, false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(place.path("d").to_str().unwrap()), "{error}");
    }
    assert_eq!(error_kind(place.open("a/b", OpenMode::Read, false)), ErrorKind::NotADirectory);
}

fn directories_list_create_and_remove(place: &Place) {
    place.env.create_dir(&place.path("d")).unwrap();
    place.create("d/z");
    place.create("d/b");
    place.env.create_dir(&place.path("d/m")).unwrap();
    let entries = place.env.list_dir(&place.path("d")).unwrap();
    let shown: Vec<_> = entries.iter().map(|entry| (entry.name.as_str(), entry.entry_type)).collect();
    assert_eq!(shown, [("b", EntryType::File), ("m", EntryType::Directory), ("z", EntryType::File)]);
    assert_eq!(error_kind(place.env.create_dir(&place.path("d"))), ErrorKind::AlreadyExists);
    assert_eq!(error_kind(place.env.create_dir(&place.path("x/y"))), ErrorKind::NotFound);
    assert_eq!(error_kind(place.env.remove_dir(&place.path("d"))), ErrorKind::DirectoryNotEmpty);
    assert_eq!(error_kind(place.env.remove_dir(&place.path("d/b"))), ErrorKind::NotADirectory);
    assert_eq!(error_kind(place.env.remove_file(&place.path("d/m"))), ErrorKind::IsADirectory);
    assert_eq!(error_kind(place.env.remove_file(&place.path("d/n"))), ErrorKind::NotFound);
    assert_eq!(error_kind(place.env.list_dir(&place.path("n"))), ErrorKind::NotFound);
    assert_eq!(error_kind(place.env.list_dir(&place.path("d/b"))), ErrorKind::NotADirectory);
    for name in ["d/b", "d/z"] {
        place.env.remove_file(&place.path(name)).unwrap();
    }
    place.env.remove_dir(&place.path("d/m")).unwrap();
    place.env.remove_dir(&place.path("d")).unwrap();
    place.env.sync_dir(&place.root).unwrap();
    assert!(place.names().is_empty());
}

fn a_rename_replaces_and_open_handles_keep_their_file(place: &Place) {
    let old = place.create("target");
    old.write_at(0, b"old").unwrap();
    let new = place.create("source");
    new.write_at(0, b"new").unwrap();
    place.env.rename(&place.path("source"), &place.path("target")).unwrap();
    assert_eq!(place.names(), ["target"]);
    let mut bytes = [0; 3];
    old.read_at(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"old");
    place.open("target", OpenMode::Read, false).unwrap().read_at(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"new");
    place.env.rename(&place.path("target"), &place.path("target")).unwrap();
    assert_eq!(error_kind(place.env.rename(&place.path("no"), &place.path("n"))), ErrorKind::NotFound);
    let elsewhere = place.path("d").join("target");
    assert_eq!(error_kind(place.env.rename(&place.path("target"), &elsewhere)), ErrorKind::InvalidInput);
}

fn removed_file_exists_until_its_handles_are_closed(place: &Place) {
    let file = place.create("a");
    file.write_at(0, b"still").unwrap();
    place.env.remove_file(&place.path("a")).unwrap();
    place.env.sync_dir(&place.root).unwrap();
    file.write_at(5, b" here").unwrap();
    let mut bytes = [0; 10];
    file.read_at(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"still here");
    place.create("a");
    assert_eq!(place.open("a", OpenMode::Read, false).unwrap().len().unwrap(), 0);
}

fn locks_exclude_within_the_process(place: &Place) {
    let path = place.path("LOCK");
    assert_eq!(error_kind(place.env.lock(&path, false, true)), ErrorKind::NotFound);
    let first = place.env.lock(&path, true, true).unwrap();
    for (create, exclusive) in [(true, true), (false, true), (false, false)] {
        assert_eq!(error_kind(place.env.lock(&path, create, exclusive)), ErrorKind::WouldBlock);
    }
    drop(first);
    let shared = place.env.lock(&path, false, false).unwrap();
    let more = place.env.lock(&path, true, false).unwrap();
    assert_eq!(error_kind(place.env.lock(&path, false, true)), ErrorKind::WouldBlock);
    drop(shared);
    assert_eq!(error_kind(place.env.lock(&path, false, true)), ErrorKind::WouldBlock);
    drop(more);
    place.env.lock(&path, false, true).unwrap();
    place.env.create_dir(&place.path("d")).unwrap();
    assert_eq!(error_kind(place.env.lock(&place.path("d"), false, true)), ErrorKind::InvalidInput);
}

fn time_passes_and_numbers_differ(place: &Place) {
    let before = place.env.monotonic();
    place.env.sleep(Duration::from_millis(5));
    assert!(place.env.monotonic() - before >= Duration::from_millis(5));
    assert!(place.env.wall_clock() > Duration::from_secs(1_700_000_000));
    assert_ne!(place.env.random_u64(), place.env.random_u64());
    assert!(place.env.free_bytes(&place.root).unwrap() > 0);
    assert_eq!(error_kind(place.env.free_bytes(&place.path("no"))), ErrorKind::NotFound);
}

fn threads_run_and_a_panic_is_reported(place: &Place) {
    let Execution::Threads { cores } = place.env.execution() else {
        assert_eq!(error_kind(place.env.spawn("t", Box::new(|| ()))), ErrorKind::Unsupported);
        return;
    };
    assert!(cores > 0);
    let (sender, receiver) = std::sync::mpsc::channel();
    let body = move || sender.send(std::thread::current().name().map(str::to_owned)).unwrap();
    let thread = place.env.spawn("worker-1", Box::new(body)).unwrap();
    thread.join().unwrap();
    assert_eq!(receiver.recv().unwrap().as_deref(), Some("worker-1"));
    let silent = Box::new(|| std::panic::resume_unwind(Box::new("gone")));
    assert!(place.env.spawn("worker-2", silent).unwrap().join().is_err());
}

macro_rules! facts {
    ($($fact:ident),* $(,)?) => {
        mod real_with_default_reads {
            $(#[test] fn $fact() { super::$fact(&super::Place::real(super::RealEnv::new())); })*
        }
        mod real_with_threads {
            $(#[test] fn $fact() {
                let env = super::RealEnv::builder().without_io_uring().build();
                assert_eq!(env.io_backend(), "threads");
                super::$fact(&super::Place::real(env));
            })*
        }
        mod memory_stepped {
            $(#[test] fn $fact() { super::$fact(&super::Place::memory(super::MemEnv::new(1))); })*
        }
        mod memory_threads {
            $(#[test] fn $fact() { super::$fact(&super::Place::memory(super::MemEnv::with_threads(1, 2))); })*
        }
    };
}

facts!(
    reads_return_what_was_written,
    reading_past_the_end_is_unexpected_eof,
    oversized_batch_fills_every_buffer,
    each_request_of_a_batch_has_its_own_result,
    reads_proceed_in_the_background,
    writes_proceed_in_the_background,
    background_read_reports_failure_on_wait,
    a_background_read_outlives_its_file_handle,
    misaligned_direct_access_is_invalid_input,
    many_threads_read_batches_at_once,
    lengths_change_and_the_gap_reads_as_zeros,
    allocation_extends_and_keeps_contents,
    hole_reads_as_zeros_and_releases_space,
    sparse_file_occupies_little_space,
    impossible_offsets_are_invalid_input,
    a_read_handle_refuses_changes,
    open_errors_identify_the_cause,
    directories_list_create_and_remove,
    a_rename_replaces_and_open_handles_keep_their_file,
    removed_file_exists_until_its_handles_are_closed,
    locks_exclude_within_the_process,
    time_passes_and_numbers_differ,
    threads_run_and_a_panic_is_reported,
);

/// Tests of the real machine only.
mod real_machine {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn place() -> Place {
        Place::real(RealEnv::new())
    }

    fn mode_of(path: &Path) -> u32 {
        std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn files_and_directories_are_private_to_the_owner() {
        let place = place();
        place.create("a");
        place.env.create_dir(&place.path("d")).unwrap();
        let _lock = place.env.lock(&place.path("LOCK"), true, true).unwrap();
        assert_eq!(mode_of(&place.path("a")), 0o600);
        assert_eq!(mode_of(&place.path("LOCK")), 0o600);
        assert_eq!(mode_of(&place.path("d")), 0o700);
    }

    #[test]
    fn links_are_listed_as_other_and_never_followed() {
        let place = place();
        place.create("a");
        place.env.create_dir(&place.path("d")).unwrap();
        symlink(place.path("a"), place.path("link")).unwrap();
        symlink(place.path("d"), place.path("dirlink")).unwrap();
        for mode in [OpenMode::Read, OpenMode::Write] {
            let error = place.open("link", mode, false).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains("link"), "{error}");
        }
        assert_eq!(error_kind(place.env.lock(&place.path("link"), true, true)), ErrorKind::InvalidInput);
        assert!(place.env.list_dir(&place.path("dirlink")).is_err());
        assert!(place.env.sync_dir(&place.path("dirlink")).is_err());
        let entries = place.env.list_dir(&place.root).unwrap();
        let others: Vec<_> = entries
            .iter()
            .filter(|entry| entry.entry_type == EntryType::Other)
            .map(|entry| &entry.name)
            .collect();
        assert_eq!(others, ["dirlink", "link"]);
    }

    #[test]
    fn fifo_is_refused_without_blocking() {
        let place = place();
        let fifo = place.path("fifo");
        let made = rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        );
        made.unwrap();
        for mode in [OpenMode::Read, OpenMode::Write] {
            assert_eq!(error_kind(place.open("fifo", mode, false)), ErrorKind::InvalidInput);
        }
        assert_eq!(error_kind(place.env.lock(&fifo, true, false)), ErrorKind::InvalidInput);
    }

    #[test]
    fn a_read_only_directory_can_be_locked() {
        let place = place();
        drop(place.env.lock(&place.path("LOCK"), true, true).unwrap());
        std::fs::set_permissions(place.path("LOCK"), PermissionsExt::from_mode(0o400)).unwrap();
        std::fs::set_permissions(&place.root, PermissionsExt::from_mode(0o500)).unwrap();
        place.env.lock(&place.path("LOCK"), false, true).unwrap();
        place.env.lock(&place.path("LOCK"), false, false).unwrap();
        std::fs::set_permissions(&place.root, PermissionsExt::from_mode(0o700)).unwrap();
    }

    #[test]
    fn a_file_outlives_the_environment_that_opened_it() {
        let Place { env, root, _guard } = Place::real(RealEnv::builder().without_io_uring().build());
        let options = OpenOptions { mode: OpenMode::CreateNew, direct: false };
        let file = env.open(&root.join("a"), options).unwrap();
        file.write_at(0, &[4; 64]).unwrap();
        drop(env);
        let (mut left, mut right) = ([0; 32], [0; 32]);
        let mut requests = [ReadRequest::new(0, &mut left), ReadRequest::new(32, &mut right)];
        file.read_batch(&mut requests);
        assert_eq!((left, right), ([4; 32], [4; 32]));
    }
}
