//! Keyspaces of an open store by name and by id.

use std::collections::BTreeMap;

use testudo_base::{KeyspaceId, sync::Arc};

use crate::{keyspace::KeyspaceCore, values::long_values::LONG_VALUES_KEYSPACE};

/// The keyspaces by name and by id.
#[derive(Debug, Default)]
pub struct Catalogue {
    pub by_name: BTreeMap<Arc<str>, Arc<KeyspaceCore>>,
    pub by_id: BTreeMap<KeyspaceId, Arc<KeyspaceCore>>,
}

impl Catalogue {
    /// The user keyspace of this name.
    pub fn of_users(&self, name: &str) -> Option<&Arc<KeyspaceCore>> {
        self.by_name.get(name).filter(|_| name != LONG_VALUES_KEYSPACE)
    }

    /// Names of all user keyspaces, sorted.
    pub fn names_of_users(&self) -> Vec<String> {
        debug_assert_eq!(self.by_name.len(), self.by_id.len(), "each keyspace has a name and an id");
        let names = self.by_name.keys().map(|name| name.as_ref().to_owned());
        names.filter(|name| name != LONG_VALUES_KEYSPACE).collect()
    }
}
