//! Looks into the payload of a commit in the log, for people.
//!
//! **Invariants**
//! - Never fails as a whole: what can be decoded is given, with the reason why the rest cannot.

use testudo_base::{KeyspaceId, Kind, codec::Damage};

use crate::batch_format;

/// An operation of a commit in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedOperation {
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// The key.
    pub key: Vec<u8>,
    /// Its new value; `None` where it was removed.
    pub value: Option<Vec<u8>>,
}

/// The operations of a commit's payload; the reason where they end too early.
pub fn inspect_commit(payload: &[u8]) -> (Vec<LoggedOperation>, Option<&'static str>) {
    let mut operations = Vec::new();
    let outcome: Result<(), Damage> = batch_format::decode(payload, |_, operation| {
        let value = (operation.kind == Kind::Value).then(|| operation.value.to_vec());
        operations.push(LoggedOperation { keyspace: operation.keyspace, key: operation.key.to_vec(), value });
        Ok(())
    });
    (operations, outcome.err().map(|Damage(why)| why))
}
