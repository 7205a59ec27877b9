//! Uses an open store in every way, whatever its content: reads, verification, writes, close.
//!
//! **Invariants**
//! - Errors are accepted answers. If a full verification finds nothing, all ways of reading must agree, and
//!   an open after a clean close must find all writes.

use std::sync::Arc;

use testudo::{Db, Error, ErrorKind, Keyspace, Result, VerifyLevel};
use testudo_db::maintenance::Stepping as _;
use testudo_env::{CrashPolicy, MemEnv};

use crate::base_store::open;

/// No store of a target holds this many entries: a longer scan never ends.
const ENTRIES_MAX: usize = 1 << 20;
/// Keys of a scan that are also read one by one.
const POINT_READS_MAX: usize = 300;
/// Maximum background jobs after the writes.
const STEPS_MAX: usize = 64;

/// Pairs in key order.
type Pairs = Vec<(Vec<u8>, Vec<u8>)>;
/// Keyspaces by name with all their content.
pub(crate) type Content = Vec<(String, Pairs)>;

/// Reads everything in a store.
pub(crate) fn content_of(db: &Db) -> Result<Content> {
    let mut content = Vec::new();
    for name in db.keyspace_names() {
        let Some(keyspace) = db.open_keyspace(&name)? else { continue };
        content.push((name, pairs_of(&keyspace, false)?));
    }
    content.sort();
    Ok(content)
}

fn pairs_of(keyspace: &Keyspace, backward: bool) -> Result<Pairs> {
    let mut pairs = Vec::new();
    let mut iter = keyspace.iter()?;
    while let Some(entry) = if backward { iter.next_back() } else { iter.next() } {
        let (key, value) = entry?.into_pair()?;
        pairs.push((key.to_vec(), value.to_vec()));
        assert!(pairs.len() < ENTRIES_MAX, "a scan does not end");
    }
    if backward {
        pairs.reverse();
    }
    Ok(pairs)
}

/// Uses a store with any content; panics if it contradicts itself although its verification found nothing.
pub(crate) fn exercise(machine: &Arc<MemEnv>, db: Db) {
    let report = db.verify(VerifyLevel::Full);
    let is_valid = report.as_ref().is_ok_and(|report| report.is_valid());
    let is_readable = read_all(&db, is_valid);
    let written = write_all(&db);
    // Errors are accepted here; these calls must only not panic or hang.
    let _ = db.snapshot().map(drop);
    let _ = (db.stats(), db.check_invariants());
    for name in db.keyspace_names() {
        if let Ok(Some(keyspace)) = db.open_keyspace(&name) {
            let _ = (keyspace.stats(), keyspace.outline(), keyspace.approximate_bytes(..));
        }
    }
    let closed = db.close();
    if is_valid && is_readable && written.is_ok() && closed.is_ok() {
        let again = open(machine.crash_image(&CrashPolicy::KEEP_ALL, 1));
        let again =
            again.unwrap_or_else(|error| panic!("a valid store cannot be opened after a close: {error}"));
        let report = again.verify(VerifyLevel::Full).expect("a valid store can be verified");
        assert!(report.is_valid(), "a valid store is damaged after writes: {:?}", report.findings);
    }
}

/// Whether an error is correct for a valid store: it names an unknown merge operator.
fn is_excused(error: &Error) -> bool {
    error.kind() == ErrorKind::Unsupported
}

/// Reads everything through every API; returns whether all reads succeeded.
fn read_all(db: &Db, is_valid: bool) -> bool {
    let mut is_readable = true;
    for name in db.keyspace_names() {
        let Ok(Some(keyspace)) = db.open_keyspace(&name) else { continue };
        let (forward, backward) = (pairs_of(&keyspace, false), pairs_of(&keyspace, true));
        let (forward, backward) = match (forward, backward) {
            (Ok(forward), Ok(backward)) => (forward, backward),
            (Err(error), _) | (_, Err(error)) => {
                assert!(
                    !is_valid || is_excused(&error),
                    "the verification finds nothing, but a scan fails: {error}"
                );
                is_readable = false;
                continue;
            }
        };
        assert!(forward.windows(2).all(|pair| pair[0].0 < pair[1].0) || !is_valid, "keys do not increase");
        assert!(forward == backward || !is_valid, "scans differ by their direction");
        let step = forward.len().div_ceil(POINT_READS_MAX).max(1);
        for (key, value) in forward.iter().step_by(step) {
            match keyspace.get(key) {
                Ok(found) => {
                    let is_right = found.as_deref() == Some(value.as_slice());
                    assert!(
                        is_right || !is_valid,
                        "a scan finds {key:x?} and a point read finds another value"
                    );
                }
                Err(error) => {
                    assert!(
                        !is_valid || is_excused(&error),
                        "the verification finds nothing, but a point read fails: {error}"
                    );
                    is_readable = false;
                }
            }
            let _ = keyspace.prefix(&key[..key.len() / 2]).map(|mut iter| iter.next().is_some());
        }
        let keys: Vec<&[u8]> = forward.iter().take(20).map(|(key, _)| key.as_slice()).collect();
        let _ = keyspace.multi_get(&keys);
    }
    is_readable
}

fn write_all(db: &Db) -> Result<()> {
    for name in db.keyspace_names() {
        let Some(keyspace) = db.open_keyspace(&name)? else { continue };
        keyspace.insert("fuzz", "1")?;
        keyspace.remove("key/5")?;
        assert_eq!(keyspace.get("fuzz")?.as_deref(), Some(&b"1"[..]), "a write is not visible");
    }
    db.flush()?;
    for _ in 0..STEPS_MAX {
        if !db.step()? {
            break;
        }
    }
    Ok(())
}

/// Panics unless an error is informative: `Corruption` with its place or subject, never a violation of our
/// own invariants.
pub(crate) fn require_named(error: &testudo::Error) {
    let is_ours = matches!(error.kind(), ErrorKind::Poisoned | ErrorKind::Closed | ErrorKind::Conflict);
    assert!(!is_ours, "a damaged store is not opened with {error:?}");
}
