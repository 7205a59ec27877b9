//! The result of flushing one write buffer.

use testudo_base::sync::Arc;
use testudo_contract::TreeEdit;
use testudo_store::{
    background::drop_totals::Dropped,
    keyspace::{KeyspaceCore, WriteBuffer},
};

/// A flushed buffer, its keyspace, and the resulting tree.
pub struct Flushed {
    pub keyspace: Arc<KeyspaceCore>,
    pub buffer: Arc<WriteBuffer>,
    /// `None` if the buffer turned out to be empty.
    pub edit: Option<TreeEdit>,
    /// Entries dropped in the buffer and while merging into the tree.
    pub dropped: Dropped,
}
