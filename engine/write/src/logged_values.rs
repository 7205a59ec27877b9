//! Values of a commit that go to value logs instead of the WAL: large ones, or medium ones (decision 0052).
//!
//! **Invariants**
//! - A value is in the value log of the buffer that receives its entry; otherwise it is appended again.

use testudo_base::{
    KeyspaceId, Kind, Result, Seqno, ValueReference,
    num::{u64_of, usize_of},
    planted,
    sync::Arc,
};
use testudo_store::{
    Store,
    commits::batch_format::{Operation, encode_operation, operation_bytes},
    keyspace::{KeyspaceCore, WriteBuffer},
    values::tail_values_format::{encode_kept_value, kept_value_bytes},
};
use testudo_values::ValueLog;

/// A value in the value log of its buffer.
struct LoggedValue {
    /// Index of the operation.
    index: usize,
    keyspace: KeyspaceId,
    reference: ValueReference,
    /// The encoded reference.
    bytes: Vec<u8>,
    log: Arc<ValueLog>,
}

/// The values of a commit that were appended to value logs.
pub struct LoggedOfCommit {
    /// In the order of the operations.
    values: Vec<LoggedValue>,
    saved_bytes: usize,
}

/// Appends qualifying values of a commit to the value logs of the active buffers; `None` if there are none.
///
/// Errors: `Io`, which also poisons the store.
pub fn log_values(
    store: &Store,
    keyspaces: &[Arc<KeyspaceCore>],
    operations: &[Operation<'_>],
) -> Result<Option<LoggedOfCommit>> {
    let mut logged = LoggedOfCommit { values: Vec::new(), saved_bytes: 0 };
    for (index, operation) in operations.iter().enumerate() {
        if operation.kind != Kind::Value {
            continue;
        }
        let core = keyspaces.iter().find(|keyspace| keyspace.id == operation.keyspace);
        let Some(view) = core.map(|keyspace| keyspace.view.load()) else { continue };
        let Some(log) = view.active.value_log() else { continue };
        if !view.active.goes_to_value_log(operation.value) {
            continue;
        }
        let appended = store.value_logs.append(log, operation.value);
        if let Some(reference) = appended.inspect_err(|error| store.poison(error))? {
            let mut bytes = Vec::new();
            reference.encode(&mut bytes);
            let instead = Operation { kind: Kind::Reference, value: &bytes, ..*operation };
            debug_assert!(operation_bytes(operation) >= operation_bytes(&instead), "a reference is shorter");
            logged.saved_bytes += operation_bytes(operation) - operation_bytes(&instead);
            let (keyspace, log) = (operation.keyspace, Arc::clone(log));
            logged.values.push(LoggedValue { index, keyspace, reference, bytes, log });
        }
    }
    debug_assert!(logged.values.is_sorted_by(|a, b| a.index < b.index), "in the order of the operations");
    Ok(Some(logged).filter(|logged| !logged.values.is_empty()))
}

impl LoggedOfCommit {
    /// Bytes of the values as kept in the tail of the log.
    pub fn kept_bytes(&self) -> usize {
        let value_bytes = |logged: &LoggedValue| usize_of(u64::from(logged.reference.length));
        self.values.iter().map(|logged| kept_value_bytes(value_bytes(logged))).sum()
    }

    /// Writes the values as kept in the tail of the log.
    pub fn encode_values(&self, operations: &[Operation<'_>], mut out: &mut [u8]) {
        for logged in &self.values {
            out = encode_kept_value(out, logged.index, operations[logged.index].value);
        }
        debug_assert!(out.is_empty(), "the values fill what was reserved for them");
    }

    /// Bytes by which the commit is shorter in the log.
    pub fn saved_bytes(&self) -> usize {
        self.saved_bytes
    }

    /// Whether each value is in the value log of the buffer that `buffer_of` has for its keyspace.
    pub fn are_in<'b>(&self, buffer_of: impl Fn(KeyspaceId) -> &'b WriteBuffer) -> bool {
        self.values.iter().all(|logged| {
            let log = buffer_of(logged.keyspace).value_log();
            log.is_some_and(|log| Arc::ptr_eq(log, &logged.log)) || planted!("value-of-sealed-buffer")
        })
    }

    /// Writes the operations as stored in the log.
    pub fn encode(&self, operations: &[Operation<'_>], mut out: &mut [u8]) {
        let mut values = self.values.iter().peekable();
        for (index, operation) in operations.iter().enumerate() {
            out = match values.next_if(|logged| logged.index == index) {
                Some(logged) => {
                    let instead = Operation { kind: Kind::Reference, value: &logged.bytes, ..*operation };
                    encode_operation(out, &instead)
                }
                None => encode_operation(out, operation),
            };
        }
        debug_assert!(values.next().is_none(), "each value has an operation");
        debug_assert!(out.is_empty(), "the commit fills what was reserved for it");
    }

    /// Records the values after the commit, whose first seqno is `first`, is in its buffers. REQUIRES: it is
    /// still in flight.
    pub fn note(self, first: Seqno) {
        for LoggedValue { index, reference, log, .. } in self.values {
            log.note(Seqno(first.0 + u64_of(index)), reference);
        }
    }
}
