//! Read-modify-writes: commits of a function of the present value of a key.
//!
//! **Invariants**
//! - The stripe of the key is locked from the read to the write.
//! - On a full or nearly full device a value is admitted by its size, like that of an insert. The size is
//!   known only after the function has run, under the lock, where waiting is not allowed. So the lock is
//!   released, the commit is admitted by that size, and the function is called again.

use testudo_base::{Kind, Result, Seqno, num::u64_of, planted, sync::Arc};
use testudo_store::{
    Store,
    commits::batch_format::{Operation, operation_bytes},
    keyspace::KeyspaceCore,
    read::read_pieces::get_locked,
    space::space_guard::Intent,
};

use crate::{
    admission::{check_limits, is_space_short},
    commit::{CommitTerms, commit, write_and_record},
    update_scope::UpdateScope,
};

/// Result of a call of the function.
enum Changed {
    /// There was no value, and there is none now.
    Nothing,
    /// Seqno of the commit, and the new value.
    Written(Seqno, Option<Vec<u8>>),
    /// A commit of this many bytes must be admitted first.
    NotAdmitted(usize),
}

/// Commits the result of `change` on the present value, atomically for the key; returns the new value.
pub fn modify(
    store: &Store,
    keyspace: &Arc<KeyspaceCore>,
    key: &[u8],
    mut change: impl FnMut(Option<&[u8]>) -> Result<Option<Vec<u8>>>,
) -> Result<Option<Vec<u8>>> {
    check_limits(store, key, &[])?;
    store.wal()?;
    let (mut bytes, mut intent) = (key.len(), Intent::Remove);
    loop {
        let keyspaces = std::slice::from_ref(keyspace);
        let terms = CommitTerms { keyspaces, bytes, intent, durability: store.default_durability };
        let lock = || {
            let stripe = store.commits.stripes.lock_one(keyspace.id, key);
            Some(stripe).filter(|_| !planted!("swap-without-lock"))
        };
        let mut outcome = Changed::Nothing;
        commit(store, &terms, lock, || {
            outcome = write_changed(store, &terms, key, &mut change)?;
            Ok(if let Changed::Written(seqno, _) = outcome { Some(seqno) } else { None })
        })?;
        match outcome {
            Changed::Nothing => return Ok(None),
            Changed::Written(_, new) => {
                // The delay that was not applied before.
                let more = new.as_ref().map_or(0, Vec::len).saturating_sub(bytes);
                store.backpressure.admit(&*store.env, u64_of(more));
                return Ok(new);
            }
            Changed::NotAdmitted(needed) => {
                debug_assert!(needed > bytes || intent == Intent::Remove, "each try is admitted for more");
                (bytes, intent) = (needed, Intent::Write);
            }
        }
    }
}

/// Writes the result of `change` on the present value, unless the admitted terms do not cover it.
fn write_changed(
    store: &Store,
    admitted: &CommitTerms<'_>,
    key: &[u8],
    change: &mut impl FnMut(Option<&[u8]>) -> Result<Option<Vec<u8>>>,
) -> Result<Changed> {
    let keyspace = &admitted.keyspaces[0];
    debug_assert_eq!(admitted.keyspaces.len(), 1, "an update changes one key");
    let old = get_locked(store, keyspace, key)?;
    let new = {
        let _scope = UpdateScope::enter(store, &keyspace.name, key);
        change(old.as_deref())
    };
    // It may have forked: the child continues here, without the threads that hold other locks.
    store.health.check_process()?;
    let new = new?;
    let kind = match (&old, &new) {
        (None, None) => return Ok(Changed::Nothing),
        (_, Some(_)) => Kind::Value,
        (Some(_), None) => Kind::Tombstone,
    };
    let value = new.as_deref().unwrap_or(&[]);
    let operation = Operation { keyspace: keyspace.id, kind, key, value };
    check_limits(store, key, value)?;
    if kind == Kind::Value {
        keyspace.check_value(key, value)?;
    }
    let bytes = operation_bytes(&operation);
    let is_admitted = admitted.intent == Intent::Write && bytes <= admitted.bytes;
    if kind == Kind::Value && !is_admitted && is_space_short(store) {
        return Ok(Changed::NotAdmitted(bytes));
    }
    let operations = std::slice::from_ref(&operation);
    let seqno = write_and_record(store, admitted.keyspaces, operations, bytes, admitted.durability)?;
    Ok(Changed::Written(seqno, new))
}
