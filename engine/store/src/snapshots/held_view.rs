//! A keyspace as its holders see it at one moment: snapshots, iterators, readers of values.
//!
//! All holders of the same published view share one held view.
//!
//! **Invariants**
//! - It never changes, nor do the contents of its buffers at the seqno of a holder.

use testudo_base::{merge_operator::FullMerge, sync::Arc};
use testudo_contract::Tree;
use testudo_options::StoredOptions;
use testudo_records::KeyspaceRecords;

use crate::snapshots::held_buffer::HeldBuffer;

/// The state of a keyspace at one moment, for its holders.
#[derive(Debug)]
pub struct HeldView {
    /// Newest first.
    pub buffers: Box<[Arc<HeldBuffer>]>,
    pub tree: Arc<dyn Tree>,
    /// Cached records of the tree.
    pub records: KeyspaceRecords,
    /// How operands become values.
    pub full_merge: Arc<FullMerge>,
    /// The settings in force for the tree.
    pub options: Arc<StoredOptions>,
}
