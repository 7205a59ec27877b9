//! One block of a run with any payload and a right checksum: data, index, filter or footer.
//!
//! **Invariants**
//! - Every way of reading ends, with entries or an error.
//! - If a run passes all its checks, point reads and cursors in both directions agree.

use std::{
    path::Path,
    sync::{Arc, OnceLock},
};

use testudo_base::{
    Cursor, ExtentSpan, Incarnation, KeyspaceId, Kind, PAGE_SIZE, RunId, Seqno, StoreId,
    checksum::hash_key,
    num::usize_of,
    operands_format::{begin_stack, encode_operand},
};
use testudo_env::{Env, MemEnv, OpenMode, OpenOptions};
use testudo_run::{Access, Lookup};
use testudo_run::{ReadAhead, Run, RunCursor, RunOrigin, RunRef, RunWriter};
use testudo_storage::{DataFile, PAGE_HEADER_BYTES, PageHeader, PageIdentity, payload_of, seal_pages};

use crate::{input::Input, mutate::overwrite};

const STORE: StoreId = StoreId(0x1234_5678_9abc_def0_0fed_cba9_8765_4321);
/// No run of the target has this many entries.
const ENTRIES_MAX: usize = 1 << 20;

/// A valid run.
struct BaseRun {
    file: Vec<u8>,
    reference: RunRef,
    keys: Vec<Vec<u8>>,
}

fn open_file(machine: &MemEnv, mode: OpenMode, live: &[ExtentSpan]) -> Arc<DataFile> {
    let options = OpenOptions { mode, direct: true };
    let file = machine.open(Path::new("/data"), options).expect("the disk is valid");
    let live = live.iter().map(|span| (*span, 1));
    DataFile::new(file, STORE, 64 << 10, live, (mode != OpenMode::Read).then_some(Incarnation(1)))
        .expect("the file is long enough")
}

fn base_run() -> &'static BaseRun {
    static RUN: OnceLock<BaseRun> = OnceLock::new();
    RUN.get_or_init(|| {
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
            writer.push(&testudo_base::Entry { key: &key, kind, value }).expect("the disk has room");
            keys.push(key);
        }
        let run = writer.finish(None).expect("the disk has room");
        let reference = run.reference().clone();
        BaseRun { file: machine.file_bytes("/data").expect("it was written"), reference, keys }
    })
}

/// First page and header of each block of the valid run.
fn blocks() -> Vec<(usize, PageHeader)> {
    let run = base_run();
    let header = |at| PageHeader::read(&run.file[at..]);
    let mut blocks = Vec::new();
    for page in 0..run.reference.page_count() {
        let Some((page, _)) = run.reference.locate(page) else { continue };
        let at = usize_of(page) * PAGE_SIZE;
        if let Some(header) = header(at).filter(|header| header.page == page && header.kind.is_some()) {
            blocks.push((at, header));
        }
    }
    blocks
}

/// Runs the target.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let base = base_run();
    let mut file = base.file.clone();
    let blocks = blocks();
    let (at, header) = blocks[usize::from(input.u8()) % blocks.len()];
    let is_long = usize_of(header.payload_bytes.into()) + PAGE_HEADER_BYTES > PAGE_SIZE;
    let room = if is_long { 3 * PAGE_SIZE } else { PAGE_SIZE };
    let payload = input.take(room - PAGE_HEADER_BYTES);
    if let (Some(kind), Some(pages)) = (header.kind, file.get_mut(at..at + room)) {
        overwrite(pages, PAGE_HEADER_BYTES, payload);
        let RunRef { id: generation, keyspace, incarnation, .. } = base.reference;
        let (store, page) = (STORE, header.page);
        let identity = PageIdentity { store, kind, page, generation, keyspace, incarnation };
        seal_pages(pages, &identity, payload.len());
    }
    let machine = MemEnv::new(1);
    machine.replace("/data", &file).expect("the disk has room");
    let data = open_file(&machine, OpenMode::Read, &base.reference.spans);
    let run = Run::open(data, base.reference.clone()).expect("its spans are live");
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
    let file = &base_run().file;
    let blocks = blocks();
    let seed = |(number, &(at, _)): (usize, &(usize, PageHeader))| {
        let mut seed = vec![number.to_le_bytes()[0]];
        seed.extend_from_slice(payload_of(&file[at..]));
        seed
    };
    let mut seeds: Vec<Vec<u8>> = blocks.iter().enumerate().map(seed).collect();
    let mut old = seeds[0].clone();
    old[2] &= 0x7f;
    seeds.push(old);
    seeds
}
