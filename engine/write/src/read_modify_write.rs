//! Read-modify-writes: commits of a function of the present value of a key.
//!
//! **Invariants**
//! - The stripe of the key is locked from the read to the write.
//! - On a full or nearly full device a value is admitted by its size, like that of an insert. The size is
//!   known only after the function has run, under the lock, where waiting is not allowed. So the lock is
//!   released, the commit is admitted by that size, and the function is called again.

use std::slice;

use testudo_base::{Kind, Result, Seqno, num::u64_of, planted, sync::Arc};
use testudo_store::{
    Store,
    commits::batch_format::{Operation, operation_bytes},
    keyspace::KeyspaceCore,
    read::long_value::get_locked,
    space::space_guard::Intent,
};

use crate::{
    admission::{UpdateScope, check_limits, is_space_short},
    commit::Commit,
};

/// Result of a call of the function.
enum Changed {
    /// There was no value, and there is none now.
    Nothing,
    /// Last seqno of the commit, and the new value.
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
    let commit = Commit { store, keyspaces: slice::from_ref(keyspace), durability: store.default_durability };
    let (mut bytes, mut intent) = (key.len(), Intent::Remove);
    loop {
        commit.admit(bytes, intent)?;
        let stripe = Some(store.commits.lock_stripe(keyspace.id, key));
        let stripe = stripe.filter(|_| !planted!("swap-without-lock"));
        let changed = write_changed(&commit, (bytes, intent), key, &mut change);
        match commit.unlock(stripe, changed)? {
            Changed::Nothing => return Ok(None),
            Changed::Written(last, new) => {
                commit.make_durable(last)?;
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

/// Writes the result of `change` on the present value, unless the commit was not admitted for it.
fn write_changed(
    commit: &Commit<'_>,
    (admitted_bytes, intent): (usize, Intent),
    key: &[u8],
    change: &mut impl FnMut(Option<&[u8]>) -> Result<Option<Vec<u8>>>,
) -> Result<Changed> {
    debug_assert_eq!(commit.keyspaces.len(), 1, "an update changes one key");
    let (store, keyspace) = (commit.store, &commit.keyspaces[0]);
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
    let is_admitted = intent == Intent::Write && bytes <= admitted_bytes;
    if kind == Kind::Value && !is_admitted && is_space_short(store) {
        return Ok(Changed::NotAdmitted(bytes));
    }
    let last = commit.write(slice::from_ref(&operation), bytes)?;
    Ok(Changed::Written(last, new))
}
