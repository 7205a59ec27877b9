//! The payload of a commit in the log, in human-readable form.
//!
//! **Invariants**
//! - Never fails as a whole: returns the operations that decode, and the reason why the rest does not.

use testudo_base::{Entry, KeyspaceId, OwnedEntry, codec::Damage};
use testudo_store::commits::batch_format;

/// One operation of a commit in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedOperation {
    /// Keyspace of the operation.
    pub keyspace: KeyspaceId,
    /// Key, kind and value of the operation.
    pub entry: OwnedEntry,
}

/// Decodes the operations of a commit's payload; returns also the reason if it ends too early.
pub fn inspect_commit(payload: &[u8]) -> (Vec<LoggedOperation>, Option<&'static str>) {
    let mut operations = Vec::new();
    let outcome: Result<(), Damage> = batch_format::decode(payload, |_, operation| {
        let batch_format::Operation { keyspace, kind, key, value } = operation;
        operations.push(LoggedOperation { keyspace, entry: Entry { key, kind, value }.to_owned() });
        Ok(())
    });
    (operations, outcome.err().map(|Damage(why)| why))
}
