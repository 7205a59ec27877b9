//! The segments of a log, changed and sealed again, replayed.
//!
//! **Invariants**
//! - Commits come in the order of their seqnos, each once, and the end is not before the last of them.
//! - Replay writes nothing; two replays give the same results.

use std::path::Path;

use testudo_base::StoreId;
use testudo_env::MemEnv;
use testudo_wal::{LogEvidence, Record, replay};

use crate::{
    base_store::{DIRECTORY, base_stores},
    input::Input,
    patch,
};

/// Runs the target.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let stores = base_stores();
    let store = &stores[input.below(stores.len())];
    let is_sealed = !input.u8().is_multiple_of(4);
    let mut files = store.files.clone();
    files.retain(|file| file.name.starts_with("wal-"));
    let first = files.first().and_then(|file| file.name[4..24].parse::<u64>().ok()).unwrap_or(1);
    patch::apply(&mut files, &mut input, |_| true);
    if is_sealed {
        store.seal(&mut files);
    }
    let machine = store.machine(&files);
    let before = machine.operation_count();
    let outcome = read(&machine, store.id, first);
    assert_eq!(read(&machine, store.id, first), outcome, "two replays differ");
    assert_eq!(machine.operation_count(), before, "replay wrote something");
}

/// All results of a replay.
fn read(machine: &MemEnv, store: StoreId, first: u64) -> (u64, u64, String) {
    let (mut next, mut bytes) = (0, 0);
    let deliver = |record: Record<'_>| {
        assert!(record.first_seqno.0 >= next, "commit {} comes after {next}", record.first_seqno);
        assert!(record.seqno_count > 0, "a commit without operations");
        next = record.first_seqno.0 + u64::from(record.seqno_count);
        bytes += testudo_base::num::u64_of(record.payload.len());
        Ok(())
    };
    let outcome = replay(machine, Path::new(DIRECTORY), store, &LogEvidence::starting_at(first), deliver);
    if let Ok(end) = &outcome {
        assert!(end.last_seqno.0 + 1 >= next, "the end is before the last commit");
    }
    (next, bytes, format!("{outcome:?}"))
}
