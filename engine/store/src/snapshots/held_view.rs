//! A keyspace as those see it who hold a moment: snapshots, iterators, readers of values.
//!
//! All who hold the same published view share one of these.
//!
//! **Invariants**
//! - It never changes; what its buffers show at the seqno of a holder does neither.

use testudo_base::{merge_operator::FullMerge, sync::Arc};
use testudo_contract::Tree;
use testudo_options::StoredOptions;
use testudo_records::KeyspaceRecords;

use crate::snapshots::held_buffer::HeldBuffer;

/// The state of a keyspace at one moment, for those who hold it.
#[derive(Debug)]
pub struct HeldView {
    /// Newest first.
    pub buffers: Box<[Arc<HeldBuffer>]>,
    pub tree: Arc<dyn Tree>,
    /// Cached records of the tree.
    pub records: KeyspaceRecords,
    /// How operands become values.
    pub full_merge: Arc<FullMerge>,
    /// The settings that the tree goes by.
    pub options: Arc<StoredOptions>,
}
