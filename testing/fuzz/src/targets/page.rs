//! One block of a run with any payload and a right checksum: data, index, filter, footer, replaced data, map.
//!
//! **Invariants**
//! - Every way of reading ends, with entries or an error.
//! - If a run passes all its checks, point reads and cursors in both directions agree.

use std::{
    path::Path,
    sync::{Arc, OnceLock},
};

use testudo_base::{
    Cursor, Entry, ExtentSpan, Incarnation, KeyspaceId, Kind, PAGE_SIZE, RunId, Seqno, StoreId,
    checksum::hash_key,
    codec::Reader,
    num::usize_of,
    operands_format::{begin_stack, encode_operand},
};
use testudo_env::{Env, MemEnv, OpenMode, OpenOptions};
use testudo_run::{
    Access, EntryList, Lookup, PageUpdate, PreparedVersion, ReadAhead, Run, RunCursor, RunOrigin, RunRef,
    RunWriter,
};
use testudo_storage::{DataFile, PAGE_HEADER_BYTES, PageHeader, PageIdentity, payload_of, seal_pages};

use crate::{input::Input, mutate::overwrite};

const STORE: StoreId = StoreId(0x1234_5678_9abc_def0_0fed_cba9_8765_4321);
/// No run of the target has this many entries.
const ENTRIES_MAX: usize = 1 << 20;

/// A valid run.
struct BaseRun {
    file: Vec<u8>,
    reference: RunRef,
    /// As in a manifest.
    stored: RunRef,
    keys: Vec<Vec<u8>>,
}

fn open_file(machine: &MemEnv, mode: OpenMode, live: &[ExtentSpan]) -> Arc<DataFile> {
    let options = OpenOptions { mode, direct: true };
    let file = machine.open(Path::new("/data"), options).expect("the disk is valid");
    let live = live.iter().map(|span| (*span, 1));
    DataFile::new(file, STORE, 64 << 10, live, (mode != OpenMode::Read).then_some(Incarnation(1)))
        .expect("the file is long enough")
}

/// A run, and one with replaced pages.
fn base_runs() -> &'static [BaseRun; 2] {
    static RUNS: OnceLock<[BaseRun; 2]> = OnceLock::new();
    RUNS.get_or_init(|| {
        let machine = MemEnv::new(1);
        let data = open_file(&machine, OpenMode::CreateNew, &[]);
        let origin = RunOrigin {
            id: RunId(9),
            keyspace: KeyspaceId(3),
            keyspace_name: "ks".into(),
            newest_seqno: Seqno(77),
        };
        let mut writer = RunWriter::new(data, origin, 1 << 16).expect("the disk has room");
        let mut keys = Vec::new();
        for number in 0..900u32 {
            // Keys of the last third differ only beyond the bytes of a separator that an index keeps.
            let stem = if number < 600 { "key/".to_owned() } else { "p".repeat(300) };
            let key = format!("{stem}{:04}/{}", number / 3, number % 3).into_bytes();
            let value = vec![b'v'; if number % 300 == 299 { 9000 } else { usize_of(u64::from(number % 40)) }];
            let (kind, value) = match number % 10 {
                3 => (Kind::Tombstone, Vec::new()),
                6 => (Kind::Operands, encode_operand(&value)),
                8 => {
                    let mut stack = Vec::new();
                    let kind = begin_stack(Kind::Value, &value, &mut stack);
                    stack.extend_from_slice(&encode_operand(b"operand"));
                    (kind, stack)
                }
                _ => (Kind::Value, value),
            };
            let value = value.as_slice();
            writer.push(&Entry { key: &key, kind, value }).expect("the disk has room");
            keys.push(key);
        }
        let run = writer.finish(None).expect("the disk has room");
        [BaseRun::of(&machine, &run, keys), updated_run()]
    })
}

/// A run with replaced pages, overflow pages and a map.
fn updated_run() -> BaseRun {
    let machine = MemEnv::new(1);
    let data = open_file(&machine, OpenMode::CreateNew, &[]);
    let (id, keyspace, keyspace_name, newest_seqno) = (RunId(9), KeyspaceId(3), "ks".into(), Seqno(77));
    let origin = RunOrigin { id, keyspace, keyspace_name, newest_seqno };
    let mut writer = RunWriter::new(data, origin, 1 << 16).expect("the disk has room");
    let key = |number: u32| format!("key/{number:04}").into_bytes();
    for number in (0..400).step_by(2) {
        let entry = Entry { key: &key(number), kind: Kind::Value, value: &[b'v'; 100] };
        writer.push(&entry).expect("the disk has room");
    }
    let run = writer.finish(None).expect("the disk has room");
    let mut update = PageUpdate::begin(&run).expect("it is valid").expect("it has no long keys");
    let sections: Vec<usize> = (1..update.sections()).step_by(2).collect();
    let old = PageUpdate::read(&[(&update, &sections)]).expect("its pages are valid").remove(0);
    let mut keys: Vec<Vec<u8>> = (0..400).step_by(2).map(key).collect();
    for (section, old) in sections.into_iter().zip(old) {
        let incoming = old.first().map(|first| first.key.to_vec()).unwrap_or_default();
        let mut new = EntryList::default();
        for entry in old.iter() {
            new.push(&Entry { value: &[b'w'; 100], ..entry });
            // Some pages get several overflow pages.
            for more in 0..if section % 4 == 1 { 1 } else { 3 } {
                let next = [entry.key, format!("/{more}").as_bytes()].concat();
                new.push(&Entry { key: &next, kind: Kind::Value, value: &[b'x'; 60] });
                keys.push(next);
            }
        }
        update.replace(section, &old, &incoming, new);
    }
    keys.sort_unstable();
    let version = update.prepare(RunId(10), Seqno(80)).expect("the disk has room").expect("few spans");
    let run = PreparedVersion::write(vec![version]).expect("the disk has room").remove(0);
    BaseRun::of(&machine, &run, keys)
}

impl BaseRun {
    fn of(machine: &MemEnv, run: &Run, keys: Vec<Vec<u8>>) -> Self {
        let reference = run.reference().clone();
        let mut encoded = Vec::new();
        reference.encode(&mut encoded);
        let stored = RunRef::decode(&mut Reader::new(&encoded)).expect("a reference can be read back");
        Self { file: machine.file_bytes("/data").expect("it was written"), reference, stored, keys }
    }
}

/// First page and header of each block of the valid runs.
fn blocks() -> Vec<(&'static BaseRun, usize, PageHeader)> {
    let mut blocks = Vec::new();
    for run in base_runs() {
        let header = |at| PageHeader::read(&run.file[at..]);
        for page in 0..run.reference.page_count() {
            let Some((page, _)) = run.reference.locate(page) else { continue };
            let at = usize_of(page) * PAGE_SIZE;
            if let Some(header) = header(at).filter(|header| header.page == page && header.kind.is_some()) {
                blocks.push((run, at, header));
            }
        }
    }
    blocks
}

/// Runs the target.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let blocks = blocks();
    let (base, at, header) = blocks[usize::from(input.u8()) % blocks.len()];
    let mut file = base.file.clone();
    let is_long = usize_of(header.payload_bytes.into()) + PAGE_HEADER_BYTES > PAGE_SIZE;
    let room = if is_long { 3 * PAGE_SIZE } else { PAGE_SIZE };
    let payload = input.take(room - PAGE_HEADER_BYTES);
    if let (Some(kind), Some(pages)) = (header.kind, file.get_mut(at..at + room)) {
        overwrite(pages, PAGE_HEADER_BYTES, payload);
        let PageHeader { page, generation, keyspace, incarnation, .. } = header;
        let store = STORE;
        let identity = PageIdentity { store, kind, page, generation, keyspace, incarnation };
        seal_pages(pages, &identity, payload.len());
    }
    let machine = MemEnv::new(1);
    machine.replace("/data", &file).expect("the disk has room");
    let data = open_file(&machine, OpenMode::Read, &base.reference.spans);
    let run = Run::open(data, base.stored.clone()).expect("its spans are live");
    let is_valid = run.check_pages().is_ok() && run.check_entries().is_ok();
    let (forward, backward) = (walk(&run, false), walk(&run, true));
    if let (true, Ok(forward)) = (is_valid, &forward) {
        assert!(backward.as_ref().is_ok_and(|backward| backward == forward), "cursors differ by direction");
    }
    assert!(forward.is_ok() || !is_valid, "the checks find nothing, but a cursor fails");
    for key in base.keys.iter().chain(&[b"key/00".to_vec(), b"zzz".to_vec()]) {
        let found = run.get(key, hash_key(key), Access::Blocking);
        if let (true, Ok(forward)) = (is_valid, &forward) {
            let stored = forward.binary_search_by(|(stored, ..)| stored.cmp(key)).ok().map(|at| &forward[at]);
            let is_expected = |found| match (found, stored) {
                (Lookup::Found(kind, value, _), Some((_, stored_kind, stored))) => {
                    kind == *stored_kind && value == *stored
                }
                (found, stored) => found == Lookup::Absent && stored.is_none(),
            };
            assert!(found.is_ok_and(is_expected), "the checks find nothing, but a point read differs");
        }
        let _ = run.bytes_between(Some(key), None);
    }
    let _ = run.record();
}

type Entries = Vec<(Vec<u8>, Kind, Vec<u8>)>;

fn walk(run: &Arc<Run>, backward: bool) -> testudo::Result<Entries> {
    let read_ahead = if backward { ReadAhead::Adaptive } else { ReadAhead::Pages(4) };
    let mut cursor = RunCursor::new(Arc::clone(run), read_ahead);
    if backward {
        cursor.seek_last()?
    } else {
        cursor.seek_first()?
    }
    let mut entries = Entries::new();
    while let Some(entry) = cursor.entry() {
        entries.push((entry.key.to_vec(), entry.kind, entry.value.to_vec()));
        assert!(entries.len() < ENTRIES_MAX, "a cursor does not end");
        if backward { cursor.prev()? } else { cursor.next()? }
    }
    if backward {
        entries.reverse();
    }
    Ok(entries)
}

/// The payloads of all blocks of the valid run, and the first one as it was before kind bytes existed.
pub fn seeds() -> Vec<Vec<u8>> {
    let blocks = blocks();
    let seed = |(number, &(run, at, _)): (usize, &(&BaseRun, usize, PageHeader))| {
        let mut seed = vec![number.to_le_bytes()[0]];
        seed.extend_from_slice(payload_of(&run.file[at..]));
        seed
    };
    let mut seeds: Vec<Vec<u8>> = blocks.iter().enumerate().map(seed).collect();
    let mut old = seeds[0].clone();
    old[2] &= 0x7f;
    seeds.push(old);
    seeds
}
