//! Any bytes as the objects of a store's trees, in an otherwise valid manifest.
//!
//! **Invariants**
//! - Same as [`crate::targets::open_directory`]: a store that opens can be used, or reports the reason if
//!   not.

use std::{path::Path, sync::Arc};

use testudo_base::{KeyspaceId, ObjectId};
use testudo_env::Env;
use testudo_storage::{Change, Manifest};

use crate::{
    base_store::{BaseStore, DIRECTORY, base_stores, open},
    exercise::{exercise, require_named},
    input::Input,
};

/// Maximum objects of one input.
const OBJECTS_MAX: usize = 32;

/// Runs the target.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let stores = base_stores();
    let store = &stores[usize::from(input.u8()) % stores.len()];
    let machine = store.machine(&store.files);
    let env = Arc::clone(&machine) as Arc<dyn Env>;
    let manifest = Manifest::open(env, Path::new(DIRECTORY), true).expect("the store is valid");
    let mut edit = Vec::new();
    while !input.is_empty() && edit.len() < OBJECTS_MAX {
        let (keyspace, object) = (KeyspaceId(input.u16().into()), ObjectId(input.u16().into()));
        edit.push(Change::PutObject(keyspace, object, input.chunk().to_vec()));
    }
    let outcome = manifest.commit(&edit);
    drop(manifest);
    if outcome.is_err() {
        return;
    }
    match open(Arc::clone(&machine)) {
        Ok(db) => exercise(&machine, db),
        Err(error) => require_named(&error),
    }
}

/// The objects of valid stores, all of a store together and one by one.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (number, store) in base_stores().iter().enumerate() {
        let start = vec![number.to_le_bytes()[0]];
        let mut all = start.clone();
        for object in objects_of(store) {
            seeds.push([start.clone(), object.clone()].concat());
            all.extend(object);
        }
        seeds.push(all);
    }
    seeds
}

/// The objects of a store, encoded as in an input.
fn objects_of(store: &BaseStore) -> Vec<Vec<u8>> {
    let env = store.machine(&store.files) as Arc<dyn Env>;
    let manifest = Manifest::open(env, Path::new(DIRECTORY), false).expect("the store is valid");
    let encode = |(&(keyspace, object), bytes): (&(KeyspaceId, ObjectId), &Arc<[u8]>)| {
        let mut out = keyspace.0.to_le_bytes()[..2].to_vec();
        out.extend_from_slice(&object.0.to_le_bytes()[..2]);
        out.extend_from_slice(&testudo_base::num::u32_of(bytes.len()).to_le_bytes());
        out.extend_from_slice(bytes);
        out
    };
    manifest.with_state(|state| state.objects.iter().map(encode).collect())
}
