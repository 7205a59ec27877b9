//! The result of flushing one write buffer.

use testudo_base::sync::Arc;
use testudo_contract::TreeEdit;
use testudo_store::{
    background::drop_totals::Dropped,
    keyspace::{KeyspaceCore, WriteBuffer},
};

/// A buffer, its keyspace, and the tree that it has become part of.
pub struct Flushed {
    pub keyspace: Arc<KeyspaceCore>,
    pub buffer: Arc<WriteBuffer>,
    /// `None` if the buffer turned out to be empty.
    pub edit: Option<TreeEdit>,
    /// What died in the buffer and on the way into the tree.
    pub dropped: Dropped,
}
