//! The merge operators of a store, and how its keyspaces merge operands.

use testudo_base::{
    merge_operator::{FullMerge, MergeOperators},
    oversized_keys::OversizedKeys,
    sync::Arc,
};
use testudo_options::KeyspaceOptions;

/// The merge operators of a store, and the keys whose merged values are too long.
#[derive(Debug)]
pub struct Merging {
    pub operators: MergeOperators,
    /// Keys whose next operand is checked by reading the value.
    pub oversized_keys: Arc<OversizedKeys>,
}

impl Merging {
    /// `value_bytes_max`: length of the longest value that users may write.
    pub fn new(operators: MergeOperators, value_bytes_max: u64) -> Self {
        let oversized_keys = Arc::new(OversizedKeys::default());
        oversized_keys.set_value_bytes_max(value_bytes_max);
        Self { operators, oversized_keys }
    }

    /// The full merge of a keyspace with this name and these options.
    pub fn full_merge(&self, keyspace: &Arc<str>, options: &KeyspaceOptions) -> Arc<FullMerge> {
        let name = options.merge_operator_name();
        self.operators.full_merge_of_store(keyspace, name, &self.oversized_keys)
    }
}
