//! The payload of a commit in the log, in human-readable form.
//!
//! **Invariants**
//! - Never fails as a whole: what can be decoded is given, with the reason why the rest cannot.

use testudo_base::{Entry, KeyspaceId, OwnedEntry, codec::Damage};
use testudo_store::commits::batch_format;

/// An operation of a commit in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedOperation {
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// What it says of its key.
    pub entry: OwnedEntry,
}

/// The operations of a commit's payload; the reason where they end too early.
pub fn inspect_commit(payload: &[u8]) -> (Vec<LoggedOperation>, Option<&'static str>) {
    let mut operations = Vec::new();
    let outcome: Result<(), Damage> = batch_format::decode(payload, |_, operation| {
        let batch_format::Operation { keyspace, kind, key, value } = operation;
        operations.push(LoggedOperation { keyspace, entry: Entry { key, kind, value }.to_owned() });
        Ok(())
    });
    (operations, outcome.err().map(|Damage(why)| why))
}
